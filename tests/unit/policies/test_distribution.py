"""The action distribution of pointing policies, against enumeration of everything that can be chosen."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.policies.distribution import LEAST_LOGP, NUM_RUNNERS_UP, ActionDistribution, Choice, as_runners_up
from distrl.types import Finish, Tap, TypeText

HEADS, TARGETS, WORDS, PLAIN = 2, 3, 2, 2
TYPE = HEADS
NEVER = -1e9


def logits(seed: int, *, rows: int = 1, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random logits for a small grammar: two pointing kinds, one that types, two without arguments."""
    generator = torch.Generator().manual_seed(seed)
    kind = scale * torch.randn(rows, HEADS + 1 + PLAIN, generator=generator)
    target = scale * torch.randn(rows, HEADS, TARGETS, generator=generator)
    span = scale * torch.randn(rows, WORDS, WORDS, generator=generator)
    return kind, target, span


def everything() -> list[Choice]:
    """Every choice of that grammar, once."""
    pointing = [(kind, target, 0) for kind in range(HEADS) for target in range(TARGETS)]
    typing = [(TYPE, first, last) for first in range(WORDS) for last in range(WORDS)]
    return [*pointing, *typing, *((kind, 0, 0) for kind in range(TYPE + 1, TYPE + 1 + PLAIN))]


def enumerated(distribution: ActionDistribution) -> torch.Tensor:
    """The log-probability of every choice, for a distribution of one row."""
    return torch.cat([distribution.logp([choice]) for choice in everything()])


@given(seed=st.integers(0, 10_000), temperature=st.floats(0.2, 5.0))
@settings(deadline=None, max_examples=60)
def test_probabilities_sum_to_one_and_the_entropy_is_that_of_the_enumeration(seed: int, temperature: float) -> None:
    distribution = ActionDistribution(*logits(seed), temperature=temperature)
    logp = enumerated(distribution).double()
    assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(distribution.entropy()) == pytest.approx(float(-(logp.exp() * logp).sum()), abs=1e-4)


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_at_an_endless_temperature_all_parts_are_uniform_and_at_none_all_is_certain(seed: int) -> None:
    parts, kinds = logits(seed), HEADS + 1 + PLAIN
    uniform = math.log(kinds) + HEADS / kinds * math.log(TARGETS) + 1 / kinds * math.log(WORDS * WORDS)
    assert float(ActionDistribution(*parts, temperature=1e6).entropy()) == pytest.approx(uniform, abs=1e-4)
    cold = ActionDistribution(*parts, temperature=1e-7)
    assert float(cold.entropy()) == pytest.approx(0.0, abs=1e-3)


def test_samples_come_as_often_as_they_are_likely() -> None:
    kind, target, span = logits(3, scale=1.0)
    rows = 20_000
    many = ActionDistribution(kind.expand(rows, -1), target.expand(rows, -1, -1), span.expand(rows, -1, -1))
    drawn = many.sample(torch.Generator().manual_seed(0), greedy=False)
    chances = enumerated(ActionDistribution(kind, target, span)).exp().tolist()
    for choice, chance in zip(everything(), chances, strict=True):
        assert drawn.count(choice) / rows == pytest.approx(chance, abs=0.015), choice


def test_greedy_takes_the_likeliest_kind_and_the_likeliest_argument_of_that_kind() -> None:
    kind = torch.tensor([[0.0, 5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 5.0]])
    target = torch.tensor([[[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]]]).expand(3, -1, -1)
    span = torch.tensor([[[0.0, 0.0], [7.0, 0.0]]]).expand(3, -1, -1)
    distribution = ActionDistribution(kind, target, span)
    assert distribution.sample(torch.Generator(), greedy=True) == [(1, 2, 0), (TYPE, 1, 0), (4, 0, 0)]


def test_what_cannot_be_chosen_is_never_sampled_and_adds_no_entropy() -> None:
    kind, target, span = torch.zeros(1, 5), torch.zeros(1, HEADS, TARGETS), torch.full((1, WORDS, WORDS), NEVER)
    target[0, 0, 1:] = NEVER
    span[0, 0, 1] = 0.0
    rows = 500
    many = ActionDistribution(kind.expand(rows, -1), target.expand(rows, -1, -1), span.expand(rows, -1, -1))
    drawn = set(many.sample(torch.Generator().manual_seed(1), greedy=False))
    assert (0, 1, 0) not in drawn
    assert {choice for choice in drawn if choice[0] == TYPE} == {(TYPE, 0, 1)}
    # Of the arguments, only the second head has a choice left.
    expected = math.log(5) + math.log(TARGETS) / 5
    assert float(ActionDistribution(kind, target, span).entropy()) == pytest.approx(expected, abs=1e-5)


def test_the_gradient_of_a_choice_reaches_its_kind_and_its_own_argument_alone() -> None:
    kind, target, span = (part.requires_grad_() for part in logits(5))
    ActionDistribution(kind, target, span).logp([(1, 2, 0)]).sum().backward()
    assert kind.grad is not None
    assert kind.grad.abs().sum() > 0
    assert target.grad is not None
    assert target.grad[0, 0].abs().sum() == 0
    assert target.grad[0, 1].abs().sum() > 0
    assert span.grad is None or not span.grad.any()


def test_rows_do_not_depend_on_each_other() -> None:
    kind, target, span = logits(8, rows=4)
    together = ActionDistribution(kind, target, span)
    choices: list[Choice] = [(0, 1, 0), (TYPE, 1, 1), (3, 0, 0), (1, 2, 0)]
    for row, choice in enumerate(choices):
        alone = ActionDistribution(kind[row : row + 1], target[row : row + 1], span[row : row + 1])
        assert torch.allclose(together.logp(choices)[row], alone.logp([choice])[0])
        assert torch.allclose(together.entropy()[row], alone.entropy()[0])


@given(seed=st.integers(0, 10_000), temperature=st.floats(0.2, 5.0), at=st.integers(0, 11))
@settings(deadline=None, max_examples=60)
def test_runners_up_are_the_likeliest_others_of_the_enumeration(seed: int, temperature: float, at: int) -> None:
    distribution = ActionDistribution(*logits(seed), temperature=temperature)
    chosen = everything()[at % len(everything())]
    (found,) = distribution.runners_up([chosen])
    others = [(float(distribution.logp([choice])), choice) for choice in everything() if choice != chosen]
    likeliest = [logp for logp, _ in sorted(others, reverse=True)[:NUM_RUNNERS_UP] if logp >= LEAST_LOGP]
    assert [logp for _, logp in found] == pytest.approx(likeliest, abs=1e-5)
    for choice, logp in found:
        assert float(distribution.logp([choice])) == pytest.approx(logp, abs=1e-5)
        assert choice != chosen


def test_rows_have_their_own_runners_up_and_what_cannot_be_chosen_is_none() -> None:
    kind, target, span = logits(5, rows=3)
    kind[1, TYPE + 1 :] = NEVER
    kind[1, 1:] = NEVER
    target[1, 0, 2] = NEVER
    distribution = ActionDistribution(kind, target, span)
    chosen = [(0, 0, 0), (0, 0, 0), (TYPE, 1, 0)]
    rows = distribution.runners_up(chosen)
    assert [choice for choice, _ in rows[1]] == [(0, 1, 0)]
    for row in (0, 2):
        alone = ActionDistribution(kind[row : row + 1], target[row : row + 1], span[row : row + 1])
        assert [choice for choice, _ in alone.runners_up([chosen[row]])[0]] == [choice for choice, _ in rows[row]]


def test_a_long_text_of_a_runner_up_is_shortened() -> None:
    actions = {(0, 0, 0): Tap(0.5, 0.5), (1, 0, 0): TypeText("x" * 5000), (2, 0, 0): Finish(answer="y" * 5000)}
    found = as_runners_up([(choice, -1.0) for choice in actions], lambda choice: actions[choice])
    assert found[0].action == Tap(0.5, 0.5)
    assert [len(one.action.text if isinstance(one.action, TypeText) else one.action.answer) for one in found[1:]] == [
        80,
        80,
    ]  # type: ignore[union-attr]
