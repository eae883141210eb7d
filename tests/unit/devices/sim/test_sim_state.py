"""The phone's state: differences that can be applied again, and snapshots that nothing reaches any more."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.cli.episode import Agent, random_agent
from distrl.config.schema import FaultConfig, LatencyConfig, PerturbationConfig
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import Contents, PhoneState, Tables, apply, diff, drop, put
from distrl.devices.sim.world import HOME, start_state
from distrl.rollout.stepping import drive
from distrl.tasks.sim.suites import suite
from distrl.types import Action, Change, Finish, Task, UiElement, Wait

PERTURBED = PerturbationConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)

names = st.sampled_from(("a", "b", "c"))
values = st.sampled_from(("", "x", "y z", -1, 2, True, False, 0.5))
records = st.dictionaries(st.sampled_from(("on", "title", "price")), values, max_size=3)
tables = st.dictionaries(names, st.dictionaries(names, records, max_size=3), max_size=3)


def a_state(tables: Tables) -> PhoneState:
    return PhoneState(seed=0, tables=tables, stack=(HOME,))


def filled(state: PhoneState) -> Tables:
    """Its tables without the empty ones, which hold nothing that a difference could name."""
    return {name: rows for name, rows in state.tables.items() if rows}


# --- differences ----------------------------------------------------------------------------------------------------


@given(tables, tables)
@settings(max_examples=100, deadline=None)
def test_a_difference_applied_to_the_one_state_gives_the_other(before: Tables, after: Tables) -> None:
    one, other = a_state(before), a_state(after)
    assert filled(apply(one, diff(one, other))) == filled(other)
    assert filled(apply(other, diff(other, one))) == filled(one)


@given(tables, tables)
@settings(max_examples=50, deadline=None)
def test_a_difference_names_each_record_that_differs_once_and_no_other(before: Tables, after: Tables) -> None:
    changes = diff(a_state(before), a_state(after))
    places = [(change.table, change.id) for change in changes]
    assert len(places) == len(set(places))
    for change in changes:
        assert change.before == before.get(change.table, {}).get(change.id)
        assert change.after == after.get(change.table, {}).get(change.id)
        assert change.before != change.after


@given(tables)
@settings(max_examples=50, deadline=None)
def test_a_state_does_not_differ_from_its_like(content: Tables) -> None:
    assert diff(a_state(content), a_state(deepcopy(content))) == ()


@given(tables, tables)
@settings(max_examples=50, deadline=None)
def test_applying_changes_leaves_the_first_state_as_it_was(before: Tables, after: Tables) -> None:
    one, kept = a_state(before), deepcopy(before)
    apply(one, diff(one, a_state(after)))
    assert one.tables == kept


@given(tables, tables)
@settings(max_examples=50, deadline=None)
def test_a_difference_survives_the_wire(before: Tables, after: Tables) -> None:
    one, other = a_state(before), a_state(after)
    sent = msgspec.msgpack.encode(diff(one, other))
    received = msgspec.msgpack.decode(sent, type=tuple[Change, ...])
    assert filled(apply(one, received)) == filled(other)


@given(tables, tables)
@settings(max_examples=50, deadline=None)
def test_a_difference_comes_in_the_order_of_the_tables_and_of_their_records(before: Tables, after: Tables) -> None:
    places = [(change.table, change.id) for change in diff(a_state(before), a_state(after))]
    ordered = [(table, id) for table in {**before, **after} for id in {**before.get(table, {}), **after.get(table, {})}]
    assert places == [place for place in ordered if place in places]


def test_a_record_that_lost_a_field_has_lost_it_after_applying_too() -> None:
    before, after = a_state({"a": {"1": {"on": True, "title": "x"}}}), a_state({"a": {"1": {"on": True}}})
    assert apply(before, diff(before, after)).tables == after.tables


def test_writing_and_dropping_make_new_states_that_share_what_did_not_change() -> None:
    state = a_state({"a": {"1": {"on": True}, "2": {}}, "b": {"1": {"title": "x"}}})
    kept = deepcopy(state.tables)
    written, dropped = put(state, "a", "1", on=False), drop(state, "a", "2")
    assert written.tables["a"]["1"] == {"on": False}
    assert "2" not in dropped.tables["a"]
    assert state.tables == kept
    assert written.tables["b"] is dropped.tables["b"] is state.tables["b"]


# --- contents -------------------------------------------------------------------------------------------------------


@given(st.lists(tables, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_contents_have_the_same_number_exactly_where_they_do_not_differ(contents: list[Tables]) -> None:
    states = [a_state(content) for content in [*contents, *deepcopy(contents)]]
    counting = Contents(frozenset())
    numbers = [counting.number(state) for state in states]
    assert numbers[0] == 0
    for one, number in zip(states, numbers, strict=True):
        for other, other_number in zip(states, numbers, strict=True):
            assert (number == other_number) == (diff(one, other) == ())


def test_tables_that_change_by_mere_use_make_no_other_content() -> None:
    counting = Contents(frozenset({"history"}))
    states = [a_state({"a": {"1": {"on": True}}, "history": {str(visits): {}}}) for visits in range(3)]
    assert [counting.number(state) for state in states] == [0, 0, 0]
    assert counting.number(put(states[2], "a", "1", on=False)) == 1
    assert counting.number(states[1]) == 0


# --- snapshots ------------------------------------------------------------------------------------------------------


def a_task(number: int) -> Task:
    return suite("sim-general").task("train", number)


def wanderer(seed: int) -> Agent:
    """A random agent that never ends the episode."""
    agent = random_agent(Random(seed))

    def act(elements: tuple[UiElement, ...]) -> Action:
        action = agent(elements)
        return Wait() if isinstance(action, Finish) else action

    return act


def step(state: PhoneState, agent: Agent) -> PhoneState:
    screen = show(state)
    return perform(state, screen, agent(elements_of(screen, state.focus))).state


def wander(state: PhoneState, seed: int, steps: int = 25) -> list[PhoneState]:
    agent, states = wanderer(seed), [state]
    for _ in range(steps):
        states.append(step(states[-1], agent))
    return states


def written_down(state: PhoneState) -> bytes:
    """Everything about a state, so that a change in place cannot hide."""
    return msgspec.msgpack.encode(state)


@pytest.mark.parametrize("number", range(12))
def test_two_continuations_from_one_state_do_not_disturb_each_other(number: int) -> None:
    snapshot = wander(start_state(a_task(number), PERTURBED), seed=number)[-1]
    before = written_down(snapshot)
    alone = [[written_down(state) for state in wander(snapshot, seed)] for seed in (100, 200)]
    left, right = [snapshot], [snapshot]
    left_agent, right_agent = wanderer(100), wanderer(200)
    for _ in range(25):
        left.append(step(left[-1], left_agent))
        right.append(step(right[-1], right_agent))
    assert [list(map(written_down, path)) for path in (left, right)] == alone
    assert alone[0] != alone[1]
    assert written_down(snapshot) == before


@pytest.mark.parametrize("number", range(12))
def test_what_play_changed_can_be_applied_to_the_start(number: int) -> None:
    states = wander(start_state(a_task(number), PERTURBED), seed=number, steps=60)
    for later in states[::20]:
        assert filled(apply(states[0], diff(states[0], later))) == filled(later)


def a_phone() -> SimDevice:
    latency, faults = LatencyConfig(profile="instant"), FaultConfig()
    return SimDevice("phone-0", SimSettings(perturbations=PERTURBED, latency=latency, faults=faults))


def wander_on(phone: SimDevice, seed: int) -> bytes:
    """Let a random agent play on; how the phone stands afterwards, by its own account."""
    agent = wanderer(seed)
    for _ in range(20):
        drive(phone.perform(agent(drive(phone.capture(screenshot=False)).elements)))
    return msgspec.msgpack.encode(
        (phone.state, drive(phone.capture(screenshot=False)).elements, sorted(map(repr, diff_of(phone))))
    )


def diff_of(phone: SimDevice) -> tuple[Change, ...]:
    return drive(phone.end_state()).changes


def test_a_restored_phone_goes_on_as_if_nothing_had_happened_since() -> None:
    phone = a_phone()
    drive(phone.reset(a_task(3)))
    wander_on(phone, seed=1)
    snapshot = phone.state
    first = wander_on(phone, seed=2)
    phone.state = snapshot
    second = wander_on(phone, seed=3)
    phone.state = snapshot
    assert wander_on(phone, seed=2) == first != second


def test_a_clone_on_another_phone_leaves_the_first_one_alone() -> None:
    original, copy = a_phone(), a_phone()
    for phone in (original, copy):
        drive(phone.reset(a_task(4)))
    wander_on(original, seed=1)
    copy.state = original.state
    before = written_down(original.state)
    wander_on(copy, seed=2)
    assert written_down(original.state) == before
    assert written_down(copy.state) != before
