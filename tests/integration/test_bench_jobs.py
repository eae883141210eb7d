"""The job runner with real child processes: progress, failures, deadlines, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distrl.bench import jobs as jobs_module
from distrl.bench.jobs import Job, JobRunner, run_as_child, usable_cores
from distrl.errors import DistrlError


def job(folder: Path, label: str, code: str, *, deadline_s: float = 60.0, core: int | None = None) -> Job:
    command = (sys.executable, "-S", "-c", code)
    return Job(label=label, command=command, log=folder / f"{label}.log", deadline_s=deadline_s, core=core)


def test_all_are_done_and_progress_is_reported(tmp_path: Path) -> None:
    reported: list[str] = []
    jobs = [job(tmp_path, f"run-{n}", f"open({str(tmp_path / f'done-{n}')!r}, 'w')") for n in range(3)]
    JobRunner(max_parallel=2, report=reported.append).run("runs", jobs)
    assert sorted(path.name for path in tmp_path.glob("done-*")) == ["done-0", "done-1", "done-2"]
    assert reported[0] == "runs: 3 runs, 2 at a time"
    assert reported[-1] == "runs: 3 of 3 done"


def test_no_more_than_so_many_run_at_once(tmp_path: Path) -> None:
    """Each takes a name that only one may hold at a time."""
    held = str(tmp_path / "held")
    code = f"import os, time; os.mkdir({held!r}); time.sleep(0.1); os.rmdir({held!r})"
    JobRunner(max_parallel=1, report=lambda line: None).run("runs", [job(tmp_path, f"run-{n}", code) for n in range(3)])


def test_what_is_under_way_and_the_time_left_are_named(tmp_path: Path) -> None:
    reported: list[str] = []
    gate = tmp_path / "gate"
    slow = job(tmp_path, "aride, seed 1", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)")
    half_done = Job(label=slow.label, command=slow.command, log=slow.log, deadline_s=60.0, progress=lambda _: 0.5)

    def report(line: str) -> None:
        reported.append(line)
        if "aride, seed 1 50%" in line:
            gate.touch()

    quick = job(tmp_path, "quick", "pass")
    JobRunner(max_parallel=2, report=report, clock=Clock(0.001)).run("runs", [quick, half_done])
    lines = [line for line in reported if "aride, seed 1 50%" in line]
    assert len(lines) == 1
    assert "1 of 2 done, about 0 s left; now" in lines[0]


def test_a_failure_is_named_with_what_it_reported_and_the_others_go_on(tmp_path: Path) -> None:
    reported: list[str] = []
    jobs = [
        job(tmp_path, "digirl, seed 2", "raise SystemExit('no such suite')"),
        job(tmp_path, "good", f"open({str(tmp_path / 'good.done')!r}, 'w')"),
    ]
    with pytest.raises(DistrlError, match=r"1 of 2 runs failed:\n.*digirl, seed 2 \(exit code 1: no such suite"):
        JobRunner(max_parallel=1, report=reported.append).run("runs", jobs)
    assert (tmp_path / "good.done").exists()
    assert any(line.startswith("failed: digirl, seed 2") for line in reported), "at once, not only at the end"


def test_an_error_message_is_shown_whole(tmp_path: Path) -> None:
    message = "loading\\ndistrl: unknown suite\\nexpected: one of sim-start\\ntry: distrl tasks list"
    failing = job(tmp_path, "run", f"raise SystemExit('{message}')")
    with pytest.raises(
        DistrlError, match="exit code 1: distrl: unknown suite; expected: one of sim-start; try: distrl"
    ):
        JobRunner(max_parallel=1, report=lambda line: None).run("runs", [failing])
    with pytest.raises(DistrlError, match="no output"):
        JobRunner(max_parallel=1, report=lambda line: None).run("runs", [job(tmp_path, "mute", "raise SystemExit(1)")])


def test_a_child_says_why_it_cannot_do_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["child", str(tmp_path / "job_file")])
    done: list[Path] = []
    run_as_child(done.append)
    assert done == [tmp_path / "job_file"]

    def refuse(job_file: Path) -> None:
        raise DistrlError(f"{job_file.name} names no suite", fix="distrl tasks list")

    with pytest.raises(SystemExit, match="distrl: job_file names no suite\ntry: distrl tasks list"):
        run_as_child(refuse)


def test_after_a_few_failures_nothing_new_is_started(tmp_path: Path) -> None:
    jobs = [job(tmp_path, f"run-{n}", "raise SystemExit(4)") for n in range(6)]
    with pytest.raises(DistrlError, match="3 of 6 runs failed, 3 not started"):
        JobRunner(max_parallel=1, report=lambda line: None).run("runs", jobs)
    assert len(list(tmp_path.glob("*.log"))) == 3


def test_one_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    stuck = job(tmp_path, "stuck", "import time; time.sleep(600)", deadline_s=0.2)
    with pytest.raises(DistrlError, match=r"stuck \(took longer than"):
        JobRunner(max_parallel=1, report=lambda line: None).run("runs", [stuck])


def test_an_interruption_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Noted(jobs_module._Process):
        def __init__(self, one: Job, now_s: float) -> None:
            super().__init__(one, now_s)
            started.append(self.process.pid)

    def refuse_the_second() -> None:
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(jobs_module, "_Process", Noted)
    jobs = [job(tmp_path, f"run-{n}", "import time; time.sleep(600)") for n in range(2)]
    with pytest.raises(KeyboardInterrupt):
        JobRunner(max_parallel=2, report=lambda line: None, before_each=refuse_the_second).run("runs", jobs)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes")
def test_a_pinned_child_and_its_children_keep_to_their_core(tmp_path: Path) -> None:
    core = usable_cores()[-1]
    code = "import os, subprocess, sys; print(os.sched_getaffinity(0), flush=True); " + (
        "subprocess.run([sys.executable, '-S', '-c', 'import os; print(os.sched_getaffinity(0))'], check=True)"
    )
    JobRunner(max_parallel=1, report=lambda line: None).run("runs", [job(tmp_path, "pinned", code, core=core)])
    assert (tmp_path / "pinned.log").read_text().split("\n")[:2] == [str({core})] * 2


def test_children_end_with_a_benchmark_that_is_asked_to_end(tmp_path: Path) -> None:
    """By SIGTERM, as a scheduler of jobs asks: a training that nobody waits for would go on for hours."""
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(120)"
    parent = (
        "import sys; from pathlib import Path; from distrl.bench.jobs import Job, JobRunner; "
        f"JobRunner(max_parallel=1, report=print).run('runs', [Job(label='a', "
        f"command=(sys.executable, '-S', '-c', {child!r}), log=Path({str(tmp_path / 'log')!r}), deadline_s=100.0)])"
    )
    bench = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
    assert _soon(lambda: pid_file.exists() and pid_file.read_text() != "")
    pid = int(pid_file.read_text())
    bench.send_signal(signal.SIGTERM)
    _, reported = bench.communicate(timeout=30)
    assert b"KeyboardInterrupt" in reported
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


# --- order, failures and reports --------------------------------------------------------------------------------------


def quiet(max_parallel: int = 1) -> JobRunner:
    return JobRunner(max_parallel=max_parallel, report=lambda line: None)


def note(folder: Path, label: str) -> Job:
    """A job that adds its label to a common file."""
    return job(folder, label, f"open({str(folder / 'order')!r}, 'a').write('{label} ')")


def test_jobs_start_in_their_order(tmp_path: Path) -> None:
    labels = [f"run-{number}" for number in range(5)]
    quiet().run("runs", [note(tmp_path, label) for label in labels])
    assert (tmp_path / "order").read_text().split() == labels


def test_the_next_job_starts_when_a_slot_is_free(tmp_path: Path) -> None:
    """The first waits for the third, which can only start in the slot of the second."""
    third = tmp_path / "third"
    wait = f"import os, time\nwhile not os.path.exists({str(third)!r}): time.sleep(0.01)"
    jobs = [job(tmp_path, "first", wait), note(tmp_path, "second"), job(tmp_path, "last", f"open({str(third)!r}, 'w')")]
    quiet(2).run("runs", jobs)
    assert third.exists()


def test_before_each_is_called_once_per_job_and_before_it_starts(tmp_path: Path) -> None:
    seen: list[str] = []

    def before_each() -> None:
        order = tmp_path / "order"
        seen.append(order.read_text() if order.exists() else "")

    runner = JobRunner(max_parallel=1, report=lambda line: None, before_each=before_each)
    runner.run("runs", [note(tmp_path, label) for label in ("a", "b", "c")])
    assert seen == ["", "a ", "a b "]


def test_no_jobs_run_and_report_nothing(tmp_path: Path) -> None:
    reported: list[str] = []
    JobRunner(max_parallel=1, report=reported.append, before_each=lambda: reported.append("asked")).run("runs", [])
    assert reported == []


def test_an_error_before_a_start_ends_everything_and_starts_nothing_more(tmp_path: Path) -> None:
    def refuse() -> None:
        if (tmp_path / "order").exists():
            raise DistrlError("the source has changed")

    runner = JobRunner(max_parallel=1, report=lambda line: None, before_each=refuse)
    with pytest.raises(DistrlError, match="the source has changed"):
        runner.run("runs", [note(tmp_path, label) for label in ("a", "b", "c")])
    assert (tmp_path / "order").read_text() == "a "


def test_the_final_error_names_a_few_and_counts_all(tmp_path: Path) -> None:
    """Six at a time: all have started before the third failure stops new ones."""
    failing = [job(tmp_path, f"run-{number}", "raise SystemExit('broken')") for number in range(6)]
    with pytest.raises(DistrlError, match="6 of 6 runs failed:") as caught:
        quiet(6).run("runs", failing)
    assert str(caught.value).count("exit code 1: broken") == jobs_module.MAX_NAMED
    assert "start the same command again" in caught.value.fix


def test_a_job_that_a_signal_ended_has_failed(tmp_path: Path) -> None:
    with pytest.raises(DistrlError, match="exit code -9: last line"):
        quiet().run("runs", [job(tmp_path, "a", "import os; print('last line', flush=True); os.kill(os.getpid(), 9)")])


def test_a_command_that_does_not_exist_is_an_error_at_once(tmp_path: Path) -> None:
    missing = Job(label="missing", command=("/nowhere/at/all",), log=tmp_path / "log", deadline_s=1.0)
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        quiet().run("runs", [missing])


def test_both_outputs_go_to_the_log_and_an_earlier_log_is_replaced(tmp_path: Path) -> None:
    both = job(tmp_path, "both", "import sys; print('out', flush=True); print('err', file=sys.stderr)")
    both.log.write_text("of an earlier attempt")
    quiet().run("runs", [both])
    assert both.log.read_text() == "out\nerr\n"


def test_a_child_computes_with_one_thread_and_reads_no_input(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], repr(sys.stdin.read()))"
    quiet().run("runs", [job(tmp_path, "child", code)])
    assert (tmp_path / "child.log").read_text() == "1 1 ''\n"


def test_jobs_run_outside_the_main_thread_as_well(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(quiet().run, "runs", [note(tmp_path, "a")]).result()
    assert (tmp_path / "order").read_text() == "a "


def test_the_signal_handler_of_the_caller_is_back_afterwards(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(DistrlError):
        quiet().run("runs", [job(tmp_path, "a", "raise SystemExit(1)")])
    assert signal.getsignal(signal.SIGTERM) is before


class Clock:
    """Advances by a fixed step with every call."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self._step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def test_a_deadline_counts_from_the_start_of_the_job_by_the_clock_of_the_runner(tmp_path: Path) -> None:
    late = job(tmp_path, "late", "import time; time.sleep(600)", deadline_s=3600.0)
    runner = JobRunner(max_parallel=1, report=lambda line: None, clock=Clock(1000.0))
    with pytest.raises(DistrlError, match=r"late \(took longer than 3600 s"):
        runner.run("runs", [late])


def test_progress_is_reported_from_time_to_time_while_nothing_ends(tmp_path: Path) -> None:
    """Every look at the clock is 15 s later, and the job is half done after 60 s."""
    reported: list[str] = []
    gate = tmp_path / "gate"
    waiting = job(
        tmp_path, "a", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)", deadline_s=1e9
    )
    shares: list[float] = []

    def progress(elapsed_s: float) -> float:
        shares.append(elapsed_s)
        if len(shares) == 3:
            gate.touch()
        return elapsed_s / 120.0

    slow = Job(label="a", command=waiting.command, log=waiting.log, deadline_s=1e9, progress=progress)
    JobRunner(max_parallel=1, report=reported.append, clock=Clock(15.0)).run("runs", [slow])
    now = [line for line in reported if "; now a " in line]
    assert len(now) >= 3
    assert all("0 of 1 done" in line for line in now)
    assert shares == sorted(shares)
    assert reported[-1] == "runs: 1 of 1 done"


def test_a_share_beyond_the_whole_counts_as_the_whole(tmp_path: Path) -> None:
    reported: list[str] = []
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"

    def report(line: str) -> None:
        reported.append(line)
        if "; now" in line:
            gate.touch()

    long = Job(
        label="long", command=(sys.executable, "-S", "-c", code), log=tmp_path / "log", deadline_s=1e9,
        progress=lambda elapsed_s: 17.0,
    )  # fmt: skip
    JobRunner(max_parallel=1, report=report, clock=Clock(15.0)).run("runs", [long])
    assert "now long 100%" in "".join(reported)
    assert "left" not in "".join(reported), "all is done but for the end"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "no output"),
        ("\n \n", "no output"),
        ("one\ntwo\n", "two"),
        ("distrl: first\nloading\ndistrl: second\ntry: this\n", "distrl: second; try: this"),
        ("x" * 1000, "x" * jobs_module.MAX_ERROR_LETTERS),
    ],
)
def test_of_a_log_its_last_error_or_its_last_line_is_shown(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "log").write_text(text)
    assert jobs_module._last_error(tmp_path / "log") == shown


def test_a_log_with_broken_letters_is_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"half \xff done")
    assert jobs_module._last_error(tmp_path / "log").startswith("half ")


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (7200.0, "120 min")])
def test_a_long_time_is_given_in_minutes(seconds: float, shown: str) -> None:
    assert jobs_module._minutes(seconds) == shown
