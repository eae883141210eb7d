"""The supervisor with tiny real processes: deaths, silence, back-off, good ends, and exit reasons that end a run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.schema import RuntimeConfig
from distrl.errors import DistrlError, RoleCrashed
from distrl.runtime.base import RoleStatus
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events

ROLE = """
import os, signal, sys, time
from pathlib import Path
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.files import FileHeartbeats
folder, behaviour = Path(sys.argv[1]), sys.argv[2]
flags = sys.argv[3:]
asked = []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
heartbeat = HeartbeatWriter(FileHeartbeats(folder).beat, "worker-0", interval_s=0.0)
if behaviour == "crashes":
    sys.exit(7)
if behaviour == "crashes-after-progress":
    heartbeat.figures.update(progress=3.0, busy_s=2.5)
    heartbeat.doing("playing")
    sys.exit(7)
if behaviour == "gives-up":
    os.write(int(flags[flags.index("--exit-reason") + 1]), b"the disk is full\\ntry: free some space")
    sys.exit(2)
if behaviour == "gives-up-and-hangs":
    os.write(int(flags[flags.index("--exit-reason") + 1]), b"the store took over 60 s")
    signal.pause()
if behaviour == "quits":
    sys.exit(0)
heartbeat.doing("thinking hard")
if behaviour == "falls-silent":
    signal.pause()
while not asked and "--finish" not in flags:
    heartbeat.doing("playing")
    time.sleep(0.005)
heartbeat.stopped("finished with --finish" if "--finish" in flags else "finished")
sys.exit(9 if behaviour == "stumbles" and "--finish" not in flags else 0)
"""
PATIENCE_S = 60.0
QUICK = RuntimeConfig(backoff_s=0.001, silent_after_s=30.0, max_restarts=3)


class Clock:
    """The real time, plus what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Scene:
    """A supervisor of one role with a behaviour."""

    def __init__(self, folder: Path, behaviour: str, config: RuntimeConfig = QUICK) -> None:
        self.run = RunFolder(folder)
        self.run.logs.mkdir()
        self.clock = Clock()
        self.behaviour = behaviour
        self.runtime = LocalRuntime(self.run, config, clock=self.clock, command=self._command)

    def _command(self, role: str) -> list[str]:
        return [sys.executable, "-c", ROLE, str(self.run.heartbeats), self.behaviour]

    @property
    def status(self) -> RoleStatus:
        (status,) = self.runtime.status()
        return status

    def says(self, what: str) -> bool:
        heartbeat = self.status.heartbeat
        return self.status.alive and heartbeat is not None and heartbeat.what == what

    def supervise_until(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until_s, self.status
            self.runtime.supervise()
            time.sleep(0.005)

    def deaths(self) -> list[dict[str, object]]:
        return [dict(event) for event in read_events(self.run.log("supervisor")) if event["event"] == "died"]


@contextmanager
def scene(folder: Path, behaviour: str, config: RuntimeConfig = QUICK) -> Iterator[Scene]:
    made = Scene(folder, behaviour, config)
    made.runtime.start(("worker-0",))
    try:
        yield made
    finally:
        made.runtime.stop()


def test_a_role_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with scene(tmp_path, "steady") as made:
        made.supervise_until(lambda: made.says("playing"))
        heartbeat = made.status.heartbeat
        assert heartbeat is not None
        os.kill(heartbeat.pid, signal.SIGKILL)
        made.supervise_until(lambda: made.runtime.restarts() == 1 and made.says("playing"))
        assert made.status.heartbeat is not None
        assert made.status.heartbeat.pid != heartbeat.pid
        assert made.deaths()[0]["why"] == "killed by SIGKILL"


def test_a_role_that_ends_without_being_asked_is_started_again(tmp_path: Path) -> None:
    with scene(tmp_path, "quits") as made:
        made.supervise_until(lambda: made.runtime.restarts() == 2)
        assert made.deaths()[0]["why"] == "it ended without being asked"


def test_a_silent_role_is_named_with_what_it_was_doing_and_started_again(tmp_path: Path) -> None:
    with scene(tmp_path, "falls-silent") as made:
        made.supervise_until(lambda: made.says("thinking hard"))
        made.runtime.supervise()
        assert made.runtime.restarts() == 0
        made.behaviour = "steady"
        made.clock.ahead_s = 31.0
        made.runtime.supervise()
        assert "while thinking hard" in str(made.deaths()[0]["why"])
        assert "silent for 31 s" in made.status.note
        made.clock.ahead_s = 32.0
        made.supervise_until(lambda: made.status.alive)
        made.clock.ahead_s = 0.0  # or the heartbeats of the new one, in true time, would look old as well
        made.supervise_until(lambda: made.says("playing"))


def test_the_back_off_doubles_with_each_death_in_a_row(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes", replace(QUICK, backoff_s=0.001, max_restarts=4)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 4)
        assert [death["again_in_s"] for death in made.deaths()] == [0.001, 0.002, 0.004, 0.008]
        assert {death["why"] for death in made.deaths()} == {"exit code 7"}


def test_a_role_waits_out_its_back_off_and_the_longest_is_ten_seconds(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes", replace(QUICK, backoff_s=60.0)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 1)
        assert made.deaths()[0]["again_in_s"] == 10.0
        made.runtime.supervise()
        assert not made.status.alive
        assert "starts again in 10.0 s" in made.status.note
        made.clock.ahead_s = 11.0
        made.runtime.supervise()
        assert made.status.alive


def test_progress_ends_the_row_of_deaths(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes-after-progress", replace(QUICK, max_restarts=1)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 4)
        assert {death["again_in_s"] for death in made.deaths()} == {0.001}
        assert made.runtime.busy_s() >= 4 * 2.5  # the device time of earlier incarnations counts


def test_too_many_deaths_in_a_row_end_the_run_and_name_what_to_read(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes") as made:
        with pytest.raises(RoleCrashed, match="died 4 times in a row, last: exit code 7") as crash:
            made.supervise_until(lambda: False)
        assert str(made.run.console("worker-0")) in crash.value.fix
        assert crash.value.exit_code == 4


def test_a_role_that_gives_up_ends_the_run_with_its_reason_and_its_code(tmp_path: Path) -> None:
    with scene(tmp_path, "gives-up") as made:
        with pytest.raises(DistrlError) as end:
            made.supervise_until(lambda: False)
        assert str(end.value) == "worker-0: the disk is full\ntry: free some space"
        assert (end.value.exit_code, made.runtime.restarts()) == (2, 0)


def test_a_role_that_gives_up_and_then_hangs_is_heard_all_the_same(tmp_path: Path) -> None:
    with scene(tmp_path, "gives-up-and-hangs") as made:
        made.supervise_until(lambda: made.status.heartbeat is not None)
        made.clock.ahead_s = 120.0
        with pytest.raises(DistrlError, match="worker-0: the store took over 60 s"):
            made.supervise_until(lambda: False)
        assert made.runtime.restarts() == 0


def test_a_role_that_is_asked_comes_to_a_good_end(tmp_path: Path) -> None:
    with scene(tmp_path, "steady") as made:
        made.supervise_until(lambda: made.says("playing"))
        made.runtime.ask_to_finish("worker-0", needed=True)
        made.supervise_until(lambda: made.runtime.ended("worker-0"))
        assert made.status.heartbeat is not None
        assert (made.status.heartbeat.what, made.status.note, made.runtime.restarts()) == ("finished", "finished", 0)


def test_a_needed_role_that_dies_on_its_way_to_the_end_is_started_again_to_finish(tmp_path: Path) -> None:
    with scene(tmp_path, "stumbles") as made:
        made.supervise_until(lambda: made.says("playing"))
        made.runtime.ask_to_finish("worker-0", needed=True)
        made.supervise_until(lambda: made.runtime.ended("worker-0"))
        assert made.status.heartbeat is not None
        assert made.status.heartbeat.what == "finished with --finish"


def test_a_role_that_is_not_needed_may_die_on_its_way_to_the_end(tmp_path: Path) -> None:
    with scene(tmp_path, "stumbles") as made:
        made.supervise_until(lambda: made.says("playing"))
        made.runtime.ask_to_finish("worker-0", needed=False)
        made.supervise_until(lambda: made.runtime.ended("worker-0"))
        assert made.runtime.restarts() == 0


def test_a_role_that_is_dead_when_asked_is_not_waited_for_unless_it_is_needed(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes", replace(QUICK, backoff_s=5.0)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 1)
        made.runtime.ask_to_finish("worker-0", needed=True)
        assert not made.runtime.ended("worker-0")
        made.runtime.ask_to_finish("worker-0", needed=False)
        assert made.runtime.ended("worker-0")


def test_a_role_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with scene(tmp_path, "falls-silent") as made:
        made.supervise_until(lambda: made.says("thinking hard"))
        made.runtime.kill("worker-0", "it did not end in time")
        assert made.runtime.ended("worker-0")
        assert not made.status.alive
        assert read_events(made.run.log("supervisor"))[-1]["why"] == "it did not end in time"
