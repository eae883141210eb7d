"""What a person would read in one go on a screen: an element with what stands beside it, or right below it."""

from __future__ import annotations

from distrl.types import UiElement

LONGEST_LINE, MOST_BESIDE = 80, 3
"""Letters and elements of a line; of a longer one, which is a table or a bar of buttons, there is the label alone."""


def label_of(element: UiElement) -> str:
    """What an element says."""
    return element.text or element.description


def line_of(elements: tuple[UiElement, ...], number: int) -> str:
    """An element's label with those in the same line, from left to right; where there are none, with the one right below it."""
    own = elements[number]
    if not label_of(own):
        return ""
    said = [each for each in elements if each is own or (each.text and _is_beside(own, each))]
    if len(said) == 1 and (below := _below(elements, own)) is not None:
        said.append(below)
    else:
        said.sort(key=lambda each: each.bounds.left)
    words = " ".join(dict.fromkeys(label_of(each) for each in said))
    return words if len(words) <= LONGEST_LINE and len(said) <= MOST_BESIDE else label_of(own)


def lines_of(elements: tuple[UiElement, ...]) -> list[str]:
    """All lines of a screen, each once."""
    return list(dict.fromkeys(line for number in range(len(elements)) if (line := line_of(elements, number))))


def _is_beside(own: UiElement, other: UiElement) -> bool:
    one, two = own.bounds, other.bounds
    shared = min(one.bottom, two.bottom) - max(one.top, two.top)
    apart = one.right <= two.left + 0.01 or two.right <= one.left + 0.01
    return apart and shared > 0.5 * max(one.bottom - one.top, two.bottom - two.top)


def _below(elements: tuple[UiElement, ...], own: UiElement) -> UiElement | None:
    """The next text below in the same column, no further away than it is high."""
    box = own.bounds
    near = [
        each
        for each in elements
        if each.text and 0.0 <= each.bounds.top - box.bottom + 0.01 <= 1.5 * (box.bottom - box.top) + 0.01
        and min(box.right, each.bounds.right) > max(box.left, each.bounds.left)
    ]  # fmt: skip
    return min(near, key=lambda each: each.bounds.top, default=None)
