"""Updates shared by several processes, with pictures: on one GPU, on several, and by one process over NCCL alone.

The first case needs no GPU. NCCL refuses two processes on one GPU, so these meet over gloo.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.nn.functional import binary_cross_entropy_with_logits

from distrl.learner.data_parallel import DataParallelPolicy
from distrl.policies.base import Policy
from distrl.runtime.factory import make_policy, prepare_torch
from distrl.runtime.scoring_processes import scoring_peers
from support.pixels import FRAMES, pictured, pixel_config

UPDATES, ROWS = 4, 18
ROUNDING = 0.03
"""Of how far the weights have come: on a GPU the network multiplies in bfloat16."""
CASES = {
    "two processes on the CPU": (["cpu", "cpu"], "gloo"),
    "two processes on one GPU": (["cuda:0", "cuda:0"], "gloo"),
    "one process on its GPU": (["cuda:0"], "nccl"),
    "two processes on two GPUs": (["cuda:0", "cuda:1"], "nccl"),
}


def learn(policy: Policy[Any], scorer: Policy[Any]) -> tuple[list[float], Tensor, Tensor]:
    """Each update's loss, where the weights began, and where they have come to."""
    shown = pictured(2)[:ROWS]
    encoded = [scorer.encode(observation) for observation, _ in shown]
    choices = [policy.imitate(observation, action) or () for observation, action in shown]
    device = next(policy.network.parameters()).device
    advantage_N = torch.linspace(-1, 2, len(shown), device=device)
    won_N = torch.tensor([float(row % 3 == 0) for row in range(len(shown))], device=device)
    optimizer, losses, began = torch.optim.SGD(policy.network.parameters(), lr=0.05), list[float](), flat(policy)
    for _ in range(UPDATES):
        scores = scorer.score(encoded, choices)
        # Means over the whole batch: those of its halves, averaged, would be other numbers where the halves differ.
        normal_N = (advantage_N - (advantage_N * scores.logp_N.exp()).mean().detach()) / advantage_N.std()
        value = binary_cross_entropy_with_logits(scores.value_logit_N, won_N)
        loss = -(normal_N * scores.logp_N).mean() + value - 0.01 * scores.entropy_N.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, began, flat(policy)


def flat(policy: Policy[Any]) -> Tensor:
    return torch.cat([weights.detach().float().flatten() for weights in policy.network.parameters()])


@pytest.mark.parametrize("case", CASES)
def test_shared_updates_are_those_of_one_process(case: str) -> None:
    devices, backend = CASES[case]
    needed = len({name for name in devices if name != "cpu"})
    if torch.cuda.device_count() < needed:
        pytest.skip(f"needs {needed} GPU{'s' * (needed > 1)}")
    prepare_torch()
    config = pixel_config(learner__device=devices[0].partition(":")[0], learner__gpus=len(devices))
    alone, shared = (make_policy(config, FRAMES, learning=True) for _ in range(2))
    losses, began, alone_at = learn(alone, alone)
    with scoring_peers(config, FRAMES, devices=devices, on_wait=lambda: None) as peers:
        assert distributed.get_backend() == backend
        assert len(peers) == len(devices) - 1
        found, _, shared_at = learn(shared, DataParallelPolicy(shared, peers, batch=1))
    assert found == pytest.approx(losses, rel=ROUNDING)
    moved = float((alone_at - began).norm())
    assert moved > 0.01
    assert float((shared_at - alone_at).norm()) < ROUNDING * moved
