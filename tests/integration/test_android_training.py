"""Training on simulated phones behind the real adb: episodes are played, judged and learnt from, faults included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.devices.android.adb import AdbConfig
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.types import Ending
from support.androids import phones_behind_adb
from support.runs import TINY, Training, check_exactly_once, flags

PHONES = 4


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[tuple[AdbConfig, list[str]]]:
    """Phones in a process of their own, some of which fail now and then."""
    with phones_behind_adb(PHONES, "--fault-rate", str(request.param)) as found:
        yield found


@pytest.mark.parametrize("served", [pytest.param(0.0, marks=pytest.mark.long), 0.02], indirect=True)
def test_a_run_on_phones_behind_adb_finishes_and_keeps_every_episode(
    served: tuple[AdbConfig, list[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (config, serials), faulty = served, request.node.callspec.params["served"] > 0
    collecting = serials[:3] if faulty else serials  # shared with the evaluator where it has none of its own
    settings = {key: value for key, value in TINY.items() if not key.startswith("devices.sim")}
    settings |= {
        "run.root": tmp_path,
        "run.episodes": 40,
        "devices.kind": "android",
        "devices.android.port": config.port,
        "devices.android.serials": json.dumps(collecting),
        "devices.android.evaluation_serials": json.dumps(serials[3:] if faulty else []),
        "devices.android.quiet_s": 0,
        "devices.android.wait_s": 0.1,
        "devices.android.call_s": 3 if faulty else 60,  # a phone that hangs costs so much; a busy machine is no fault
        "rollout.workers": 1,
        "evaluation.episodes": 4,
    }
    training = Training(*flags(settings))
    try:
        summary = training.finish()
    finally:
        training.stop()
    assert summary["episodes"] >= 40
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["restarts"]) == (0, 0, 0)
    run = RunFolder(next(tmp_path.glob("*/config.toml")).parent)
    assert check_exactly_once(run) >= 40
    with ExperienceStore(run.experience) as store:
        played = [store.read(row.id) for row in store.after(0, 10_000) if row.source == "played"]
    assert {episode.device for episode in played} <= set(collecting)
    lost = [episode for episode in played if episode.ending is Ending.DEVICE_LOST]
    whole = [episode for episode in played if "end of the worker" not in episode.verdict.reason]
    assert all(episode.verdict.known == (episode.ending is not Ending.DEVICE_LOST) for episode in whole)
    assert bool(lost) == faulty
