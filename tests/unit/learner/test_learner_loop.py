from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distrl.errors import OutOfMemory, RoleCrashed
from distrl.learner.checkpoint import from_files
from distrl.learner.loop import Learner
from distrl.learner.update import MOST_IN_A_ROW
from distrl.policies.base import Policy
from distrl.policies.pointer.policy import PointerPolicy
from distrl.telemetry.events import EventLog, read_events
from distrl.telemetry.spans import spans_in
from support.batches import Played, screens
from support.faltering import Faltering, all_nan, out_of_memory
from support.learners import Recording, Workshop, small_config

EMPTY_HANDED = 6
"""Turns of the circle that are enough to see that nothing more happens."""


def held(learner: Learner) -> list[str]:
    return list(learner.replay.priorities())


def turn(learner: Learner, times: int = EMPTY_HANDED) -> None:
    for _ in range(times):
        learner.step()


@torch.no_grad()
def opinion(policy: PointerPolicy) -> tuple[list[float], list[float]]:
    """Entropies and values on a few screens."""
    found = policy.score([policy.encode(seen) for seen in screens(4)], [()] * 4)
    return found.entropy_N.tolist(), found.value_logit_N.tolist()


# --- taking in ------------------------------------------------------------------------------------------------------


def test_each_episode_is_taken_in_exactly_once_and_in_order(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    ids, learner = shop.deliver(5), shop.learner()
    assert [learner.take_in(limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert held(learner) == ids
    more = shop.deliver(2)
    assert learner.take_in(limit=100) == 2
    assert held(learner) == [*ids, *more]
    assert learner.episodes == 7


def test_an_episode_delivered_twice_counts_once(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    ids = shop.deliver(3)
    shop.store.add(shop.store.read(ids[1]))
    learner = shop.learner()
    turn(learner)
    assert learner.episodes == 3
    assert held(learner) == ids


# --- when to learn --------------------------------------------------------------------------------------------------


def test_nothing_is_learnt_before_the_first_episodes_are_in(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"first_update_episodes": 4}))
    shop.deliver(3)
    learner = shop.learner()
    turn(learner)
    assert learner.updates == 0
    assert shop.hearer.last == "waiting for episodes: 3 of the first 4 are in"
    shop.deliver(1)
    turn(learner, 1)
    assert learner.updates == 1


@pytest.mark.parametrize(("per_episode", "updates"), [(0.5, 3), (1.0, 6), (2.0, 12)])
def test_no_more_updates_are_made_than_the_episodes_allow(tmp_path: Path, per_episode: float, updates: int) -> None:
    shop = Workshop(tmp_path, small_config(learner={"updates_per_episode": per_episode}))
    shop.deliver(6)
    learner = shop.learner()
    turn(learner, 16)
    assert learner.updates == updates
    assert shop.hearer.last == "waiting for new episodes: all 6 have had their updates"


def test_an_update_changes_the_policy_and_says_what_it_measured(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(4, Played(success=True))
    learner = shop.learner()
    before = shop.policy.dump()
    turn(learner, 1)
    assert shop.policy.dump() != before
    assert shop.hearer.figures["gradient_norm"] > 0
    assert "policy" in shop.hearer.figures


def test_while_the_critic_warms_up_the_policy_stays_as_it_was(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(algorithm={"aride": {"critic_warmup_updates": 3}}))
    shop.deliver(6, Played(success=True, invalid=(1,)))
    learner = shop.learner()
    entropies, values = opinion(shop.policy)
    turn(learner, 3)
    warmed = opinion(shop.policy)
    assert warmed[0] == entropies
    assert warmed[1] != values
    turn(learner, 1)
    assert opinion(shop.policy)[0] != entropies


def test_idle_time_is_the_share_without_anything_to_learn(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    learner = shop.learner()
    assert learner.idle_ratio == 0.0
    learner.idle_s, learner.busy_s = 1.0, 3.0
    assert learner.idle_ratio == 0.25


# --- prioritised replay ---------------------------------------------------------------------------------------------


def test_batches_are_drawn_by_priority(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"batch_trajectories": 40}, replay={"alpha": 1.0, "beta": 0.4}))
    shop.deliver(9, Played(priority=0.01))
    shop.deliver(1, Played(priority=100.0, success=True))
    shop.deliver(9, Played(priority=0.01))
    recording = Recording()
    turn(shop.learner(recording), 1)
    (batch,) = recording.batches
    assert int(batch.success_B.sum()) >= 36
    # What is drawn too often weighs less than what is drawn too seldom.
    common, rare = batch.weight_B[batch.success_B > 0], batch.weight_B[batch.success_B == 0]
    assert not len(rare) or float(common.max()) < float(rare.min())


def test_priorities_are_refreshed_with_what_the_algorithm_found(tmp_path: Path) -> None:
    weights = {"td_weight": 50.0, "success_weight": 0.0}
    shop = Workshop(tmp_path, small_config(learner={"batch_trajectories": 60}, replay=weights))
    dull, surprising = shop.deliver(1), shop.deliver(1, Played(success=True))
    learner = shop.learner(Recording())
    learner.take_in(limit=10)
    assert set(learner.replay.priorities().values()) == {1.0}
    learner.update()
    found = learner.replay.priorities()
    assert found[dull[0]] < 1.0 < found[surprising[0]]


def test_what_was_not_drawn_keeps_its_priority(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"batch_trajectories": 1}))
    ids = shop.deliver(6)
    learner = shop.learner(Recording())
    learner.take_in(limit=10)
    learner.update()
    kept = [id for id in ids if learner.replay.priorities()[id] == 1.0]
    assert len(kept) == 5


# --- versions -------------------------------------------------------------------------------------------------------


def test_the_versions_on_the_steps_decide_what_is_too_stale_to_learn_from(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(replay={"max_staleness": 2}))
    shop.deliver(3, Played(version=0))
    fresh = shop.deliver(1, Played(version=2))
    learner = shop.learner(Recording())
    learner.take_in(limit=10)
    for version in range(4):
        learner.publish()
        assert learner.version == version
        assert learner.replay.num_eligible == (4 if version <= 2 else 1)
    assert {sample.id for sample in learner.replay.sample(50)} == set(fresh)
    learner.publish()
    learner.publish()
    assert learner.replay.num_eligible == 0
    turn(learner)
    assert learner.updates == 0


def test_a_new_version_waits_for_its_time_and_for_an_update(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"publish_every_s": 10.0}))
    shop.deliver(2, Played(wall_s=1.0))
    learner = shop.learner()
    learner.publish()
    shop.now_s = 9.9
    turn(learner)
    assert (learner.updates, shop.newest_version()) == (2, 0)
    shop.now_s = 10.0
    turn(learner)
    assert shop.newest_version() == 1
    shop.now_s = 100.0
    turn(learner)
    assert shop.newest_version() == 1, "nothing was learnt since"


def test_versions_do_not_follow_so_fast_that_a_usual_episode_arrives_too_stale(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"publish_every_s": 1.0}, replay={"max_staleness": 4}))
    shop.deliver(20, Played(wall_s=60.0))
    learner = shop.learner()
    learner.publish()
    learner.take_in(limit=100)
    assert learner.publish_interval_s() == pytest.approx(60.0 / 4)
    learner.update()
    shop.now_s = 14.0
    turn(learner, 1)
    assert shop.newest_version() == 0
    shop.now_s = 15.0
    turn(learner, 1)
    assert shop.newest_version() == 1


def test_a_slow_worker_slows_versions_down_however_few_episodes_it_delivers(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"publish_every_s": 1.0}, replay={"max_staleness": 4}))
    shop.deliver(20, Played(wall_s=10.0, worker="fast"))
    shop.deliver(1, Played(wall_s=60.0, worker="slow"))
    learner = shop.learner()
    learner.take_in(limit=100)
    assert learner.publish_interval_s() == pytest.approx(60.0 / 4)


def test_a_published_version_says_what_it_was_made_of(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner = shop.learner()
    turn(learner, 2)
    learner.publish()
    newest = shop.weights.latest()
    assert newest is not None
    assert (newest.updates, newest.episodes) == (2, 3)


def test_what_the_learner_does_is_noted_for_the_trace(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner, log = shop.learner(), EventLog(tmp_path / "learner.jsonl")
    turn(learner, 2)
    learner.publish()
    learner.save()
    learner.spans.write(log)
    (event,) = read_events(tmp_path / "learner.jsonl")
    done = [(span.name, span.size) for span in spans_in(event)]
    assert done[0] == ("takes in episodes", 3)
    assert [name for name, _ in done].count("updates") == 2
    assert ("publishes", learner.version) in done
    assert done[-1][0] == "saves a checkpoint"


# --- taking turns ---------------------------------------------------------------------------------------------------


def test_in_sync_mode_the_learner_waits_for_the_round_and_the_workers_for_the_version(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 4}))
    learner = shop.learner()
    learner.publish()
    shop.deliver(3)
    shop.now_s = 1000.0
    turn(learner)
    assert learner.updates == 0
    assert shop.hearer.last == "waiting for the round: 3 of 4 episodes are in"
    shop.deliver(1)
    turn(learner, 3)
    assert (learner.updates, shop.newest_version()) == (3, 0)
    turn(learner)
    assert (learner.updates, shop.newest_version()) == (4, 1)
    shop.deliver(3, Played(version=1))
    turn(learner)
    assert (learner.updates, shop.newest_version()) == (4, 1)
    shop.deliver(1, Played(version=1))
    turn(learner, 8)
    assert (learner.updates, shop.newest_version()) == (8, 2)


def test_in_sync_mode_a_late_episode_of_an_earlier_version_is_learnt_from_and_counts_towards_no_round(
    tmp_path: Path,
) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 2}))
    learner = shop.learner()
    learner.publish()
    learner.publish()
    shop.deliver(1, Played(version=1))
    late = shop.deliver(1, Played(version=0))
    turn(learner)
    assert shop.hearer.last == "waiting for the round: 1 of 2 episodes are in"
    assert late[0] in learner.replay
    shop.deliver(1, Played(version=1))
    turn(learner)
    assert (learner.updates, learner.version) == (3, 2)


def test_in_sync_mode_a_round_of_which_nothing_can_be_read_brings_the_next_version_too(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 2}))
    learner = shop.learner()
    learner.publish()
    shop.deliver(2)
    for file in (tmp_path / "experience").rglob("*.ep"):
        file.write_bytes(b"damaged")
    learner.step()
    assert (learner.unreadable, learner.updates, learner.version) == (2, 0, 1)


@pytest.mark.parametrize("settings", [{"first_update_episodes": 50}, {"updates_per_episode": 0.01}])
def test_in_sync_mode_a_full_round_always_brings_a_version_so_that_nobody_waits_for_ever(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 2, **settings}))
    learner = shop.learner()
    learner.publish()
    for version in (1, 2, 3):
        shop.deliver(2, Played(version=version - 1))
        turn(learner)
        assert shop.newest_version() == version


# --- the whole run --------------------------------------------------------------------------------------------------


def test_a_run_begins_with_version_zero_and_ends_with_everything_taken_in_published_and_saved(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    learner = shop.learner()
    turns = iter([False] * 5)

    def stopping() -> bool:
        assert shop.newest_version() >= 0
        over = next(turns, True)
        if over:
            shop.deliver(2)
        return over

    shop.deliver(3)
    learner.run(stopping)
    assert learner.episodes == 5
    assert shop.newest_version() == learner.version == 1
    saved = shop.checkpoints.newest()
    assert saved is not None
    state = from_files(saved).state
    assert (state.episodes, state.updates) == (5, learner.updates)
    assert shop.hearer.last == "done"


# --- NaN and infinity ----------------------------------------------------------------------------------------------


def all_finite(policy: Policy[Any]) -> bool:
    return all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_an_update_whose_loss_is_nan_is_skipped_and_counted_also_after_a_restart(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, policy=lambda: Faltering({1}, all_nan))
    shop.deliver(4)
    learner = shop.learner()
    learner.take_in(limit=4)
    learner.update()
    before, priorities = shop.policy.dump(), learner.replay.priorities()
    learner.update()
    assert (shop.policy.dump(), learner.replay.priorities()) == (before, priorities)
    assert (learner.updates, learner.skipped_updates) == (2, 1)
    assert shop.hearer.last == "skipping update 2: its loss or its gradient is non-finite"
    learner.update()
    assert shop.policy.dump() != before
    assert learner.replay.priorities() != priorities
    assert all_finite(shop.policy)
    learner.save()
    again = shop.learner()
    assert again.resume()
    assert (again.updates, again.skipped_updates) == (3, 1)


def test_learning_ends_with_the_cause_after_many_nan_updates_in_a_row(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, policy=lambda: Faltering(range(2, 1000), all_nan))
    shop.deliver(60)
    learner = shop.learner()
    with pytest.raises(RoleCrashed, match=r"(?s)last 20 updates.*learner\.learning_rate.*--resume"):
        turn(learner, 60)
    assert (learner.skipped_updates, all_finite(shop.policy)) == (MOST_IN_A_ROW, True)


# --- out of memory--- ----------------------------------------------------------------------------------------------


def test_an_update_that_does_not_fit_into_memory_is_skipped_and_learning_goes_on(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, policy=lambda: Faltering({1}, out_of_memory))
    shop.deliver(4)
    learner = shop.learner()
    learner.take_in(limit=4)
    learner.update()
    before = shop.policy.dump()
    learner.update()
    assert (shop.policy.dump(), learner.updates, learner.skipped_updates) == (before, 2, 1)
    assert shop.hearer.last.startswith("skipping update 2: the GPU ran out of memory")
    learner.update()
    assert shop.policy.dump() != before


def test_learning_ends_with_the_setting_to_lower_where_no_update_fits_into_memory(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, policy=lambda: Faltering(range(1000), out_of_memory))
    shop.deliver(60)
    with pytest.raises(OutOfMemory, match=r"try: --learner\.batch_trajectories 1"):
        turn(shop.learner(), 60)
