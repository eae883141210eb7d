"""The learner leaves sampling, priorities and metrics to its algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from distrl.algorithms.base import Loss
from distrl.algorithms.batch import Episode, TrainBatch
from distrl.experience.replay import Replay, Sample
from support.learners import Recording, Workshop, small_config


class Choosy(Recording):
    """Takes the newest episode alone, twice, and gives it a priority that says how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.drawn: list[str] = []

    def sample(self, replay: Replay[Episode], count: int) -> list[Sample[Episode]]:
        self.asked.append(count)
        newest = list(replay.priorities())[-1]
        drawn = [sample for sample in replay.sample(200) if sample.id == newest][:2]
        self.drawn += [sample.id for sample in drawn]
        return drawn

    def priorities(self, loss: Loss, samples: Sequence[Sample[Episode]]) -> list[float]:
        return [10.0 * len(self.asked)] * len(samples)

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        plain = super().loss(batch, updates=updates)
        return Loss(
            total=plain.total,
            losses={"imitation": 0.25, "contrastive": float(updates)},
            metrics={"my/share": 0.5, "batch_size": float(len(batch.success_B))},
            td_BT=plain.td_BT,
            ratio_BT=plain.ratio_BT,
            entropy_BT=plain.entropy_BT,
        )


def test_an_algorithm_chooses_its_own_batch(tmp_path: Path) -> None:
    shop, choosy = Workshop(tmp_path, small_config(learner={"batch_trajectories": 5})), Choosy()
    ids = shop.deliver(4)
    learner = shop.learner(choosy)
    learner.take_in(limit=10)
    learner.update()
    assert choosy.asked == [5]
    assert choosy.drawn == [ids[-1]] * 2
    assert choosy.batches[0].logp_BT.shape[0] == 2


def test_an_algorithm_gives_its_own_priorities_to_what_it_sampled_and_to_nothing_else(tmp_path: Path) -> None:
    shop, choosy = Workshop(tmp_path), Choosy()
    ids = shop.deliver(3)
    learner = shop.learner(choosy)
    learner.take_in(limit=10)
    for updates in (1, 2):
        learner.update()
        assert learner.replay.priorities() == {ids[0]: 1.0, ids[1]: 1.0, ids[2]: 10.0 * updates}


def test_as_many_priorities_as_samples_are_expected(tmp_path: Path) -> None:
    class Forgetful(Choosy):
        def priorities(self, loss: Loss, samples: Sequence[Sample[Episode]]) -> list[float]:
            return [1.0]

    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner = shop.learner(Forgetful())
    learner.take_in(limit=10)
    with pytest.raises(ValueError, match="shorter"):
        learner.update()


def test_everything_that_an_algorithm_measures_reaches_the_reporter(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner = shop.learner(Choosy())
    learner.take_in(limit=10)
    for updates in (0.0, 1.0):
        learner.update()
        assert shop.hearer.losses == {"imitation": 0.25, "contrastive": updates}
        assert shop.hearer.metrics == {"my/share": 0.5, "batch_size": 2.0, "gradient_norm": 0.0}
