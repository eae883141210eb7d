"""CUDA OOM: workers decide in smaller batches, learners get an error that names the setting to lower."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distrl.config.schema import GroundingConfig, WarmStartConfig
from distrl.errors import OutOfMemory
from distrl.policies.base import Policy
from distrl.policies.vlm.generation import Generated, Sampling, generate
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.tokens import Inputs
from distrl.pretraining.cloning import BCTrainer
from distrl.pretraining.grounding.losses import GroundingLoss, SamplePool
from distrl.pretraining.grounding.samples import sample_fields
from distrl.pretraining.grounding.training import pretrain_on_stream
from distrl.rollout.batching import Batcher
from distrl.types import Decision, Observation, Tap
from support.grounding import FromMemory, RecordingReporter, some_samples
from support.pixels import TINY, pictured_screens, tiny_pixels
from support.rollouts import make_batcher
from support.vlms import seen, tiny_vlm

FITTING = 2
"""Observations that fit into memory."""


def run_out() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def decided(batcher: Batcher, observations: list[Observation]) -> list[Decision]:
    async def scene() -> list[Decision]:
        deciding = asyncio.create_task(batcher.run())
        asking = asyncio.gather(*map(batcher.decide, observations))
        await asyncio.wait([deciding, asking], return_when=asyncio.FIRST_COMPLETED, timeout=60.0)
        if deciding.done():
            asking.cancel()
            deciding.result()
        deciding.cancel()
        return [decision for decision, _ in await asking]

    return asyncio.run(scene())


def narrow_vlm(most: int) -> Policy[Any]:
    def answer(network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated:
        if len(inputs["input_ids"]) > most:
            run_out()
        return generate(network, inputs, sampling)

    return tiny_vlm(generate=answer, decide_batch=8)


def narrow_pixels(most: int) -> Policy[Any]:
    policy = tiny_pixels()

    def check(_module: nn.Module, given: tuple[Tensor, ...]) -> None:
        if len(given[0]) > most:
            run_out()

    policy.network.register_forward_pre_hook(check)
    return policy


@pytest.mark.parametrize("narrow", [narrow_vlm, narrow_pixels])
def test_decisions_that_do_not_fit_into_memory_are_made_in_smaller_batches(narrow: Any) -> None:
    batcher = make_batcher(narrow(FITTING), batch_size=8)
    screens = pictured_screens(5) if narrow is narrow_pixels else [seen()] * 5
    assert len(decided(batcher, screens)) == 5
    assert (batcher.num_halved, batcher.num_batches) == (1, 1)


def test_a_single_decision_that_does_not_fit_names_the_setting_to_lower() -> None:
    with pytest.raises(OutOfMemory, match=r"batch of 1 \(rollout\.batch_size\)"):
        decided(make_batcher(narrow_pixels(0), batch_size=8), pictured_screens(2))


def test_a_language_model_that_runs_out_of_memory_in_its_backward_pass_names_its_micro_batch() -> None:
    policy = tiny_vlm(score_batch=4)
    answer = policy.imitate(seen(), Tap(0.5, 0.05)) or (5, 1)
    next(weights for weights in policy.network.parameters() if weights.requires_grad).register_hook(lambda _: run_out())
    with pytest.raises(OutOfMemory, match=r"try: --policy\.vlm\.score_batch 2"):
        BCTrainer(policy, WarmStartConfig()).step([(policy.encode(seen()), answer)])


def test_grounding_pretraining_that_runs_out_of_memory_names_its_batch() -> None:
    warm = WarmStartConfig(samples=90, batch=4, grounding=GroundingConfig(queries=4, pool=64))
    policy = tiny_pixels()
    loss = GroundingLoss(policy.network, TINY, warm.grounding, seed=0)
    source = FromMemory(some_samples())
    policy.network.state.register_hook(lambda _: run_out())
    with pytest.raises(OutOfMemory, match=r"try: --warm_start\.batch 2"):
        pretrain_on_stream(
            loss, SamplePool(sample_fields(TINY), 64, torch.device("cpu")), source, warm, RecordingReporter()
        )
