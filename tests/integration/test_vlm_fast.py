"""The fast forms of a Qwen-VL model say what the stock forms say."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from distrl.bench.vlm.model import CPU, build_model, prompts
from distrl.errors import ConfigError
from distrl.policies.vlm.engine import Engine
from distrl.policies.vlm.fast_generation import FastGenerate, supports
from distrl.policies.vlm.fast_layers import (
    Lengths,
    attend_packed,
    fuse_layers,
    fuse_vision,
    is_packed_attention,
    restore_layers,
)
from distrl.policies.vlm.generation import generate
from distrl.policies.vlm.policy import VlmPolicy
from support.vlms import BODY, mixed_screens, seen, shake, tiny_vlm


@cache
def tiny() -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return build_model("tiny", CPU)


@pytest.fixture
def model() -> Any:
    yield tiny()
    restore_layers(tiny())
    tiny().model.language_model.config._attn_implementation = "sdpa"


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_packed_attention_equals_attention_in_each_sequence_apart(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(sum(sizes), 2, 4, generator=generator) for _ in range(3))
    bounds = torch.tensor([0, *sizes]).cumsum(0)
    found = attend_packed(query, key, value, bounds, max(sizes))
    parts = [
        F.scaled_dot_product_attention(*(x[a:b].transpose(0, 1) for x in (query, key, value))).transpose(0, 1)
        for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    torch.testing.assert_close(found, torch.cat(parts))


def test_lengths_are_not_taken_from_another_tensor_with_the_same_address() -> None:
    lengths = Lengths()
    for longest in range(1, 40):
        assert lengths.longest(torch.tensor([0, longest])) == longest


def test_the_fast_vision_tower_gives_what_the_stock_one_gives(model: Any) -> None:
    inputs = prompts(model, 2)
    look = {"hidden_states": inputs["pixel_values"], "grid_thw": inputs["image_grid_thw"]}
    with torch.no_grad():
        stock = model.model.visual(**look).pooler_output
        assert fuse_vision(model) == 5  # four layers and the patch embedding
        assert fuse_layers(model.model.visual) > 0
        fast = model.model.visual(**look).pooler_output
    torch.testing.assert_close(fast, stock, atol=2e-5, rtol=1e-4)


def test_an_inner_width_that_is_filled_up_changes_nothing_but_the_shape_of_the_product(model: Any) -> None:
    mlp = model.model.visual.blocks[0].mlp
    assert mlp.gate_proj.out_features % 8, "the tiny tower must have an awkward width, or this shows nothing"
    x = torch.randn(7, 64, requires_grad=True)
    stock = mlp(x)
    expected = torch.autograd.grad(stock.sum(), x)[0]
    fuse_layers(mlp)
    torch.testing.assert_close(mlp(x), stock)
    torch.testing.assert_close(torch.autograd.grad(mlp(x).sum(), x)[0], expected)


def test_a_fused_adapter_adds_what_peft_adds_and_learns_what_peft_learns() -> None:
    policy = shake(tiny_vlm("text"))
    layer = policy.network.base.model.layers[0].mlp.gate_proj
    x = torch.randn(2, 3, 64, requires_grad=True)
    trained = [x, layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    stock = layer(x)
    expected = torch.autograd.grad(stock.square().sum(), trained)
    fuse_layers(layer)
    assert "forward" in layer.__dict__
    torch.testing.assert_close(layer(x), stock)
    for mine, theirs in zip(torch.autograd.grad(layer(x).square().sum(), trained), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    with torch.no_grad(), policy.network.model.disable_adapter():
        torch.testing.assert_close(layer(x), layer.base_layer(x))


# --- through the policy ---------------------------------------------------------------------------------------------

FAST = ("qwen2.5-vl", "qwen3-vl", "text")


def pair(family: str, **settings: Any) -> tuple[VlmPolicy, VlmPolicy]:
    """Two policies with the same weights: one answers the fast way, one is stock throughout."""
    fast = shake(tiny_vlm(family, generate=FastGenerate(), **settings))
    stock = tiny_vlm(family, seed=1, generate=generate, **settings)
    stock.restore(fast.dump(), source="the other")
    return fast, stock


@pytest.mark.parametrize(
    ("family", "pictures"),
    [*((family, family != "text") for family in FAST), *((family, False) for family in FAST[:2])],
)
@pytest.mark.parametrize("rows", [4, 3, 1])
def test_fast_answers_have_the_log_probabilities_that_scoring_gives_them(
    family: str, pictures: bool, rows: int
) -> None:
    fast, stock = pair(family, pictures=pictures)
    screens = mixed_screens()[:rows]
    for seed in range(2):  # decoders are used again
        generator = torch.Generator().manual_seed(seed)
        decisions = fast.decide(screens, temperature=1.0, generator=generator)
        with torch.no_grad():
            scores = stock.score([stock.encode(screen) for screen in screens], [d.choice for d in decisions])
        found = [torch.tensor([getattr(d, name) for d in decisions]) for name in ("logp", "entropy", "value")]
        expected = (scores.logp_N, scores.entropy_N, torch.sigmoid(scores.value_logit_N))
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAST)
def test_a_learner_learns_the_same_through_the_fast_forward_passes(family: str) -> None:
    fast, stock = pair(family, score_batch=2)
    towers = [module for module in fast.network.modules() if is_packed_attention(module)]
    assert len(towers) == (0 if family == "text" else 2)
    assert all("forward" in tower.__dict__ for tower in towers)
    found = []
    for policy in (fast, stock):
        asked = [policy.encode(screen) for screen in mixed_screens()]
        scores = policy.score(asked, [(100, 101, 1)] * 4)
        (scores.logp_N.mean() + 0.1 * scores.entropy_N.mean()).backward()  # type: ignore[no-untyped-call]
        gradient = [weights.grad.flatten() for weights in policy.network.model.parameters() if weights.grad is not None]
        found.append((scores.logp_N.detach(), torch.cat(gradient)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("family", FAST)
def test_without_temperature_both_paths_give_the_same(family: str) -> None:
    fast, stock = pair(family)
    said = [
        [d.choice for d in policy.decide(mixed_screens(), temperature=0.0, generator=torch.Generator())]
        for policy in (fast, stock)
    ]
    assert said[0] == said[1]


def test_an_answer_that_is_nan_leaves_nothing_behind_for_the_next() -> None:
    policy = tiny_vlm("text", generate=FastGenerate())
    (token,) = policy.tokenizer("Z", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        policy.network.base.get_input_embeddings().weight[token] = float("nan")
    for observation, skipped in ((seen(instruction="Z " * 20), 1), (seen(recent=(), instruction="Go"), 1)):
        policy.decide([observation], temperature=0.0, generator=torch.Generator())
        assert policy.nonfinite.skipped == skipped
    assert isinstance(policy._generate, FastGenerate)


@pytest.mark.parametrize("way", [FastGenerate, lambda: generate])
def test_merged_adapters_answer_as_adapters_apart_do_and_leave_the_weights_as_they_were(way: Any) -> None:
    merged, apart = shake(tiny_vlm("text", generate=way(), merge=True)), tiny_vlm("text", generate=way())
    frozen = {name: w.clone() for name, w in merged.network.named_parameters() if not w.requires_grad}
    for seed in (0, 1, 2):
        shake(merged, seed=seed)
        apart.restore(merged.dump(), source="the other")
        said = [
            policy.decide(mixed_screens(), temperature=1.0, generator=torch.Generator().manual_seed(seed))
            for policy in (merged, apart)
        ]
        assert [d.choice for d in said[0]] == [d.choice for d in said[1]]
        assert [d.logp for d in said[0]] == pytest.approx([d.logp for d in said[1]], abs=2e-4)
    assert any(not torch.equal(w, frozen[name]) for name, w in merged.network.named_parameters() if name in frozen)
    scores = merged.score([merged.encode(s) for s in mixed_screens()], [d.choice for d in said[0]])
    assert scores.logp_N.tolist() == pytest.approx([d.logp for d in said[0]], abs=2e-4)
    scores.logp_N.sum().backward()  # type: ignore[no-untyped-call]
    assert all(w.grad is not None for name, w in merged.network.named_parameters() if "lora_" in name)
    assert all(torch.equal(w, frozen[name]) for name, w in merged.network.named_parameters() if name in frozen)


def test_the_generator_decides_what_is_sampled() -> None:
    fast, _ = pair("text")
    said = [
        [d.choice for d in fast.decide(mixed_screens(), temperature=1.0, generator=torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    ]
    assert said[0] == said[1] != said[2]


def test_sampling_leaves_torchs_own_generator_alone() -> None:
    fast, _ = pair("text")
    before = torch.get_rng_state()
    fast.decide(mixed_screens(), temperature=1.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "text"])
def test_where_the_fast_path_fails_stock_transformers_is_used_with_a_notice(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(self: Engine, *_: Any) -> None:
        raise RuntimeError("backend='inductor' raised:\nRuntimeError: Failed to find C compiler.")

    monkeypatch.setattr(Engine, "token", no_compiler)
    fallen, stock = pair(family)
    assert fallen._generate is generate
    (notice,) = fallen.notices
    assert "policy.vlm.fast = false" in notice
    assert "fails here: RuntimeError: backend='inductor' raised: RuntimeError: Failed to find C compiler.;" in notice
    assert not any("forward" in module.__dict__ for module in fallen.network.modules())
    text = fallen.network.base.config.get_text_config()
    assert text._attn_implementation == stock.network.base.config.get_text_config()._attn_implementation
    said = [
        policy.decide(mixed_screens()[:2], temperature=1.0, generator=torch.Generator().manual_seed(0))
        for policy in (fallen, stock)
    ]
    assert said[0] == said[1]


def test_a_fast_path_that_works_is_tried_once_and_leaves_no_cache_behind() -> None:
    policy = tiny_vlm("qwen3-vl", generate=FastGenerate())
    assert policy.notices == []
    assert isinstance(policy._generate, FastGenerate)
    assert not policy._generate.is_open


def test_too_little_memory_for_one_prompt_is_no_reason_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(self: Engine, *_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Engine, "token", greedy)
    with pytest.raises(ConfigError, match="ran out of memory"):
        tiny_vlm("text", generate=FastGenerate())


def test_a_model_that_chooses_among_experts_is_left_to_stock_transformers() -> None:
    body = {**BODY, "num_hidden_layers": 1, "vocab_size": 64, "num_experts": 4, "moe_intermediate_size": 32}
    assert not supports(AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", head_dim=16, **body)))
    assert supports(AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", head_dim=16, **body)))


@pytest.mark.parametrize(
    ("family", "fits"), [*((family, True) for family in FAST), ("screens", True), ("smolvlm", False), ("llava", False)]
)
def test_the_fast_path_is_known_to_be_supported_or_not(family: str, fits: bool) -> None:
    assert supports(tiny_vlm(family).network.base) is fits


def test_a_language_model_with_windows_or_scaled_logits_is_left_to_stock_transformers() -> None:
    base = tiny_vlm("text").network.base
    for name, value in {
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 4096,
        "final_logit_softcapping": 30.0,
    }.items():
        setattr(base.config, name, value)
        assert not supports(base)
        setattr(base.config, name, None)
    assert supports(base)


def test_on_the_cpu_answers_come_from_stock_transformers() -> None:
    assert tiny_vlm("text", generate=None)._generate is generate
