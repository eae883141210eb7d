"""Locks that die with their holder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.errors import StoreError
from distrl.runtime.run_folder import held, take

HOLD = """
import sys, time
from pathlib import Path
from distrl.runtime.run_folder import take
lock = take(Path(sys.argv[1]), wait_s=0.0, what="it")
print("held", flush=True)
time.sleep(600)
"""


def hold_elsewhere(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats" / "supervisor.lock"
    assert not held(path)
    lock = take(path, wait_s=0.0, what="the run")
    assert held(path)
    assert path.read_text() == str(os.getpid())
    lock.release()
    assert not held(path)
    take(path, wait_s=0.0, what="the run").release()


def test_a_second_one_is_refused_and_told_who_holds_it_until_that_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    holder = hold_elsewhere(path)
    try:
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}") as refusal:
            take(path, wait_s=0.1, what="the run")
        assert f"kill {holder.pid}" in refusal.value.fix
        assert held(path)
    finally:
        holder.kill()
        holder.wait()
    assert not held(path)  # the file still names a process that is dead: that binds nobody
    take(path, wait_s=0.0, what="the run").release()


def test_one_that_waits_gets_its_turn_when_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "learner.lock"
    holder = hold_elsewhere(path)
    holder.kill()
    take(path, wait_s=30.0, what="the learner").release()
    holder.wait()
