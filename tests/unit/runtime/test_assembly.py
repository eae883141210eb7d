"""From settings to parts: which machines are slow, and who plays how much of a round."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.experience.store import ExperienceStore
from distrl.rollout.rounds import EqualShares, NoRounds, Rounds, SharedRound
from distrl.runtime.assembly import make_devices, make_rounds
from distrl.runtime.run_folder import RunFolder
from distrl.types import Value
from support.trajectories import make_trajectory

FLEET: dict[str, Value] = {"rollout.workers": 3, "devices.per_worker": 2, "devices.latency.slow_machine_share": 0.0}


def config(**changes: Value) -> Config:
    return load_config(None, {**FLEET, **{key.replace("__", "."): value for key, value in changes.items()}})


@pytest.mark.parametrize(("num_slow", "slow"), [(0, [0, 0, 0]), (1, [0, 0, 2]), (2, [0, 2, 2]), (9, [2, 2, 2])])
def test_the_last_workers_sit_on_slow_machines_with_all_their_phones(num_slow: int, slow: list[int]) -> None:
    settings = config(devices__latency__slow_workers=num_slow)
    fleet = [make_devices(settings, f"worker-{number}") for number in range(3)]
    assert [sum(device._latency.slow_machine for device in devices) for devices in fleet] == slow


def rounds_of(folder: Path, worker: str, **changes: Value) -> Rounds:
    with ExperienceStore(folder / "experience") as store:
        store.add(make_trajectory("by-another", version=0))  # by worker w0
        made = make_rounds(RunFolder(folder), config(learner__round_episodes=8, **changes), worker, store)
        granted = made.claim(0, 100)
    assert granted == {NoRounds: 100, EqualShares: 3, SharedRound: 7}[type(made)]
    return made


def test_the_mode_decides_who_plays_how_much(tmp_path: Path) -> None:
    assert isinstance(rounds_of(tmp_path, "worker-0"), NoRounds)
    assert isinstance(rounds_of(tmp_path, "worker-0", learner__mode="sync"), SharedRound)
    assert isinstance(rounds_of(tmp_path, "worker-0", learner__mode="sync", rollout__lockstep=True), EqualShares)
    assert isinstance(rounds_of(tmp_path, "worker-0", rollout__lockstep=True), NoRounds)
