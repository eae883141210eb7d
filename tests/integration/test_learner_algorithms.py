"""What the learner does for algorithms: trains and saves their critics, keeps groups and a proximal policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distrl.algorithms.digirl import DigiRL
from distrl.errors import StoreError
from distrl.learner.loop import Learner
from distrl.runtime.assembly import make_algorithm
from support.learners import Noting, Workshop, small_config
from support.lessons import Played, tiny_policy

NAMES = ["aride", "digirl", "filtered_bc", "grpo", "ppo"]


def workshop(folder: Path, name: str, **learner: object) -> Workshop:
    shop = Workshop(
        folder, small_config(algorithm={"name": name}, replay={"keep_successes": False}, learner={**learner})
    )
    shop.deliver(5, Played(success=True))
    shop.deliver(5)
    return shop


def life(shop: Workshop) -> tuple[Learner, torch.nn.Module]:
    algorithm = make_algorithm(shop.config)
    return shop.learner(algorithm), algorithm.critic


def dumped(critic: torch.nn.Module) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in critic.state_dict().values()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mode", "updates", "version"), [("async", 13, 0), ("sync", 10, 1)])
def test_every_algorithm_learns_in_both_modes(tmp_path: Path, name: str, mode: str, updates: int, version: int) -> None:
    shop = workshop(tmp_path, name, mode=mode, round_episodes=10)
    learner, _ = life(shop)
    learner.publish()
    for _ in range(12):
        learner.step()
    assert learner.updates == 10
    assert shop.policy.dump() != tiny_policy().dump()
    shop.deliver(3, Played(version=version))  # not a whole round
    for _ in range(4):
        learner.step()
    assert (learner.updates, shop.newest_version()) == (updates, version)


@pytest.mark.parametrize("name", ["digirl", "grpo", "filtered_bc"])
def test_a_resumed_learner_goes_on_exactly_whatever_the_algorithm_keeps(tmp_path: Path, name: str) -> None:
    shop = workshop(tmp_path, name)
    first, critic = life(shop)
    first.take_in(limit=20)
    for _ in range(4):  # a multiple of the updates between two proximal policies
        first.update()
    first.save()
    policy = shop.policy
    second, restored = life(shop)
    assert dumped(restored) != dumped(critic) or not dumped(critic)
    assert second.resume()
    assert dumped(restored) == dumped(critic)
    for learner in (first, second):
        for _ in range(3):
            learner.update()
    assert shop.policy.dump() == policy.dump()
    assert dumped(restored) == dumped(critic)


def test_the_optimiser_trains_the_algorithms_own_critic(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "digirl")
    learner, critic = life(shop)
    learner.take_in(limit=20)
    before = dumped(critic)
    learner.update()
    assert dumped(critic) != before


def test_a_critic_that_is_far_off_does_not_shorten_the_policys_step(tmp_path: Path) -> None:
    steps = []
    for size, folder in ((1.0, "near"), (1e6, "far")):
        shop = workshop(tmp_path / folder, "digirl", gradient_clip=1e-3)
        algorithm = DigiRL(shop.config.algorithm, seed=0)
        with torch.no_grad():
            algorithm.critic._words.weight.mul_(size)
        learner = shop.learner(algorithm)
        learner.take_in(limit=20)
        learner.update()
        steps.append(shop.policy.dump())
    assert steps[0] == steps[1] != tiny_policy().dump()


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "digirl")
    life(shop)[0].save()
    with pytest.raises(StoreError, match="does not fit the algorithm"):
        shop.learner(Noting()).resume()


def test_a_lesson_says_how_the_other_attempts_went_also_after_a_resume(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(rollout={"group_size": 4}))
    shop.deliver(1, Played(success=True))
    shop.deliver(3)
    first, noting = shop.learner(one := Noting()), Noting()
    first.take_in(limit=10)
    first.update()
    first.save()
    second = shop.learner(noting)
    assert second.resume()
    second.update()
    for lesson in (one.lessons[0], noting.lessons[0]):
        assert lesson.group_mean_B.tolist() == pytest.approx([0.25] * 3)
        assert lesson.group_std_B.tolist() == pytest.approx([0.1875**0.5] * 3)


def test_a_lesson_names_the_instruction_of_each_of_its_episodes(tmp_path: Path) -> None:
    shop, noting = Workshop(tmp_path), Noting()
    (id,) = shop.deliver(1)
    learner = shop.learner(noting)
    learner.take_in(limit=10)
    learner.update()
    assert noting.lessons[0].instructions == (shop.store.read(id).task.instruction,) * 3


def test_the_proximal_policy_lags_behind_until_it_is_made_anew(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "ppo")

    class Listening:
        """PPO that notes how far the policy has strayed from the proximal one."""

        critic, proximal_every_updates = torch.nn.Module(), 2

        def __init__(self) -> None:
            self._ppo, self.strayed = make_algorithm(shop.config), list[bool]()

        def loss(self, lesson, *, updates):  # type: ignore[no-untyped-def]
            self.strayed.append(not torch.equal(lesson.proximal_logp_BT, lesson.logp_BT.detach()))
            return self._ppo.loss(lesson, updates=updates)

    learner = shop.learner(listening := Listening())
    learner.take_in(limit=20)
    for _ in range(4):
        learner.update()
    assert listening.strayed == [False, True, False, True]
