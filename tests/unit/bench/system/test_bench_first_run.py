"""The first run: what is trained, and how the summaries of its seeds are combined."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.system import first_run
from distrl.bench.system.first_run import CONFIG, FirstRuns
from distrl.config.load import config_hash, load_config
from distrl.errors import RoleCrashed
from distrl.runtime.summary import Summary
from support.summaries import a_summary

FILE = Path(__file__).parents[4] / "configs" / "first-run.toml"


def test_the_benchmark_trains_what_make_train_trains() -> None:
    assert config_hash(load_config(None, CONFIG)) == config_hash(load_config(FILE))


SUMMARIES = [
    replace(a_summary(), success_before=0.2, success_after=0.9, wall_s=70.0, device_utilisation=0.95, seed=0),
    replace(
        a_summary(),
        success_before=0.5,
        success_after=0.8,
        wall_s=90.0,
        device_utilisation=0.91,
        lost_episodes=1,
        seed=1,
    ),
    replace(a_summary(), success_before=0.1, success_after=None, duplicate_episodes=2, learner_idle_ratio=0.1, seed=2),
]


def ran(options: BenchOptions, monkeypatch: pytest.MonkeyPatch) -> tuple[FirstRuns, list[tuple[dict[str, str], int]]]:
    """The figures of made-up runs, and what was asked for."""
    asked: list[tuple[dict[str, str], int]] = []

    def train(settings: dict[str, str], seed: int) -> Summary:
        asked.append((settings, seed))
        return SUMMARIES[seed]

    monkeypatch.setattr(first_run, "_train", train)
    return first_run.run(options), asked


def test_the_worst_of_the_seeds_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = ran(BenchOptions(), monkeypatch)
    assert [seed for _, seed in asked] == [0, 1, 2]
    assert (found.success_before, found.success_after) == ([0.2, 0.5, 0.1], [0.9, 0.8, None])
    assert (found.lowest_after, found.smallest_gain) == (0.0, -0.1), "a run without a result counts as 0"
    assert (found.longest_wall_s, found.lowest_device_utilisation) == (90.0, 0.9)
    assert (found.lost_episodes, found.duplicate_episodes) == (1, 2)
    assert found.learner_idle_ratio == [0.5, 0.5, 0.1]
    assert (found.seeds, found.runs) == (3, SUMMARIES)


def test_the_smallest_gain_is_that_of_one_seed_and_not_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = ran(BenchOptions(seeds=2), monkeypatch)
    assert found.smallest_gain == pytest.approx(0.3)
    assert found.lowest_after == 0.8


def test_a_quick_one_trains_a_minute_with_one_seed_and_says_so_in_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = ran(BenchOptions(seeds=1), monkeypatch)
    quick, asked = ran(BenchOptions(quick=True), monkeypatch)
    assert asked == [({**CONFIG, "run.minutes": "1"}, 0)]
    assert quick.config_hash != whole.config_hash == config_hash(load_config(None, CONFIG))


def pretend(returncode: int, *, summary: bool) -> object:
    """`subprocess.run` that leaves a summary in the folder of the run, or none."""

    def run(command: list[str], *, timeout: float, check: bool) -> subprocess.CompletedProcess[bytes]:
        root = Path(command[command.index("--run.root") + 1])
        if summary:
            (root / "20260101-sim").mkdir()
            seed = int(command[command.index("--seed") + 1])
            (root / "20260101-sim" / "summary.json").write_bytes(msgspec.json.encode(replace(a_summary(), seed=seed)))
        return subprocess.CompletedProcess(command, returncode)

    return run


def test_a_training_is_read_from_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run.subprocess, "run", pretend(0, summary=True))
    assert first_run._train({"run.minutes": "1"}, 7).seed == 7


@pytest.mark.parametrize(("code", "summary"), [(4, True), (0, False), (1, False)])
def test_a_training_that_fails_or_leaves_nothing_is_an_error_with_its_command(
    code: int, summary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_run.subprocess, "run", pretend(code, summary=summary))
    with pytest.raises(RoleCrashed, match=f"seed 7 ended with code {code}") as caught:
        first_run._train({"run.minutes": "1"}, 7)
    assert "--seed 7" in caught.value.fix
    assert "--run.minutes 1" in caught.value.fix
