"""Groups of processes, and what they and the machine have used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from distrl.bench.system.processes import Sample, cpu_rate, machine, parents, queued, sample_of, tree

BUSY = "while True: pass"
BUSY_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


@contextmanager
def a_process(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def a_sample(at_s: float, **cpu_s: float) -> Sample:
    return Sample(at_s=at_s, cpu_s={int(pid[1:]): used_s for pid, used_s in cpu_s.items()})


def test_cpu_time_is_that_of_every_process_while_it_was_seen() -> None:
    samples = [
        a_sample(0.0, p1=10.0, p2=5.0),
        a_sample(1.0, p1=10.5),
        a_sample(2.0, p1=11.5, p3=90.0),
        a_sample(4.0, p3=90.5),
    ]
    assert cpu_rate(samples) == pytest.approx((0.5 + 1.0 + 0.5) / 4.0)
    assert cpu_rate(samples[:1]) == cpu_rate([]) == 0.0


def test_a_tree_is_a_process_with_all_that_was_started_below_it() -> None:
    assert tree(1, {2: 1, 3: 1, 4: 3, 5: 4, 6: 9, 9: 0}) == [1, 2, 3, 4, 5]
    with a_process(BUSY_CHILD) as pid:
        until(lambda: len(tree(pid)) == 2)
        assert set(tree(pid)) < set(tree(os.getpid()))
        assert parents()[pid] == os.getpid()


def test_the_machine_has_used_at_least_what_its_processes_have() -> None:
    with a_process(BUSY) as pid:
        until(lambda: sum(sample_of([pid]).cpu_s.values()) > 0.2)
        assert sample_of([pid]).rss_bytes > 2**20
        assert machine().cpu_s[0] >= sample_of([pid]).cpu_s[pid]


def test_two_processes_on_one_core_wait_for_each_other() -> None:
    core = min(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, {{{core}}})\n{BUSY}"
    with a_process(pinned) as first, a_process(pinned) as second:
        until(lambda: min(sum(queued([pid]).cpu_s.values()) for pid in (first, second)) > 0.2)
    assert queued([first]).cpu_s == {}, "it is gone"
