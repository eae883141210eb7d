"""Undecodable screenshots and NaN decisions are skipped, and counted in the metrics of workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.errors import RoleCrashed
from distrl.policies.base import Policy
from distrl.policies.nonfinite import MAX_NONFINITE, SKIPPED_DECISION
from distrl.policies.pixel.network import Logits
from distrl.rollout.batching import Batcher
from distrl.types import Observation
from support.batches import tiny_policy
from support.pixels import FRAMES, pictured_screens, tiny_pixels
from support.rollouts import make_batcher
from support.vlms import seen, tiny_vlm


def decided(policy: Policy[Any], observations: list[Observation]) -> Batcher:
    """A worker's batcher after it has answered these."""
    batcher = make_batcher(policy, batch_size=8)

    async def scene() -> None:
        deciding = asyncio.create_task(batcher.run())
        await asyncio.wait_for(asyncio.gather(*map(batcher.decide, observations)), timeout=60.0)
        deciding.cancel()

    asyncio.run(scene())
    return batcher


def test_undecodable_screenshots_are_counted() -> None:
    screens = pictured_screens(2)
    damaged = replace(screens[0], screenshot=FRAMES.put(b"rubbish"))
    assert decided(tiny_pixels(), [*screens, damaged]).skipped_counters == {"undecodable_frames": 1, "skipped": 0}


def test_nan_answers_of_a_language_model_are_counted() -> None:
    policy = tiny_vlm()
    (token,) = policy.tokenizer("Z", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        policy.network.base.get_input_embeddings().weight[token] = float("nan")
    assert decided(policy, [seen(), seen(instruction="Z")]).skipped_counters == {"undecodable_frames": 0, "skipped": 1}


def test_nan_decisions_of_the_pixel_policy_are_invalid_steps_and_counted() -> None:
    policy, screens = tiny_pixels(), pictured_screens(2)
    policy.network.register_forward_hook(lambda module, given, logits: spoil(logits))
    generator = torch.Generator().manual_seed(0)
    good, bad = policy.decide(screens, temperature=1.0, generator=generator)
    assert (bad, policy.nonfinite.skipped) == (SKIPPED_DECISION, 1)
    assert good.choice
    assert decided(policy, screens).skipped_counters == {"undecodable_frames": 0, "skipped": 2}
    with pytest.raises(RoleCrashed, match="NaN or infinite"):
        policy.decide(screens * MAX_NONFINITE, temperature=0.0, generator=generator)


def spoil(logits: Logits) -> Logits:
    """The same with NaN in every second row."""
    kind_BK = logits.kind_BK.clone()
    kind_BK[1::2] = float("nan")
    return replace(logits, kind_BK=kind_BK)


def test_a_policy_that_skips_nothing_counts_nothing() -> None:
    assert decided(tiny_policy(), pictured_screens(1)).skipped_counters == {"undecodable_frames": 0, "skipped": 0}
