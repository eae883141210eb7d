"""What gets from the store into the replay: attempts, relabelled failures and demonstrations. Attempts alone count as episodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from distrl.devices.sim.names import names_in
from distrl.devices.sim.world import content, setup_of
from distrl.experience.frames import FrameCache
from distrl.learner.loop import Learner
from distrl.pretraining.demonstrations import demonstration_tasks
from distrl.pretraining.warm_start import WarmStarter
from distrl.rollout.hindsight import Relabeller
from distrl.runtime.factory import make_algorithm, make_feed, make_relabeller
from distrl.tasks.base import find_suite
from distrl.types import Ending, Task, Trajectory, Verdict
from support.batches import Played, decided_episode, tiny_policy
from support.grounding import RecordingReporter
from support.learners import Recording, Workshop, small_config
from support.strays import strays

SUITE = "sim-start"
HINDSIGHT = small_config(data={"hindsight": True}, tasks={"suite": SUITE}, replay={"capacity_steps": 4000})
BOTH = small_config(
    data={"hindsight": True, "filter_noops": True}, tasks={"suite": SUITE}, replay={"capacity_steps": 4000}
)
KEEPING = small_config(warm_start={"keep": True, "demonstrations": 6}, tasks={"suite": SUITE})


@cache
def relabelled_failures() -> tuple[tuple[Trajectory, Trajectory], ...]:
    """Failures, and what a worker makes of them in hindsight."""
    relabeller = make_relabeller(HINDSIGHT, find_suite(HINDSIGHT.tasks), tiny_policy(), make_algorithm(HINDSIGHT))
    assert relabeller is not None
    found = [(episode, relabeller.relabel(episode)) for episode in strays(SUITE, 16)]
    return tuple((episode, relabelled) for episode, relabelled in found if relabelled is not None)


def delivered(shop: Workshop, count: int = 5) -> list[str]:
    """Failures in the store as a worker delivers them, with hindsight where the run has it; the ids of the failures."""
    pairs = relabelled_failures()[:count]
    for episode, relabelled in pairs:
        shop.store.add(episode)
        if shop.config.data.hindsight:
            shop.store.add(relabelled)
    return [episode.id for episode, _ in pairs]


def keep_demonstrations(shop: Workshop, learner: Learner) -> None:
    """As the learner's role does after its warm start."""
    learner.keep(WarmStarter(shop.config, shop.policy, FrameCache(0), RecordingReporter()).kept())


def held(learner: Learner) -> list[str]:
    return list(learner.replay.priorities())


def with_hindsight(ids: list[str]) -> list[str]:
    return [name for id in ids for name in (id, f"{id}+hindsight")]


# --- in the replay --------------------------------------------------------------------------------------------------


def test_without_hindsight_a_failure_stays_a_failure(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, replace(HINDSIGHT, data=small_config().data))
    ids, learner = delivered(shop), shop.learner()
    learner.take_in(limit=10)
    assert held(learner) == ids
    assert learner.data.relabelled == 0


def test_a_relabelled_failure_stands_beside_the_original_and_counts_as_no_episode(tmp_path: Path) -> None:
    unaware = replace(HINDSIGHT, data=small_config().data)
    plain, shop = Workshop(tmp_path / "plain", unaware), Workshop(tmp_path / "hindsight", HINDSIGHT)
    learners = []
    for each in (plain, shop):
        delivered(each)
        each.deliver(2, Played(success=True))
        learners.append(each.learner())
        for _ in range(12):
            learners[-1].step()
    before, after = learners
    for count in ("episodes", "updates", "version", "unreadable"):
        assert getattr(after, count) == getattr(before, count), count
    assert after.publish_interval_s() == before.publish_interval_s()
    assert shop.store.count() == plain.store.count() == 7
    assert shop.store.stats().episodes == 7
    assert held(after) == [*with_hindsight(held(before)[:5]), *held(before)[5:]]
    assert (before.data.relabelled, after.data.relabelled) == (0, 5)


def test_a_relabelled_failure_is_an_example_and_a_success_and_the_original_is_neither(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, HINDSIGHT)
    delivered(shop, 3)
    recording = Recording()
    learner = shop.learner(recording)
    learner.take_in(limit=10)
    learner.update()
    for _ in range(5):
        learner.update()
    batches = recording.batches
    assert any(batch.example_B.any() for batch in batches)
    for batch in batches:
        assert batch.success_B.bool().tolist() == batch.example_B.tolist()
        assert not (batch.value_mask_BT & batch.example_B[:, None]).any()
        assert not (batch.false_claim_BT & batch.example_B[:, None]).any()


def test_the_share_of_no_op_steps_is_that_of_successes(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(data={"filter_noops": True}))
    shop.deliver(1, Played(num_steps=4, success=True, invalid=(1,)))
    shop.deliver(1, Played(num_steps=4, invalid=(0, 1)))
    learner = shop.learner()
    learner.take_in(limit=10)
    assert learner.data.noop_share == 0.25


# --- going on after a kill ------------------------------------------------------------------------------------------


def test_a_resumed_learner_has_the_same_hindsight_and_goes_on_exactly_as_the_first_one_does(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, BOTH)
    ids = delivered(shop)
    first = shop.learner()
    for _ in range(3):
        first.step()
    first.save()
    policy, second = shop.policy, shop.learner()
    assert second.resume()
    assert held(second) == with_hindsight(ids)
    assert second.data == first.data
    for learner in (first, second):
        for _ in range(4):
            learner.update()
    assert shop.policy is not policy
    assert shop.policy.dump() == policy.dump()
    assert second.replay.priorities() == first.replay.priorities()


def test_a_relabelled_failure_comes_back_also_where_the_original_has_left_the_replay(tmp_path: Path) -> None:
    steps = sum(len(episode.steps) for episode, _ in relabelled_failures()[:3])
    config = replace(HINDSIGHT, replay=replace(HINDSIGHT.replay, capacity_steps=2 * steps - 1))
    shop = Workshop(tmp_path, config)
    ids = delivered(shop, 3)
    first = shop.learner()
    first.take_in(limit=10)
    assert held(first) == with_hindsight(ids)[1:]
    first.save()
    second = shop.learner()
    assert second.resume()
    assert second.replay.priorities() == first.replay.priorities()


def test_what_was_counted_stays_counted_though_it_has_left_the_replay(tmp_path: Path) -> None:
    config = replace(BOTH, replay=replace(BOTH.replay, capacity_steps=20))
    shop = Workshop(tmp_path, config)
    delivered(shop, 5)
    shop.deliver(3, Played(success=True))
    first = shop.learner()
    first.take_in(limit=20)
    first.save()
    second = shop.learner()
    assert second.resume()
    assert second.data == first.data
    assert (second.data.relabelled, second.data.success_steps) == (5, 9)


def test_a_damaged_file_costs_that_trajectory_alone_and_not_what_hindsight_made_of_it(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, HINDSIGHT)
    ids = delivered(shop, 3)
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    next(tmp_path.glob(f"experience/episodes/*/{ids[0]}.ep")).unlink()
    second = shop.learner()
    assert second.resume()
    assert held(second) == with_hindsight(ids)[1:]
    assert second.unreadable == 1


def test_hindsight_is_made_once_and_read_back_from_the_store_ever_after(tmp_path: Path) -> None:
    shop, tried = Workshop(tmp_path, HINDSIGHT), set[str]()
    known = {failure.id: relabelled.task for failure, relabelled in relabelled_failures()[:4]}

    def fitting(played: Trajectory) -> Iterator[Task]:
        assert played.id not in tried, "hindsight was made again"
        tried.add(played.id)
        yield known[played.id]

    relabeller = Relabeller(
        fitting, tiny_policy(), filter_noops=False, outcome_flip=0.0, first_priority=lambda made: 2.5
    )
    for failure, _ in relabelled_failures()[:4]:
        shop.store.add(failure)
        made = relabeller.relabel(failure)
        assert made is not None
        assert (made.source, made.priority) == ("hindsight", 2.5)
        shop.store.add(made)
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    for _ in range(2):
        again = shop.learner(recording := Recording())
        assert again.resume()
        assert held(again) == with_hindsight(list(known))
        assert (again.episodes, again.cursor, again.data.relabelled) == (4, 8, 4)
        instructions = {sample.id: sample.item.instruction for sample in again.replay.sample(200)}
        assert all(instructions[f"{id}+hindsight"] == task.instruction for id, task in known.items())
        again.update()
        assert recording.batches[0].example_B.tolist() == recording.batches[0].success_B.bool().tolist()


# --- outcomes that nobody knows -------------------------------------------------------------------------------------

UNJUDGED = Verdict(outcome="unknown", reason="the judge failed")


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.ENVIRONMENT])
def test_an_episode_that_ended_but_was_not_judged_stays_out_of_the_replay_and_is_counted(
    tmp_path: Path, ending: Ending
) -> None:
    shop = Workshop(tmp_path)
    (judged,) = shop.deliver(1)
    shop.store.add(replace(decided_episode(tiny_policy(), "unjudged", Played(ending=ending)), verdict=UNJUDGED))
    learner = shop.learner()
    assert learner.take_in(limit=10) == 2
    assert held(learner) == [judged]
    assert (learner.episodes, learner.data.unjudged, learner.unreadable) == (2, 1, 0)
    learner.save()
    again = shop.learner()
    assert again.resume()
    assert (held(again), again.data.unjudged) == ([judged], 1)


def test_an_unjudged_episode_is_not_judged_by_a_share_of_turned_verdicts(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(data={"outcome_flip": 1.0}))
    shop.store.add(replace(decided_episode(tiny_policy(), "unjudged"), verdict=UNJUDGED))
    learner = shop.learner()
    learner.take_in(limit=10)
    assert (held(learner), learner.data.unjudged) == ([], 1)


def test_an_episode_that_lost_its_device_is_replayed_without_an_outcome_and_enters_no_group(tmp_path: Path) -> None:
    shop, recording = Workshop(tmp_path, small_config(rollout={"group_size": 4})), Recording()
    shop.deliver(1, Played(success=True))
    shop.deliver(1)
    (lost,) = shop.deliver(1, Played(ending=Ending.DEVICE_LOST))
    learner = shop.learner(recording)
    learner.take_in(limit=10)
    assert lost in learner.replay
    assert learner.data.unjudged == 0
    for _ in range(6):
        learner.update()
    known = torch.cat([batch.known_B for batch in recording.batches])
    assert 0 < int(known.sum()) < len(known)
    for batch in recording.batches:
        # One success and one failure at this task: a third outcome would move the mean.
        assert batch.group_mean_B.tolist() == [0.5] * len(batch.group_mean_B)
        assert not batch.success_B[~batch.known_B].any()


# --- kept demonstrations --------------------------------------------------------------------------------------------


def test_kept_demonstrations_are_examples_that_count_as_no_episodes(tmp_path: Path) -> None:
    shop, recording = Workshop(tmp_path, KEEPING), Recording()
    learner = shop.learner(recording)
    keep_demonstrations(shop, learner)
    assert held(learner) == [f"demonstration-{n}" for n in range(6)]
    assert (learner.episodes, learner.cursor, learner.ready()) == (0, 6, False)
    assert shop.store.count() == shop.store.stats().episodes == 0
    learner.update()
    assert recording.batches[0].example_B.all()
    assert recording.batches[0].success_B.all()
    assert recording.batches[0].reward_BT.sum(1).tolist() == [1.0] * 3


def test_kept_demonstrations_come_back_after_a_kill_and_are_not_kept_where_nobody_asked(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, KEEPING)
    first = shop.learner()
    keep_demonstrations(shop, first)
    ids = shop.deliver(3)
    first.take_in(limit=10)
    first.update()
    first.save()
    second = shop.learner()
    assert second.resume()
    assert held(second) == [*(f"demonstration-{n}" for n in range(6)), *ids]
    assert second.replay.priorities() == first.replay.priorities()
    other = Workshop(tmp_path / "other", small_config(warm_start={"demonstrations": 6}))
    keep_demonstrations(other, learner := other.learner())
    assert held(learner) == []


def test_kept_demonstrations_stay_when_the_replay_is_full_and_however_stale_they_are(tmp_path: Path) -> None:
    config = replace(KEEPING, replay=replace(KEEPING.replay, capacity_steps=80, keep_successes=False, max_staleness=2))
    shop = Workshop(tmp_path, config)
    learner = shop.learner()
    keep_demonstrations(shop, learner)
    kept = held(learner)
    shop.deliver(40)
    while learner.take_in(limit=10):
        pass
    for _ in range(5):
        learner.publish()
    assert learner.replay.num_steps <= 80
    assert len(kept) == 6
    assert set(kept) <= set(held(learner))
    assert set(learner.replay.eligible()) == set(kept), "the attempts are too stale"
    learner.save()
    again = shop.learner()
    assert again.resume()
    assert held(again) == held(learner)
    assert set(again.replay.eligible()) == set(kept)


# --- what cannot be learnt from -------------------------------------------------------------------------------------


def poisoned(id: str, harm: str) -> Trajectory:
    """An episode with a number that is not finite, or without any step."""
    episode = decided_episode(tiny_policy(), id, Played(ending=Ending.DEVICE_LOST))
    step = episode.steps[1]
    broken: dict[str, dict[str, object]] = {
        "priority": {"priority": float("nan")},
        "zero priority": {"priority": 0.0},
        "last value": {"last_value": float("nan")},
        "reward": {"steps": (episode.steps[0], replace(step, reward=float("inf")))},
        "logp": {"steps": (replace(step, decision=replace(step.decision, logp=float("nan"))),)},
        "no step": {"steps": ()},
    }
    return replace(episode, **broken[harm])


@pytest.mark.parametrize("harm", ["priority", "zero priority", "last value", "reward", "logp", "no step"])
def test_an_episode_with_nan_in_it_is_skipped_by_name_and_the_learner_goes_on_now_and_after_a_resume(
    tmp_path: Path, harm: str
) -> None:
    shop, told = Workshop(tmp_path), dict[str, str]()
    first, second = shop.deliver(2)
    shop.store.add(poisoned("poisoned", harm))
    (third,) = shop.deliver(1)
    learner = shop.learner(skipped_episode=told.__setitem__)
    assert learner.take_in(limit=10) == 4
    assert (held(learner), learner.unreadable) == ([first, second, third], 1)
    assert list(told) == ["poisoned"]
    assert "cannot be learnt from" in told["poisoned"]
    learner.update()
    learner.save()
    again = shop.learner()
    assert again.resume()
    assert held(again) == [first, second, third]


# --- verdicts that are turned round ---------------------------------------------------------------------------------


def test_a_turned_verdict_is_what_the_learner_sees_and_the_store_keeps_the_true_one(tmp_path: Path) -> None:
    shop, recording = Workshop(tmp_path, small_config(data={"outcome_flip": 1.0})), Recording()
    ids = shop.deliver(2, Played(success=True))
    learner = shop.learner(recording)
    learner.take_in(limit=10)
    learner.update()
    assert not recording.batches[0].success_B.any()
    assert all(shop.store.read(id).verdict.success for id in ids)


# --- under other names ----------------------------------------------------------------------------------------------


def test_a_failure_on_a_renamed_phone_keeps_its_hindsight_in_the_next_incarnation(tmp_path: Path) -> None:
    shop, episodes = Workshop(tmp_path, HINDSIGHT), strays(SUITE, 8, names=1030)
    relabeller = shop.relabeller()
    assert relabeller is not None
    for episode in episodes:
        shop.store.add(episode)
        if (made := relabeller.relabel(episode)) is not None:
            shop.store.add(made)
    found: list[dict[str, str]] = []
    for _ in range(2):
        learner = shop.learner(Recording())
        if not learner.resume():
            learner.take_in(limit=20)
            learner.save()
        drawn = learner.replay.sample(400)
        found.append({sample.id: sample.item.instruction for sample in drawn})
    assert found[0] == found[1]
    relabelled = {id: text for id, text in found[0].items() if id.endswith("+hindsight")}
    assert len(relabelled) >= 5
    for episode in episodes:
        own = names_in(content(setup_of(episode.task).phone, held_out=False))
        assert not any(name in relabelled.get(f"{episode.id}+hindsight", "") for name in own)


def test_demonstrations_that_are_kept_keep_their_names_whatever_is_practised() -> None:
    practised = replace(KEEPING, tasks=replace(KEEPING.tasks, rename_share=1.0))
    assert demonstration_tasks(practised) == demonstration_tasks(KEEPING)
    assert {setup_of(task).names for task in demonstration_tasks(practised)} == {0}
    assert setup_of(make_feed(practised, find_suite(practised.tasks), seed="a").next()).names > 0


def test_an_episode_that_a_fault_ended_counts_as_no_failure_of_its_template_in_the_class_balance(
    tmp_path: Path,
) -> None:
    def chances(name: str, num_lost: int) -> dict[str, float]:
        shop = Workshop(tmp_path / name, small_config(replay={"class_balance": 1.0, "keep_successes": True}))
        ids = [*shop.deliver(3, Played(success=True)), *shop.deliver(2)]
        shop.deliver(num_lost, Played(ending=Ending.DEVICE_LOST))
        learner = shop.learner()
        learner.take_in(limit=100)
        learner.replay.set_version(0)
        drawn = {sample.id: sample.probability for sample in learner.replay.sample(2000)}
        return {id: drawn[id] / drawn[ids[0]] for id in ids}

    assert chances("with", 20) == pytest.approx(chances("without", 0))
