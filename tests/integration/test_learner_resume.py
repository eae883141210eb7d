"""A learner that is killed: every `shop.learner()` is a new incarnation, and the one before saved nothing at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.config.schema import PointerConfig
from distrl.errors import StoreError
from distrl.learner.loop import Learner
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.policy import PointerPolicy
from support.batches import Played
from support.learners import Workshop, small_config


def held(learner: Learner) -> list[str]:
    return list(learner.replay.priorities())


def turn(learner: Learner, times: int) -> None:
    for _ in range(times):
        learner.step()


def next_incarnation(shop: Workshop) -> Learner:
    learner = shop.learner()
    assert learner.resume()
    return learner


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert not Workshop(tmp_path).learner().resume()


@pytest.mark.parametrize("word_swap_share", [0.0, 0.5])
def test_a_resumed_learner_goes_on_exactly_as_the_first_one_does(word_swap_share: float, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"ema_updates": 50}))
    shop.make_policy = lambda: PointerPolicy(
        PointerConfig(width=16, layers=1, word_swap_share=word_swap_share), PolicyContext()
    )
    shop.deliver(4, Played(success=True))
    shop.deliver(4)
    first = shop.learner()
    turn(first, 3)
    for _ in range(30):  # until the average is one of several updates
        first.update()
    first.save()
    policy = shop.policy
    second = next_incarnation(shop)
    assert second.replay.priorities() == first.replay.priorities()
    assert second.replay.drawn == first.replay.drawn
    for learner in (first, second):
        for _ in range(3):
            learner.update()
    assert shop.policy is not policy
    assert shop.policy.dump() == policy.dump()
    assert second.ema.dump() == first.ema.dump()
    assert second.replay.priorities() == first.replay.priorities()


def test_workers_get_the_newest_weights_and_a_run_ends_with_their_ema(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"ema_updates": 50}))
    shop.deliver(4, Played(success=True))
    learner = shop.learner()
    turn(learner, 3)
    for _ in range(30):
        learner.update()
    newest = shop.policy.dump()
    with learner.ema.swapped():
        averaged = shop.policy.dump()
    assert averaged != newest
    learner.publish()
    assert published(shop, tmp_path) == newest
    learner.run(stopping=lambda: True)
    assert published(shop, tmp_path) == averaged
    assert shop.policy.dump() == newest


def published(shop: Workshop, folder: Path) -> bytes:
    version = shop.weights.latest()
    assert version is not None
    return (folder / "weights" / version.file).read_bytes()


def test_a_resumed_learner_draws_what_the_first_one_would_also_where_the_oldest_have_made_room(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(replay={"capacity_steps": 10}))
    shop.deliver(7, Played(num_steps=1))
    shop.deliver(7, Played(num_steps=1, success=True))
    first = shop.learner()
    turn(first, 3)
    first.save()
    second = next_incarnation(shop)
    drawn = [[sample.id for sample in learner.replay.sample(30)] for learner in (first, second)]
    assert len(first.replay) == 10
    assert drawn[0] == drawn[1]


def test_what_came_after_the_checkpoint_is_taken_in_again_and_nothing_twice(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    before = shop.deliver(5)
    first = shop.learner()
    turn(first, 2)
    first.save()
    after = shop.deliver(3)
    turn(first, 2)
    assert held(first) == before + after
    second = next_incarnation(shop)
    assert (second.episodes, held(second)) == (5, before)
    turn(second, 1)
    assert (second.episodes, held(second)) == (8, before + after)
    assert second.take_in(limit=100) == 0


def test_many_incarnations_lose_and_repeat_no_episode_and_version_numbers_only_grow(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"publish_every_s": 1.0}))
    delivered = shop.deliver(3)
    learner = shop.learner()
    learner.publish()
    learner.save()
    versions = [0]
    for number in range(5):
        learner = next_incarnation(shop)
        assert learner.version == versions[-1]
        for moment in range(4):
            delivered += shop.deliver(1, Played(version=shop.newest_version()))
            shop.now_s += 2.0
            learner.step()
            # Killed sometimes before and sometimes after it has saved.
            if moment == 1 and number % 2:
                learner.save()
            versions.append(shop.newest_version())
    learner = next_incarnation(shop)
    learner.take_in(limit=1000)
    assert held(learner) == delivered
    assert learner.episodes == len(delivered) == shop.store.count()
    assert versions == sorted(versions)
    assert versions[-1] > 5


def test_a_version_that_was_published_after_the_checkpoint_keeps_its_number(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(4)
    first = shop.learner()
    first.publish()
    first.save()
    for _ in range(3):
        first.take_in(limit=10)
        first.update()
        first.publish()
    second = next_incarnation(shop)
    assert second.version == 3
    second.publish()
    assert shop.newest_version() == 4


def test_a_resumed_learner_does_not_publish_before_it_has_learnt_something_new(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    first = shop.learner()
    turn(first, 3)
    first.publish()
    first.save()
    second = next_incarnation(shop)
    shop.now_s = 1000.0
    turn(second, 3)
    assert shop.newest_version() == 0


def test_a_round_that_was_cut_through_by_a_crash_is_still_waited_for(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 4}))
    first = shop.learner()
    first.publish()
    shop.deliver(4)
    turn(first, 5)
    assert shop.newest_version() == 1
    shop.deliver(2, Played(version=1))
    shop.deliver(1, Played(version=0))
    turn(first, 1)
    first.save()
    shop.deliver(1, Played(version=1))
    second = next_incarnation(shop)
    turn(second, 4)
    assert (second.updates, shop.newest_version()) == (4, 1)
    assert shop.hearer.last == "waiting for the round: 3 of 4 episodes are in"
    shop.deliver(1, Played(version=1))
    turn(second, 6)
    assert (second.updates, shop.newest_version()) == (9, 2)


def test_a_round_begins_anew_with_a_version_that_was_published_after_the_checkpoint(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"mode": "sync", "round_episodes": 2}))
    first = shop.learner()
    first.publish()
    first.save()
    shop.deliver(2)
    turn(first, 3)
    assert shop.newest_version() == 1
    shop.deliver(1, Played(version=1))
    second = next_incarnation(shop)
    turn(second, 4)
    assert (shop.newest_version(), shop.hearer.last) == (1, "waiting for the round: 1 of 2 episodes are in")
    shop.deliver(1, Played(version=1))
    turn(second, 5)
    assert shop.newest_version() == 2


def test_a_resumed_learner_remembers_how_long_episodes_take(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(learner={"publish_every_s": 1.0}, replay={"max_staleness": 4}))
    shop.deliver(4, Played(wall_s=40.0))
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    assert next_incarnation(shop).publish_interval_s() == first.publish_interval_s() == 10.0


@pytest.mark.parametrize("file", ["policy.safetensors", "state.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_costs_time_but_no_episode(tmp_path: Path, file: str) -> None:
    shop = Workshop(tmp_path)
    ids = shop.deliver(3)
    first = shop.learner()
    turn(first, 1)
    first.save()
    ids += shop.deliver(3)
    turn(first, 2)
    first.save()
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / file).write_bytes(b"rubbish")
    second = next_incarnation(shop)
    assert second.updates == 1
    turn(second, 1)
    assert held(second) == ids


def test_the_learning_rate_falls_with_the_time_of_the_run_also_with_what_a_killed_learner_used(tmp_path: Path) -> None:
    settings = {"decay_share": 0.5, "learning_rate": 1.0}
    shop = Workshop(tmp_path, small_config(run={"minutes": 10.0}, learner=settings))
    shop.deliver(4)
    first = shop.learner()
    first.save()
    for minutes, rate in ((0.0, 1.0), (6.0, 0.8), (7.0, 0.6)):
        shop.collected_s = 60 * minutes
        turn(first, 1)
        assert rate_of(first) == pytest.approx(rate)
    second = next_incarnation(shop)
    assert second.updates == 0
    shop.collected_s = 60 * 8.0
    turn(second, 1)
    assert rate_of(second) == pytest.approx(0.4)


def test_a_learner_all_of_whose_checkpoints_are_damaged_says_so_and_does_not_begin_anew(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    first = shop.learner()
    for _ in range(2):
        turn(first, 1)
        first.save()
    for path in (tmp_path / "checkpoints").iterdir():
        (path / "state.json").write_bytes(b"{}")
    with pytest.raises(StoreError, match=r"is damaged: the checksum of state\.json differs"):
        shop.learner().resume()


def rate_of(learner: Learner) -> float:
    """At which the last step was taken."""
    return float(learner.updater.optimizer.optimizer.param_groups[0]["lr"])
