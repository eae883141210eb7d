"""Packed scoring against padded rows: the same numbers and gradients, from fewer tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from distrl.policies.base import Scores
from distrl.policies.vlm import packed, scoring
from distrl.policies.vlm.fast_generation import FastGenerate
from distrl.policies.vlm.generation import generate
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.tokens import entropy_of, token_logp
from support.vlms import mixed_screens, shake, tiny_vlm

FAMILIES = ["qwen2.5-vl", "qwen3-vl", "screens", "text"]


def scored(policy: VlmPolicy) -> Scores:
    screens = mixed_screens()
    choices = [tuple(range(100, 100 + 7 * row, 3)) for row in range(len(screens))]  # of other lengths, the first empty
    return policy.score([policy.encode(screen) for screen in screens], choices)


def fast(family: str, **settings: Any) -> VlmPolicy:
    return shake(tiny_vlm(family, generate=FastGenerate(), answer_tokens=40, **settings))


def stock(family: str, **settings: Any) -> VlmPolicy:
    return shake(tiny_vlm(family, generate=generate, answer_tokens=40, **settings))


def gradient(policy: VlmPolicy) -> dict[str, torch.Tensor]:
    found = scored(policy)
    (found.logp_N.sum() + 0.1 * found.entropy_N.sum() + found.value_logit_N.sum()).backward()  # type: ignore[no-untyped-call]
    return {name: weights.grad for name, weights in policy.network.named_parameters() if weights.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_scores_are_those_of_padded_rows(family: str) -> None:
    ours, theirs = scored(fast(family, score_batch=3)), scored(stock(family, score_batch=2))
    torch.testing.assert_close(ours.logp_N, theirs.logp_N, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.entropy_N, theirs.entropy_N, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.value_logit_N, theirs.value_logit_N, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_gradients_are_those_of_padded_rows(family: str) -> None:
    theirs, apart = gradient(stock(family, score_batch=4)), gradient(stock(family, score_batch=1))
    spread = {name: 2 * float((apart[name] - theirs[name]).abs().max()) for name in theirs}
    same(gradient(fast(family, score_batch=3)), theirs, spread)


@pytest.mark.parametrize(("budget", "kept"), [(3.0, "layers"), (0.0, "nothing")])
def test_packed_gradients_do_not_depend_on_what_is_kept(
    budget: float, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gradient(fast("qwen3-vl", score_batch=4))
    monkeypatch.setattr(scoring, "activation_budget_bytes", lambda device: budget)
    monkeypatch.setattr(scoring.Scorer, "_kept_bytes", lambda scorer, batch: (1.0, 10.0))
    policy = fast("qwen3-vl", score_batch=1, gradient_checkpointing=True)
    same(gradient(policy), whole)
    assert policy.scorer.kept[kept] >= 3


def same(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], spread: dict[str, float] | None = None
) -> None:
    """Alike, or no further apart than `spread`: of an entry near 0, stock's own batch sizes differ by more in float32."""
    assert ours.keys() == theirs.keys()
    for name, gradient_of in ours.items():
        own = spread[name] if spread else 0.0
        assert own < 2e-3, "stock itself is this exact"
        torch.testing.assert_close(gradient_of, theirs[name], rtol=1e-3, atol=max(1e-4, own))


def test_a_screenshot_goes_through_the_vision_tower_once() -> None:
    policy = fast("qwen2.5-vl", score_batch=2)
    looked = [0]
    policy.network.base.model.visual.merger.mlp.register_forward_pre_hook(
        lambda *_: looked.__setitem__(0, looked[0] + 1)
    )
    first, passes = scored(policy), looked[0]
    again = scored(policy)
    assert looked[0] == passes > 0
    torch.testing.assert_close(again.logp_N, first.logp_N)


def test_features_are_kept_within_their_bytes_those_used_last() -> None:
    def image(tokens: int) -> packed.Image:
        return packed.Image(features=torch.zeros(tokens, 8), grid=torch.tensor([1, 2, 2]))

    kept = packed.ImageFeatures(capacity_bytes=3 * 10 * 8 * 4)
    for name in ("a", "b", "c"):
        kept.put(name, image(10))
    assert kept.get("a") is not None
    kept.put("d", image(10))
    assert kept.get("b") is None
    assert None not in [kept.get(name) for name in ("a", "c", "d")]
    kept.put("huge", image(100))
    assert kept.get("huge") is None  # it would not leave room for any other
    kept.clear()
    kept.put("a", image(30))
    assert kept.get("a") is not None


def test_answers_are_scored_without_anything_as_wide_as_the_vocabulary_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(packed, "VOCABULARY_ROWS", 4)
    hidden = torch.randn(10, 6, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(6, 50, bias=False).double().requires_grad_(False)
    said, never = torch.randint(3, 50, (10,)), torch.tensor([0, 2])
    logp, entropy = packed.answer_scores(hidden, head, said, never)
    expected = token_logp(head(hidden), never)
    torch.testing.assert_close(logp, expected.gather(1, said[:, None])[:, 0])
    torch.testing.assert_close(entropy, entropy_of(expected))
    weights = torch.randn(2, 10)
    ours, theirs = (
        torch.autograd.grad((weights[0] * x).sum() + (weights[1] * y).sum(), hidden)[0]
        for x, y in ((logp, entropy), (expected.gather(1, said[:, None])[:, 0], entropy_of(expected)))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_all_weights_are_trained_from_padded_rows() -> None:
    policy = tiny_vlm("text", generate=FastGenerate(), lora_rank=0)
    (scored(policy).logp_N.sum()).backward()  # type: ignore[no-untyped-call]
    head = policy.network.base.get_output_embeddings().weight
    assert head.grad is not None
    assert bool(head.grad.any())
