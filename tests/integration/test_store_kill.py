"""What the store promises when a process is killed: everything acknowledged is there, readable, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

from distrl.experience.store import ExperienceStore

ROUNDS = 15

ADD_FOR_EVER = """
import itertools, sys
from pathlib import Path
from support.trajectories import make_trajectory
from distrl.experience.store import ExperienceStore
folder, name = Path(sys.argv[1]), sys.argv[2]
store = ExperienceStore(folder)
store.recover(temporary_age_s=0.0 if sys.argv[3] == "alone" else 60.0)
for index in itertools.count():
    id = f"{name}-{index}"
    store.add(make_trajectory(id))
    print(id, flush=True)
"""


def start(folder: Path, name: str, company: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ADD_FOR_EVER, str(folder), name, company],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def kill_at_random(process: subprocess.Popen[str], random: Random) -> list[str]:
    """Let it acknowledge a few, kill it at some moment of a later addition, and return all that it acknowledged."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(random.randrange(1, 20))]
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=random.uniform(0.0, 0.01))
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    assert process.wait(timeout=30) == -signal.SIGKILL
    # Killed in the middle of a line, it has acknowledged nothing with it.
    return [line.strip() for line in lines if line.endswith("\n")]


def check(folder: Path, acknowledged: list[str]) -> None:
    with ExperienceStore(folder) as store:
        indexed = [row.id for row in store.after(0, 1_000_000)]
        assert len(indexed) == len(set(indexed))
        assert set(acknowledged) <= set(indexed)
        audit = store.audit()
        assert (audit.missing, audit.duplicates) == ((), ())


def test_a_writer_killed_again_and_again_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    random, acknowledged = Random(4), list[str]()
    for number in range(ROUNDS):
        acknowledged += kill_at_random(start(tmp_path, f"r{number}", "alone"), random)
        check(tmp_path, acknowledged)
    with ExperienceStore(tmp_path) as store:
        store.recover(temporary_age_s=-60.0)
        assert store.audit().orphans == ()
        # At most the one addition that was under way in each round is there without having been acknowledged.
        assert len(acknowledged) <= store.count() <= len(acknowledged) + ROUNDS
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_writer_killed_beside_another_one_harms_neither(tmp_path: Path) -> None:
    random, acknowledged = Random(5), list[str]()
    steady = start(tmp_path, "steady", "company")
    for number in range(4):
        acknowledged += kill_at_random(start(tmp_path, f"r{number}", "company"), random)
    acknowledged += kill_at_random(steady, random)
    check(tmp_path, acknowledged)
    assert any(id.startswith("steady-") for id in acknowledged)
