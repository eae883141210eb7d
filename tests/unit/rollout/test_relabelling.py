"""Relabelling of failures, and verdicts that are turned round on purpose."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from distrl.experience.noop import noop_steps
from distrl.policies.pointer.grammar import to_action
from distrl.rollout.hindsight import Relabeller, as_success_at, misjudged
from distrl.runtime.factory import make_fitting
from distrl.tasks.base import Fitting, find_suite
from distrl.types import (
    Action,
    Ending,
    EndState,
    Finish,
    Observation,
    RunnerUp,
    Task,
    Trajectory,
    TypeText,
    Verdict,
    Wait,
    WebEnd,
    WebSetup,
    WebTask,
)
from support.batches import Played, decided_episode, tiny_policy
from support.learners import small_config
from support.strays import strays
from support.trajectories import make_trajectory

CONFIG = small_config(data={"hindsight": True}, tasks={"suite": "sim-start"})


@cache
def fulfilled() -> tuple[tuple[Trajectory, Task], ...]:
    """Failures with the task that they turned out to be."""
    fitting = make_fitting(CONFIG, find_suite(CONFIG.tasks))
    assert fitting is not None
    found = [(episode, next(iter(fitting(episode)), None)) for episode in strays("sim-start", 16)]
    return tuple((episode, task) for episode, task in found if task is not None)


def test_a_relabelled_episode_is_the_same_deed_under_another_instruction() -> None:
    policy = tiny_policy()
    for episode, task in fulfilled():
        first = replace(episode.steps[0].decision, runners_up=(RunnerUp(Wait(), -1.0),))
        episode = replace(episode, steps=(replace(episode.steps[0], decision=first), *episode.steps[1:]))
        found = as_success_at(task, episode, policy, filter_noops=False)
        assert found is not None
        assert (found.id, found.task, found.verdict.success) == (f"{episode.id}+hindsight", task, True)
        assert (found.source, episode.source) == ("hindsight", "played")
        assert {step.observation.instruction for step in found.steps} == {task.instruction}
        assert [step.decision.action for step in found.steps] == [step.decision.action for step in episode.steps]
        for step in found.steps:
            again = to_action(step.decision.choice, step.observation)  # type: ignore[arg-type]
            assert type(again) is type(step.decision.action)
            assert policy.imitate(step.observation, again) == step.decision.choice
            assert step.decision.runners_up == ()  # what was likely under the other instruction
        assert found.steps[-1].reward == episode.steps[-1].reward + 1.0
        assert [step.observation.elements for step in found.steps] == [s.observation.elements for s in episode.steps]


def test_a_typed_word_that_the_new_instruction_does_not_have_cannot_be_relabelled() -> None:
    episode, task = fulfilled()[0]
    typing = replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    typed = replace(episode, steps=(replace(episode.steps[0], decision=typing), *episode.steps[1:]))
    assert as_success_at(task, typed, tiny_policy(), filter_noops=False) is None
    told = replace(task, instruction=f"{task.instruction} for Rumpelstiltskin")
    assert as_success_at(told, typed, tiny_policy(), filter_noops=False) is not None


def test_with_the_filter_a_relabelled_episode_is_left_without_its_no_op_steps_whatever_they_typed() -> None:
    episode, task = fulfilled()[0]
    refused = replace(
        episode.steps[0], valid=False, decision=replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    )
    longer = replace(episode, steps=(refused, *episode.steps))
    assert noop_steps(longer).sum() == 1
    assert as_success_at(task, longer, tiny_policy(), filter_noops=False) is None
    short, found = (as_success_at(task, one, tiny_policy(), filter_noops=True) for one in (episode, longer))
    assert found == short


def test_an_episode_of_nothing_but_no_op_steps_cannot_be_relabelled() -> None:
    episode, task = fulfilled()[0]
    idle = tuple(replace(step, valid=False) for step in episode.steps)
    cut = replace(episode, steps=idle, ending=Ending.STEP_LIMIT)
    assert noop_steps(cut).all()
    assert as_success_at(task, cut, tiny_policy(), filter_noops=True) is None


def relabeller(fitting: Fitting) -> Relabeller:
    return Relabeller(fitting, tiny_policy(), filter_noops=False, outcome_flip=0.0, first_priority=lambda made: 7.0)


def test_an_episode_that_no_other_instruction_can_express_is_dropped_and_counted() -> None:
    episode, task = fulfilled()[0]
    typing = replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    typed = replace(episode, steps=(replace(episode.steps[0], decision=typing), *episode.steps[1:]))
    one = relabeller(lambda played: iter([task]))
    assert one.relabel(typed) is None
    assert (one.num_relabelled, one.num_inexpressible) == (0, 1)
    found = one.relabel(episode)
    assert found is not None
    assert (found.priority, one.num_relabelled, one.num_inexpressible) == (7.0, 1, 1)


def test_an_episode_without_a_verdict_is_not_relabelled() -> None:
    episode, task = fulfilled()[0]
    one = relabeller(lambda played: iter([task]))
    assert one.relabel(replace(episode, verdict=Verdict(outcome="unknown"))) is None
    assert (one.num_relabelled, one.num_inexpressible) == (0, 0)


@pytest.mark.parametrize("success", [True, False])
def test_a_turned_verdict_turns_the_reward_too(success: bool) -> None:
    episode = decided_episode(tiny_policy(), "judged", Played(success=success))
    turned = misjudged(episode, 1.0)
    assert turned.verdict.success is not success
    assert turned.steps[-1].reward - episode.steps[-1].reward == (-1.0 if success else 1.0)
    assert turned.steps[:-1] == episode.steps[:-1]
    assert misjudged(episode, 0.0) is episode


def test_the_id_decides_which_verdicts_are_turned_and_what_was_cut_off_keeps_its_own() -> None:
    episodes = [make_trajectory(f"e{n}") for n in range(200)]
    turned = [misjudged(episode, 0.2).id for episode in episodes if misjudged(episode, 0.2) != episode]
    assert 20 <= len(turned) <= 60
    assert turned == [misjudged(episode, 0.2).id for episode in episodes if misjudged(episode, 0.2) != episode]
    cut = replace(episodes[0], ending=Ending.STEP_LIMIT)
    assert misjudged(cut, 1.0) is cut


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_a_suite_is_asked_about_known_failures_alone(flip: float) -> None:
    asked: list[str] = []

    def fitting(played: Trajectory) -> list[Task]:
        asked.append(played.verdict.outcome)
        return []

    policy = tiny_policy()
    one = Relabeller(fitting, policy, filter_noops=False, outcome_flip=flip, first_priority=lambda made: 1.0)
    for success in (True, False):
        one.relabel(decided_episode(policy, "judged", Played(success=success)))
    assert asked == ["failure"], "by the verdict that the learner is given"


def test_correlated_errors_repeat_in_the_same_situation_and_only_there() -> None:
    episodes = [replace(make_trajectory("one"), id=f"e{number}") for number in range(40)]
    for seed in range(20):
        turned = {misjudged(episode, 0.5, seed=seed) != episode for episode in episodes}
        assert len(turned) == 1  # all alike, whatever their ids
    decided = {misjudged(episodes[0], 0.5, seed=seed) != episodes[0] for seed in range(20)}
    assert decided == {True, False}
    last = episodes[0].steps[-1]
    elsewhere = [
        replace(
            episodes[0],
            steps=(*episodes[0].steps[:-1], replace(last, observation=replace(last.observation, app=f"app-{number}"))),
        )
        for number in range(40)
    ]
    share = sum(misjudged(episode, 0.2, seed=1) != episode for episode in elsewhere) / 40
    assert 0.05 < share < 0.4


class _Says:
    """A policy that can express everything."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...]:
        return (len(observation.elements),)


def test_an_episode_that_fulfilled_a_task_on_its_way_is_cut_there_and_claims_it() -> None:
    played = make_trajectory(success=False, num_steps=4)
    setup = WebSetup(url="http://127.0.0.1:1/", page="mobilegym", task="demo.TurnOn", seed=7)
    task = replace(played.task, instruction="Turn it on", setup=setup)
    told = WebTask(task="demo.TurnOn", seed=7, instruction="Turn it on", steps=2, answer="40 %")
    ended = replace(played, end=EndState(device=WebEnd(fulfilled=(told,))))
    found = as_success_at(task, ended, _Says(), filter_noops=False)
    assert found is not None
    assert [step.observation.screenshot for step in found.steps] == [
        step.observation.screenshot for step in played.steps[:3]
    ]
    assert found.steps[-1].decision.action == Finish(answer="40 %")
    assert (found.ending, found.last, found.end.claim) == (Ending.FINISHED, None, Finish(answer="40 %"))
    assert [step.reward for step in found.steps][-1] == 1.0
    assert {step.observation.instruction for step in found.steps} == {"Turn it on"}
    unseen = replace(ended, steps=ended.steps[:2], last=None)  # nobody looked after the second step
    assert as_success_at(task, unseen, _Says(), filter_noops=False) is None
    another = replace(task, setup=replace(setup, seed=8))
    whole = as_success_at(another, ended, _Says(), filter_noops=False)
    assert whole is not None
    assert len(whole.steps) == len(played.steps)
