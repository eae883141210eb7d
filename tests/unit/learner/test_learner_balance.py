"""A learner whose updates per episode follow its load: what has been earned stays earned, and nothing is earned twice."""

from __future__ import annotations

from pathlib import Path

from distrl.learner.loop import Learner
from support.learners import Workshop, small_config

EVERY_S = 5.0


def a_shop(folder: Path, *, enabled: bool = True) -> Workshop:
    balance = {"enabled": enabled, "every_s": EVERY_S, "most_updates_per_episode": 4.0}
    return Workshop(folder, small_config(balance=balance, learner={"updates_per_episode": 1.0}))


def until_idle(learner: Learner) -> None:
    while learner.ready():
        learner.step()


def idle_for(shop: Workshop, learner: Learner, seconds: float) -> None:
    """Let time pass in which there is nothing to learn."""
    learner.idle_s += seconds
    shop.now_s += seconds
    learner.step()


def test_an_idle_learner_makes_more_updates_of_the_episodes_that_come_and_none_of_those_that_came(
    tmp_path: Path,
) -> None:
    shop = a_shop(tmp_path)
    learner = shop.learner()
    learner.publish()
    shop.deliver(8)
    learner.step()
    until_idle(learner)
    assert learner.updates == 8
    idle_for(shop, learner, EVERY_S + 1)
    assert learner.updates_per_episode == 1.25
    until_idle(learner)
    assert learner.updates == 8
    shop.deliver(8)
    learner.step()
    until_idle(learner)
    assert learner.updates == 18


def test_a_resumed_learner_begins_with_its_own_setting_and_owes_nothing(tmp_path: Path) -> None:
    shop = a_shop(tmp_path)
    learner = shop.learner()
    learner.publish()
    shop.deliver(8)
    learner.step()
    until_idle(learner)
    idle_for(shop, learner, EVERY_S + 1)
    learner.save()
    again = shop.learner()
    assert again.resume()
    assert again.updates_per_episode == 1.0
    assert not again.ready()
    shop.deliver(3)
    again.step()
    until_idle(again)
    assert again.updates == 11


def test_without_balance_nothing_is_changed(tmp_path: Path) -> None:
    shop = a_shop(tmp_path, enabled=False)
    learner = shop.learner()
    learner.publish()
    shop.deliver(8)
    learner.step()
    until_idle(learner)
    idle_for(shop, learner, 100 * EVERY_S)
    assert learner.updates_per_episode == 1.0
