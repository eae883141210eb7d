"""The brief dialect points by number where it can."""

from __future__ import annotations

import pytest

from distrl.policies.dialects import dialect
from distrl.policies.dialects.base import Screen
from distrl.types import Bounds, Finish, LongPress, Tap, UiElement, Unparsed

WIFI = UiElement(bounds=Bounds(0.0, 0.0, 1.0, 0.1), text="Wi-Fi", class_name="Switch")
BACK = UiElement(bounds=Bounds(0.0, 0.1, 0.2, 0.23333), text="Back", class_name="Button")
SCREEN = Screen(width=1080, height=2400, elements=(WIFI, BACK))
BRIEF = dialect("brief")


def test_the_middle_of_an_element_is_its_number_and_any_other_point_is_a_point() -> None:
    assert BRIEF.print(Tap(*WIFI.bounds.centre), SCREEN) == "tap 0"
    assert BRIEF.print(LongPress(*BACK.bounds.centre), SCREEN) == "hold 1"
    assert BRIEF.print(Tap(0.5, 0.06), SCREEN) == "tap 0.5 0.06"


def test_a_number_is_the_middle_of_its_element_exactly() -> None:
    assert BRIEF.parse("tap 1", SCREEN) == Tap(*BACK.bounds.centre)
    assert BRIEF.parse("hold 0", SCREEN) == LongPress(*WIFI.bounds.centre)


@pytest.mark.parametrize(
    "said", ["tap 2", "tap -1", "tap one", "tap", "tap 0.5", "tap 1.5 0.5", "Tap 1", "done 5", "type hi"]
)
def test_what_names_nothing_on_the_screen_or_is_said_otherwise_is_no_action(said: str) -> None:
    assert BRIEF.parse(said, SCREEN) == Unparsed(said)


def test_an_answer_is_quoted() -> None:
    assert BRIEF.print(Finish(answer='the "red" one'), SCREEN) == 'done "the \\"red\\" one"'
    assert BRIEF.parse('done "7 km"', SCREEN) == Finish(answer="7 km")
