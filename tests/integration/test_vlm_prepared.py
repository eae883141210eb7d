"""What a worker does beforehand for a decision, and a learner for its next micro-batch: the same numbers come of it, and less work later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from distrl.policies.base import Prepares
from distrl.policies.vlm import policy as policies
from distrl.policies.vlm.caches import MAX_PIXELS, PixelCache
from distrl.policies.vlm.fast_generation import FastGenerate
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.prompt import Encoded
from distrl.types import Decision
from support.vlms import PICTURES, NamedFrames, mixed_screens, seen, shake, tiny_vlm


def fast(family: str, **settings: Any) -> VlmPolicy:
    return shake(tiny_vlm(family, generate=FastGenerate(), **settings))


def decided(policy: VlmPolicy, prepare: bool) -> list[Decision]:
    screens = mixed_screens() if policy.config.pictures else [seen(), seen(instruction="Turn the Wi-Fi on and off")]
    if prepare:
        policy.prepare(screens)
    return policy.decide(screens, temperature=1.0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "screens", "text"])
def test_decisions_are_the_same_with_and_without_preparation(family: str) -> None:
    assert isinstance(fast(family), Prepares)
    assert decided(fast(family), True) == decided(fast(family), False)


def test_what_was_prepared_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = NamedFrames(PICTURES)
    policy = fast("qwen2.5-vl", frames=frames)
    policy.prepare(mixed_screens())
    monkeypatch.setattr(policies, "tokenize", lambda *_: pytest.fail("prompts are tokenized again"))
    policy.__dict__["_prefix"] = ()
    monkeypatch.setattr(policy._processor, "fill", lambda *_: pytest.fail("prompts are tokenized again"))
    monkeypatch.setattr(policy._image_cache, "images", lambda new: [] if not new else pytest.fail("decoded again"))
    assert len(decided(policy, False)) == len(mixed_screens())


def test_a_screenshot_whose_features_are_kept_is_not_decoded_again() -> None:
    policy = fast("qwen2.5-vl")
    decided(policy, True)
    policy.prepare(mixed_screens())
    assert not policy._pixels._held


def test_the_next_micro_batch_is_read_while_the_first_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fast("qwen2.5-vl", score_batch=1)
    screens = mixed_screens()
    encoded, choices = [policy.encode(one) for one in screens], [one.choice for one in decided(policy, False)]
    expected = fast("qwen2.5-vl", score_batch=len(screens)).score(encoded, choices)
    asked: list[int] = []

    def slowly(rows: Sequence[Encoded]) -> None:
        time.sleep(0.05)
        asked.append(len(rows))

    monkeypatch.setattr(policy, "_prepare", slowly)
    found = policy.score(encoded, choices)
    assert asked == [1] * (len(screens) - 1)  # and nothing is read any more when the scores are there
    assert torch.allclose(found.logp_N, expected.logp_N, atol=1e-4)


def test_pixels_that_nobody_takes_are_forgotten() -> None:
    held = PixelCache()
    for number in range(MAX_PIXELS + 5):
        held.put(str(number), torch.zeros(1))
    assert "4" not in held
    assert held.take("5") is not None
    assert held.take("5") is None
