"""The learner's role on a run folder: one incarnation after the other, each on what the last one left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from distrl.algorithms.base import Loss
from distrl.algorithms.batch import TrainBatch
from distrl.config.schema import Config
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import Checkpoint, from_files
from distrl.runtime.learner_role import METRICS_EVERY_UPDATES, learn
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from distrl.transport.base import Transport
from distrl.transport.files import BudgetUsed, CheckpointFolder
from distrl.transport.memory import MemoryEpisodes, MemoryTransport
from distrl.types import Trajectory
from support.batches import decided_episode, tiny_policy
from support.learners import Recording, small_config
from support.pixels import pixel_config
from support.roles import a_context


def live(folder: Path, config: Config, *, turns: int = 5) -> Checkpoint:
    """One incarnation of the learner, and what it saved at its end."""
    learn(a_context("learner", folder, config, turns=turns))
    files = CheckpointFolder(RunFolder(folder).checkpoints).newest()
    assert files is not None
    return from_files(files)


def deliver(folder: Path, count: int) -> None:
    with ExperienceStore(RunFolder(folder).experience) as store:
        for number in range(count):
            store.add(decided_episode(tiny_policy(), f"episode-{number}"))


def test_a_learner_that_is_started_again_goes_by_the_time_that_the_run_has_used(tmp_path: Path) -> None:
    config = small_config(
        run={"minutes": 10.0},
        learner={"decay_share": 0.5, "updates_per_episode": 4.0},
        warm_start={"demonstrations": 0},
    )
    deliver(tmp_path, 4)
    first = live(tmp_path, config)
    RunFolder(tmp_path).budget.write_bytes(msgspec.json.encode(BudgetUsed(collect_s=300.0)))
    second = live(tmp_path, config)
    RunFolder(tmp_path).budget.write_bytes(msgspec.json.encode(BudgetUsed(collect_s=600.0)))
    third = live(tmp_path, config)
    assert first.state.updates < second.state.updates < third.state.updates
    assert first.policy != second.policy
    # Nothing is left of the learning rate once nothing is left of the budget.
    assert second.policy == third.policy


def test_a_learner_that_is_started_again_says_that_its_auxiliary_loss_is_over(tmp_path: Path) -> None:
    config = pixel_config(warm_start__demonstrations=0)
    live(tmp_path, config, turns=1)
    auxiliary = pixel_config(
        warm_start__demonstrations=4, warm_start__samples=64, warm_start__grounding__auxiliary_screens=8
    )
    for again, told in ((config, 0), (auxiliary, 1)):
        live(tmp_path, again, turns=1)
        events = [event["event"] for event in read_events(RunFolder(tmp_path).log("learner"))]
        assert events.count("auxiliary_loss_over") == told


# --- what an algorithm measures -------------------------------------------------------------------------------------


class Measuring(Recording):
    """An algorithm of somebody's own, with a term and a figure that nobody else has."""

    def __init__(self, settings: object, context: object) -> None:
        super().__init__()

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        plain = super().loss(batch, updates=updates)
        return Loss(
            total=plain.total,
            losses={"contrastive": 0.125},
            metrics={"my_share": 0.5},
            td_BT=plain.td_BT,
            ratio_BT=plain.ratio_BT,
            entropy_BT=plain.entropy_BT,
        )


def test_every_loss_and_metric_of_an_algorithm_of_ones_own_is_written_to_the_metrics(tmp_path: Path) -> None:
    per_episode = {"updates_per_episode": METRICS_EVERY_UPDATES / 2}
    kind = {"kind": "test_learner_role:Measuring", "aride": {}}
    config = small_config(learner=per_episode, warm_start={"demonstrations": 0}, algorithm=kind)
    deliver(tmp_path, 2)
    live(tmp_path, config, turns=METRICS_EVERY_UPDATES + 1)
    (written,) = [event for event in read_events(RunFolder(tmp_path).metrics) if event["event"] == "learner"]
    assert written["learner/loss/contrastive"] == 0.125
    assert written["learner/my_share"] == 0.5
    assert written["learner/updates"] == METRICS_EVERY_UPDATES
    assert {"learner/gradient_norm", "learner/data/unjudged", "learner/data/relabelled"} <= written.keys()


# --- demonstrations -------------------------------------------------------------------------------------------------


class Refusing(MemoryEpisodes):
    """Episodes that were stored before, to which nothing may be added."""

    def __init__(self, before: Transport) -> None:
        super().__init__()
        for row in before.episodes.after(0, 100):
            super().add(before.episodes.read(row.id))

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes] = {}) -> int:
        raise AssertionError(f"{trajectory.id} was made again")


def test_kept_demonstrations_are_stored_once_and_read_back_by_the_next_incarnation(tmp_path: Path) -> None:
    config = small_config(warm_start={"demonstrations": 3, "epochs": 1, "keep": True}, tasks={"suite": "sim-start"})
    transport = MemoryTransport()
    learn(a_context("learner", tmp_path, config, turns=40, transport=transport))
    rows = transport.episodes.after(0, 100)
    assert [(row.id, row.source) for row in rows] == [(f"demonstration-{n}", "demonstration") for n in range(3)]
    first = transport.checkpoints.newest()
    transport.episodes = Refusing(transport)
    learn(a_context("learner", tmp_path, config, turns=2, transport=transport))
    second = transport.checkpoints.newest()
    assert first is not None
    assert second is not None
    states = [from_files(files).state for files in (first, second)]
    assert [state.replay.ids for state in states] == [tuple(f"demonstration-{n}" for n in range(3))] * 2
    assert [(state.episodes, state.cursor) for state in states] == [(0, 3)] * 2
    assert transport.episodes.stats().episodes == 0
