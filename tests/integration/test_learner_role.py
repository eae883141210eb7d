"""The learner's role on a run folder: one incarnation after the other, each on what the last one left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.algorithms.base import Loss
from distrl.algorithms.batch import TrainBatch
from distrl.config.load import load_config
from distrl.config.schema import Config, PolicyConfig
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import Checkpoint, from_files
from distrl.runtime.base import RoleContext
from distrl.runtime.learner_role import METRICS_EVERY_UPDATES, augmentation_notice, learn
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.base import BudgetUsed, Transport
from distrl.transport.files import CheckpointFolder
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


class Changing(Recording):
    """Its figures differ from update to update: a share, a count, one that is there now and then, one that is NaN once."""

    def __init__(self, settings: object, context: object) -> None:
        super().__init__()

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        now_and_then = {"rare": 3.0} if updates == 4 else {}
        return msgspec.structs.replace(
            super().loss(batch, updates=updates),
            losses={"policy": float(updates)},
            metrics={
                "share": updates / 100,
                "my/num_cut": 2.0,
                "spoilt": float("nan") if updates == 3 else 1.0,
                **now_and_then,
            },
        )


def test_metrics_are_means_over_all_updates_since_the_last_line_and_counts_are_sums(tmp_path: Path) -> None:
    config = small_config(
        learner={"updates_per_episode": 25.0},
        warm_start={"demonstrations": 0},
        algorithm={"kind": "test_learner_role:Changing", "aride": {}},
    )
    deliver(tmp_path, 2)
    live(tmp_path, config, turns=60)
    lines = [event for event in read_events(RunFolder(tmp_path).metrics) if event["event"] == "learner"]
    assert [line["learner/updates"] for line in lines] == [20, 40, 50], "what is left is written at the end"
    assert [line["learner/loss/policy"] for line in lines] == [9.5, 29.5, 44.5]
    assert [line["learner/share"] for line in lines] == pytest.approx([0.095, 0.295, 0.445])
    assert [line["learner/my/num_cut"] for line in lines] == [40, 40, 20]
    assert (lines[0]["learner/rare"], lines[0]["learner/spoilt"]) == (3.0, 1.0)
    assert "learner/rare" not in lines[1]


class Namesake(Recording):
    """Its metric is called like a figure of the learner."""

    def __init__(self, settings: object, context: object) -> None:
        super().__init__()

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        return msgspec.structs.replace(super().loss(batch, updates=updates), metrics={"version": 3.0})


def test_an_algorithm_whose_metric_would_be_overwritten_ends_the_run_with_the_name(tmp_path: Path) -> None:
    config = small_config(
        warm_start={"demonstrations": 0}, algorithm={"kind": "test_learner_role:Namesake", "aride": {}}
    )
    deliver(tmp_path, 3)
    with pytest.raises(DistrlError, match="version"):
        live(tmp_path, config)


# --- heartbeats -----------------------------------------------------------------------------------------------------


def test_progress_counts_the_updates_of_this_process_that_a_checkpoint_holds(tmp_path: Path) -> None:
    config = small_config(learner={"updates_per_episode": 10.0}, warm_start={"demonstrations": 0})
    deliver(tmp_path, 4)
    for updates_before in (0, 5):
        context, seen = a_context("learner", tmp_path, config), list[tuple[float, float]]()

        def stopping(context: RoleContext = context, seen: list[tuple[float, float]] = seen) -> bool:
            figures = context.heartbeat.figures
            seen.append((figures.get("progress", 0.0), figures.get("updates", 0.0)))
            return len(seen) > 6

        learn(msgspec.structs.replace(context, stopping=stopping))
        assert {progress for progress, _ in seen} == {0.0}, "nothing of it is saved yet, so a crash would undo it"
        assert seen[-1][1] > updates_before
        assert context.heartbeat.figures["progress"] == context.heartbeat.figures["updates"] - updates_before > 0


def test_everything_that_may_take_long_is_named_before_it_begins(tmp_path: Path) -> None:
    said = list[tuple[str, str]]()
    context = a_context("learner", tmp_path, small_config(warm_start={"demonstrations": 0}), turns=1)
    # An interval that no beat but a forced one gets through.
    writer = HeartbeatWriter(lambda beat: said.append((beat.phase, beat.what)), "learner", interval_s=1e9)
    learn(msgspec.structs.replace(context, heartbeat=writer))
    assert ("doing", "saving a checkpoint") in said
    assert ("doing", "publishing version 0") in said
    starting = [what for phase, what in said[1:] if phase == "starting"]
    assert starting == [
        "looking for episodes that a crash left outside the index",
        "loading the model",
        "reading the newest checkpoint",
    ]


# --- augmentation ---------------------------------------------------------------------------------------------------


CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["grpo", "ppo", "aride-published"])
def test_no_shipped_configuration_multiplies_its_policy_term_with_ratios_of_augmented_screens(name: str) -> None:
    shipped = load_config(CONFIGS / f"{name}.toml")
    assert augmentation_notice(shipped) == ""
    swapping = msgspec.structs.replace(shipped, policy=PolicyConfig())
    assert "--policy.pointer.word_swap_share 0" in augmentation_notice(swapping)
    jittering = msgspec.structs.replace(shipped, policy=PolicyConfig(kind="pixel"))
    assert "--policy.pixel.jitter 0" in augmentation_notice(jittering)


def test_the_default_whose_ratios_correct_targets_alone_needs_no_notice() -> None:
    assert augmentation_notice(Config()) == ""


def test_the_notice_reaches_the_log_of_the_learner(tmp_path: Path) -> None:
    grpo = {"kind": "grpo", "aride": {}}
    live(tmp_path, small_config(algorithm=grpo, rollout={"group_size": 2}, warm_start={"demonstrations": 0}), turns=1)
    (notice,) = [event for event in read_events(RunFolder(tmp_path).log("learner")) if event["event"] == "notice"]
    assert "importance ratios are not 1" in notice["text"]


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


# --- what counts as progress ----------------------------------------------------------------------------------------


def test_only_updates_that_a_checkpoint_holds_are_progress(tmp_path: Path) -> None:
    config = small_config(
        learner={"updates_per_episode": 4.0, "checkpoint_every_s": 1000.0}, warm_start={"demonstrations": 0}
    )
    deliver(tmp_path, 4)
    context = a_context("learner", tmp_path, config, turns=5)
    seen: list[tuple[float, float]] = []

    def stopping() -> bool:
        seen.append((context.heartbeat.figures.get("updates", 0.0), context.heartbeat.figures.get("progress", 0.0)))
        return len(seen) > 5

    learn(replace(context, stopping=stopping))
    assert seen[-1][0] > 0, "it has made updates"
    assert {progress for _, progress in seen} == {0.0}, "and none of them is safe"
    assert context.heartbeat.figures["progress"] == context.heartbeat.figures["updates"], "until it saves at its end"
    again = a_context("learner", tmp_path, config, turns=0)
    learn(again)
    assert again.heartbeat.figures["updates"] > again.heartbeat.figures["progress"], "nor is what it was started with"


def test_strange_files_beside_versions_and_checkpoints_stop_nobody(tmp_path: Path) -> None:
    config = small_config(
        learner={"updates_per_episode": 4.0, "publish_every_s": 0.001, "keep_versions": 1},
        warm_start={"demonstrations": 0},
    )
    run = RunFolder(tmp_path)
    for folder, names in (
        (
            run.weights,
            ("v9-notes.txt", "v000001 (copy).safetensors", "v.json", "vacation.safetensors", "v000000.json~"),
        ),
        (run.checkpoints, ("notes.txt", "00000001 (copy)", "99999999")),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).write_text("not ours")
    deliver(tmp_path, 4)
    for _ in range(3):
        assert live(tmp_path, config).state.updates > 0
    assert (run.weights / "v9-notes.txt").exists()
