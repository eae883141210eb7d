"""A whole training with workers that are not alike, whose episodes are stored elsewhere, too."""

from __future__ import annotations

import shutil
from pathlib import Path

from distrl.cli.main import main
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from support.runs import Training, check_exactly_once, heartbeat

GROUPS = '["1 devices.per_worker=2", "1 devices.per_worker=5 rollout.batch_size=3"]'


def test_workers_differ_in_devices_and_what_they_play_is_elsewhere_too_and_comes_back_from_there(
    tmp_path: Path,
) -> None:
    share = tmp_path / "share"
    training = Training.begin(tmp_path / "runs", rollout__groups=GROUPS, run__storage=share)
    try:
        summary = training.finish()
    finally:
        training.stop()
    run = training.run
    assert [heartbeat(run, f"worker-{number}").figures["healthy"] for number in range(2)] == [2, 5]
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["episodes"] == check_exactly_once(run)
    with ExperienceStore(run.experience) as store:
        ids = {row.id for row in store.after(0, 10_000)}
    assert {path.stem for path in (share / run.name / "episodes").iterdir()} == ids
    shutil.rmtree(run.experience)
    assert main(["runs", "fetch", str(run.path)]) == 0
    with ExperienceStore(RunFolder(run.path).experience) as store:
        assert {row.id for row in store.after(0, 10_000)} == ids
        assert store.audit().healthy
