"""Looking at a run that one may not write to: nothing is needed, nothing is made; resuming it is refused in three lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from distrl.config.load import load_config
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.summary import summarise
from distrl.transport.base import BudgetUsed
from support.runs import PATIENCE_S, last_json
from support.trajectories import make_trajectory

# As root, permissions count only without the capabilities to pass over them.
POWERLESS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override"]
AS_OTHERS = POWERLESS if os.geteuid() == 0 else []

pytestmark = pytest.mark.skipif(bool(AS_OTHERS) and not shutil.which("setpriv"), reason="root may write everywhere")


def distrl(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*AS_OTHERS, sys.executable, "-m", "distrl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A run that has ended, with three episodes."""
    config = load_config(None, {"run.root": str(tmp_path)})
    made = create_run(config, now=datetime(2026, 5, 4))
    with ExperienceStore(made.experience) as store:
        for number in range(3):
            store.add(make_trajectory(f"e{number}"))
    summarise(made, config, BudgetUsed(wall_s=3.0))
    yield made
    protect(made.path, 0o755, 0o644)


def protect(path: Path, folders: int = 0o555, files: int = 0o444) -> None:
    path.chmod(folders)
    for found in sorted(path.rglob("*")):
        found.chmod(folders if found.is_dir() else files)


def listing(path: Path) -> dict[str, tuple[int, int]]:
    found = {str(file): os.stat(file) for file in path.rglob("*")}
    return {name: (status.st_mtime_ns, status.st_size) for name, status in found.items()}


def test_the_status_of_a_run_that_one_may_only_read(run: RunFolder) -> None:
    protect(run.path)
    before = listing(run.path)
    done = distrl("status", run.path, "--json")
    assert done.returncode == 0, done.stderr
    assert (last_json(done.stdout)["phase"], last_json(done.stdout)["episodes"]) == ("finished", 3)
    assert listing(run.path) == before


def test_the_status_of_a_run_that_one_may_only_read_while_someone_writes(run: RunFolder) -> None:
    with ExperienceStore(run.experience) as store:
        store.add(make_trajectory("late"))
        protect(run.path)
        before = listing(run.path)
        done = distrl("status", run.path, "--json")
        assert done.returncode == 0, done.stderr
        assert last_json(done.stdout)["episodes"] == 4
        assert listing(run.path).keys() == before.keys()
        protect(run.path, 0o755, 0o644)


def test_the_status_of_a_killed_run_whose_log_lacks_its_third_file(run: RunFolder, tmp_path: Path) -> None:
    with ExperienceStore(run.experience) as store:
        store.add(make_trajectory("late"))
        copy = RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy")))
    (copy.experience / "index.sqlite-shm").unlink()
    protect(copy.path)
    done = distrl("status", copy.path, "--json")
    protect(copy.path, 0o755, 0o644)
    assert done.returncode == 0, done.stderr
    assert last_json(done.stdout)["episodes"] in (3, 4)


def test_looking_creates_nothing_in_a_folder_without_episodes(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    before = listing(run.path)
    done = distrl("status", run.path, "--json")
    assert (done.returncode, last_json(done.stdout)["episodes"]) == (0, 0)
    assert listing(run.path) == before


@pytest.mark.parametrize("files", [0o444, 0o644])
def test_resuming_a_run_that_one_may_not_write_to_is_refused_in_three_lines(run: RunFolder, files: int) -> None:
    run.summary.unlink()
    protect(run.path, files=files)
    before = listing(run.path)
    done = distrl("train", "--resume", run.path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    *_, seen, expected, fix = done.stderr.splitlines()
    assert (seen[:19], expected[:9], fix[:4]) == ("distrl: cannot use ", "expected:", "try:")
    assert listing(run.path) == before
