"""The learner leaves sampling, priorities and metrics to its algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from distrl.algorithms.base import Loss
from distrl.algorithms.batch import Episode, TrainBatch
from distrl.errors import DistrlError
from distrl.experience.replay import Replay, Sample
from support.batches import Played
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
    with pytest.raises(DistrlError, match=r"`priorities` of the algorithm Forgetful returned 1 numbers") as caught:
        learner.update()
    assert "a list of 2 numbers" in caught.value.expected
    assert "Forgetful.priorities" in caught.value.fix


def test_everything_that_an_algorithm_measures_reaches_the_reporter(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner = shop.learner(Choosy())
    learner.take_in(limit=10)
    for updates in (0.0, 1.0):
        learner.update()
        assert shop.hearer.losses == {"imitation": 0.25, "contrastive": updates}
        assert shop.hearer.metrics.items() >= {"my/share": 0.5, "batch_size": 2.0, "gradient_norm": 0.0}.items()


def test_an_algorithm_may_choose_by_id_among_what_is_eligible(tmp_path: Path) -> None:
    class Imitating(Recording):
        def sample(self, replay: Replay[Episode], count: int) -> list[Sample[Episode]]:
            return replay.take([id for id, episode in replay.eligible().items() if episode.success][:count])

    shop, recording = Workshop(tmp_path), Imitating()
    shop.deliver(3)
    shop.deliver(2, Played(success=True))
    learner = shop.learner(recording)
    learner.take_in(limit=10)
    learner.update()
    assert recording.batches[0].success_B.tolist() == [1.0, 1.0]
    assert recording.batches[0].weight_B.tolist() == [1.0, 1.0]


def test_an_update_for_which_an_algorithm_chooses_nothing_is_skipped_and_the_learner_goes_on(tmp_path: Path) -> None:
    class Undecided(Recording):
        def sample(self, replay: Replay[Episode], count: int) -> list[Sample[Episode]]:
            return []

    shop, recording = Workshop(tmp_path), Undecided()
    shop.deliver(3)
    learner = shop.learner(recording)
    for _ in range(5):
        learner.step()
    assert (learner.updates, recording.batches) == (3, [])


def test_a_metric_with_the_name_of_one_of_the_learners_own_figures_is_an_error(tmp_path: Path) -> None:
    class Greedy(Recording):
        def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
            return msgspec.structs.replace(super().loss(batch, updates=updates), metrics={"gradient_norm": 7.0})

    shop = Workshop(tmp_path)
    shop.deliver(3)
    learner = shop.learner(Greedy())
    learner.take_in(limit=10)
    with pytest.raises(DistrlError, match="gradient_norm") as caught:
        learner.update()
    assert "rename" in caught.value.fix


def test_an_algorithm_with_priorities_of_its_own_gives_nothing_but_its_total(tmp_path: Path) -> None:
    class Plain(Recording):
        def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
            return Loss(total=batch.logp_BT.sum())

        def priorities(self, loss: Loss, samples: Sequence[Sample[Episode]]) -> list[float]:
            return [2.0] * len(samples)

    shop = Workshop(tmp_path, small_config(learner={"batch_trajectories": 20}))
    ids = shop.deliver(2)
    learner = shop.learner(Plain())
    learner.take_in(limit=10)
    learner.update()
    assert learner.replay.priorities() == dict.fromkeys(ids, 2.0)
    assert shop.hearer.losses == {}
