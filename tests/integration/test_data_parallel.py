"""A learner with several real processes behind its updates (gloo on the CPU): the numbers are those of one process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from distrl.config.load import load_config
from distrl.errors import ConfigError
from distrl.learner.data_parallel import DataParallelPolicy, Peer, ProcessDied, encoded_type
from distrl.learner.loop import Learner
from distrl.policies.base import NoFrames, Policy
from distrl.runtime.factory import make_algorithm, prepare_torch
from distrl.runtime.placement import check_devices
from distrl.runtime.scoring_processes import backend_of, check_nccl, scoring_peers
from support.batches import Played, shown_by_the_oracle, tiny_policy
from support.learners import Workshop, small_config

UPDATES = 5
PICTURES = {"rollout.keep_screenshots": "true"}
CLOSE = {"rtol": 1e-3, "atol": 1e-5}
"""Sums in another order."""


@pytest.fixture(scope="module")
def peers() -> Iterator[list[Peer]]:
    """Two processes beside this one."""
    prepare_torch()
    config = small_config(learner={"gpus": 3, "device": "cpu"})
    with scoring_peers(config, NoFrames(), devices=["cpu"] * 3, on_wait=lambda: None) as found:
        yield found


def workshop(folder: Path, name: str) -> Workshop:
    table = {"critic_warmup_updates": 0} if name in ("aride", "digirl", "ppo") else {}
    config = small_config(
        algorithm={"kind": name, name: {**table, **({"every_updates": 2} if name == "ppo" else {})}},
        replay={"keep_successes": False},
        learner={"batch_trajectories": 4, "updates_per_episode": 10.0},
    )
    shop = Workshop(folder, config)
    shop.deliver(5, Played(success=True))
    shop.deliver(4)
    return shop


def learner_of(shop: Workshop, peers: list[Peer]) -> Learner:
    def shared(policy: Policy[object]) -> Policy[object]:
        return DataParallelPolicy(policy, peers, batch=4) if peers else policy

    return shop.learner(make_algorithm(shop.config), scorer=shared)


def trained(shop: Workshop, peers: list[Peer], updates: int = UPDATES, *, saved_at: int = 0) -> list[dict[str, float]]:
    """What each update came to; every learner begins with the same weights and draws the same batches.

    `saved_at`: after this update too; a checkpoint counts templates anew, and so changes what is drawn.
    """
    learner, figures = learner_of(shop, peers), []
    learner.publish()
    learner.take_in(limit=100)
    for number in range(1, updates + 1):
        learner.update()
        figures.append(dict(shop.hearer.figures))
        if number == saved_at:
            learner.save()
    learner.save()
    return figures


def flat(policy: Policy[object]) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in policy.network.parameters()])


def priorities(shop: Workshop) -> list[float]:
    files = shop.checkpoints.newest()
    assert files is not None
    replay = json.loads(files["state.json"])["replay"]
    return [float(one) for one in replay["priorities"]]


def test_a_process_that_is_killed_is_named_and_nothing_hangs() -> None:
    # First in this file: `peers` stay, and a process has one group of others at a time.
    config = small_config(learner={"gpus": 2, "device": "cpu"})
    policy = tiny_policy()
    encoded, choices = rows(policy)
    before = set(children())
    with scoring_peers(config, NoFrames(), devices=["cpu"] * 2, on_wait=lambda: None) as own:
        shared = DataParallelPolicy(policy, own, batch=1)
        shared.score(encoded, choices)
        (pid,) = set(children()) - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ProcessDied, match="process 1 of the learner, on the CPU, died"):
            shared.score(encoded, choices)
    assert not set(children()) - before


def children() -> list[int]:
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


@pytest.mark.parametrize("name", ["aride", "ppo", "digirl"])
def test_losses_weights_and_priorities_are_those_of_one_process(tmp_path: Path, peers: list[Peer], name: str) -> None:
    alone, shared = workshop(tmp_path / "alone", name), workshop(tmp_path / "shared", name)
    expected, found = trained(alone, []), trained(shared, peers)
    for one, other in zip(expected, found, strict=True):
        one.pop("first_gradient_s", None), other.pop("first_gradient_s", None)
        assert other == pytest.approx(one, rel=CLOSE["rtol"], abs=CLOSE["atol"])
    # Adam makes a whole step of what is rounding alone, such as the gradient of a key's bias, so single weights may differ.
    began, alone_at, shared_at = (flat(policy) for policy in (tiny_policy(), alone.policy, shared.policy))
    moved = float((alone_at - began).norm())
    assert moved > 0.1
    assert float((shared_at - alone_at).norm()) < 0.02 * moved
    assert priorities(shared) == pytest.approx(priorities(alone), rel=CLOSE["rtol"])


def test_the_whole_gradient_comes_from_all_processes_and_weights_without_one_stay_without(peers: list[Peer]) -> None:
    policy = tiny_policy(spread=0.1)
    encoded, choices = rows(policy)
    assert policy.network is DataParallelPolicy(policy, peers, batch=1).network

    def gradients(scorer: Policy[object]) -> list[torch.Tensor | None]:
        scores = scorer.score(encoded, choices)
        policy.network.zero_grad(set_to_none=True)
        (scores.logp_N.sum() ** 2).backward()  # the critic's head has no part in it
        return [weights.grad for weights in policy.network.parameters()]

    one, several = gradients(policy), gradients(DataParallelPolicy(policy, peers, batch=1))
    assert [gradient is None for gradient in one] == [gradient is None for gradient in several]
    assert any(gradient is None for gradient in one)
    for expected, found in zip(one, several, strict=True):
        if expected is not None and found is not None:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def rows(policy: Policy[object], count: int = 7) -> tuple[list[object], list[tuple[int, ...]]]:
    shown = shown_by_the_oracle(4)[:count]
    encoded = [policy.encode(observation) for observation, _ in shown]
    return encoded, [policy.imitate(observation, action) or () for observation, action in shown]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_rows_come_back_in_their_order_also_where_there_are_fewer_than_processes(peers: list[Peer], count: int) -> None:
    policy = tiny_policy(spread=0.3)
    encoded, choices = rows(policy, count)
    shared = DataParallelPolicy(policy, peers, batch=1)
    with torch.no_grad():
        expected, found = policy.score(encoded, choices), shared.score(encoded, choices)
    torch.testing.assert_close(found.logp_N, expected.logp_N, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.value_logit_N, expected.value_logit_N, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_goes_on_with_another_number_of_processes(tmp_path: Path, peers: list[Peer]) -> None:
    alone, moving = workshop(tmp_path / "alone", "aride"), workshop(tmp_path / "moving", "aride")
    expected = trained(alone, [], 4, saved_at=2)
    trained(moving, peers, 2)
    resumed = learner_of(moving, [])
    assert resumed.resume()
    figures = []
    for _ in range(2):
        resumed.update()
        figures.append(dict(moving.hearer.figures))
    for one, other in zip(expected[2:], figures, strict=True):
        assert other["total"] == pytest.approx(one["total"], rel=1e-3)


def test_gradients_go_over_nccl_where_each_process_has_a_gpu_of_its_own() -> None:
    found = [
        backend_of(devices) for devices in (["cuda:0", "cuda:1"], ["cuda:0"], ["cuda:0", "cuda:0"], ["cpu", "cpu"])
    ]
    assert found == ["nccl", "nccl", "gloo", "gloo"]


def test_what_cannot_be_is_said_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"learner.gpus = 2 and learner.device = cuda:1: that is one GPU"):
        load_config(None, {"learner.gpus": "2", "learner.device": "cuda:1", "policy.kind": "pixel", **PICTURES})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigError, match=r"learner.gpus = 4, and torch .* sees 1 GPU here"):
        check_devices(small_config(learner={"gpus": 4, "device": "cuda"}, policy={"kind": "pixel"}))
    if not torch.distributed.is_nccl_available():
        with pytest.raises(ConfigError, match="was built without NCCL"):
            check_nccl(small_config(learner={"gpus": 2}))

    class Silent:
        def encode(self, observation):  # type: ignore[no-untyped-def]
            return observation

    with pytest.raises(ConfigError, match=r"Silent.encode does not say what it returns"):
        encoded_type(Silent())  # type: ignore[arg-type]
