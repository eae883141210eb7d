"""One builder of observations: whoever plays, a policy meets the same history."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from distrl.config.schema import NO_PERTURBATIONS
from distrl.devices.base import Capture, Performed
from distrl.pretraining.demonstrations import demonstrate
from distrl.rollout.observing import ObservationBuilder
from distrl.rollout.stepping import SteppedEpisode
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import suite
from distrl.types import (
    Action,
    Bounds,
    Decision,
    LongPress,
    Observation,
    Past,
    Press,
    Tap,
    Task,
    TypeText,
    UiElement,
)
from support.rollouts import LIMITS, a_phone, make_tools, play

BUTTON = UiElement(bounds=Bounds(0.0, 0.4, 1.0, 0.6), text="Save", clickable=True)
CAPTURE = Capture(elements=(BUTTON,), width_px=360, height_px=720, app="notes")
GOOD, REFUSED = Performed(valid=True, changed=True), Performed(valid=False, changed=False, why="nothing there")


def a_typing_task() -> Task:
    """The first training task whose solution types something."""
    tasks = (suite("sim-general").task("train", index) for index in range(200))
    return next(task for task in tasks if any(isinstance(a, TypeText) for a in play_oracle(task).actions))


def test_an_observation_holds_what_the_capture_shows() -> None:
    seen = ObservationBuilder("Do it", history=3).observe(CAPTURE, screenshot="frame 7")
    assert seen == Observation(
        instruction="Do it",
        elements=(BUTTON,),
        screenshot="frame 7",
        width_px=360,
        height_px=720,
        app="notes",
        recent=(),
    )


def test_the_history_says_what_was_done_to_what_and_what_came_of_it() -> None:
    builder = ObservationBuilder("Do it", history=3)
    seen = builder.observe(CAPTURE, screenshot="frame 1")
    builder.record(seen, Tap(0.5, 0.5), GOOD)
    builder.record(seen, TypeText("tea"), GOOD)
    builder.record(seen, LongPress(0.5, 0.9), REFUSED)
    assert builder.observe(CAPTURE).recent == (
        Past(action=Tap(0.5, 0.5), target="Save", screenshot="frame 1"),
        Past(action=TypeText("tea"), target="tea", screenshot="frame 1"),
        Past(action=LongPress(0.5, 0.9), valid=False, changed=False, screenshot="frame 1"),
    )


@pytest.mark.parametrize(("history", "shown"), [(0, 0), (1, 1), (3, 3), (16, 5)])
def test_only_so_many_recent_actions_are_shown(history: int, shown: int) -> None:
    builder = ObservationBuilder("Do it", history=history)
    for number in range(5):
        builder.record(builder.observe(CAPTURE), TypeText(str(number)), GOOD)
    recent = builder.observe(CAPTURE).recent
    assert [past.target for past in recent] == [str(number) for number in range(5)][5 - shown :]


def by_worker(task: Task, actions: list[Action]) -> list[Observation]:
    route = iter(actions)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return Decision(action=next(route), choice=(0,), logp=-1.0, entropy=1.0, value=0.5), 0

    played = asyncio.run(play("e1", a_phone(), task, make_tools(decide))).trajectory
    assert played is not None
    return [step.observation for step in played.steps]


def by_hand(task: Task, actions: list[Action]) -> list[Observation]:
    episode, found = SteppedEpisode(a_phone(), task, history=LIMITS.history), []
    for action in actions:
        found.append(episode.observe())
        episode.act(found[-1], action)
    return found


def test_a_worker_a_stepped_episode_and_a_demonstration_show_the_same_history_typed_text_included() -> None:
    task = a_typing_task()
    actions = list(play_oracle(task).actions)
    played = by_worker(task, actions)
    assert by_hand(task, actions) == played
    shown = list(demonstrate([task], NO_PERTURBATIONS, history=LIMITS.history))
    assert [action for _, action in shown] == actions
    assert [replace(seen, screenshot="") for seen, _ in shown] == played
    typed = next(action for action in actions if isinstance(action, TypeText))
    assert typed.text in {past.target for seen in played for past in seen.recent}, "what was typed is remembered"


def test_a_refused_action_stands_in_the_history_of_both() -> None:
    task = a_typing_task()
    actions: list[Action] = [Tap(0.99, 0.01), Press("back"), Press("home")]
    seen = by_hand(task, actions)
    assert seen == by_worker(replace(task, max_steps=3), [*actions, Press("home")])
    assert not seen[-1].recent[0].valid
