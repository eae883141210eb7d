"""What the learner does for algorithms: trains and saves their critics, keeps groups and a proximal policy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.algorithms.digirl import DigiRL
from distrl.algorithms.ppo import PPO
from distrl.config.kinds import PPOConfig
from distrl.errors import StoreError
from distrl.learner.loop import Learner
from distrl.runtime.factory import make_algorithm
from support.batches import Played, tiny_policy
from support.learners import Recording, Workshop, small_config

NAMES = ["aride", "digirl", "filtered_bc", "grpo", "ppo"]


def workshop(folder: Path, name: str, **learner: object) -> Workshop:
    table = {"critic_warmup_updates": 0} if name in ("aride", "digirl", "ppo") else {}
    config = small_config(algorithm={"kind": name, name: table}, replay={"keep_successes": False}, learner={**learner})
    shop = Workshop(folder, config)
    shop.deliver(5, Played(success=True))
    shop.deliver(5)
    return shop


def incarnation(shop: Workshop) -> tuple[Learner, torch.nn.Module]:
    algorithm = make_algorithm(shop.config)
    return shop.learner(algorithm), algorithm.critic


def dumped(critic: torch.nn.Module) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in critic.state_dict().values()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mode", "updates", "version"), [("async", 13, 0), ("sync", 10, 1)])
def test_every_algorithm_learns_in_both_modes(tmp_path: Path, name: str, mode: str, updates: int, version: int) -> None:
    shop = workshop(tmp_path, name, mode=mode, round_episodes=10)
    learner, _ = incarnation(shop)
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
    first, critic = incarnation(shop)
    first.take_in(limit=20)
    for _ in range(4):  # a multiple of the updates between two proximal policies
        first.update()
    first.save()
    policy = shop.policy
    second, restored = incarnation(shop)
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
    learner, critic = incarnation(shop)
    learner.take_in(limit=20)
    before = dumped(critic)
    learner.update()
    assert dumped(critic) != before


def test_a_critic_that_is_far_off_does_not_shorten_the_policys_step(tmp_path: Path) -> None:
    steps = []
    for size, folder in ((1.0, "near"), (1e6, "far")):
        shop = workshop(tmp_path / folder, "digirl", gradient_clip=1e-3)
        algorithm = DigiRL(shop.config.algorithm.digirl, AlgorithmContext())
        with torch.no_grad():
            algorithm.critic._words.weight.mul_(size)
        learner = shop.learner(algorithm)
        learner.take_in(limit=20)
        learner.update()
        steps.append(shop.policy.dump())
    assert steps[0] == steps[1] != tiny_policy().dump()


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "digirl")
    incarnation(shop)[0].save()
    with pytest.raises(StoreError, match="does not fit the algorithm"):
        shop.learner(Recording()).resume()


def test_a_batch_says_how_the_other_attempts_went_also_after_a_resume(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(rollout={"group_size": 4}))
    shop.deliver(1, Played(success=True))
    shop.deliver(3)
    first, recording = shop.learner(one := Recording()), Recording()
    first.take_in(limit=10)
    first.update()
    first.save()
    second = shop.learner(recording)
    assert second.resume()
    second.update()
    for batch in (one.batches[0], recording.batches[0]):
        assert batch.group_mean_B.tolist() == pytest.approx([0.25] * 3)
        assert batch.group_std_B.tolist() == pytest.approx([0.1875**0.5] * 3)


def test_a_batch_names_the_instruction_of_each_of_its_episodes(tmp_path: Path) -> None:
    shop, recording = Workshop(tmp_path), Recording()
    (id,) = shop.deliver(1)
    learner = shop.learner(recording)
    learner.take_in(limit=10)
    learner.update()
    assert recording.batches[0].instructions == (shop.store.read(id).task.instruction,) * 3


def test_the_proximal_policy_lags_behind_until_it_is_made_anew(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "ppo")

    class Listening(PPO):
        """PPO that notes whether the policy has moved away from the proximal one."""

        def __init__(self, settings: PPOConfig) -> None:
            super().__init__(settings, AlgorithmContext())
            self.strayed: list[bool] = []

        def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
            self.strayed.append(not torch.equal(batch.proximal_logp_BT, batch.logp_BT.detach()))
            return super().loss(batch, updates=updates)

    settings = msgspec.structs.replace(shop.config.algorithm.ppo, every_updates=2)
    learner = shop.learner(listening := Listening(settings))
    learner.take_in(limit=20)
    for _ in range(4):
        learner.update()
    assert listening.strayed == [False, True, False, True]
