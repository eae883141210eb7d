"""The no-op filter: never the claim, never what had an effect, and always all of a loop."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.experience.noop import noop_steps
from distrl.tasks.sim.oracle import Oracle
from distrl.tasks.sim.templates import open_app, tap
from distrl.types import (
    Action,
    Bounds,
    Decision,
    Ending,
    Finish,
    Move,
    Observation,
    Past,
    SimRoute,
    Step,
    Tap,
    Trajectory,
    UiElement,
    Wait,
)
from support.rollouts import a_task
from support.strays import play_as
from support.trajectories import make_trajectory

LOADING = (UiElement(bounds=Bounds(0.0, 0.0, 1.0, 1.0), text="Loading…", class_name="ProgressBar"),)


class StepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A step by what it began on; what follows decides whether it changed anything."""

    screen: str
    content: int = 0
    """Before the step."""
    valid: bool = True
    action: Action = Tap(0.5, 0.5)


def elements(screen: str) -> tuple[UiElement, ...]:
    if screen == "…":
        return LOADING
    return (UiElement(bounds=Bounds(0.0, 0.0, 1.0, 1.0), text=screen, clickable=True),)


def episode(specs: Sequence[StepSpec], *, last: str | None = None, knows_content: bool = True) -> Trajectory:
    """An episode through these steps; `last` is the screen after an episode that was cut off."""
    after = [*specs[1:], StepSpec(screen=last or specs[-1].screen, content=specs[-1].content)]
    steps = tuple(
        Step(
            observation=Observation(
                instruction="Do it", elements=elements(now.screen), recent=(Past(action=Tap(0.1, 0.1), target=str(t)),)
            ),
            decision=Decision(action=now.action, choice=(0, 0, 0), logp=0.0, entropy=0.0, value=0.0),
            version=0,
            valid=now.valid,
            changed=now.screen != then.screen,
            content=then.content if knows_content else None,
        )
        for t, (now, then) in enumerate(zip(specs, after, strict=True))
    )
    end = None if last is None else Observation(instruction="Do it", elements=elements(last))
    ending = Ending.FINISHED if last is None else Ending.STEP_LIMIT
    return replace(make_trajectory(), steps=steps, last=end, ending=ending)


def walk(path: str, **options: bool) -> Trajectory:
    """One letter per screen; the content never changes, and the last step is a claim."""
    specs = [StepSpec(screen=screen) for screen in path]
    return episode([*specs[:-1], replace(specs[-1], action=Finish())], **options)  # type: ignore[arg-type]


def marks(trajectory: Trajectory) -> str:
    """A cross for each no-op step, a point for each other one."""
    return "".join("x" if noop else "." for noop in noop_steps(trajectory))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("A", "."),
        ("ABCD", "...."),
        ("ABAC", "xx.."),
        ("AABC", "x..."),
        ("ABCBD", ".xx.."),
        ("ABCABD", "xxx..."),
        ("ABCBADA", "xxxxxx."),
        ("ABABABC", "xxxx..."),
        ("ABCDBECF", ".xxx...."),
    ],
)
def test_loops_are_no_ops_and_the_way_is_left(path: str, expected: str) -> None:
    assert marks(walk(path)) == expected


def test_what_the_device_refused_is_a_no_op() -> None:
    refused = episode(
        [
            StepSpec(screen="A"),
            StepSpec(screen="B", valid=False),
            StepSpec(screen="C"),
            StepSpec(screen="D"),
        ]
    )
    assert marks(refused) == ".x.."


def test_a_toggle_that_was_switched_back_is_undone_and_one_that_stays_is_not() -> None:
    off, on = StepSpec(screen="off", content=0), StepSpec(screen="on", content=1)
    assert marks(episode([off, on, off, on])) == "xx.."
    assert marks(episode([off, on])) == ".."


def test_a_way_back_to_the_same_screen_is_no_loop_where_something_was_done_meanwhile() -> None:
    call = [StepSpec(screen="A"), StepSpec(screen="calling", content=1), StepSpec(screen="A", content=1)]
    assert marks(episode(call)) == "..."
    called_twice = [*call, StepSpec(screen="B", content=1), StepSpec(screen="A", content=1)]
    assert marks(episode(called_twice)) == "..xx."


def test_what_changed_the_content_was_of_effect_though_the_screen_did_not_show_it() -> None:
    assert (
        marks(episode([StepSpec(screen="A"), StepSpec(screen="A", content=1), StepSpec(screen="A", content=1)]))
        == ".x."
    )


def test_waiting_for_a_screen_to_load_is_no_no_op_and_waiting_for_nothing_is() -> None:
    wait = Wait()
    loading = [StepSpec(screen="…", action=wait), StepSpec(screen="…", action=wait), StepSpec(screen="B")]
    assert marks(episode([StepSpec(screen="A"), *loading])) == "...."
    assert marks(episode([StepSpec(screen="A", action=wait), StepSpec(screen="A"), StepSpec(screen="B")])) == "x.."
    assert marks(episode([StepSpec(screen="…"), StepSpec(screen="…"), StepSpec(screen="B")])) == "x..", (
        "a tap without effect"
    )


def test_two_screens_that_are_still_loading_are_not_the_same_place() -> None:
    assert marks(walk("A…B…C")) == "....."


def test_without_knowing_the_content_only_what_was_refused_or_had_no_effect_is_a_no_op() -> None:
    assert marks(walk("ABACCD", knows_content=False)) == "...x.."


def test_instruction_and_history_do_not_make_another_screen() -> None:
    played = walk("ABAC")
    other = replace(played.steps[2].observation, instruction="Something else", recent=())
    steps = (*played.steps[:2], replace(played.steps[2], observation=other), played.steps[3])
    assert marks(replace(played, steps=steps)) == "xx.."


def test_pictures_tell_screens_apart_where_there_are_no_elements() -> None:
    played = walk("ABAC")
    steps = tuple(
        replace(step, observation=Observation(instruction="Do it", screenshot=f"sha256:{name}"))
        for step, name in zip(played.steps, "abac", strict=True)
    )
    assert marks(replace(played, steps=steps)) == "xx.."


def test_of_an_episode_that_was_cut_off_the_last_step_may_be_a_no_op_too() -> None:
    specs = [StepSpec(screen="A"), StepSpec(screen="B")]
    assert marks(episode(specs, last="C")) == ".."
    assert marks(episode(specs, last="B")) == ".x"
    assert marks(episode(specs, last="A")) == "xx"


specs = st.lists(
    st.builds(
        StepSpec,
        screen=st.sampled_from("ABCD…"),
        content=st.sampled_from((0, 0, 0, 1)),
        valid=st.booleans(),
        action=st.sampled_from((Tap(0.5, 0.5), Wait())),
    ),
    min_size=1,
    max_size=12,
)


@given(specs, st.booleans())
def test_the_claim_is_never_a_no_op_and_what_is_left_meets_no_place_twice(path: list[StepSpec], knows: bool) -> None:
    path[0] = replace(path[0], content=0)
    noop = noop_steps(episode(path, knows_content=knows))
    assert len(noop) == len(path)
    assert not noop[-1]
    left = [
        (now.screen, now.content) for now, masked in zip(path, noop, strict=True) if not masked and now.screen != "…"
    ]
    if knows and path[-1].valid:
        assert len(left) == len(set(left))
    assert all(masked or now.valid for now, masked in zip(path[:-1], noop[:-1], strict=True))


@given(st.permutations("ABCDEFGH"))
def test_a_straight_way_is_left_whole(path: list[str]) -> None:
    assert not noop_steps(walk("".join(path))).any()


def test_a_real_loop_on_a_phone_is_a_no_op_and_what_was_done_there_is_not() -> None:
    task = replace(a_task(), max_steps=40)
    there = (open_app("settings"), tap("section:network"))
    away = (Move(verb="back"), Move(verb="back"))
    end = Move(verb="finish", target="complete")
    looked = play_as(task, Oracle(replace(task, solution=SimRoute(moves=(*there, *away, open_app("notes"), end)))).act)
    assert marks(looked) == "xxxx.."
    switched = play_as(
        task, Oracle(replace(task, solution=SimRoute(moves=(*there, tap("wifi"), *away, open_app("notes"), end)))).act
    )
    assert marks(switched) == "......."
    thought_better = (*there, tap("wifi"), tap("wifi"), *away, open_app("notes"), end)
    assert marks(play_as(task, Oracle(replace(task, solution=SimRoute(moves=thought_better))).act)) == "xxxxxx.."
