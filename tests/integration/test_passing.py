"""What policies pass over is counted where people look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.errors import RoleCrashed
from distrl.policies.base import Policy
from distrl.policies.nonfinite import MOST_UNSOUND, NO_DECISION
from distrl.policies.pixel.network import Logits
from distrl.rollout.batching import Batcher
from distrl.types import Observation
from support.lessons import tiny_policy
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


def test_pictures_that_cannot_be_decoded_are_told_of() -> None:
    screens = pictured_screens(2)
    damaged = replace(screens[0], screenshot=FRAMES.put(b"rubbish"))
    assert decided(tiny_pixels(), [*screens, damaged]).passed_over == {"dark": 1, "skipped": 0}


def test_answers_that_are_no_numbers_are_told_of() -> None:
    policy = tiny_vlm()
    (token,) = policy.tokenizer("Z", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        policy.network.base.get_input_embeddings().weight[token] = float("nan")
    assert decided(policy, [seen(), seen(instruction="Z")]).passed_over == {"dark": 0, "skipped": 1}


def test_decisions_from_pixels_that_are_no_numbers_are_invalid_steps_and_told_of() -> None:
    policy, screens = tiny_pixels(), pictured_screens(2)
    policy.network.register_forward_hook(lambda module, given, logits: spoil(logits))
    generator = torch.Generator().manual_seed(0)
    good, bad = policy.decide(screens, temperature=1.0, generator=generator)
    assert (bad, policy.soundness.skipped) == (NO_DECISION, 1)
    assert good.choice
    assert decided(policy, screens).passed_over == {"dark": 0, "skipped": 2}
    with pytest.raises(RoleCrashed, match="no numbers"):
        policy.decide(screens * MOST_UNSOUND, temperature=0.0, generator=generator)


def spoil(logits: Logits) -> Logits:
    """The same with no numbers in every second row."""
    kind_BK = logits.kind_BK.clone()
    kind_BK[1::2] = float("nan")
    return replace(logits, kind_BK=kind_BK)


def test_a_policy_that_passes_nothing_over_says_so() -> None:
    assert decided(tiny_policy(), pictured_screens(1)).passed_over == {"dark": 0, "skipped": 0}
