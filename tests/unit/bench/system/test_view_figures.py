"""What `distrl bench view` makes of the windows of a training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import distrl
from distrl.bench.system.stored_run import BEGAN_S, EVERY_S, write_stored_run
from distrl.bench.system.view import Stretch, Window, cores_with_page, counted, other_cores, processes, share


def window(*, opened: bool, rate: float) -> Window:
    """A window of these episodes per second."""
    return Window(opened=opened, episodes_per_s=rate, steps_per_s=5 * rate, updates_per_s=2.0)


def test_each_window_counts_what_was_stored_and_learned_within_it(tmp_path: Path) -> None:
    run = distrl.open_run(write_stored_run(tmp_path, 400).path)
    rows = run.index(limit=1000)
    opened = Stretch(opened=True, begin_s=BEGAN_S, end_s=BEGAN_S + 70, cores={"server": 0.01})
    closed = Stretch(opened=False, begin_s=BEGAN_S + 70, end_s=BEGAN_S + 105)
    first, second = counted([opened, closed], run)
    assert (first.cores, second.cores) == ({"server": 0.01}, {})
    assert (first.opened, second.opened) == (True, False)
    assert first.episodes_per_s == round(200 / 70, 3)
    assert second.steps_per_s == round(sum(row.steps for row in rows[200:300]) / 35, 3)
    assert first.updates_per_s == pytest.approx(2 / EVERY_S, rel=0.01)


def test_the_share_pairs_windows_in_a_row_whichever_was_first() -> None:
    fast, slow = window(opened=False, rate=10.0), window(opened=True, rate=9.5)
    assert share([slow, fast, fast, slow, slow, fast], lambda one: one.episodes_per_s) == [0.95, 0.95, 0.95]


def test_the_interval_of_a_share_is_as_wide_as_its_pairs_differ() -> None:
    pairs = [(9.0, 10.0), (11.0, 10.0), (10.0, 10.0), (9.5, 10.0), (10.5, 10.0)]
    windows = [one for opened, closed in pairs for one in (window(opened=True, rate=opened), window(opened=False, rate=closed))]  # fmt: skip
    value, low, high = share(windows, lambda one: one.steps_per_s)
    assert value == 1.0
    assert 0.9 < low < 0.99  # type: ignore[operator]
    assert 1.01 < high < 1.1  # type: ignore[operator]


def test_what_disturbed_the_comparison_is_what_the_machine_did_beside_it() -> None:
    cores = [{"browser": 0.02, "server": 0.01, "training": 1.2, "machine": 1.3}, {"browser": 0.0, "server": 0.0, "training": 1.2, "machine": 1.25}]  # fmt: skip
    windows = [msgspec.structs.replace(window(opened=not number, rate=1.0), cores=one) for number, one in enumerate(cores)]  # fmt: skip
    assert other_cores(windows) == pytest.approx(0.06)
    assert [cores_with_page(windows, name) for name in ("browser", "server")] == [0.02, 0.01]


BUSY_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


def test_processor_time_is_that_of_a_process_and_all_that_it_started() -> None:
    training = subprocess.Popen([sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'while True: pass', 'view']); {BUSY_CHILD}"], start_new_session=True)  # fmt: skip
    browser = subprocess.Popen([sys.executable, "-c", BUSY_CHILD], start_new_session=True)
    try:
        until_s = time.monotonic() + 60.0
        while not all(sum(one.cpu_s.values()) > 0.2 for one in processes(training.pid, browser.pid).values()):
            assert time.monotonic() < until_s, processes(training.pid, browser.pid)
            time.sleep(0.05)
        found = processes(training.pid, browser.pid)
        assert [len(found[name].cpu_s) for name in ("training", "browser", "server")] == [2, 2, 1]
        assert sum(found["machine"].cpu_s.values()) >= sum(sum(found[name].cpu_s.values()) for name in ("training", "browser", "server"))  # fmt: skip
    finally:
        for one in (training, browser):
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()
