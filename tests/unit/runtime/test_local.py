"""The supervisor with tiny real processes: deaths, silence, back-off, good ends, and exit reasons that end a run."""

from __future__ import annotations

import os
import select
import signal
import subprocess
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
from distrl.runtime.supervision import LONGEST_TRACE, TRACE, first_trace
from distrl.telemetry.events import read_events
from distrl.telemetry.heartbeat import Heartbeat

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
if behaviour == "has-a-bug":
    bugs = folder / "bugs"
    with bugs.open("a") as file:
        file.write("x")
    raise LookupError(f"bug {bugs.stat().st_size}")
if behaviour == "cannot-start":
    raise LookupError("no such\\x1b\\tmodel")
if behaviour == "has-the-same-bug-when-ready":
    heartbeat.doing("playing")
    raise LookupError("no such screen")
if behaviour == "crashes-after-progress":
    heartbeat.figures.update(progress=3.0, busy_s=2.5, device_s=5.0)
    heartbeat.doing("playing")
    sys.exit(7)
if behaviour == "gives-up":
    os.write(int(flags[flags.index("--exit-reason") + 1]), b"the disk is full\\ntry: free some space")
    sys.exit(2)
if behaviour == "gives-up-and-hangs":
    os.write(int(flags[flags.index("--exit-reason") + 1]), b"the store took over 60 s")
    signal.pause()
if behaviour in ("has-a-child", "leaves-a-child", "leaves-a-daemon"):
    child = os.fork()
    if not child:
        if behaviour == "leaves-a-daemon":
            os.setsid()
            time.sleep(20.0)
            (folder / "over").touch()
            os._exit(0)
        while True:
            signal.pause()
    while behaviour == "leaves-a-daemon" and os.getsid(child) == os.getsid(0):
        time.sleep(0.001)
    (folder / "child.new").write_text(str(child))
    (folder / "child.new").rename(folder / "child")
    if behaviour != "has-a-child":
        sys.exit(7)
if behaviour == "quits":
    sys.exit(0)
heartbeat.doing("thinking hard")
if behaviour == "falls-silent":
    signal.pause()
while not asked and "--finish" not in flags:
    heartbeat.doing("playing")
    time.sleep(0.005)
heartbeat.stopped("finished with --finish" if "--finish" in flags else "finished")
if behaviour == "lingers":
    signal.pause()
sys.exit(9 if behaviour == "stumbles" and "--finish" not in flags else 0)
"""
PATIENCE_S = 60.0
QUICK = RuntimeConfig(backoff_s=0.001, silent_after_s=30.0, max_restarts=3)


LOOK_S = 1 / 128
"""How long after its last look the supervisor looks again; exact in binary, so that sums of it and of half seconds are."""


class Clock:
    """Time that a test lets pass, and a busy machine does not."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


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
            self.clock.now_s += LOOK_S
            time.sleep(LOOK_S)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which the supervisor looks as often as ever."""
        for _ in range(round(2 * seconds)):
            self.clock.now_s += 0.5
            self.runtime.supervise()

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
        made.pass_time(29.0)
        assert made.deaths() == []
        made.pass_time(2.0)
        (death,) = made.deaths()
        assert death["why"] == "silent for 30 s while thinking hard (runtime.silent_after_s)"
        made.supervise_until(lambda: made.says("playing"))


def test_a_role_that_has_finished_and_does_not_leave_is_not_silent_and_not_started_again(tmp_path: Path) -> None:
    with scene(tmp_path, "lingers") as made:
        made.supervise_until(lambda: made.says("playing"))
        made.runtime.ask_to_finish("worker-0", needed=True)
        made.supervise_until(lambda: made.says("finished"))
        made.pass_time(20.0)
        assert (made.status.note, made.runtime.ended("worker-0")) == ("", False)
        made.pass_time(12.0)
        assert (made.status.note, made.runtime.ended("worker-0"), made.runtime.restarts()) == ("finished", True, 0)
        assert made.deaths() == []


class StaleHeartbeats:
    """What an earlier session left, by a process whose number was given out again."""

    def __init__(self, made: Scene) -> None:
        self._roles = made.runtime._roles

    def beat(self, heartbeat: Heartbeat) -> None:
        raise AssertionError

    def last(self, role: str) -> Heartbeat | None:
        process = self._roles[role].process if role in self._roles else None
        return Heartbeat(
            role=role, pid=process.pid if process else 0, phase="doing", what="playing", since_s=0.0, beat_s=5.0,
            incarnation=3, figures={"busy_s": 100.0, "device_s": 100.0, "progress": 7.0},
        )  # fmt: skip


def test_the_heartbeat_of_an_earlier_process_with_the_same_number_is_not_the_roles_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Scene(tmp_path, "falls-silent", replace(QUICK, silent_after_s=5.0, start_grace_s=60.0))
    monkeypatch.setattr(made.runtime, "_heartbeats", StaleHeartbeats(made))
    try:
        made.runtime.start(("worker-0",))
        assert (made.runtime.busy_s(), made.status.heartbeat) == (0.0, None)
        made.pass_time(10.0)
        assert made.deaths() == [], "it is still starting"
    finally:
        made.runtime.stop()


def test_a_silent_role_is_named_within_three_seconds(tmp_path: Path) -> None:
    with scene(tmp_path, "falls-silent") as made:
        made.supervise_until(lambda: made.says("thinking hard"))
        made.runtime.supervise()
        made.pass_time(2.0)
        assert (made.status.note, made.status.alive) == ("", True)
        made.pass_time(0.5)
        assert made.status.note.startswith("silent for")
        made.pass_time(0.5)
        assert (made.status.note, made.status.alive) == ("silent for 3 s", True)
        assert made.deaths() == []


def test_where_heartbeats_are_rarer_a_healthy_role_is_not_named(tmp_path: Path) -> None:
    with scene(tmp_path, "falls-silent", replace(QUICK, heartbeat_s=4.0)) as made:
        made.supervise_until(lambda: made.says("thinking hard"))
        made.runtime.supervise()
        made.pass_time(7.0)
        assert made.status.note == ""
        made.pass_time(1.0)
        assert made.status.note == "silent for 8 s"


def test_time_in_which_the_supervisor_did_not_look_either_is_nobodys_silence(tmp_path: Path) -> None:
    with scene(tmp_path, "falls-silent") as made:
        made.supervise_until(lambda: made.says("thinking hard"))
        made.runtime.supervise()  # which has heard that
        made.clock.now_s += 3600.0
        made.runtime.supervise()
        made.runtime.supervise()
        assert (made.status.note, made.deaths()) == ("", [])


def test_a_role_that_is_long_in_starting_is_told_of_with_its_setting(tmp_path: Path) -> None:
    with scene(tmp_path, "gives-up-and-hangs", replace(QUICK, start_grace_s=5.0)) as made:
        made.supervise_until(lambda: made.status.heartbeat is not None)
        os.read(said_by(made), 100)  # as if it had said nothing
        made.pass_time(4.0)
        assert made.status.note == "", "loading takes its time"
        made.pass_time(3.0)
        assert "while starting (runtime.start_grace_s)" in str(made.deaths()[0]["why"])


def said_by(made: Scene) -> int:
    """The pipe on which the role says why it gives up, once it has."""
    unread = made.runtime._roles["worker-0"].reason_pipe
    assert select.select([unread], [], [], PATIENCE_S)[0]
    return unread


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def child_of(made: Scene) -> int:
    """What a role with a child has written down of it."""
    file = made.run.heartbeats / "child"
    made.supervise_until(lambda: file.exists() and bool(file.read_text()))
    return int(file.read_text())


def test_a_role_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    with scene(tmp_path, "has-a-child") as made:
        child = child_of(made)
        assert is_alive(child)
        made.runtime.kill("worker-0", "it did not end in time")
        made.supervise_until(lambda: not is_alive(child))


def test_what_a_role_that_died_has_left_running_ends_and_holds_nobody_up(tmp_path: Path) -> None:
    with scene(tmp_path, "leaves-a-child") as made:
        child = child_of(made)  # it holds the pipe for exit reasons open
        started_s = time.monotonic()
        made.supervise_until(lambda: len(made.deaths()) >= 1)
        assert time.monotonic() - started_s < 20.0
        assert made.deaths()[0]["why"] == "exit code 7"
        made.supervise_until(lambda: not is_alive(child))


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process groups that were sent a signal, in order."""
    groups, send = list[int](), os.killpg

    def note(group: int, number: int) -> None:
        groups.append(group)
        send(group, number)

    monkeypatch.setattr(os, "killpg", note)
    return groups


@pytest.mark.parametrize("behaviour", ["steady", "gives-up", "crashes"])
def test_a_process_group_that_is_gone_is_sent_no_signal_again(
    tmp_path: Path, behaviour: str, signalled: list[int]
) -> None:
    with scene(tmp_path, behaviour, replace(QUICK, max_restarts=0)) as made:
        process = made.runtime._roles["worker-0"].process
        assert process is not None
        if behaviour == "steady":
            made.supervise_until(lambda: made.says("playing"))
            made.runtime.ask_to_finish("worker-0", needed=False)
            made.supervise_until(lambda: made.runtime.ended("worker-0"))
        else:
            with pytest.raises(DistrlError):
                made.supervise_until(lambda: False)
        assert signalled == [process.pid], "what it may have left running"
        made.runtime.kill("worker-0", "it did not end in time")
        made.runtime.stop()
        made.runtime.stop()
        assert signalled == [process.pid], "by now the number may be another's"


def test_a_group_that_is_anothers_by_now_stops_nobody_from_ending_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError

    with scene(tmp_path, "quits") as made:
        process = made.runtime._roles["worker-0"].process
        assert process is not None
        process.wait(PATIENCE_S)
        with monkeypatch.context() as patch:
            patch.setattr(os, "killpg", refuse)
            made.runtime.stop()


def test_what_a_role_left_running_ends_with_it_where_it_died_before_it_was_killed(tmp_path: Path) -> None:
    with scene(tmp_path, "leaves-a-child") as made:
        process = made.runtime._roles["worker-0"].process
        assert process is not None
        process.wait(PATIENCE_S)
        child = int((made.run.heartbeats / "child").read_text())
        made.runtime.kill("worker-0", "it did not end in time")
        wait_for(lambda: not is_alive(child))


def test_a_daemon_that_holds_the_pipe_of_a_dead_role_open_is_not_waited_for(tmp_path: Path) -> None:
    with scene(tmp_path, "leaves-a-daemon", replace(QUICK, backoff_s=60.0)) as made:
        daemon = child_of(made)
        try:
            made.supervise_until(lambda: made.deaths() != [])
            assert not (made.run.heartbeats / "over").exists(), "the supervisor went on at once"
        finally:
            os.kill(daemon, signal.SIGKILL)


def test_a_stopped_process_that_an_earlier_supervisor_left_is_woken_so_that_it_can_end(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    code = "import sys, time; from pathlib import Path; from distrl.runtime.run_folder import take\nlock = take(Path(sys.argv[1]), wait_s=0.0, what='it'); print('held', flush=True); time.sleep(60.0)"
    command = [sys.executable, "-c", code, str(run.lock("worker-0")), "distrl.runtime.role"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as left:
        assert left.stdout is not None
        left.stdout.readline()
        left.send_signal(signal.SIGSTOP)
        wait_for(lambda: state_of(left.pid) == "T")
        with scene(tmp_path, "steady"):
            wait_for(lambda: state_of(left.pid) != "T")
        left.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0]


def wait_for(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.005)


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
        made.clock.now_s += 11.0
        made.runtime.supervise()
        assert made.status.alive


def test_progress_ends_the_row_of_deaths(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes-after-progress", replace(QUICK, max_restarts=1)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 4)
        assert {death["again_in_s"] for death in made.deaths()} == {0.001}
        assert made.runtime.busy_s() >= 4 * 2.5  # the device time of earlier incarnations counts
        assert made.runtime.device_s() == 2 * made.runtime.busy_s()


def test_too_many_deaths_in_a_row_end_the_run_and_name_what_to_read(tmp_path: Path) -> None:
    with scene(tmp_path, "crashes") as made:
        with pytest.raises(RoleCrashed, match="died 4 times in a row, last: exit code 7") as crash:
            made.supervise_until(lambda: False)
        assert str(made.run.console("worker-0")) in crash.value.fix
        assert crash.value.exit_code == 4


def test_the_first_traceback_of_a_role_that_crashes_comes_with_the_error(tmp_path: Path) -> None:
    with scene(tmp_path, "has-a-bug", replace(QUICK, max_restarts=2)) as made:
        made.run.console("worker-0").write_text("Traceback (most recent call last):\n  of an earlier session\nError\n")
        made.runtime.stop()
        made.runtime = LocalRuntime(made.run, replace(QUICK, max_restarts=2), command=made._command)
        made.runtime.start(("worker-0",))
        with pytest.raises(RoleCrashed) as crash:
            made.supervise_until(lambda: False)
        lines = crash.value.trace.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1].startswith("LookupError: bug ")
        bugs = [
            int(line.split()[-1])
            for line in made.run.console("worker-0").read_text().splitlines()
            if "bug " in line and line.startswith("LookupError")
        ]
        assert int(lines[-1].split()[-1]) == min(bugs), "the first one"


def test_a_role_that_cannot_start_for_the_same_error_ends_the_run_soon_and_says_of_what(tmp_path: Path) -> None:
    with scene(tmp_path, "cannot-start", replace(QUICK, max_restarts=1000)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 1)
        assert made.status.note.startswith("exit code 1: LookupError: no such model; starts again in")
        with pytest.raises(RoleCrashed, match="died 5 times in a row, last: exit code 1: LookupError: no such model"):
            made.supervise_until(lambda: False)


@pytest.mark.parametrize("behaviour", ["has-a-bug", "has-the-same-bug-when-ready", "crashes"])
def test_other_errors_and_those_of_a_role_that_was_ready_may_be_over_the_next_time(
    tmp_path: Path, behaviour: str
) -> None:
    with scene(tmp_path, behaviour, replace(QUICK, max_restarts=1000)) as made:
        made.supervise_until(lambda: made.runtime.restarts() == 6)


def test_of_a_long_traceback_its_beginning_and_its_end_are_told(tmp_path: Path) -> None:
    frames = [f'  File "deep.py", line {number}' for number in range(100)]
    (tmp_path / "out").write_text("\n".join([TRACE, *frames, "LookupError: at last", "what comes after"]))
    lines = first_trace(tmp_path / "out", 0).splitlines()
    assert len(lines) == LONGEST_TRACE
    assert (lines[0], lines[1], lines[-2:]) == (TRACE, frames[0], [frames[-1], "LookupError: at last"])


def test_a_role_that_gives_up_ends_the_run_with_its_reason_and_its_code(tmp_path: Path) -> None:
    with scene(tmp_path, "gives-up") as made:
        with pytest.raises(DistrlError) as end:
            made.supervise_until(lambda: False)
        assert str(end.value) == "worker-0: the disk is full\ntry: free some space"
        assert (end.value.exit_code, made.runtime.restarts()) == (2, 0)


def test_a_role_that_gives_up_and_then_hangs_is_heard_all_the_same(tmp_path: Path) -> None:
    with scene(tmp_path, "gives-up-and-hangs") as made:
        made.supervise_until(lambda: made.status.heartbeat is not None)
        said_by(made)
        with pytest.raises(DistrlError, match="worker-0: the store took over 60 s"):
            made.pass_time(120.0)
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


def test_roles_are_told_where_to_spool_and_an_empty_folder_does_not_stay(tmp_path: Path) -> None:
    made = Scene(tmp_path, "steady")
    made.runtime.start(("worker-0",))
    try:
        process = made.runtime._roles["worker-0"].process
        assert process is not None
        words = [str(word) for word in process.args]  # type: ignore[union-attr]
        spools = Path(words[words.index("--spools") + 1])
        assert spools.is_dir()
        assert str(spools) in made.run.spools.read_text()
    finally:
        made.runtime.stop()
    assert not spools.exists()


TELLS_PRIORITY = """
import os, signal, sys
from pathlib import Path
place = Path(sys.argv[1])
place.with_suffix(".new").write_text(os.environ.get("CUDA_MPS_CLIENT_PRIORITY", "none"))
place.with_suffix(".new").rename(place)
signal.pause()
"""


@pytest.mark.parametrize(
    ("given", "expected"), [(None, {"learner": "1", "worker-0": "none"}), ("0", {"learner": "0", "worker-0": "0"})]
)
def test_updates_come_after_decisions_where_the_service_shares_the_gpu_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: dict[str, str]
) -> None:
    monkeypatch.delenv("CUDA_MPS_CLIENT_PRIORITY", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", given)
    run = RunFolder(tmp_path / "run")
    run.logs.mkdir(parents=True)
    command = lambda role: [sys.executable, "-c", TELLS_PRIORITY, str(tmp_path / role)]  # noqa: E731
    runtime = LocalRuntime(run, QUICK, command=command)
    runtime.start(tuple(expected))
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not all((tmp_path / role).exists() for role in expected):
            assert time.monotonic() < until_s
            time.sleep(LOOK_S)
    finally:
        runtime.stop()
    assert {role: (tmp_path / role).read_text() for role in expected} == expected
