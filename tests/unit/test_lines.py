"""What a person would read in one go on a screen."""

from __future__ import annotations

from distrl.lines import LONGEST_LINE, label_of, line_of, lines_of
from distrl.types import Bounds, UiElement


def text(said: str, left: float, top: float, *, width: float = 0.2, height: float = 0.04, about: str = "") -> UiElement:
    return UiElement(text=said, description=about, bounds=Bounds(left, top, left + width, top + height))


def test_a_label_is_read_with_what_stands_beside_it_from_left_to_right() -> None:
    row = (text("1.2 km", 0.7, 0.3), text("Distance", 0.1, 0.3), text("Elsewhere", 0.1, 0.6))
    assert line_of(row, 1) == line_of(row, 0) == "Distance 1.2 km"
    assert lines_of(row) == ["Distance 1.2 km", "Elsewhere"]


def test_a_label_that_stands_alone_is_read_with_what_is_right_below_it() -> None:
    card = (text("Feels like", 0.1, 0.3), text("21", 0.1, 0.35), text("Far below", 0.1, 0.6), text("Aside", 0.6, 0.35))
    assert line_of(card, 0) == "Feels like 21"
    assert line_of(card, 2) == "Far below"


def test_a_bar_of_buttons_a_long_text_and_an_icon_are_read_by_themselves() -> None:
    bar = tuple(text(str(number), 0.1 * number, 0.9, width=0.08) for number in range(6))
    assert [line_of(bar, number) for number in range(6)] == ["0", "1", "2", "3", "4", "5"]
    long = (text("a" * LONGEST_LINE, 0.1, 0.3), text("more", 0.5, 0.3))
    assert line_of(long, 0) == "a" * LONGEST_LINE
    icon = (text("", 0.1, 0.3, about="Search"), text("", 0.5, 0.5))
    assert (label_of(icon[0]), line_of(icon, 0), line_of(icon, 1)) == ("Search", "Search", "")


def test_what_is_said_twice_is_read_once() -> None:
    assert line_of((text("Rain", 0.1, 0.3), text("Rain", 0.5, 0.3)), 0) == "Rain"
