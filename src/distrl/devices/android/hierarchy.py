"""From the XML of `uiautomator dump` to UI elements.

Reported is what a person could name or touch: nodes with text or a description, and nodes that can be tapped, ticked,
scrolled or typed into. Android often makes a whole row clickable and puts its words into children that are not: such a
row takes the words of those children, and they are not reported again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import msgspec

from distrl.types import Bounds, UiElement

CORNERS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """What the window in front holds."""

    elements: tuple[UiElement, ...]
    package: str
    """The app that the window belongs to."""
    width_px: int
    height_px: int
    """The lower right corner of all that is there: the size of the screen, as far as the window fills it."""


class NoHierarchy(ValueError):
    """The dump is empty, cut off or no hierarchy at all."""


def parse(text: bytes, size: tuple[int, int] | None = None) -> Hierarchy:
    """The elements of a dump, placed on a screen of `size`; `NoHierarchy` where there is none."""
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise NoHierarchy("the dump declares entities, which no hierarchy does")
    begin, end = text.find(b"<?xml"), text.rfind(b"</hierarchy>")
    if begin < 0 or end < 0:
        raise NoHierarchy(f"no hierarchy in {text[:80]!r}")
    try:
        # Safe without defusedxml: what declares entities was refused above.
        tree = ElementTree.fromstring(text[begin : end + len(b"</hierarchy>")])  # noqa: S314
    except ElementTree.ParseError as error:
        raise NoHierarchy(f"the hierarchy is damaged: {error}") from None
    nodes = list(tree.iter("node"))
    if not nodes:
        raise NoHierarchy("the hierarchy is empty")
    boxes = [box for box in map(_corners, nodes) if box]
    width, height = size or (max((box[2] for box in boxes), default=0), max((box[3] for box in boxes), default=0))
    if width <= 0 or height <= 0:
        raise NoHierarchy("the hierarchy has no size")
    try:
        elements = tuple(element for root in tree for element in _elements(root, (width, height)))
    except RecursionError:  # a page in an app may nest as deep as it likes
        raise NoHierarchy("the hierarchy is nested too deep") from None
    return Hierarchy(elements=elements, package=nodes[0].get("package", ""), width_px=width, height_px=height)


def _elements(node: ElementTree.Element, size: tuple[int, int]) -> Iterator[UiElement]:
    """What a node and those below it come to, in their order."""
    absorbed = _is_row(node)
    if (element := _element(node, size, _words_below(node) if absorbed else "")) is not None:
        yield element
    for child in node:
        for found in _elements(child, size):
            if not absorbed or _is_touchable(found):
                yield found


def _is_row(node: ElementTree.Element) -> bool:
    """Whether a node can be tapped, says nothing itself and has something below it that may."""
    return _is(node, "clickable") and not (node.get("text") or node.get("content-desc")) and len(node) > 0


def _is_touchable(element: UiElement) -> bool:
    return element.clickable or element.scrollable or element.checked is not None or element.class_name == "EditText"


def _words_below(node: ElementTree.Element) -> str:
    """The words of a row, without those of what can be tapped by itself."""
    words: list[str] = []
    for child in node:
        if _is(child, "clickable"):
            continue
        words += [child.get("text") or child.get("content-desc") or "", _words_below(child)]
    return " ".join(word for word in words if word)


def _element(node: ElementTree.Element, size: tuple[int, int], words: str) -> UiElement | None:
    text, description = node.get("text", "") or words, node.get("content-desc", "")
    checkable, clickable = _is(node, "checkable"), _is(node, "clickable") or _is(node, "long-clickable")
    kind = node.get("class", "").rpartition(".")[2] or "View"
    bounds = _bounds(node, size)
    useful = text or description or clickable or checkable or _is(node, "scrollable") or kind == "EditText"
    if not useful or bounds is None:
        return None
    return UiElement(
        bounds=bounds,
        text=text,
        description=description,
        class_name=kind,
        resource_id=node.get("resource-id", "").partition(":id/")[2] or node.get("resource-id", ""),
        clickable=clickable,
        scrollable=_is(node, "scrollable"),
        checked=_is(node, "checked") if checkable else None,
        focused=_is(node, "focused"),
        enabled=node.get("enabled") != "false",
    )


def _bounds(node: ElementTree.Element, size: tuple[int, int]) -> Bounds | None:
    """Where a node is, cut off at the edges of the screen; None: nowhere on it."""
    box, (width, height) = _corners(node), size
    if box is None:
        return None
    left, right = max(0, box[0]) / width, min(width, box[2]) / width
    top, bottom = max(0, box[1]) / height, min(height, box[3]) / height
    return Bounds(round(left, 4), round(top, 4), round(right, 4), round(bottom, 4)) if left < right and top < bottom else None  # fmt: skip


def _corners(node: ElementTree.Element) -> tuple[int, int, int, int] | None:
    found = CORNERS.fullmatch(node.get("bounds", ""))
    return (int(found[1]), int(found[2]), int(found[3]), int(found[4])) if found else None


def _is(node: ElementTree.Element, name: str) -> bool:
    return node.get(name) == "true"
