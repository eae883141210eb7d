"""The sample pool and the terms of the grounding loss, on samples made by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from distrl.config.schema import GroundingConfig
from distrl.policies.pixel.grammar import KINDS
from distrl.policies.pixel.network import Logits
from distrl.pretraining.grounding.losses import GroundingLoss, SamplePool, _shares_right
from distrl.pretraining.grounding.ocr import IGNORED, _named_squares
from distrl.pretraining.grounding.samples import NAME_LETTERS, sample_fields
from support.grounding import some_samples
from support.pixels import TINY, tiny_pixels

CPU = torch.device("cpu")
TAP, DOWN = KINDS.index("tap"), KINDS.index("down")


def numbered(start: int, count: int) -> dict[str, Tensor]:
    """Samples whose every byte is their number."""
    return {
        name: torch.arange(start, start + count).view(-1, *[1] * len(shape)).expand(count, *shape).to(torch.uint8)
        for name, (_, shape) in sample_fields(TINY).items()
    }


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(5, 9))
@settings(deadline=None, max_examples=25)
def test_a_pool_holds_exactly_the_newest_samples(blocks: list[int], capacity: int) -> None:
    pool = SamplePool(sample_fields(TINY), capacity, CPU)
    start = 0
    for count in blocks:
        pool.put(numbered(start, count))
        start += count
    assert (len(pool), pool.taken) == (min(start, capacity), start)
    drawn = pool.draw(300, torch.Generator().manual_seed(0))
    newest = set(range(max(0, start - capacity), start))
    assert set(drawn["num_queries"].flatten().tolist()) == newest
    assert torch.equal(drawn["element"][:, 0], drawn["name_at"][:, 0])


def test_weights_of_zero_leave_the_next_step_alone() -> None:
    policy = tiny_pixels()
    bare = GroundingConfig(pointing_weight=0.0, reading_weight=0.0)
    terms = GroundingLoss(policy.network, TINY, bare, seed=0).compute(some_samples(), measured=True)
    assert torch.equal(terms.total.detach(), terms.parts["step"])
    assert float(terms.parts["letters"]) == float(terms.parts["names"]) == 0.0
    assert "letters_known" not in terms.parts


@pytest.mark.parametrize(("pointing", "reading"), [(1.0, 1.0), (2.5, 0.5), (0.0, 3.0)])
def test_the_total_is_the_weighted_sum_of_its_terms(pointing: float, reading: float) -> None:
    config = GroundingConfig(pointing_weight=pointing, reading_weight=reading)
    terms = GroundingLoss(tiny_pixels().network, TINY, config, seed=0).compute(some_samples())
    parts = {name: float(part) for name, part in terms.parts.items()}
    expected = parts["step"] + pointing * parts["pointing"] + reading * (parts["letters"] + parts["names"])
    assert float(terms.total.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_seed_decides_the_heads_and_the_queries_that_are_drawn() -> None:
    one, same, other = (
        GroundingLoss(tiny_pixels().network, TINY, GroundingConfig(), seed=seed).compute(some_samples()).total
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def named(name: str, squares: list[int]) -> dict[str, Tensor]:
    """One image of which some squares have a name."""
    name_at, letters = torch.zeros(1, 32, dtype=torch.uint8), torch.zeros(1, 4, NAME_LETTERS, dtype=torch.uint8)
    name_at[0, squares] = 2
    letters[0, 2, : len(name)] = torch.tensor([ord(letter) - 31 for letter in name], dtype=torch.uint8)
    return {"name_at": name_at, "name": letters}


def test_the_letters_of_a_name_and_one_end_are_asked_for_and_nothing_of_squares_without_a_name() -> None:
    at_BR, label_BRX = _named_squares(named("Ab", [3, 9]), torch.Generator().manual_seed(0))
    for square, label in zip(at_BR[0].tolist(), label_BRX[0].tolist(), strict=True):
        if square in (3, 9):
            assert label == [ord("A") - 31, ord("b") - 31, 0, *[IGNORED] * (NAME_LETTERS - 3)]
        else:
            assert label == [IGNORED] * NAME_LETTERS
    assert {3, 9} <= set(at_BR[0].tolist())


def test_a_name_as_long_as_the_label_has_no_end_to_ask_for() -> None:
    _, label_BRX = _named_squares(named("x" * NAME_LETTERS, [0]), torch.Generator().manual_seed(0))
    assert (label_BRX[0] != IGNORED).sum() == NAME_LETTERS


def logits(kinds: list[int], squares: list[int]) -> Logits:
    """Predictions of these kinds, pointing at these squares of four."""
    kind_BK, square_BHS = torch.zeros(len(kinds), len(KINDS)), torch.zeros(len(kinds), 2, 4)
    kind_BK[torch.arange(len(kinds)), torch.tensor(kinds)] = 1.0
    square_BHS[torch.arange(len(kinds)), :, torch.tensor(squares)] = 1.0
    return Logits(
        kind_BK=kind_BK, square_BHS=square_BHS, span_BII=torch.zeros(len(kinds), 1, 1), value_B=torch.zeros(1)
    )


def test_a_tap_is_right_where_it_hits_the_same_element_on_any_of_its_squares() -> None:
    samples = {"element": torch.tensor([[1, 1, 2, 2]], dtype=torch.uint8)}
    choice_MC = torch.tensor([[TAP, 0, 0], [TAP, 3, 0], [TAP, 2, 0], [DOWN, 0, 0]])
    real_BK = torch.tensor([[True, True, True, True]])
    shares = _shares_right(logits([TAP, TAP, TAP, DOWN], [1, 0, 3, 0]), choice_MC, samples, real_BK)
    assert {name: float(share) for name, share in shares.items()} == {
        "kinds_known": 1.0,
        "taps_known": 1.0,
        "steps_known": 1.0,
        "points_known": 0.5,
        "hidden_known": 1.0,
    }


def test_queries_that_do_not_exist_count_in_no_share() -> None:
    samples = {"element": torch.tensor([[1, 1, 2, 2]], dtype=torch.uint8)}
    choice_MC = torch.tensor([[DOWN, 0, 0], [TAP, 0, 0], [TAP, 3, 0]])
    right_then_wrong = logits([TAP, TAP, TAP], [0, 1, 0])
    shares = [
        float(_shares_right(right_then_wrong, choice_MC, samples, torch.tensor([real]))["points_known"])
        for real in ([True, True, True], [True, True, False], [True, False, True])
    ]
    assert shares == [0.5, 1.0, 0.0]


def test_a_next_step_of_the_wrong_kind_is_wrong_wherever_it_points() -> None:
    samples = {"element": torch.tensor([[1, 1, 2, 2]], dtype=torch.uint8)}
    shares = _shares_right(logits([DOWN], [0]), torch.tensor([[TAP, 0, 0]]), samples, torch.tensor([[True]]))
    assert (float(shares["taps_known"]), float(shares["steps_known"]), float(shares["kinds_known"])) == (1.0, 0.0, 0.0)
