"""What `distrl bench vlm` calls ours is what a learner runs, and it computes what stock computes."""

from __future__ import annotations

import msgspec
import pytest
import torch

from distrl.bench.vlm import training as vlm_training
from distrl.bench.vlm.model import CPU, WARM_CALLS
from distrl.policies.vlm.scoring import Scorer


def test_the_learners_update_has_the_gradient_of_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts: list[int] = []
    score = Scorer.score

    def watched(self: Scorer, given: list[vlm_training.Packed]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts.append(len(given))
        return score(self, given)

    monkeypatch.setattr(Scorer, "score", watched)
    trained = vlm_training.train(msgspec.structs.replace(CPU, train_batch=3, micro_batch=2))
    assert trained.gradient_difference < 1e-4
    # Calls to warm up and one update, with new and with known screenshots, each of a whole batch in two parts; then sampled answers.
    assert parts == [2] * 2 * (WARM_CALLS + 1) + [1]
    assert max(trained.rescored) < 1e-4
    assert min(trained.ours, trained.ours_new, trained.stock) > 0
