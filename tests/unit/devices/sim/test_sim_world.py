"""The first state of a phone: its content, a task's set-up and the screen that it begins on."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.phone import view_of
from distrl.devices.sim.state import next_id
from distrl.devices.sim.world import (
    HOME,
    content,
    other_names,
    phone_names,
    renamed_content,
    start_state,
    training_words,
)
from distrl.errors import TaskError
from support.sims import named_otherwise, sim_task, with_record, without_record


def test_a_phone_begins_on_its_home_screen() -> None:
    state = start_state(sim_task())
    assert state.stack == (HOME,)
    assert (state.tick, state.focus, state.loading, state.claim) == (0, "", 0, None)


def test_a_task_may_begin_elsewhere_with_the_home_screen_below() -> None:
    state = start_state(sim_task("notes", "note", id="n1"))
    assert [(place.app, place.screen) for place in state.stack] == [("launcher", "home"), ("notes", "note")]
    assert state.place.args == {"id": "n1"}


def test_a_screen_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(TaskError, match="unknown screen notes/nte") as caught:
        start_state(sim_task("notes", "nte"))
    assert "note" in str(caught.value)


def test_content_is_a_function_of_the_phone_and_the_split() -> None:
    assert content(3, held_out=False) == content(3, held_out=False)
    assert content(3, held_out=False) != content(4, held_out=False)
    assert content(3, held_out=False) != content(3, held_out=True)
    assert start_state(sim_task(split="test")).tables == content(7, held_out=True)
    assert start_state(sim_task(split="tune")).tables == content(7, held_out=False)


def test_the_perturbation_seed_leaves_the_content_alone() -> None:
    assert start_state(sim_task(seed=1)).tables == start_state(sim_task(seed=2)).tables


def test_every_app_brings_tables_of_its_own_name() -> None:
    owners = {table.split(".")[0] for table in content(0, held_out=False)}
    assert owners == {*APPS} | {"kiosko", "northmart"}


def test_records_hold_plain_values_alone() -> None:
    for table, records in content(5, held_out=False).items():
        for id, record in records.items():
            assert isinstance(id, str)
            assert all(isinstance(value, str | int | float | bool) for value in record.values()), (table, id)


def test_a_set_up_adds_changes_and_removes_records() -> None:
    plain = start_state(sim_task()).tables["notes.note"]
    first, second = list(plain)[:2]
    task = with_record(sim_task(), "notes.note", first, pinned=True)
    task = without_record(with_record(task, "notes.note", "new", title="Tea"), "notes.note", second)
    notes = start_state(task).tables["notes.note"]
    assert notes[first] == {**plain[first], "pinned": True}
    assert notes["new"] == {"title": "Tea"}
    assert second not in notes
    assert start_state(sim_task()).tables["notes.note"] == plain, "other tasks on the same phone are not touched"


def test_removing_what_is_not_there_is_no_error() -> None:
    assert start_state(without_record(sim_task(), "notes.note", "none")).tables == start_state(sim_task()).tables


def test_another_number_brings_other_names_to_the_same_phone() -> None:
    task = sim_task()
    renamed = start_state(named_otherwise(task, 1030)).tables
    assert renamed == renamed_content(7, 1030, held_out=False)
    assert renamed.keys() == content(7, held_out=False).keys()
    people = {person["name"] for person in renamed["contacts.person"].values()}
    assert not people & set(phone_names(7, held_out=False).names)


def test_other_names_stand_for_all_names_of_the_phone() -> None:
    own, other = phone_names(7, held_out=False), other_names(7, 1030, held_out=False)
    assert other.names.keys() == set(own.names)
    assert other.times.keys() == set(own.times)


def test_training_words_are_in_small_letters_and_in_order() -> None:
    words = training_words()
    assert list(words) == sorted(set(words))
    assert all(word == word.casefold() for word in words)


@pytest.mark.parametrize("place", [place for place in SCREENS if place[1] == "home"], ids="/".join)
def test_every_first_screen_can_be_shown_on_many_phones(place: tuple[str, str]) -> None:
    if place[0] == "launcher":
        assert view_of(start_state(sim_task())).body
        return
    for phone in range(0, 300, 30):
        assert view_of(start_state(sim_task(*place, phone=phone))).title


def test_a_new_id_is_one_that_no_record_has() -> None:
    assert next_id({}, "n") == "n1"
    assert next_id({"n1": {}, "n2": {}}, "n") == "n3"
    assert next_id({"n2": {}}, "n") == "n3"
    assert next_id({"a": {}, "n4": {}, "n5": {}}, "n") == "n6"
