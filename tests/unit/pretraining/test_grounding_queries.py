"""Grounding queries: what they name is what their action reaches, visible or not, and in training texts alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from distrl.pretraining.grounding.queries import (
    FORMS,
    MAX_HIDDEN,
    MAX_QUERIES,
    AnnotatedScreen,
    GroundingQuery,
    QueryMaker,
    names_of,
    wording_of,
)
from distrl.tasks.sim.oracle import SCROLL_DOWN
from distrl.tasks.sim.templates import split_of
from distrl.types import Bounds, LongPress, Observation, Swipe, Tap, UiElement
from support.grounding import some_screens

LONGEST = 64


def row(number: int, text: str, detail: str = "", *, kind: str = "person", checked: bool | None = None) -> UiElement:
    bounds = Bounds(0.0, number / 10, 1.0, (number + 1) / 10)
    return UiElement(
        bounds=bounds, text=text, description=detail, resource_id=f"{kind}:{number}", clickable=True, checked=checked
    )


def a_screen(instruction: str, *elements: UiElement, touch: int = 0, hold: bool = False) -> AnnotatedScreen:
    """A list of which a task touches one row."""
    centre = elements[touch].bounds.centre
    seen = Observation(instruction=instruction, elements=elements)
    return AnnotatedScreen(observation=seen, action=LongPress(*centre) if hold else Tap(*centre), frame=b"", written=())


def queries_about(screen: AnnotatedScreen, *, times: int = 40) -> list[GroundingQuery]:
    """All queries beside the next step, drawn often enough that every random case occurs."""
    maker = QueryMaker(Random(0), longest=LONGEST)
    return [query for _ in range(times) for query in maker.make(screen)[1:]]


def texts(screen: AnnotatedScreen) -> set[str]:
    return {seen.instruction for seen, _ in queries_about(screen)}


def all_queries() -> Iterator[tuple[AnnotatedScreen, list[GroundingQuery]]]:
    maker = QueryMaker(Random(1), longest=LONGEST)
    return ((screen, maker.make(screen)) for screen in some_screens(160))


def test_the_first_query_is_what_to_do_next_and_all_are_about_the_same_screen() -> None:
    for screen, queries in all_queries():
        assert queries[0] == (screen.observation, screen.action)
        assert len(queries) <= MAX_QUERIES
        for seen, _ in queries:
            assert replace(seen, instruction="") == replace(screen.observation, instruction="")
            assert len(seen.instruction.encode()) <= LONGEST


def test_visible_things_are_tapped_and_hidden_ones_scrolled_for() -> None:
    scrolled = touched = 0
    for screen, queries in all_queries():
        hidden = {name for names in screen.hidden for name in names}
        for seen, action in queries[1:]:
            if isinstance(action, Swipe):
                scrolled += 1
                assert action == screen.towards
                assert any(name in seen.instruction for name in hidden)
                assert not any(name in seen.instruction.split() for e in seen.elements for name in names_of(e))
            else:
                touched += 1
                assert isinstance(action, Tap | LongPress)
                hit = [element for element in seen.elements if element.bounds.contains(action.x, action.y)]
                assert any(name in seen.instruction for element in hit for name in names_of(element))
        assert sum(isinstance(action, Swipe) for _, action in queries[1:]) <= MAX_HIDDEN
    assert scrolled > 20
    assert touched > 200


def test_a_task_asks_in_its_own_words_for_other_things_of_the_kind_and_does_the_same_to_them() -> None:
    screen = a_screen(
        "Silence Ann Lee now", row(0, "Ann Lee"), row(1, "Bo Kim"), row(2, "New", kind="button"), hold=True
    )
    own = {
        (seen.instruction, type(action))
        for seen, action in queries_about(screen)
        if seen.instruction.startswith("Silence")
    }
    assert own <= {("Silence Ann Lee now", LongPress), ("Silence Bo Kim now", LongPress)}
    assert [split_of(f"Silence {name} now") == "train" for name in ("Ann Lee", "Bo Kim")] == [
        (f"Silence {name} now", LongPress) in own for name in ("Ann Lee", "Bo Kim")
    ]
    assert {type(action) for seen, action in queries_about(screen) if not seen.instruction.startswith("Silence")} == {
        Tap
    }


def test_words_that_would_make_a_text_of_another_split_are_not_used() -> None:
    names = [f"Name {chr(65 + n)}" for n in range(12)]
    allowed = {name for name in names if split_of(f"Call {name}") == "train"}
    assert 0 < len(allowed) < 12
    for start in range(0, 12, 6):
        screen = a_screen(f"Call {names[start]}", *(row(n, name) for n, name in enumerate(names[start : start + 6])))
        said = {text.removeprefix("Call ") for text in texts(screen) if text.startswith("Call ")}
        assert said == allowed & set(names[start : start + 6])


def test_a_switch_that_is_already_so_is_not_asked_for_in_the_words_of_the_task() -> None:
    switches = [row(n, f"0{n}:45", checked=n % 2 == 0, kind="alarm") for n in range(6)]
    screen = a_screen("Disable the alarm at 00:45", *switches)
    said = {text for text in texts(screen) if text.startswith("Disable")}
    assert said
    assert not any(f"0{n}:45" in text for n in (1, 3, 5) for text in said)


def test_a_name_in_the_second_line_is_replaced_by_one_of_the_second_line() -> None:
    screen = a_screen(
        "Open the mail from Bo Kim", row(0, "Hello", "Bo Kim"), row(1, "Invoice", "Ann Lee"), row(2, "Lone")
    )
    wording = wording_of(screen)
    assert wording is not None
    assert (wording.before, wording.after, wording.place) == ("Open the mail from ", "", 1)
    said = {text for text in texts(screen) if text.startswith("Open the mail")}
    assert said <= {"Open the mail from Bo Kim", "Open the mail from Ann Lee"}


def test_what_a_task_scrolls_for_is_asked_for_in_its_words() -> None:
    screen = a_screen("Call Zoe Yap", row(0, "Ann Lee"), row(1, "Bo Kim"))
    names = tuple((f"Zed {chr(65 + n)}",) for n in range(8))
    screen = replace(screen, action=SCROLL_DOWN, hidden=(("Zoe Yap",), *names))
    said = {seen.instruction: action for seen, action in queries_about(screen) if seen.instruction.startswith("Call ")}
    assert len(said) > 2
    assert set(said.values()) == {SCROLL_DOWN}
    assert not {"Call Ann Lee", "Call Bo Kim"} & said.keys()


def test_a_name_that_two_things_have_is_not_asked_for() -> None:
    screen = a_screen("Go", row(0, "Twin"), row(1, "Twin"), row(2, "Alone"))
    assert texts(replace(screen, action=SCROLL_DOWN, hidden=(("Alone too",),))) <= {
        form.format(name) for form in FORMS for name in ("Alone", "Alone too")
    }
    assert not any("Alone" in text for text in texts(replace(screen, hidden=(("Alone",),))))
