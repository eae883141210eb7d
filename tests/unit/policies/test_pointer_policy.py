from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from distrl.config.schema import PointerConfig
from distrl.errors import StoreError
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.pointer.features import encode, swap_words
from distrl.policies.pointer.grammar import KINDS, POINTING, TYPE, Choice, to_action
from distrl.policies.pointer.policy import PointerPolicy
from distrl.policies.pointer.words import read
from distrl.types import (
    Bounds,
    Decision,
    Finish,
    Observation,
    Past,
    Swipe,
    Tap,
    TypeText,
    UiElement,
    Unparsed,
)
from support.batches import screens, shown_by_the_oracle, tiny_policy


def element(text: str, row: int = 0, **rest: object) -> UiElement:
    fields = {"text": text, "clickable": True, **rest, "bounds": Bounds(0.0, row / 200, 1.0, (row + 1) / 200)}
    return UiElement(**fields)  # type: ignore[arg-type]


SMALL = Observation(
    instruction="Open the mail",
    elements=(
        element("Mail", 0),
        element("Inbox", 1, class_name="TextView", clickable=False),
        element("Music", 2, class_name="ListItem"),
    ),
)
ODD = {
    "no elements": Observation(instruction="Turn the Wi-Fi on"),
    "200 elements": Observation(instruction="Go", elements=tuple(element(f"Entry {n}", n) for n in range(200))),
    "empty instruction": Observation(instruction="", elements=SMALL.elements),
    "nothing at all": Observation(instruction=""),
    "punctuation alone": Observation(instruction="?! …", elements=SMALL.elements),
    "emoji": Observation(instruction="Send 🎉👩‍👩‍👧 to Zoë", elements=(element("🎉"), element("日本語 テキスト"))),
    "very long text": Observation(instruction="word " * 5000, elements=(element("x" * 20_000), element("y z " * 5000))),
    "nothing to touch or say": Observation(instruction="Go", elements=(element("", clickable=False),)),
    "unknown class": Observation(instruction="Go", elements=(element("A", class_name="com.acme.FancyView"),)),
    "odd history": Observation(
        instruction="Go on",
        elements=SMALL.elements,
        recent=(
            Past(action=Unparsed("?")),
            Past(action=Tap(0.99, 0.99), target="gone"),
            Past(action=Swipe(0, 0, 1, 1)),
            Past(action=TypeText("")),
            Past(action=Finish(answer="nobody says this")),
        )
        * 4,
    ),
}


def decide(policy: PointerPolicy, observations: list[Observation], *, temperature: float = 1.0) -> list[Decision]:
    return policy.decide(observations, temperature=temperature, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def score(policy: PointerPolicy, observations: list[Observation], choices: list[tuple[int, ...]]) -> Scores:
    return policy.score([policy.encode(observation) for observation in observations], choices)


def all_choices(observation: Observation) -> list[Choice]:
    """Everything that can be said on a screen."""
    num_words = len(read(observation.instruction))
    pointing = [(kind, e, 0) for kind in range(len(POINTING)) for e in range(len(observation.elements))]
    spans = [(TYPE, first, last) for first in range(num_words) for last in range(first, num_words)]
    return [*pointing, *spans, *((kind, 0, 0) for kind in range(len(KINDS)) if kind > TYPE)]


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, atol=1e-5, rtol=1e-5)


# --- the distribution -----------------------------------------------------------------------------------------------


def test_what_was_decided_is_scored_the_same_by_the_same_weights() -> None:
    policy, seen = tiny_policy(spread=0.2), screens(150, tasks=16)
    decisions = decide(policy, seen)
    found = score(policy, seen, [decision.choice for decision in decisions])
    assert close(found.logp_N, torch.tensor([decision.logp for decision in decisions]))
    assert close(found.entropy_N, torch.tensor([decision.entropy for decision in decisions]))
    assert close(torch.sigmoid(found.value_logit_N), torch.tensor([decision.value for decision in decisions]))


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_of_everything_that_can_be_chosen_sum_to_one_and_give_the_exact_entropy(seed: int) -> None:
    policy = tiny_policy(seed, spread=0.4)
    for seen in [SMALL, *screens(6)]:
        choices = all_choices(seen)
        found = score(policy, [seen] * len(choices), list(choices))
        chance = found.logp_N.double().exp()
        assert float(chance.sum()) == pytest.approx(1.0, abs=1e-5)
        surprise = -(chance * found.logp_N.double()).sum()
        assert float(found.entropy_N[0]) == pytest.approx(float(surprise), abs=1e-4)


def test_the_entropy_can_be_descended() -> None:
    policy = tiny_policy(spread=0.2)
    found = policy.score([policy.encode(SMALL)], [(TYPE, 0, 0)])
    (-found.entropy_N.sum()).backward()  # type: ignore[no-untyped-call]
    before = float(found.entropy_N.detach())
    with torch.no_grad():
        for weights in policy.network.parameters():
            if weights.grad is not None:
                weights.sub_(0.01 * weights.grad)
    assert float(score(policy, [SMALL], [(TYPE, 0, 0)]).entropy_N) > before


def test_choices_are_drawn_as_often_as_their_chance_says() -> None:
    policy = tiny_policy(3, spread=0.4)
    decisions = policy.decide([SMALL] * 4000, temperature=1.0, generator=torch.Generator().manual_seed(1))
    drawn = [decision.choice for decision in decisions]
    choices = all_choices(SMALL)
    assert set(drawn) <= set(choices)
    chance = score(policy, [SMALL] * len(choices), list(choices)).logp_N.exp().tolist()
    for choice, expected in zip(choices, chance, strict=True):
        assert drawn.count(choice) / len(drawn) == pytest.approx(expected, abs=0.035)


def test_temperature_zero_takes_the_likeliest_and_is_the_same_every_time() -> None:
    policy, seen = tiny_policy(spread=0.3), screens(20)
    first = policy.decide(seen, temperature=0.0, generator=torch.Generator().manual_seed(1))
    again = policy.decide(seen, temperature=0.0, generator=torch.Generator().manual_seed(2))
    assert first == again
    kinds = [(kind, 0, 0) for kind in range(TYPE + 1, len(KINDS))]
    plain = [(d, o) for d, o in zip(first, seen, strict=True) if d.choice in kinds]
    for decision, observation in plain:
        others = score(policy, [observation] * len(kinds), list(kinds))
        assert decision.logp >= float(others.logp_N.max()) - 1e-5


def test_a_decision_records_the_chance_under_the_temperature_that_it_was_drawn_with() -> None:
    policy = tiny_policy(spread=0.4)
    warm, cold = decide(policy, [SMALL], temperature=2.0)[0], decide(policy, [SMALL], temperature=0.5)[0]
    assert warm.entropy > score(policy, [SMALL], [warm.choice]).entropy_N[0] > cold.entropy


def test_the_action_of_a_decision_is_what_its_choice_says() -> None:
    seen = screens(40)
    for decision, observation in zip(decide(tiny_policy(), seen), seen, strict=True):
        kind, first, last = decision.choice
        assert decision.action == to_action((kind, first, last), observation)


def test_everything_that_the_oracle_does_can_be_chosen() -> None:
    policy, pairs = tiny_policy(), shown_by_the_oracle(16)
    choices = [policy.imitate(observation, action) for observation, action in pairs]
    assert None not in choices
    found = score(policy, [observation for observation, _ in pairs], [choice for choice in choices if choice])
    assert float(found.logp_N.min()) > -100.0


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_does_not_change_what_is_thought_of_one_screen() -> None:
    policy, seen = tiny_policy(spread=0.2), [*screens(40), *ODD.values()]
    choices = [decision.choice for decision in decide(policy, seen)]
    together = score(policy, seen, choices)
    for row, (observation, choice) in enumerate(zip(seen, choices, strict=True)):
        alone = score(policy, [observation], [choice])
        assert close(together.logp_N[row], alone.logp_N[0])
        assert close(together.entropy_N[row], alone.entropy_N[0])
        assert close(together.value_logit_N[row], alone.value_logit_N[0])


def test_an_empty_choice_is_scored_for_its_value() -> None:
    policy = tiny_policy(spread=0.2)
    found = score(policy, [SMALL, SMALL], [(), (TYPE, 0, 0)])
    assert close(found.value_logit_N[0], found.value_logit_N[1])


@pytest.mark.parametrize("name", ODD)
def test_no_observation_is_too_odd_to_decide_on_and_to_learn_from(name: str) -> None:
    policy = tiny_policy(spread=0.2)
    # Among others and many times over, so that padding comes into it and every kind is drawn.
    crowd = [ODD[name]] * 24 + screens(4)
    decisions = decide(policy, crowd)[:24]
    found = policy.score([policy.encode(ODD[name])] * 24, [decision.choice for decision in decisions])
    assert close(found.logp_N.detach(), torch.tensor([decision.logp for decision in decisions]))
    (found.logp_N.mean() + found.entropy_N.mean() + found.value_logit_N.mean()).backward()  # type: ignore[no-untyped-call]
    grads = [weights.grad for weights in policy.network.parameters() if weights.grad is not None]
    assert grads
    assert all(torch.isfinite(grad).all() for grad in grads)


# --- what it reads --------------------------------------------------------------------------------------------------


def test_without_string_matching_the_policy_is_not_told_what_stands_in_both_texts() -> None:
    with_match, without = encode(SMALL, string_match=True), encode(SMALL, string_match=False)
    assert with_match.word_features_IF.any()
    assert not without.word_features_IF.any()
    differing = with_match.element_features_EF != without.element_features_EF
    assert differing.any()
    assert not without.element_features_EF[:, differing.any(0)].any()
    renamed = msgspec.structs.replace(SMALL, instruction="Close some tab")
    assert np.array_equal(encode(renamed, string_match=False).element_features_EF, without.element_features_EF)


def test_the_switch_for_string_matching_reaches_the_policy() -> None:
    assert tiny_policy(string_match=True).encode(SMALL).word_features_IF.any()
    assert not tiny_policy(string_match=False).encode(SMALL).word_features_IF.any()


def test_word_swaps_replace_shared_words_everywhere_at_once_and_leaves_the_rest() -> None:
    item = encode(SMALL, string_match=True)
    renamed = swap_words(item, 1.0, np.random.default_rng(0))
    # "mail" stands in the instruction (last) and on the first element.
    assert renamed.words_I[-1] == renamed.element_words_EW[0, 0] != item.words_I[-1]
    assert np.array_equal(renamed.words_I[:-1], item.words_I[:-1])
    assert np.array_equal(renamed.element_words_EW[1:], item.element_words_EW[1:])
    assert np.array_equal(renamed.element_words_EW == 0, item.element_words_EW == 0)
    assert swap_words(item, 0.0, np.random.default_rng(0)) is item


def test_decisions_are_made_on_the_words_as_they_are() -> None:
    policy = PointerPolicy(PointerConfig(width=16, layers=1, word_swap_share=1.0), PolicyContext())
    assert len({decision.logp for decision in decide(policy, [SMALL] * 5, temperature=0.0)}) == 1


def test_the_default_policy_has_under_a_million_parameters() -> None:
    policy = PointerPolicy(PointerConfig(), PolicyContext())
    assert sum(weights.numel() for weights in policy.network.parameters()) < 1_000_000


# --- weights --------------------------------------------------------------------------------------------------------


def test_weights_survive_dump_and_restore_bit_by_bit() -> None:
    first, second = tiny_policy(0, spread=0.2), tiny_policy(1)
    assert first.dump() != second.dump()
    second.restore(first.dump(), source="a test")
    assert second.dump() == first.dump()
    seen = screens(10)
    assert decide(first, seen) == decide(second, seen)


@pytest.mark.parametrize("other", [PointerConfig(width=32, layers=1), PointerConfig(width=16, layers=2)])
def test_weights_of_another_architecture_are_refused_by_name(other: PointerConfig) -> None:
    policy = tiny_policy()
    with pytest.raises(StoreError, match=r"v000007\.safetensors holds weights of another architecture") as caught:
        policy.restore(PointerPolicy(other, PolicyContext()).dump(), source="v000007.safetensors")
    assert "width 16 with 1 layers" in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_of_weights_is_refused(share: float) -> None:
    policy = tiny_policy()
    data = policy.dump()
    with pytest.raises(StoreError, match="cannot be read"):
        policy.restore(data[: int(share * len(data))], source="v000007.safetensors")
    assert policy.dump() == data


def test_a_decision_tells_the_likeliest_other_actions_with_what_the_learner_scores_them() -> None:
    policy, seen = tiny_policy(), screens(4)
    num_scored = 0
    for decision, one in zip(policy.decide(seen, temperature=1.0, generator=torch.Generator()), seen, strict=True):
        logps = [other.logp for other in decision.runners_up]
        assert 1 <= len(logps) <= 3
        assert logps == sorted(logps, reverse=True)
        for other in decision.runners_up:
            choice = policy.imitate(one, other.action)
            if choice is None or to_action(choice, one) != other.action or isinstance(other.action, TypeText | Tap):
                continue  # several choices stand for one action: an element in another, a word that comes twice
            assert choice != decision.choice
            assert policy.score([policy.encode(one)], [choice]).logp_N.item() == pytest.approx(other.logp, abs=1e-3)
            num_scored += 1
    assert num_scored > 2
