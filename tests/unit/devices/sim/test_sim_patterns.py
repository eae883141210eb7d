"""UI patterns that apps share: facts, prompts, tabs, search, questions and choices."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.devices.sim.app import Ui, erase
from distrl.devices.sim.patterns import confirm, facts, fill, hits, options, or_none, prompt, tabs, typed
from distrl.devices.sim.state import Perturbations, PhoneState, Place, put
from distrl.devices.sim.widgets import View, Widget, label
from distrl.devices.sim.world import HOME

FORM = Place(app="notes", screen="edit")
DIALOG = Place(app="notes", screen="delete")


def a_phone(*places: Place, variant: int = 0) -> PhoneState:
    tables = {"lamp": {"desk": {"on": True}}}
    return PhoneState(seed=1, tables=tables, stack=(HOME, *places), perturbations=Perturbations(variant=variant))


def ui_of(state: PhoneState) -> Ui:
    return Ui(state, state.place)


def tapped(view: View, id: str, state: PhoneState) -> PhoneState:
    (widget,) = (widget for widget in view.body if widget.id == id)
    assert widget.tap is not None
    return widget.tap(state)


def test_facts_are_headings_with_their_values_alone_in_labels() -> None:
    shown = facts(("size", "Size", 12), ("kind", "Kind", "PDF"))
    assert [(widget.kind, widget.id, widget.text) for widget in shown] == [
        ("heading", "size:title", "Size"),
        ("label", "size", "12"),
        ("heading", "kind:title", "Kind"),
        ("label", "kind", "PDF"),
    ]


@pytest.mark.parametrize(("drafts", "then"), [({"q": "tea"}, "tea"), ({"q": "  tea "}, "tea")])
def test_what_was_typed_is_passed_on_without_spaces_around_it(drafts: dict[str, str], then: str) -> None:
    said = list[str]()

    def note_down(state: PhoneState, text: str) -> PhoneState:
        said.append(text)
        return state

    typed("q", note_down)(a_phone(replace(FORM, drafts=drafts)))
    assert said == [then]


@pytest.mark.parametrize("drafts", [{}, {"q": ""}, {"q": "   "}, {"other": "tea"}])
def test_nothing_happens_while_nothing_is_typed(drafts: dict[str, str]) -> None:
    state = a_phone(replace(FORM, drafts=drafts))
    assert typed("q", lambda state, text: put(state, "lamp", text, on=True))(state) is state


def test_a_prompt_does_something_with_a_name_and_closes() -> None:
    state = a_phone(FORM, replace(DIALOG, drafts={"name": "Floor"}))
    view = prompt(ui_of(state), "Which lamp?", "", lambda state, text: put(state, "lamp", text, on=False))
    after = tapped(view, "name:save", state)
    assert after.tables["lamp"]["Floor"] == {"on": False}
    assert after.place == FORM
    (field,) = (widget for widget in view.body if widget.kind == "field")
    assert field.submit is not None
    assert field.submit(state) == after, "Enter does the same"


def test_tabs_mark_where_one_is_and_replace_each_other() -> None:
    bar = tabs("music", "albums", (("home", "Songs", "music"), ("albums", "Albums", "disc")))
    assert [(tab.id, tab.text, tab.checked) for tab in bar] == [
        ("tab:home", "Songs", False),
        ("tab:albums", "Albums", True),
    ]
    assert bar[1].tap is not None
    after = bar[1].tap(a_phone(FORM))
    assert [place.screen for place in after.stack] == ["home", "albums"]


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("Bread recipe", "bread", True),
        ("Bread recipe", "D RE", True),
        ("Bread", "bread recipe", False),
        ("Tea", "", True),
    ],
)
def test_a_search_finds_parts_whatever_the_case(text: str, query: str, found: bool) -> None:
    assert hits(text, query) is found


def test_an_empty_list_says_so_in_the_phones_words() -> None:
    words = set()
    for variant in range(3):
        (nothing,) = or_none(ui_of(a_phone(FORM, variant=variant)), ())
        assert nothing.id == "nothing"
        words.add(nothing.text)
    assert len(words) == 3
    one = label("one", "One")
    assert or_none(ui_of(a_phone(FORM)), [one]) == (one,)


def test_a_question_does_it_or_leaves_it() -> None:
    state = a_phone(FORM, DIALOG)
    view = confirm(ui_of(state), "Delete the lamp?", yes="Delete", effect=erase("lamp", "desk"))
    assert (view.shape, view.title) == ("dialog", "Delete the lamp?")
    assert tapped(view, "confirm:yes", state).tables["lamp"] == {}
    refused = tapped(view, "confirm:no", state)
    assert refused.tables == state.tables
    assert refused.place == FORM


def test_the_buttons_of_a_question_stand_in_the_phones_order() -> None:
    def order(variant: int) -> list[str]:
        state = a_phone(FORM, DIALOG, variant=variant)
        return [widget.id for widget in confirm(ui_of(state), "?", yes="Yes", effect=erase("lamp", "desk")).body]

    assert order(0) == ["confirm:yes", "confirm:no"]
    assert order(1) == ["confirm:no", "confirm:yes"]


def test_a_choice_fills_in_a_field_of_the_screen_below() -> None:
    state = a_phone(replace(FORM, drafts={"title": "Tea"}), DIALOG)
    shown = options("day", ("Monday", "Tuesday"), "Tuesday")
    assert [(widget.id, widget.checked) for widget in shown] == [("option:Monday", False), ("option:Tuesday", True)]
    assert shown[0].tap is not None
    after = shown[0].tap(state)
    assert after.place == replace(FORM, drafts={"title": "Tea", "day": "Monday"})


def test_filling_in_replaces_what_stood_there() -> None:
    state = fill("title", "Coffee")(a_phone(replace(FORM, drafts={"title": "Tea", "text": "hot"})))
    assert state.place.drafts == {"title": "Coffee", "text": "hot"}


def test_widgets_of_patterns_are_frozen() -> None:
    (widget, _) = facts(("size", "Size", 1))
    assert isinstance(widget, Widget)
    with pytest.raises(AttributeError):
        widget.text = "other"  # type: ignore[misc]
