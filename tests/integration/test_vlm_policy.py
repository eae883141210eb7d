from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load, save

from distrl.errors import ConfigError, RoleCrashed, StoreError
from distrl.policies.base import Scores
from distrl.policies.nonfinite import MAX_NONFINITE, WINDOW
from distrl.policies.vlm import scoring
from distrl.policies.vlm.caches import TextCache
from distrl.policies.vlm.generation import Generated, Sampler, Sampling, generate
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.prompt import Encoded
from distrl.policies.vlm.tokens import Inputs, Vocabulary, entropy_of, pack_rows, token_logp
from distrl.types import Decision, Finish, Observation, Tap, TypeText, Unparsed
from support.vlms import FAMILIES, mixed_screens, seen, shake, tiny_vlm

SEEING = FAMILIES[:4]


def decide(policy: VlmPolicy, observations: list[Observation], *, temperature: float = 1.0) -> list[Decision]:
    return policy.decide(observations, temperature=temperature, generator=torch.Generator().manual_seed(5))


def score(policy: VlmPolicy, observations: list[Observation], choices: list[tuple[int, ...]]) -> Scores:
    return policy.score([policy.encode(observation) for observation in observations], choices)


@pytest.mark.parametrize("family", [*FAMILIES, "llava"])
@pytest.mark.parametrize("rank", [4, 0])
def test_scoring_gives_what_was_recorded(family: str, rank: int) -> None:
    policy, screens = shake(tiny_vlm(family, lora_rank=rank, decide_batch=3, score_batch=2)), mixed_screens()
    decisions = decide(policy, screens)
    with torch.no_grad():
        again = score(policy, screens, [decision.choice for decision in decisions])
    assert again.logp_N.tolist() == pytest.approx([decision.logp for decision in decisions], abs=1e-4)
    assert again.entropy_N.tolist() == pytest.approx([decision.entropy for decision in decisions], abs=1e-4)
    values = [decision.value for decision in decisions]
    assert torch.sigmoid(again.value_logit_N).tolist() == pytest.approx(values, abs=1e-5)
    assert len({round(decision.logp, 3) for decision in decisions}) == len(screens)
    assert len({round(value, 4) for value in values}) > 1


@pytest.mark.parametrize("rank", [4, 0])
def test_short_numbers_give_nearly_the_same_and_train_long_weights(rank: int) -> None:
    policy, screens = shake(tiny_vlm("qwen3-vl", lora_rank=rank, dtype="bfloat16")), mixed_screens()
    decisions = decide(policy, screens)
    scores = score(policy, screens, [decision.choice for decision in decisions])
    for again, decision in zip(scores.logp_N.tolist(), decisions, strict=True):
        assert again == pytest.approx(decision.logp, abs=0.01 * len(decision.choice))  # of 6 nats a token
    (scores.logp_N.sum() + scores.value_logit_N.sum()).backward()  # type: ignore[no-untyped-call]
    found = [weights.grad for weights in policy.network.parameters() if weights.grad is not None]
    assert {gradient.dtype for gradient in found} == {torch.float32}
    assert all(bool(gradient.isfinite().all()) for gradient in found)


@pytest.mark.parametrize("temperature", [0.5, 0.0])
def test_a_log_probability_is_that_of_the_temperature_it_was_sampled_with(temperature: float) -> None:
    asked: list[Inputs] = []

    def listening(network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated:
        asked.append(inputs)
        return generate(network, inputs, sampling)

    policy = tiny_vlm(generate=listening)
    (decision,) = decide(policy, [seen()], temperature=temperature)
    answer = torch.tensor([decision.choice])
    inputs = {"input_ids": torch.cat([asked[0]["input_ids"], answer], dim=1)}
    with torch.no_grad():
        logits, _ = policy.network(inputs, keep=len(decision.choice) + 1)
    logp = token_logp(logits[:, :-1], torch.tensor(policy.vocabulary.forbidden).long(), temperature or 1.0)
    assert float(logp.gather(-1, answer[..., None]).sum()) == pytest.approx(decision.logp, abs=1e-4)
    assert float(entropy_of(logp).sum()) == pytest.approx(decision.entropy, abs=1e-4)
    if temperature == 0:
        assert logp.argmax(-1).tolist() == answer.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_likeliest_answer_is_the_same_alone_and_in_company(family: str) -> None:
    policy, screens = tiny_vlm(family, decide_batch=4), mixed_screens()
    together = [decision.choice for decision in decide(policy, screens, temperature=0.0)]
    alone = [decide(policy, [screen], temperature=0.0)[0].choice for screen in screens]
    assert together == alone


@pytest.mark.parametrize("family", ["qwen2.5-vl", "text"])
def test_an_answer_ends_with_its_first_end_and_counts_nothing_after_it(family: str) -> None:
    policy, screens = tiny_vlm(family), mixed_screens()
    many = tuple(range(1, len(policy.tokenizer), 5))  # so that some answers end soon
    policy.vocabulary = msgspec.structs.replace(policy.vocabulary, ends=many)
    decisions = decide(policy, screens * 2)
    assert len({len(decision.choice) for decision in decisions}) > 2
    for decision in decisions:
        ended = [token in many for token in decision.choice]
        assert not any(ended[:-1])
        assert ended[-1] or len(ended) == policy.config.answer_tokens
    with torch.no_grad():
        again = score(policy, screens * 2, [decision.choice for decision in decisions])
    assert again.logp_N.tolist() == pytest.approx([decision.logp for decision in decisions], abs=1e-4)
    assert again.entropy_N.tolist() == pytest.approx([decision.entropy for decision in decisions], abs=1e-4)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    draws, vocabulary = 4000, Vocabulary(ends=(0,), padding=0, forbidden=(2,))
    sampling = Sampling(
        temperature=0.5, answer_tokens=1, vocabulary=vocabulary, generator=torch.Generator().manual_seed(0)
    )
    sampler = Sampler(lambda: torch.zeros(draws), sampling)
    scores = torch.tensor([0.0, 0.3, 9.0, -0.5, 1.0]).expand(draws, -1)
    forced = sampler(None, scores)
    tokens = [answer[0] for answer in sampler.answered().answers]
    assert forced.argmax(-1).tolist() == tokens
    chances = token_logp(scores[:1], torch.tensor([2]), 0.5).exp().squeeze(0).tolist()
    assert chances[2] == 0.0
    for token, chance in enumerate(chances):
        assert tokens.count(token) / draws == pytest.approx(chance, abs=4 * (chance / draws) ** 0.5)


@pytest.mark.parametrize("family", SEEING)
def test_the_content_of_the_image_matters(family: str) -> None:
    policy = tiny_vlm(family)
    (decision,) = decide(policy, [seen("tall")])
    with torch.no_grad():
        same, other = score(policy, [seen("tall"), seen("other")], [decision.choice] * 2).logp_N.tolist()
    assert same == pytest.approx(decision.logp, abs=1e-4)
    assert abs(other - same) > 1e-3


def test_a_model_that_takes_images_reads_elements_alone_where_configured() -> None:
    policy = tiny_vlm("qwen2.5-vl", pictures=False)
    decisions = decide(policy, mixed_screens())
    with torch.no_grad():
        again = score(policy, mixed_screens(), [decision.choice for decision in decisions])
    assert again.logp_N.tolist() == pytest.approx([decision.logp for decision in decisions], abs=1e-4)
    assert policy.encode(seen()).images == ()


# learning


def gradients(family: str, **settings: Any) -> dict[str, torch.Tensor]:
    policy, screens = shake(tiny_vlm(family, **settings)), mixed_screens()
    choices = [policy.imitate(screen, Tap(0.5, 0.05)) or () for screen in screens]
    scores = score(policy, screens, choices)
    (scores.logp_N.sum() + 0.1 * scores.entropy_N.sum() + scores.value_logit_N.sum()).backward()  # type: ignore[no-untyped-call]
    return {name: weights.grad for name, weights in policy.network.named_parameters() if weights.grad is not None}


@pytest.mark.parametrize("family", ["qwen3-vl", "text"])
def test_the_gradient_does_not_depend_on_the_micro_batches(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gradients(family, score_batch=4, answer_tokens=40)
    assert sum(bool(gradient.any()) for gradient in whole.values()) == len(whole)
    others = [
        gradients(family, score_batch=1, answer_tokens=40),
        gradients(family, score_batch=3, answer_tokens=40, gradient_checkpointing=True),
    ]
    monkeypatch.setattr(scoring, "activation_budget_bytes", lambda device: 0.0)
    others.append(gradients(family, score_batch=1, answer_tokens=40, gradient_checkpointing=True))
    for other in others:
        assert whole.keys() == other.keys()
        assert all(torch.allclose(whole[name], other[name], rtol=1e-3, atol=1e-4) for name in whole)


ENOUGH = 1e9


@pytest.mark.parametrize(
    ("by_layers", "room", "layers", "looks"),
    [(True, ENOUGH, 3, 3), (True, 3.0, 6, 3), (True, 0.0, 8, 5), (False, ENOUGH, 5, 5)],
    ids=["all is kept", "by layers", "by layers and parts, for want of memory", "by parts"],
)
def test_nothing_is_computed_more_often_than_memory_asks_for(
    by_layers: bool, room: float, layers: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three parts, of which the backward pass begins with the last."""
    monkeypatch.setattr(scoring, "activation_budget_bytes", lambda device: room)
    monkeypatch.setattr(scoring.Scorer, "_kept_bytes", lambda scorer, batch: (1.0, 10.0))
    policy = shake(tiny_vlm("qwen2.5-vl", score_batch=1, gradient_checkpointing=by_layers))
    counts = {"layer": 0, "look": 0}
    inner = policy.network.base.model
    for name, module in (("layer", inner.language_model.layers[0].self_attn), ("look", inner.visual)):
        module.register_forward_pre_hook(lambda *_, name=name: counts.update({name: counts[name] + 1}))
    score(policy, mixed_screens()[:3], [(100, 101, 1)] * 3).logp_N.sum().backward()  # type: ignore[no-untyped-call]
    assert counts == {"layer": layers, "look": looks}


def test_micro_batches_keep_their_activations_as_long_as_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = shake(tiny_vlm("text", score_batch=1, gradient_checkpointing=True))
    text, again = policy.network.base.config, [0]
    length = len(policy.tokenizer(policy.prompt(policy.encode(seen())), add_special_tokens=False)["input_ids"]) + 2
    each = length * text.hidden_size * text.num_hidden_layers * 4 + scoring.WORD_BYTES * 2 * text.vocab_size
    policy.network.base.model.layers[0].self_attn.register_forward_pre_hook(
        lambda *_: again.__setitem__(0, again[0] + 1)
    )
    for room, passes in ((2 * each, 2 * 4 + 1), (3 * each, 2 * 4)):
        monkeypatch.setattr(scoring, "activation_budget_bytes", lambda device, room=room: room)
        again[0] = 0
        score(policy, [seen()] * 4, [(5, 1)] * 4).logp_N.sum().backward()  # type: ignore[no-untyped-call]
        assert again[0] == passes


def test_the_critic_sends_no_gradient_into_the_model() -> None:
    policy = shake(tiny_vlm())
    score(policy, [seen()], [()]).value_logit_N.sum().backward()  # type: ignore[no-untyped-call]
    reached = {name for name, weights in policy.network.named_parameters() if weights.grad is not None}
    assert reached
    assert all(name.startswith("value.") for name in reached)


def test_an_empty_choice_is_scored_for_its_value_alone() -> None:
    policy = shake(tiny_vlm())
    (decision,) = decide(policy, [seen()])
    scores = score(policy, [seen(), seen()], [(), decision.choice])
    assert (scores.logp_N[0].item(), scores.entropy_N[0].item()) == (0.0, 0.0)
    assert torch.allclose(scores.value_logit_N[0], scores.value_logit_N[1], atol=1e-5)


@pytest.mark.parametrize("action", [Tap(0.5, 0.05), TypeText('Say "hi"'), Finish(answer="7 km")])
def test_an_imitated_answer_says_the_action(action: Tap | TypeText | Finish) -> None:
    policy = tiny_vlm(answer_tokens=60)
    answer = policy.imitate(seen(), action)
    assert answer is not None
    assert answer[-1] == policy.tokenizer.eos_token_id
    words = policy.tokenizer.decode(answer[:-1])
    assert words == policy.dialect.print(action, policy._prompter.screen(seen()))


def test_what_cannot_be_expressed_is_not_imitated() -> None:
    assert tiny_vlm(answer_tokens=60).imitate(seen(), Unparsed("?")) is None
    assert tiny_vlm(answer_tokens=3).imitate(seen(), Tap(0.5, 0.05)) is None


def test_image_placeholders_are_never_generated_and_have_probability_0() -> None:
    policy = tiny_vlm("qwen2.5-vl", lora_rank=0)
    sign = policy.network.base.config.image_token_id
    with torch.no_grad():
        policy.network.base.lm_head.weight[sign] *= 1000.0
    decisions = decide(policy, mixed_screens() * 4)
    assert not any(sign in decision.choice for decision in decisions)
    assert policy.imitate(seen(), TypeText("<|image_pad|>")) is None
    with torch.no_grad():
        again = score(policy, [seen("tall")], [decisions[0].choice])
    assert float(again.logp_N) == pytest.approx(decisions[0].logp, abs=1e-4)


# weights


def test_only_adapters_and_the_value_head_travel() -> None:
    policy = tiny_vlm("qwen2.5-vl")
    names = load(policy.dump()).keys()
    assert all(".lora_" in name or name.startswith("value.") for name in names)
    assert not any("visual" in name for name in names)
    everything = load(tiny_vlm("qwen2.5-vl", lora_rank=0).dump())
    assert sum(tensor.numel() for tensor in everything.values()) == sum(
        weights.numel() for weights in tiny_vlm("qwen2.5-vl", lora_rank=0).network.parameters()
    )


@pytest.mark.parametrize("rank", [4, 0])
def test_restored_weights_change_the_next_decision_to_theirs(rank: int) -> None:
    learner, worker = shake(tiny_vlm(lora_rank=rank, seed=1)), tiny_vlm(lora_rank=rank, seed=2)
    before, wanted = (decide(policy, [seen()], temperature=0.0)[0] for policy in (worker, learner))
    assert before.choice != wanted.choice
    worker.restore(learner.dump(), source="version 1")
    (after,) = decide(worker, [seen()], temperature=0.0)
    assert (after.choice, after.value) == (wanted.choice, wanted.value)
    assert worker.dump() == learner.dump()


def test_the_same_seed_gives_the_same_weights() -> None:
    assert tiny_vlm(seed=3).dump() == tiny_vlm(seed=3).dump()
    assert tiny_vlm(seed=3).dump() != tiny_vlm(seed=4).dump()


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    policy = tiny_vlm()
    for data in (b"nothing", tiny_vlm(lora_rank=2).dump(), save({"strange": torch.zeros(1)})):
        before = policy.dump()
        with pytest.raises(StoreError, match="version 7"):
            policy.restore(data, source="version 7")
        assert policy.dump() == before


def test_adapters_for_layers_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="q_proj"):
        tiny_vlm(lora_targets=("query", "value"))
    named = load(tiny_vlm(lora_targets=("q_proj", "v_proj")).dump())
    assert {name.split(".")[-4] for name in named if "lora_" in name} == {"q_proj", "v_proj"}


# what may go wrong


def poison(policy: VlmPolicy, word: str) -> None:
    """Make every prompt with `word` come out as no number."""
    (token,) = policy.tokenizer(word, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        policy.network.base.get_input_embeddings().weight[token] = float("nan")


def test_an_answer_that_is_nan_is_an_invalid_step_and_counted() -> None:
    policy = tiny_vlm()
    poison(policy, "Z")
    good, bad = decide(policy, [seen(), seen(instruction="Z")], temperature=0.0)
    assert (bad.action, bad.choice, bad.logp, bad.entropy) == (Unparsed(""), (), 0.0, 0.0)
    assert good.choice == decide(policy, [seen()], temperature=0.0)[0].choice
    assert policy.nonfinite.skipped == 1


def test_a_score_that_is_nan_is_kept_out_of_the_gradient() -> None:
    policy = shake(tiny_vlm(score_batch=1))
    poison(policy, "Z")
    (decision,) = decide(policy, [seen()])
    scores = score(policy, [seen(), seen(instruction="Z")], [decision.choice] * 2)
    assert scores.logp_N.tolist() == [pytest.approx(decision.logp, abs=1e-4), 0.0]
    (scores.logp_N.sum() + scores.value_logit_N.sum()).backward()  # type: ignore[no-untyped-call]
    found = [weights.grad for weights in policy.network.parameters() if weights.grad is not None]
    assert found
    assert all(bool(gradient.isfinite().all()) for gradient in found)
    assert policy.nonfinite.skipped == 1


def test_an_update_of_such_scores_alone_changes_nothing() -> None:
    policy = shake(tiny_vlm("text"))
    poison(policy, "Z")
    score(policy, [seen(instruction="Z")], [(5, 1)]).logp_N.sum().backward()  # type: ignore[no-untyped-call]
    assert all(weights.grad is None for weights in policy.network.parameters())


def test_no_attention_of_a_language_model_is_masked_while_it_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[torch.Tensor | None] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(*given: Any, **named: Any) -> torch.Tensor:
        masks.append(named.get("attn_mask"))
        return attend(*given, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    policy, screens = tiny_vlm("text", score_batch=4), mixed_screens()
    score(policy, screens, [(5, 1), (5,), (5, 6, 1), (1,)])
    assert masks
    assert all(mask is None for mask in masks)


def test_rows_are_packed_and_padded_behind() -> None:
    inputs, last_B = pack_rows([[5, 6, 7], [8]], [(9,), (3, 4)], padding=0)
    assert inputs["input_ids"].tolist() == [[5, 6, 7, 9], [8, 3, 4, 0]]
    assert last_B.tolist() == [2, 0]


def test_tokens_are_made_once_for_what_is_remembered() -> None:
    asked: list[str] = []

    def tokens(encoded: Sequence[Encoded]) -> list[list[int]]:
        asked.extend(item.text for item in encoded)
        return [[len(item.text)] for item in encoded]

    texts = TextCache(tokens, capacity=2)
    a, bb, ccc = (Encoded(text=text) for text in ("a", "bb", "ccc"))
    assert [list(row) for row in texts.ids([a, bb, a])] == [[1], [2], [1]]
    assert [list(row) for row in texts.ids([ccc, bb, a])] == [[3], [2], [1]]
    assert asked == ["a", "bb", "ccc"]
    texts.ids([bb, ccc])
    assert asked == ["a", "bb", "ccc"]
    texts.ids([a])
    assert asked == ["a", "bb", "ccc", "a"]


def test_too_many_such_answers_end_with_the_cause() -> None:
    policy = tiny_vlm(decide_batch=2, answer_tokens=1)
    poison(policy, "Z")
    one_of_two = [seen(instruction="Z"), seen()]
    decide(policy, one_of_two * (MAX_NONFINITE - 1))
    with pytest.raises(RoleCrashed, match=f"{MAX_NONFINITE} of the policy's last {WINDOW} results"):
        decide(policy, one_of_two)


def test_finite_scores_of_a_micro_batch_with_a_nan_one_count_as_skipped() -> None:
    policy = tiny_vlm("text", score_batch=3)
    poison(policy, "Z")
    score(policy, [seen(), seen(instruction="Z"), seen()], [(5, 1)] * 3)
    assert policy.nonfinite.skipped == 3


def test_too_little_memory_names_the_setting_to_lower() -> None:
    def greedy(network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated:
        raise torch.OutOfMemoryError("CUDA out of memory")

    policy = tiny_vlm(generate=greedy, decide_batch=8)
    with pytest.raises(ConfigError, match=r"(?s)on a batch of 8 .*--policy\.vlm\.decide_batch 4"):
        decide(policy, [seen()] * 9)
    with pytest.raises(ConfigError, match=r"lower policy\.vlm\.image_max_pixels"):
        decide(policy, [seen()])  # a smaller batch than one cannot be
    policy = tiny_vlm(score_batch=4)
    policy.network.model.register_forward_pre_hook(lambda module, given: greedy(policy.network, {}, None))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"policy\.vlm\.score_batch 2"):
        score(policy, [seen()] * 4, [()] * 4)
