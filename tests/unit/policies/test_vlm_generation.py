"""The sampler inside transformers' loop, on logits made by hand: ends, sums and NaN."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from distrl.policies.vlm.generation import Generated, Sampler, Sampling
from distrl.policies.vlm.tokens import Vocabulary

END, OTHER_END, FORBIDDEN, VOCABULARY = 1, 2, 3, 6
NAN = float("nan")


def sampling(temperature: float = 0.0) -> Sampling:
    vocabulary = Vocabulary(ends=(END, OTHER_END), padding=0, forbidden=(FORBIDDEN,))
    return Sampling(
        temperature=temperature, answer_tokens=8, vocabulary=vocabulary, generator=torch.Generator().manual_seed(0)
    )


def likeliest(*tokens: int) -> Tensor:
    """Logits whose likeliest token in each row is the given one."""
    logits = torch.zeros(len(tokens), VOCABULARY)
    logits[torch.arange(len(tokens)), torch.tensor(tokens)] = 4.0
    return logits


def run(
    columns: list[Tensor], *, temperature: float = 0.0, value: Tensor | None = None
) -> tuple[Generated, list[Tensor]]:
    """What comes of these logits, and the scores that the loop got for each token."""
    num_rows = len(columns[0])
    calls = [0]

    def values() -> Tensor:
        calls[0] += 1
        return torch.zeros(num_rows) if value is None else value

    sampler = Sampler(values, sampling(temperature))
    forced = [sampler(None, logits) for logits in columns]
    assert calls == [1]
    return sampler.answered(), forced


def test_an_answer_goes_up_to_its_first_end_token_and_sums_nothing_after_it() -> None:
    made, _ = run([likeliest(4, 5), likeliest(END, 5), likeliest(5, OTHER_END), likeliest(5, 5)])
    assert made.answers == [(4, END), (5, 5, OTHER_END)]
    chance = math.log(math.exp(4.0) / (math.exp(4.0) + VOCABULARY - 2))
    assert made.logp_B.tolist() == pytest.approx([2 * chance, 3 * chance], abs=1e-5)
    assert float(made.entropy_B[1] / made.entropy_B[0]) == pytest.approx(1.5, abs=1e-5)
    assert made.finite_B.tolist() == [True, True]


def test_the_loop_has_no_choice_but_the_sampled_token() -> None:
    _, forced = run([likeliest(4, 5)], temperature=1.0)
    assert [(row == 0.0).sum().item() for row in forced[0]] == [1, 1]
    assert bool((forced[0].max(-1).values == 0.0).all())


def test_a_forbidden_token_is_not_taken_though_it_is_the_likeliest() -> None:
    made, _ = run([likeliest(FORBIDDEN) + 0.5 * likeliest(5)])
    assert made.answers == [(5,)]


def test_a_row_with_nan_ends_at_once_and_is_marked_and_the_others_go_on() -> None:
    bad = likeliest(4, 4)
    bad[0, 2] = NAN
    made, _ = run([bad, likeliest(5, 5), likeliest(END, END)])
    assert made.finite_B.tolist() == [False, True]
    assert made.answers == [(END,), (4, 5, END)]
    assert bool(made.logp_B.isfinite().all())
    assert bool(made.entropy_B.isfinite().all())


def test_nan_after_the_end_of_an_answer_means_nothing() -> None:
    late = likeliest(5, 5)
    late[0] = NAN
    made, _ = run([likeliest(END, 5), late, likeliest(5, END)])
    assert made.finite_B.tolist() == [True, True]


def test_a_value_that_is_not_finite_spoils_its_row() -> None:
    made, _ = run([likeliest(END, END)], value=torch.tensor([float("inf"), 0.5]))
    assert made.finite_B.tolist() == [False, True]
    assert made.value_logit_B[1] == 0.5


def test_the_generator_decides_what_is_drawn() -> None:
    flat = torch.zeros(64, VOCABULARY)
    first, second = (run([flat], temperature=1.0)[0].answers for _ in range(2))
    assert first == second
    assert len(set(first)) == VOCABULARY - 1
