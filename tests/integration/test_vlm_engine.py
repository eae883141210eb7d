"""Continuous batching: whoever joins and leaves, each answer is the one that stock transformers gives alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from distrl.bench.vlm.decisions import FastAnswers
from distrl.bench.vlm.model import ANSWER_TOKENS, CPU, FORBIDDEN_TOKENS, build_model, prompts
from distrl.errors import OutOfMemory
from distrl.policies.vlm.engine import Engine, common_prefix
from distrl.policies.vlm.fast_generation import FastGenerate
from distrl.policies.vlm.fast_layers import restore_layers
from distrl.policies.vlm.fast_text import FastText, KeyValues
from distrl.policies.vlm.fast_vision import FastVision
from distrl.policies.vlm.packed import ImageFeatures
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.slot_attention import Reach, attend_slots
from distrl.policies.vlm.tokens import Vocabulary, draw, entropy_of, token_logp
from distrl.types import Decision, Observation
from support.vlms import mixed_screens, seen, shake, tiny_vlm

FAMILIES = ("qwen2.5-vl", "qwen3-vl", "text")


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


def pair(family: str, **settings: Any) -> tuple[VlmPolicy, VlmPolicy]:
    """Two policies with the same weights: one answers continuously, one is stock throughout."""
    fast = shake(tiny_vlm(family, generate=FastGenerate(), **settings))
    stock = tiny_vlm(family, seed=1, **settings)
    stock.restore(fast.dump(), source="the other")
    return fast, stock


def alone(policy: VlmPolicy, screens: Sequence[Observation]) -> list[Decision]:
    """The likeliest answers, one prompt at a time."""
    return [policy.decide([screen], temperature=0.0, generator=torch.Generator())[0] for screen in screens]


# --- the parts ------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    sequences=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4), seed=st.integers(0, 99)
)
def test_new_tokens_attend_to_their_slot_up_to_themselves(sequences: list[tuple[int, int]], seed: int) -> None:
    generator, places = torch.Generator().manual_seed(seed), 10
    new, past = ([pair[part] for pair in sequences] for part in (0, 1))
    slots = torch.randperm(6, generator=generator)[: len(sequences)]
    keys, values = (torch.randn(6 * places, 2, 4, generator=generator) for _ in range(2))
    query = torch.randn(sum(new), 4, 4, generator=generator)
    used = torch.tensor(new) + torch.tensor(past)
    stale = torch.ones(6 * places, dtype=torch.bool)
    for slot, count in zip(slots.tolist(), used.tolist(), strict=True):
        stale[slot * places : slot * places + count] = False
    values[stale] = float("nan")  # what others have left there
    reach = Reach(
        bounds=torch.tensor([0, *new]).cumsum(0).int(),
        start=torch.cat([slots * places, slots[:1]]).int(),
        used_S=used.int(),
        most_new=max(new),
        places=places,
    )
    found = attend_slots(query, keys, values, reach, 0.5).split(new)
    for part, at, count, mine in zip(query.split(new), (slots * places).tolist(), used.tolist(), found, strict=True):
        key, value = (x[at : at + count].repeat_interleave(2, 1).transpose(0, 1) for x in (keys, values))
        order = torch.arange(count)
        mask = order <= order[-len(part) :, None]
        expected = F.scaled_dot_product_attention(part.transpose(0, 1), key, value, attn_mask=mask, scale=0.5)
        torch.testing.assert_close(mine, expected.transpose(0, 1))


@settings(max_examples=30, deadline=None)
@given(words=st.integers(1, 400), seed=st.integers(0, 99))
def test_a_draw_is_the_token_at_its_place_of_the_cumulative_distribution(words: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(5, words, generator=generator)
    logits[:, 1::3] = float("-inf")
    logp, share = torch.log_softmax(logits, -1), torch.rand(5, dtype=torch.float64, generator=generator)
    total = logp.exp().double().cumsum(-1)
    expected = torch.searchsorted(total, share[:, None] * total[:, -1:], right=True)[:, 0]
    found = draw(logp, share)
    assert torch.equal(found, expected)
    assert (logp.gather(1, found[:, None]) > float("-inf")).all()


def test_the_vision_tower_gives_what_the_stock_one_gives_for_images_of_any_size(model: Any) -> None:
    grids = torch.tensor([[1, 52, 26], [1, 4, 6], [1, 2, 2], [1, 16, 8]])
    pixels = torch.randn(int(grids.prod(1).sum()), 1176)
    with torch.no_grad():
        stock = model.model.visual(hidden_states=pixels, grid_thw=grids).pooler_output
        tower = FastVision(model.model.visual)
        for _ in range(2):  # what is kept is used again
            torch.testing.assert_close(torch.cat(tower(pixels, grids)), stock, atol=2e-5, rtol=1e-4)
        after = model.model.visual(hidden_states=pixels, grid_thw=grids).pooler_output
    torch.testing.assert_close(after, stock)  # whose weights are views now


def test_the_recorded_log_probabilities_are_those_of_a_plain_forward_over_prompt_and_answer(model: Any) -> None:
    inputs = prompts(model, 3)
    answers = FastAnswers(model, inputs).answer()
    token_BA = torch.tensor([one.answer for one in answers])
    plain = {
        name: torch.cat([inputs[name], more], dim=1)
        for name, more in (
            ("input_ids", token_BA),
            ("attention_mask", torch.ones_like(token_BA)),
            ("mm_token_type_ids", torch.zeros_like(token_BA).int()),
        )
    }
    restore_layers(model)
    with torch.no_grad():
        logits = model(**{**inputs, **plain}, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    logp = token_logp(logits, torch.tensor(FORBIDDEN_TOKENS))
    found = torch.tensor([one.logps for one in answers])
    torch.testing.assert_close(found, logp.gather(2, token_BA[..., None])[..., 0], atol=1e-5, rtol=0)
    entropy = torch.tensor([one.entropy for one in answers])
    torch.testing.assert_close(entropy, entropy_of(logp).sum(1), atol=1e-3, rtol=0)
    assert not torch.isin(token_BA, torch.tensor(FORBIDDEN_TOKENS)).any()


def test_a_common_beginning_ends_before_the_first_difference_and_the_first_image() -> None:
    assert common_prefix(range(20), [*range(15), 99], set()) == tuple(range(15))
    assert common_prefix(range(20), range(20), {12}) == tuple(range(12))
    assert common_prefix(range(20), [*range(3), 99], set()) == ()


# --- joining and leaving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_the_same_whoever_joins_on_the_way(family: str) -> None:
    fast, stock = pair(family, decide_batch=3)
    screens = [*mixed_screens(), seen("other", instruction="Call Ann"), seen("tall", recent=())]
    expected = alone(stock, screens)
    found: dict[int, Decision] = {}
    ask = {"temperature": 0.0, "generator": torch.Generator()}
    fast.ask({0: screens[0], 1: screens[1]}, **ask)  # type: ignore[arg-type]
    for _ in range(3):
        found.update(fast.advance())
    fast.ask({2: screens[2], 3: screens[3], 4: screens[4]}, **ask)  # type: ignore[arg-type]  # more than there is room for
    found.update(fast.advance())
    fast.ask({5: screens[5]}, **ask)  # type: ignore[arg-type]
    while len(found) < len(screens):
        found.update(fast.advance())
    for number, decision in enumerate(expected):
        assert found[number].choice == decision.choice
        assert found[number].logp == pytest.approx(decision.logp, abs=2e-4)
        assert found[number].value == pytest.approx(decision.value, abs=1e-4)


def test_what_is_drawn_does_not_depend_on_who_shares_the_batch() -> None:
    fast, _ = pair("text", decide_batch=2)
    screens = mixed_screens()
    together = fast.decide(screens, temperature=1.0, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    one_by_one = [fast.decide([screen], temperature=1.0, generator=generator)[0] for screen in screens]
    assert [one.choice for one in together] == [one.choice for one in one_by_one]


def test_nobody_waits_for_the_longest_answer() -> None:
    fast, stock = pair("text", decide_batch=4, answer_tokens=30)
    screens = mixed_screens()
    said = [one.choice for one in alone(stock, screens)]
    by_end = {
        end: [answer.index(end) + 1 if end in answer else len(answer) for answer in said]
        for end in {token for answer in said for token in answer}
    }
    end, lengths = max(by_end.items(), key=lambda item: max(item[1]) - min(item[1]))
    assert max(lengths) > min(lengths) + 3, "answers of one length would show nothing"
    fast.vocabulary = Vocabulary(ends=(end,), padding=0, forbidden=())
    fast.ask(dict(enumerate(screens)), temperature=0.0, generator=torch.Generator())
    when: dict[int, int] = {}
    for step in range(40):
        when.update({ticket: step for ticket, _ in fast.advance()})
    assert all(when[number] <= length + 1 for number, length in enumerate(lengths))
    assert max(when.values()) > min(when.values()) + 2


def test_the_shared_beginning_is_computed_once_for_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, stock = pair("qwen2.5-vl")
    shared, share = list[int](), KeyValues.share
    monkeypatch.setattr(
        KeyValues, "share", lambda self, length, source: (shared.append(length), share(self, length, source))[1]
    )
    for number, screens in enumerate((mixed_screens(), mixed_screens()[:1], mixed_screens())):
        if number == 2:
            shake(fast, seed=5)
            stock.restore(fast.dump(), source="the other")
        found = fast.decide(screens, temperature=0.0, generator=torch.Generator())
        assert [one.choice for one in found] == [one.choice for one in alone(stock, screens)]
        assert len(shared) == (2 if number == 2 else 1)
    assert shared[0] > 100


def test_a_longer_prompt_waits_until_the_slots_can_grow() -> None:
    fast, stock = pair("text")
    short, long = seen(instruction="Go"), seen(instruction="Open the settings " * 40)
    expected = alone(stock, [short, long, short])
    fast.ask({0: short}, temperature=0.0, generator=torch.Generator())
    fast.advance()
    assert isinstance(fast._generate, FastGenerate)
    assert fast._generate.cache is not None
    before = fast._generate.cache.places
    fast.ask({1: long, 2: short}, temperature=0.0, generator=torch.Generator())
    found: dict[int, Decision] = {}
    while len(found) < 3:
        found.update(fast.advance())
    assert fast._generate.cache.places > before
    assert [found[number].choice for number in range(3)] == [one.choice for one in expected]


def test_a_screen_that_was_seen_before_does_not_go_through_the_tower_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = pair("qwen2.5-vl")
    looked, look = list[int](), FastVision.__call__
    monkeypatch.setattr(
        FastVision, "__call__", lambda self, pixels, grids: (looked.append(len(grids)), look(self, pixels, grids))[1]
    )
    for screens in ([seen("tall"), seen("tall", instruction="Go")], [seen("tall", recent=()), seen("wide")]):
        fast.decide(screens, temperature=0.0, generator=torch.Generator())
    assert looked == [1, 1]


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "screens"])
def test_features_that_are_kept_take_no_more_memory_than_is_counted(family: str) -> None:
    policy = tiny_vlm(family, generate=FastGenerate())
    policy.decide(mixed_screens(), temperature=0.0, generator=torch.Generator())
    kept = list(policy._features._kept.values())
    taken = sum(one.untyped_storage().nbytes() for image in kept for one in (image.features, *image.deepstack))
    assert taken == sum(image.num_bytes for image in kept) == policy._features._size > 0


def test_features_of_a_tower_that_is_trained_are_never_kept() -> None:
    policy = tiny_vlm("qwen2.5-vl", generate=FastGenerate(), lora_rank=0)
    first = policy.decide([seen()], temperature=0.0, generator=torch.Generator())
    with torch.no_grad():
        policy.network.base.model.visual.merger.mlp[2].weight.mul_(-1.0)
    second = policy.decide([seen()], temperature=0.0, generator=torch.Generator())
    assert isinstance(policy._features, ImageFeatures)
    assert first[0].logp != second[0].logp


def test_weights_must_not_change_while_answers_are_under_way() -> None:
    fast, _ = pair("text")
    fast.ask({0: seen()}, temperature=0.0, generator=torch.Generator())
    fast.advance()
    shake(fast, seed=4)
    fast.ask({1: seen()}, temperature=0.0, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="weights changed"):
        fast.advance()


def test_the_weights_are_those_of_the_model_and_no_copy_of_them() -> None:
    policy = tiny_vlm("text")
    before = {name: weights.clone() for name, weights in policy.network.named_parameters()}
    text = FastText(policy.network.base)
    layer = policy.network.base.model.layers[0]
    fused = text._layers[0].qkv.weight_ED
    query = layer.self_attn.q_proj.base_layer.weight
    assert query.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
    assert all(torch.equal(weights, before[name]) for name, weights in policy.network.named_parameters())


def test_too_little_memory_gives_the_cache_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, token = tiny_vlm("text", generate=FastGenerate()), Engine.token

    def greedy(self: Engine, slot_B: torch.Tensor, bounds: torch.Tensor) -> None:
        if len(slot_B) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        token(self, slot_B, bounds)

    monkeypatch.setattr(Engine, "token", greedy)
    with pytest.raises(OutOfMemory, match="decide_batch 2"):
        policy.decide([seen()] * 4, temperature=0.0, generator=torch.Generator())
    assert isinstance(policy._generate, FastGenerate)
    assert policy._generate.cache is None
    assert len(policy.decide([seen()], temperature=0.0, generator=torch.Generator())) == 1


def test_too_little_memory_for_what_joins_gives_up_what_is_under_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked then asks again about everything, by other tickets: an answer to an old one would be nobody's."""
    policy, images = tiny_vlm("qwen2.5-vl", generate=FastGenerate()), VlmPolicy._image_features
    policy.ask({0: seen()}, temperature=0.0, generator=torch.Generator())
    policy.advance()

    def greedy(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(VlmPolicy, "_image_features", greedy)
    with pytest.raises(OutOfMemory):
        policy.ask({1: seen("wide")}, temperature=0.0, generator=torch.Generator())
    monkeypatch.setattr(VlmPolicy, "_image_features", images)
    policy.ask({2: seen()}, temperature=0.0, generator=torch.Generator())
    found: list[int] = []
    for _ in range(2 * policy.config.answer_tokens):
        found += [ticket for ticket, _ in policy.advance()]
    assert found == [2]


def test_float8_where_there_is_none_is_told_and_changes_nothing() -> None:
    plain, told = (tiny_vlm("qwen2.5-vl", generate=FastGenerate(), fp8=how) for how in ("none", "all"))
    assert not plain.notices
    (notice,) = told.notices
    assert 'policy.vlm.fp8 = "all" has no effect here' in notice
    assert alone(plain, mixed_screens()) == alone(told, mixed_screens())
