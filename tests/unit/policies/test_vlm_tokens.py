"""Answers as tokens: normalised log-probabilities, exact entropy, and rows that are padded on either side."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from distrl.policies.vlm.image_processor import UnpaddedInputs
from distrl.policies.vlm.loading import Model
from distrl.policies.vlm.tokens import entropy_of, on_device, pack_rows, pad, token_logp, vocabulary_of

PADDING = 0
ROWS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)
NOTHING = torch.zeros(0, dtype=torch.long)


def answers_for(rows: list[list[int]], lengths: list[int]) -> list[tuple[int, ...]]:
    return [tuple(range(11, 11 + lengths[i % len(lengths)])) for i in range(len(rows))]


@given(seed=st.integers(0, 999), temperature=st.floats(0.1, 10.0), forbidden=st.sets(st.integers(0, 11), max_size=6))
@settings(deadline=None)
def test_probabilities_of_allowed_tokens_sum_to_one_and_forbidden_ones_have_none(
    seed: int, temperature: float, forbidden: set[int]
) -> None:
    logits = 5 * torch.randn(3, 12, generator=torch.Generator().manual_seed(seed))
    logp = token_logp(logits, torch.tensor(sorted(forbidden), dtype=torch.long), temperature)
    allowed = [token for token in range(12) if token not in forbidden]
    assert torch.allclose(logp[:, allowed].exp().sum(-1), torch.ones(3), atol=1e-5)
    assert float(logp[:, sorted(forbidden)].exp().sum()) == 0.0


def test_half_precision_logits_are_normalised_in_full_precision() -> None:
    logits = torch.linspace(-3, 3, 50_000, dtype=torch.bfloat16)[None]
    logp = token_logp(logits, NOTHING)
    assert logp.dtype == torch.float32
    assert float(logp.double().exp().sum()) == pytest.approx(1.0, abs=1e-4)


def test_the_entropy_is_that_of_the_definition_and_largest_for_equal_chances() -> None:
    even = torch.full((1, 8), math.log(1 / 8))
    assert float(entropy_of(even)) == pytest.approx(math.log(8))
    sure = token_logp(torch.tensor([[100.0, 0.0, 0.0]]), NOTHING)
    assert float(entropy_of(sure)) == pytest.approx(0.0, abs=1e-6)


def test_a_forbidden_token_costs_no_gradient_its_sanity() -> None:
    logits = torch.randn(2, 6, requires_grad=True)
    logp = token_logp(logits, torch.tensor([1, 4]))
    (logp[:, 0].sum() + entropy_of(logp).sum()).backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert not logits.grad[:, [1, 4]].any()


@given(rows=ROWS, lengths=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_padded_rows_have_every_answer_in_the_same_column_and_lose_nothing(
    rows: list[list[int]], lengths: list[int]
) -> None:
    answers = answers_for(rows, lengths)
    kinds = [[1] * len(row) for row in rows]
    inputs = pad(UnpaddedInputs(ids=rows, per_token={"kind": kinds}), answers, PADDING)
    longest = max(map(len, rows))
    for row, answer, ids, mask, kind in zip(
        rows, answers, inputs["input_ids"], inputs["attention_mask"], inputs["kind"], strict=True
    ):
        assert ids[mask.bool()].tolist() == [*row, *answer]
        assert ids[longest : longest + len(answer)].tolist() == list(answer)
        assert mask[longest - 1] == 1
        assert kind.tolist()[longest - len(row) : longest] == [1] * len(row)
        assert int(kind.sum()) == len(row)


def test_images_stand_beside_padded_rows_as_they_are() -> None:
    pixels = torch.rand(5, 3)
    inputs = pad(UnpaddedInputs(ids=[[1]], images={"pixel_values": pixels}), [()], PADDING)
    assert inputs["pixel_values"] is pixels


@given(rows=ROWS, lengths=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_packed_rows_have_their_answer_right_behind_their_prompt(rows: list[list[int]], lengths: list[int]) -> None:
    answers = answers_for(rows, lengths)
    inputs, last_B = pack_rows(rows, answers, PADDING)
    for row, answer, ids, last in zip(rows, answers, inputs["input_ids"].tolist(), last_B.tolist(), strict=True):
        assert ids[: len(row) + len(answer)] == [*row, *answer]
        assert set(ids[len(row) + len(answer) :]) <= {PADDING}
        assert ids[last] == row[-1]


def test_only_floats_change_their_dtype_on_the_way_to_a_device() -> None:
    inputs = {"ids": torch.tensor([[1, 2]]), "pixels": torch.rand(2, 2)}
    moved = on_device(inputs, torch.device("cpu"), torch.bfloat16)
    assert (moved["ids"].dtype, moved["pixels"].dtype) == (torch.int64, torch.bfloat16)


def a_model(*, eos: Any, pad_token: int | None, **special: int) -> Model:
    network = nn.Module()
    network.generation_config = SimpleNamespace(eos_token_id=eos)  # type: ignore[assignment]
    tokenizer = SimpleNamespace(eos_token_id=2, pad_token_id=pad_token)
    return Model(network=network, config=SimpleNamespace(**special), tokenizer=tokenizer, takes_images=False)


def test_the_end_tokens_are_those_of_tokenizer_and_generation_settings_the_tokenizers_first() -> None:
    assert vocabulary_of(a_model(eos=None, pad_token=0)).ends == (2,)
    assert vocabulary_of(a_model(eos=7, pad_token=0)).ends == (2, 7)
    assert vocabulary_of(a_model(eos=[7, 2, 9], pad_token=0)).ends == (2, 7, 9)


def test_image_placeholders_are_forbidden_by_any_of_their_names_and_an_end_token_never_is() -> None:
    special = {"image_token_id": 5, "video_token_index": 6, "vision_end_token_id": 2, "vision_start_token_id": 8}
    vocabulary = vocabulary_of(a_model(eos=None, pad_token=None, **special))
    assert vocabulary.forbidden == (5, 6, 8)
    assert vocabulary.padding == 2
