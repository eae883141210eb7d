"""Child processes, a few at a time: progress is told, failures are named, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distrl.bench import crew as crew_module
from distrl.bench.crew import Crew, Work, do_all, do_as_child, usable_cores
from distrl.errors import DistrlError


def work(folder: Path, label: str, code: str, *, deadline_s: float = 60.0, core: int | None = None) -> Work:
    command = (sys.executable, "-S", "-c", code)
    return Work(label=label, command=command, log=folder / f"{label}.log", deadline_s=deadline_s, core=core)


def test_all_are_done_and_progress_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    works = [work(tmp_path, f"run-{n}", f"open({str(tmp_path / f'done-{n}')!r}, 'w')") for n in range(3)]
    do_all("runs", works, Crew(at_once=2, say=said.append))
    assert sorted(path.name for path in tmp_path.glob("done-*")) == ["done-0", "done-1", "done-2"]
    assert said[0] == "runs: 3 runs, 2 at a time"
    assert said[-1] == "runs: 3 of 3 done"


def test_no_more_than_so_many_run_at_once(tmp_path: Path) -> None:
    """Each takes a name that only one may hold at a time."""
    held = str(tmp_path / "held")
    code = f"import os, time; os.mkdir({held!r}); time.sleep(0.1); os.rmdir({held!r})"
    do_all("runs", [work(tmp_path, f"run-{n}", code) for n in range(3)], Crew(at_once=1, say=lambda line: None))


def test_what_is_under_way_and_the_time_left_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    slow = work(tmp_path, "aride, seed 1", "import time; time.sleep(0.5)")
    half_done = Work(label=slow.label, command=slow.command, log=slow.log, deadline_s=60.0, share=lambda _: 0.5)
    do_all("runs", [work(tmp_path, "quick", "pass"), half_done], Crew(at_once=2, say=said.append))
    lines = [line for line in said if "aride, seed 1 50%" in line]
    assert len(lines) == 1
    assert "1 of 2 done, about 0 s left; now" in lines[0]


def test_a_failure_is_named_with_what_it_said_and_the_others_go_on(tmp_path: Path) -> None:
    said: list[str] = []
    works = [
        work(tmp_path, "digirl, seed 2", "raise SystemExit('no such suite')"),
        work(tmp_path, "good", f"open({str(tmp_path / 'good.done')!r}, 'w')"),
    ]
    with pytest.raises(DistrlError, match=r"1 of 2 runs failed:\n.*digirl, seed 2 \(exit code 1: no such suite"):
        do_all("runs", works, Crew(at_once=1, say=said.append))
    assert (tmp_path / "good.done").exists()
    assert any(line.startswith("failed: digirl, seed 2") for line in said), "at once, not only at the end"


def test_an_error_message_is_told_whole(tmp_path: Path) -> None:
    message = "loading\\ndistrl: unknown suite\\nexpected: one of sim-start\\ntry: distrl tasks list"
    failing = work(tmp_path, "run", f"raise SystemExit('{message}')")
    with pytest.raises(
        DistrlError, match="exit code 1: distrl: unknown suite; expected: one of sim-start; try: distrl"
    ):
        do_all("runs", [failing], Crew(at_once=1, say=lambda line: None))
    with pytest.raises(DistrlError, match="it said nothing"):
        do_all("runs", [work(tmp_path, "mute", "raise SystemExit(1)")], Crew(at_once=1, say=lambda line: None))


def test_a_child_says_why_it_cannot_do_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["child", str(tmp_path / "sheet")])
    done: list[Path] = []
    do_as_child(done.append)
    assert done == [tmp_path / "sheet"]

    def refuse(sheet: Path) -> None:
        raise DistrlError(f"{sheet.name} names no suite", fix="distrl tasks list")

    with pytest.raises(SystemExit, match="distrl: sheet names no suite\ntry: distrl tasks list"):
        do_as_child(refuse)


def test_after_a_few_failures_nothing_new_is_begun(tmp_path: Path) -> None:
    works = [work(tmp_path, f"run-{n}", "raise SystemExit(4)") for n in range(6)]
    with pytest.raises(DistrlError, match="3 of 6 runs failed, 3 not begun"):
        do_all("runs", works, Crew(at_once=1, say=lambda line: None))
    assert len(list(tmp_path.glob("*.log"))) == 3


def test_one_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    stuck = work(tmp_path, "stuck", "import time; time.sleep(600)", deadline_s=0.2)
    with pytest.raises(DistrlError, match=r"stuck \(took longer than"):
        do_all("runs", [stuck], Crew(at_once=1, say=lambda line: None))


def test_an_interruption_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Noted(crew_module._Child):
        def __init__(self, one: Work, now_s: float) -> None:
            super().__init__(one, now_s)
            started.append(self.process.pid)

    def refuse_the_second() -> None:
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(crew_module, "_Child", Noted)
    works = [work(tmp_path, f"run-{n}", "import time; time.sleep(600)") for n in range(2)]
    with pytest.raises(KeyboardInterrupt):
        do_all("runs", works, Crew(at_once=2, say=lambda line: None, before_each=refuse_the_second))
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_a_pinned_child_and_its_children_keep_to_their_core(tmp_path: Path) -> None:
    core = usable_cores()[-1]
    code = "import os, subprocess, sys; print(os.sched_getaffinity(0), flush=True); " + (
        "subprocess.run([sys.executable, '-S', '-c', 'import os; print(os.sched_getaffinity(0))'], check=True)"
    )
    do_all("runs", [work(tmp_path, "pinned", code, core=core)], Crew(at_once=1, say=lambda line: None))
    assert (tmp_path / "pinned.log").read_text().split("\n")[:2] == [str({core})] * 2


def test_children_end_with_a_benchmark_that_is_asked_to_end(tmp_path: Path) -> None:
    """By SIGTERM, as a scheduler of jobs asks: a training that nobody waits for would go on for hours."""
    told = tmp_path / "pid"
    child = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(120)"
    parent = (
        "import sys; from pathlib import Path; from distrl.bench.crew import Crew, Work, do_all; "
        f"do_all('runs', [Work(label='a', command=(sys.executable, '-S', '-c', {child!r}), "
        f"log=Path({str(tmp_path / 'log')!r}), deadline_s=100.0)], Crew(at_once=1, say=print))"
    )
    bench = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
    assert _soon(lambda: told.exists() and told.read_text() != "")
    pid = int(told.read_text())
    bench.send_signal(signal.SIGTERM)
    _, said = bench.communicate(timeout=30)
    assert b"KeyboardInterrupt" in said
    assert _soon(lambda: _is_gone(pid))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _soon(holds: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return holds()
