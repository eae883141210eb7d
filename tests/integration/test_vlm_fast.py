"""The fast forms of a Qwen-VL model say what the stock forms say."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from distrl.bench.vlm.model import ANSWER_TOKENS, CPU, FORBIDDEN_TOKENS, build_model, prompts
from distrl.errors import ConfigError, OutOfMemory
from distrl.policies.vlm.fast_decode import CHECK_END_EVERY, Decoder, Decoding, attend_grouped
from distrl.policies.vlm.fast_generation import MOST_DECODERS, FastGenerate, supports
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
from distrl.policies.vlm.tokens import entropy_of, token_logp
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


def test_grouped_attention_of_one_token_equals_attention_with_repeated_keys() -> None:
    query, key, value = torch.randn(3, 8, 1, 4), torch.randn(3, 2, 6, 4), torch.randn(3, 2, 6, 4)
    seen = torch.rand(3, 1, 1, 6) > 0.3
    seen[..., 0] = True
    found, _ = attend_grouped(None, query, key, value, seen, scaling=0.5)
    again = [x.repeat_interleave(4, dim=1) for x in (key, value)]
    expected = F.scaled_dot_product_attention(query, *again, attn_mask=seen, scale=0.5)
    torch.testing.assert_close(found, expected.transpose(1, 2))


def answers_of(model: Any, *, temperature: float) -> tuple[Any, dict[str, torch.Tensor]]:
    inputs = prompts(model, 3)
    decoding = Decoding(num_tokens=ANSWER_TOKENS, temperature=temperature, never=FORBIDDEN_TOKENS)
    longest = inputs["input_ids"].shape[1] + 3  # more room than the prompts need
    return Decoder(model, batch=3, longest_prompt=longest, decoding=decoding).answer(inputs)[0], inputs


def test_the_recorded_log_probabilities_are_those_of_a_plain_forward_over_prompt_and_answer(model: Any) -> None:
    answers, inputs = answers_of(model, temperature=0.7)
    plain = {
        name: torch.cat([inputs[name], more], dim=1)
        for name, more in (
            ("input_ids", answers.token_BA),
            ("attention_mask", torch.ones_like(answers.token_BA)),
            ("mm_token_type_ids", torch.zeros_like(answers.token_BA).int()),
        )
    }
    with torch.no_grad():
        logits = model(**{**inputs, **plain}, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    logp = token_logp(logits, torch.tensor(FORBIDDEN_TOKENS), 0.7)
    torch.testing.assert_close(answers.logp_BA, logp.gather(2, answers.token_BA[..., None])[..., 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(answers.entropy_BA, entropy_of(logp), atol=1e-4, rtol=0)


def test_without_temperature_the_answers_are_those_of_stock_generation(model: Any) -> None:
    inputs = prompts(model, 3)
    with torch.no_grad():
        stock = model.generate(
            **inputs, do_sample=False, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS,
            suppress_tokens=list(FORBIDDEN_TOKENS), pad_token_id=0,
        )[:, -ANSWER_TOKENS:]  # fmt: skip
    decoding = Decoding(num_tokens=ANSWER_TOKENS, temperature=0.0, never=FORBIDDEN_TOKENS)
    decoder = Decoder(model, batch=3, longest_prompt=inputs["input_ids"].shape[1], decoding=decoding)
    for _ in range(2):  # a decoder is used again and again
        assert torch.equal(decoder.answer(inputs)[0].token_BA, stock)


def test_no_answer_holds_a_token_that_none_may_hold(model: Any) -> None:
    answers, _ = answers_of(model, temperature=1.0)
    assert not torch.isin(answers.token_BA, torch.tensor(FORBIDDEN_TOKENS)).any()


def test_new_weights_change_the_next_answer_of_the_same_decoder(model: Any) -> None:
    inputs = prompts(model, 2)
    decoding = Decoding(num_tokens=4, temperature=0.0, never=FORBIDDEN_TOKENS)
    decoder = Decoder(model, batch=2, longest_prompt=inputs["input_ids"].shape[1], decoding=decoding)
    before = decoder.answer(inputs)[0].logp_BA.clone()
    weight = model.model.language_model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        weight.add_(0.1)
        after = decoder.answer(inputs)[0].logp_BA.clone()
        weight.sub_(0.1)
    assert not torch.allclose(before, after)


@pytest.mark.parametrize("needed", [3, None])
def test_no_more_tokens_are_made_once_every_answer_that_is_needed_has_ended(model: Any, needed: int | None) -> None:
    inputs = prompts(model, 4)
    greedy = Decoding(num_tokens=ANSWER_TOKENS, temperature=0.0, never=FORBIDDEN_TOKENS)
    longest = inputs["input_ids"].shape[1]
    whole = Decoder(model, batch=4, longest_prompt=longest, decoding=greedy).answer(inputs)[0].token_BA
    ends = tuple(set(whole[:needed, 0].tolist()))
    ending = msgspec.structs.replace(greedy, ends=ends)
    found = Decoder(model, batch=4, longest_prompt=longest, decoding=ending).answer(inputs, rows=needed)[0].token_BA
    assert torch.equal(found[:, :CHECK_END_EVERY], whole[:, :CHECK_END_EVERY])
    assert not found[:, CHECK_END_EVERY:].any()
    never_said = msgspec.structs.replace(greedy, ends=(FORBIDDEN_TOKENS[0],))
    again = Decoder(model, batch=4, longest_prompt=longest, decoding=never_said).answer(inputs, rows=needed)[0].token_BA
    assert torch.equal(again, whole)


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


def test_a_decoder_serves_shorter_prompts_too_and_the_one_unused_for_longest_makes_room() -> None:
    fast, _ = pair("text")
    answer = FastGenerate()
    decoding = Decoding(num_tokens=2, temperature=0.0)
    long = answer._decoder(fast.network.base, 1, 256, decoding)
    assert answer._decoder(fast.network.base, 1, 128, decoding) is long
    assert answer._decoder(fast.network.base, 1, 384, decoding) is not long
    large = answer._decoder(fast.network.base, 64, 128, decoding)  # beside which all others are small
    for batch in range(2, 2 + MOST_DECODERS - 3):
        answer._decoder(fast.network.base, batch, 128, decoding)
    assert answer._decoder(fast.network.base, 1, 256, decoding) is long
    answer._decoder(fast.network.base, 32, 128, decoding)
    assert len(answer._decoders) == MOST_DECODERS
    assert (1, 384, decoding) not in answer._decoders
    assert answer._decoder(fast.network.base, 1, 256, decoding) is long
    assert answer._decoder(fast.network.base, 64, 128, decoding) is large


def test_all_caches_together_are_at_most_twice_as_large_as_the_largest() -> None:
    fast, _ = pair("text")
    answer = FastGenerate()
    decoding = Decoding(num_tokens=8, temperature=0.0)
    for batch in (1, 2, 4, 8):
        answer._decoder(fast.network.base, batch, 256, decoding)
    assert len(answer._decoders) == 4
    for longest in (128, 384, 640, 1024, 256):
        answer._decoder(fast.network.base, 8, longest, decoding)
        sizes = [decoder._keys.keys[0].numel() for decoder in answer._decoders.values()]
        assert sum(sizes) <= 2 * max(sizes)


def test_an_answer_that_is_nan_leaves_nothing_behind_for_the_next() -> None:
    policy = tiny_vlm("text", generate=FastGenerate())
    (token,) = policy.tokenizer("Z", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        policy.network.base.get_input_embeddings().weight[token] = float("nan")
    for observation, skipped in ((seen(instruction="Z " * 20), 1), (seen(recent=(), instruction="Go"), 1)):
        policy.decide([observation], temperature=0.0, generator=torch.Generator())
        assert policy.nonfinite.skipped == skipped
    assert isinstance(policy._generate, FastGenerate)
    assert len(policy._generate._decoders) == 1  # both came from one


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
    def no_compiler(self: Decoder) -> None:
        raise RuntimeError("backend='inductor' raised:\nRuntimeError: Failed to find C compiler.")

    monkeypatch.setattr(Decoder, "_token", no_compiler)
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
    assert not policy._generate._decoders


def test_too_little_memory_for_one_prompt_is_no_reason_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(self: Decoder) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Decoder, "_token", greedy)
    with pytest.raises(ConfigError, match="ran out of memory"):
        tiny_vlm("text", generate=FastGenerate())


def test_a_model_that_chooses_among_experts_is_left_to_stock_transformers() -> None:
    body = {**BODY, "num_hidden_layers": 1, "vocab_size": 64, "num_experts": 4, "moe_intermediate_size": 32}
    assert not supports(AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", head_dim=16, **body)))
    assert supports(AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", head_dim=16, **body)))


@pytest.mark.parametrize(
    ("family", "fits"), [*((family, True) for family in FAST), ("smolvlm", False), ("llava", False)]
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


def test_a_decoder_that_is_let_go_of_leaves_nothing_on_the_model(model: Any) -> None:
    answers_of(model, temperature=0.0)
    assert not model.model.language_model._forward_pre_hooks


def test_too_little_memory_for_a_batch_gives_its_cache_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, token = tiny_vlm("text", generate=FastGenerate()), Decoder._token

    def greedy(self: Decoder) -> None:
        if self.batch > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        token(self)

    monkeypatch.setattr(Decoder, "_token", greedy)
    with pytest.raises(OutOfMemory, match="decide_batch 2"):
        policy.decide([seen()] * 4, temperature=0.0, generator=torch.Generator())
    assert isinstance(policy._generate, FastGenerate)
    assert not policy._generate._decoders
    policy.decide([seen()], temperature=0.0, generator=torch.Generator())
    assert [key[0] for key in policy._generate._decoders] == [1]
