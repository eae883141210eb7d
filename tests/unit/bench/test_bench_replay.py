"""What is timed is done: everything goes in, the oldest leave, batches come out and priorities change."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from distrl.algorithms.base import Episode, prepare
from distrl.bench import replay
from distrl.bench.replay import KEPT_SHARE, Load, OurBuffer, ReplayFigures, mean_of, pace
from distrl.config.schema import Config
from support.lessons import decided_episode, tiny_policy

NUM = 20


def make_load() -> Load:
    policy = tiny_policy()
    episodes = [prepare(decided_episode(policy, f"{number}"), policy) for number in range(NUM)]
    return Load(episodes=episodes, priorities=[float(number + 1) for number in range(NUM)], batch=4, draws=3)


class Noting:
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
    noting, load = Noting(), make_load()
    paced = pace(noting, load)
    assert noting.done[:NUM] == [("add", (str(number), number + 1.0)) for number in range(NUM)]
    assert [what for what, _ in noting.done[NUM:]] == ["sample"] * 3 + ["sample", "refresh drawn"] * 3
    refreshed = [priority for what, given in noting.done if what.startswith("refresh") for priority in given]
    assert refreshed == [float(number + 1) for number in range(12)]
    assert min(paced.inserts_per_s, paced.samples_per_s, paced.refreshed_samples_per_s) > 0


def test_our_replay_holds_as_much_as_the_other_and_its_priorities_change() -> None:
    load = make_load()
    ours = OurBuffer(Config(), load)
    pace(ours, load)
    assert len(ours.replay) == int(KEPT_SHARE * NUM)
    assert list(ours.replay.priorities()) == [str(number) for number in range(NUM - len(ours.replay), NUM)]
    before = ours.replay.priorities()
    drawn = ours.sample()
    ours.refresh(drawn, [99.0] * len(drawn))
    after = ours.replay.priorities()
    assert {id for id in after if after[id] != before[id]} == set(drawn)


def test_without_a_torchrl_that_works_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Config, load: Load) -> None:
        raise RuntimeError("its trees are not there\nand more")

    monkeypatch.setattr(replay, "TorchRLBuffer", refuse)
    version, paced = replay._torchrl(Config(), make_load())
    assert paced is None
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
