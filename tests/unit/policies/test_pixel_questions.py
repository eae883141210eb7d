"""Questions about screens: what they ask for is what is answered, in sight or not, and in training texts alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from distrl.pretraining.grounding.queries import FORMS, HIDDEN, QUESTIONS, Asker, Page, Question, names_of, wording_of
from distrl.tasks.sim.oracle import SCROLL_DOWN
from distrl.tasks.sim.templates import split_of
from distrl.types import Bounds, LongPress, Observation, Swipe, Tap, UiElement
from support.pages import some_pages

LONGEST = 64


def row(number: int, text: str, detail: str = "", *, kind: str = "person", checked: bool | None = None) -> UiElement:
    bounds = Bounds(0.0, number / 10, 1.0, (number + 1) / 10)
    return UiElement(
        bounds=bounds, text=text, description=detail, resource_id=f"{kind}:{number}", clickable=True, checked=checked
    )


def a_page(instruction: str, *elements: UiElement, touch: int = 0, hold: bool = False) -> Page:
    """A list of which a task touches one row."""
    centre = elements[touch].bounds.centre
    seen = Observation(instruction=instruction, elements=elements)
    return Page(observation=seen, action=LongPress(*centre) if hold else Tap(*centre), picture=b"", written=())


def asked(page: Page, *, times: int = 40) -> list[Question]:
    """Everything that is asked beside the next step, often enough that every chance comes."""
    asker = Asker(Random(0), longest=LONGEST)
    return [question for _ in range(times) for question in asker.about(page)[1:]]


def texts(page: Page) -> set[str]:
    return {seen.instruction for seen, _ in asked(page)}


def all_questions() -> Iterator[tuple[Page, list[Question]]]:
    asker = Asker(Random(1), longest=LONGEST)
    return ((page, asker.about(page)) for page in some_pages(160))


def test_the_first_question_is_what_to_do_next_and_all_are_about_the_same_screen() -> None:
    for page, questions in all_questions():
        assert questions[0] == (page.observation, page.action)
        assert len(questions) <= QUESTIONS
        for seen, _ in questions:
            assert replace(seen, instruction="") == replace(page.observation, instruction="")
            assert len(seen.instruction.encode()) <= LONGEST


def test_what_is_in_sight_is_touched_and_what_is_not_is_scrolled_for() -> None:
    scrolled = touched = 0
    for page, questions in all_questions():
        hidden = {name for names in page.hidden for name in names}
        for seen, action in questions[1:]:
            if isinstance(action, Swipe):
                scrolled += 1
                assert action == page.towards
                assert any(name in seen.instruction for name in hidden)
                assert not any(name in seen.instruction.split() for e in seen.elements for name in names_of(e))
            else:
                touched += 1
                assert isinstance(action, Tap | LongPress)
                hit = [element for element in seen.elements if element.bounds.contains(action.x, action.y)]
                assert any(name in seen.instruction for element in hit for name in names_of(element))
        assert sum(isinstance(action, Swipe) for _, action in questions[1:]) <= HIDDEN
    assert scrolled > 20
    assert touched > 200


def test_a_task_asks_in_its_own_words_for_other_things_of_the_kind_and_does_the_same_to_them() -> None:
    page = a_page("Silence Ann Lee now", row(0, "Ann Lee"), row(1, "Bo Kim"), row(2, "New", kind="button"), hold=True)
    own = {(seen.instruction, type(action)) for seen, action in asked(page) if seen.instruction.startswith("Silence")}
    assert own <= {("Silence Ann Lee now", LongPress), ("Silence Bo Kim now", LongPress)}
    assert [split_of(f"Silence {name} now") == "train" for name in ("Ann Lee", "Bo Kim")] == [
        (f"Silence {name} now", LongPress) in own for name in ("Ann Lee", "Bo Kim")
    ]
    assert {type(action) for seen, action in asked(page) if not seen.instruction.startswith("Silence")} == {Tap}


def test_words_that_would_make_a_text_of_another_split_are_not_used() -> None:
    names = [f"Name {chr(65 + n)}" for n in range(12)]
    allowed = {name for name in names if split_of(f"Call {name}") == "train"}
    assert 0 < len(allowed) < 12
    for start in range(0, 12, 6):
        page = a_page(f"Call {names[start]}", *(row(n, name) for n, name in enumerate(names[start : start + 6])))
        said = {text.removeprefix("Call ") for text in texts(page) if text.startswith("Call ")}
        assert said == allowed & set(names[start : start + 6])


def test_a_switch_that_is_already_so_is_not_asked_for_in_the_words_of_the_task() -> None:
    switches = [row(n, f"0{n}:45", checked=n % 2 == 0, kind="alarm") for n in range(6)]
    page = a_page("Disable the alarm at 00:45", *switches)
    said = {text for text in texts(page) if text.startswith("Disable")}
    assert said
    assert not any(f"0{n}:45" in text for n in (1, 3, 5) for text in said)


def test_a_name_in_the_second_line_is_replaced_by_one_of_the_second_line() -> None:
    page = a_page("Open the mail from Bo Kim", row(0, "Hello", "Bo Kim"), row(1, "Invoice", "Ann Lee"), row(2, "Lone"))
    wording = wording_of(page)
    assert wording is not None
    assert (wording.before, wording.after, wording.place) == ("Open the mail from ", "", 1)
    said = {text for text in texts(page) if text.startswith("Open the mail")}
    assert said <= {"Open the mail from Bo Kim", "Open the mail from Ann Lee"}


def test_what_a_task_scrolls_for_is_asked_for_in_its_words() -> None:
    page = a_page("Call Zoe Yap", row(0, "Ann Lee"), row(1, "Bo Kim"))
    names = tuple((f"Zed {chr(65 + n)}",) for n in range(8))
    page = replace(page, action=SCROLL_DOWN, hidden=(("Zoe Yap",), *names))
    said = {seen.instruction: action for seen, action in asked(page) if seen.instruction.startswith("Call ")}
    assert len(said) > 2
    assert set(said.values()) == {SCROLL_DOWN}
    assert not {"Call Ann Lee", "Call Bo Kim"} & said.keys()


def test_a_name_that_two_things_have_is_not_asked_for() -> None:
    page = a_page("Go", row(0, "Twin"), row(1, "Twin"), row(2, "Alone"))
    assert texts(replace(page, action=SCROLL_DOWN, hidden=(("Alone too",),))) <= {
        form.format(name) for form in FORMS for name in ("Alone", "Alone too")
    }
    assert not any("Alone" in text for text in texts(replace(page, hidden=(("Alone",),))))
