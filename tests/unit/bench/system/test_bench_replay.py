"""The replay benchmark: everything is added, the oldest are evicted, batches are sampled and priorities change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from distrl.algorithms.batch import Episode, prepare
from distrl.bench.base import BenchOptions
from distrl.bench.plots import plot_file
from distrl.bench.system import replay
from distrl.bench.system.replay import KEPT_SHARE, Load, OurBuffer, ReplayFigures, mean_of, measure_throughput
from distrl.config.load import load_config
from distrl.config.schema import Config
from support.batches import decided_episode, tiny_policy

NUM = 20


def make_load() -> Load:
    policy = tiny_policy()
    episodes = [prepare(decided_episode(policy, f"{number}"), policy) for number in range(NUM)]
    return Load(episodes=episodes, priorities=[float(number + 1) for number in range(NUM)], batch=4, draws=3)


class RecordingBuffer:
    """`replay.Buffer` that notes what is asked of it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    def add(self, episode: Episode, priority: float) -> None:
        self.done.append(("add", (episode.id, priority)))

    def sample(self) -> str:
        self.done.append(("sample", None))
        return "drawn"

    def refresh(self, drawn: str, priorities: list[float]) -> None:
        self.done.append((f"refresh {drawn}", priorities))


def test_both_buffers_are_asked_for_the_same() -> None:
    recording, load = RecordingBuffer(), make_load()
    throughput = measure_throughput(recording, load)
    assert recording.done[:NUM] == [("add", (str(number), number + 1.0)) for number in range(NUM)]
    assert [what for what, _ in recording.done[NUM:]] == ["sample"] * 3 + ["sample", "refresh drawn"] * 3
    refreshed = [priority for what, given in recording.done if what.startswith("refresh") for priority in given]
    assert refreshed == [float(number + 1) for number in range(12)]
    assert min(throughput.inserts_per_s, throughput.samples_per_s, throughput.refreshed_samples_per_s) > 0


def test_our_replay_holds_as_much_as_the_other_and_its_priorities_change() -> None:
    load = make_load()
    ours = OurBuffer(Config(), load)
    measure_throughput(ours, load)
    assert len(ours.replay) == int(KEPT_SHARE * NUM)
    assert list(ours.replay.priorities()) == [str(number) for number in range(NUM - len(ours.replay), NUM)]
    before = ours.replay.priorities()
    drawn = ours.sample()
    ours.refresh(drawn, [99.0] * len(drawn))
    after = ours.replay.priorities()
    assert {id for id in after if after[id] != before[id]} == set(drawn)


def test_without_a_torchrl_that_works_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Config, load: Load) -> None:
        raise RuntimeError("its trees are not there\nand more")

    monkeypatch.setattr(replay, "TorchRLBuffer", refuse)
    version, throughput = replay._torchrl(Config(), make_load())
    assert throughput is None
    assert version.startswith("not measured: ")
    assert "\n" not in version


ONE = ReplayFigures(
    inserts_per_s=10.0, samples_per_s=100.0, refreshed_samples_per_s=50.0, set_version_ms=1.0, rss_mb=500.0,
    held_mb=200.0, trajectories=8000, steps=70_000, batch=16, torchrl="0.14", torchrl_inserts_per_s=5.0,
    torchrl_samples_per_s=40.0, torchrl_refreshed_samples_per_s=20.0, seeds=1, config_hash="a",
)  # fmt: skip


def test_several_seeds_become_their_mean() -> None:
    both = mean_of([ONE, replace(ONE, inserts_per_s=20.0, torchrl_samples_per_s=60.0)])
    assert (both.inserts_per_s, both.torchrl_samples_per_s, both.samples_per_s) == (15.0, 50.0, 100.0)
    assert (both.seeds, both.trajectories, both.torchrl) == (2, 8000, "0.14")
    missing = replace(ONE, torchrl_samples_per_s=None)
    assert mean_of([missing, missing]).torchrl_samples_per_s is None


def test_made_trajectories_share_no_memory_and_have_names_of_their_own() -> None:
    config = load_config(None, {**replay.SETTINGS, "warm_start.demonstrations": 4, "warm_start.epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "QUICK_PLAYED", 3)
        load = replay.make_load(config, 7, quick=True)
    assert [episode.id for episode in load.episodes] == [str(number) for number in range(7)]
    assert load.priorities[0] == load.priorities[3] == load.priorities[6], "the first of three again and again"
    assert (load.batch, load.draws) == (config.learner.batch_trajectories, replay.QUICK_DRAWS)
    first, copy = load.episodes[0], load.episodes[3]
    assert first.num_steps == copy.num_steps
    tensors = [
        (getattr(first, name), getattr(copy, name))
        for name in first.__struct_fields__
        if isinstance(getattr(first, name), torch.Tensor | np.ndarray)
    ]
    assert all(one is not other for one, other in tensors)


def test_all_seeds_are_measured_and_drawn_with_and_without_the_other_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(quick: bool, seed: int) -> ReplayFigures:
        return replace(ONE, inserts_per_s=10.0 * (seed + 1))

    monkeypatch.setattr(replay, "measure", measure)
    monkeypatch.setattr(replay, "prepare_torch", lambda: None)  # it would change this whole process
    found = replay.run(BenchOptions(seeds=3, out=tmp_path / "both"))
    assert (found.inserts_per_s, found.seeds) == (20.0, 3)
    assert "torchrl 0.14" in (tmp_path / "both" / "replay.svg").read_text()
    missing = replace(
        ONE, torchrl="not measured", torchrl_inserts_per_s=None, torchrl_samples_per_s=None,
        torchrl_refreshed_samples_per_s=None,
    )  # fmt: skip
    with plot_file(tmp_path, "alone") as axes:
        replay.draw(missing, axes)
        assert len(axes.patches) == 3
    assert "torchrl" not in (tmp_path / "alone.svg").read_text()


@pytest.mark.parametrize("share", [0.5, KEPT_SHARE])
def test_the_bound_of_the_replay_is_in_steps(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEPT_SHARE", share)
    load = make_load()
    ours = OurBuffer(Config(), load)
    measure_throughput(ours, load)
    steps = sum(episode.num_steps for episode in load.episodes)
    assert ours.replay.num_steps <= share * steps
    assert ours.replay.num_steps > share * steps - max(episode.num_steps for episode in load.episodes)
