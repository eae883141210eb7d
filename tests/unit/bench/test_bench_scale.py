"""The arithmetic of `distrl bench scale`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.bench.base import num_cores
from distrl.bench.system.processes import tree
from distrl.bench.system.scale import GROUPS, Entry, groups_of, summarise

SLEEPER = """
import subprocess, sys
subprocess.Popen([sys.argv[1], "60"])
subprocess.Popen(["sleep", "60"]).wait()
"""


def test_every_process_below_the_benchmark_is_in_one_group(tmp_path: Path) -> None:
    gcs = tmp_path / "gcs_server"
    gcs.symlink_to(shutil.which("sleep") or "")
    supervisor = subprocess.Popen(["sleep", "60"], start_new_session=True)
    cluster = subprocess.Popen([sys.executable, "-c", SLEEPER, str(gcs)], start_new_session=True)
    roles = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(4)]
    learner, worker, evaluator, hub = (role.pid for role in roles)
    try:
        until_s = time.monotonic() + 60
        named = {"learner": learner, "worker-0": worker, "evaluator": evaluator}
        while True:
            found = groups_of(named, hub=hub, supervisor=supervisor.pid)
            if found["gcs_server"] and len(found["ray_others"] & set(tree(cluster.pid))) == 2:
                break
            assert time.monotonic() < until_s
        assert set(found) == set(GROUPS)
        assert [found[name] for name in GROUPS[:5]] == [{learner}, {worker}, {evaluator}, {hub}, {supervisor.pid}]
        assert found["benchmark"] == {os.getpid()}
        assert sum(map(len, found.values())) == len(set().union(*found.values()))
        assert groups_of({}, hub=0, supervisor=supervisor.pid)["hub"] == set()
    finally:
        for process in (supervisor, cluster, *roles):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_lists_have_an_entry_per_run_and_say_how_far_from_linear_each_is() -> None:
    def entry(devices: int, per_s: float) -> Entry:
        return Entry(
            devices=devices, workers=1, per_s=per_s, device_utilisation=0.9, learner_wait=0.5, rss_mb=100.0, success_after=0.75,
            cores={"learner": 0.05, "workers": 0.15, "raylets": 0.1, "machine": 0.97 * num_cores()}, queued={"workers": 1.5}, waited_share=0.9,
        )  # fmt: skip

    found = summarise([entry(2, 0.5), entry(8, 2.0), entry(16, 3.9), entry(32, 0.0)], [entry(8, 2.0)])
    assert found.devices == [2, 8, 16, 32]
    assert found.trajectories_per_s == [0.5, 2.0, 3.9, 0.0]
    assert found.share_of_linear == [1.0, 1.0, 0.975, 0.0]
    assert found.ms_per_trajectory == [400.0, 100.0, 51.3, 0.0]
    assert (found.bend_devices, found.bend_cpu_share) == (32, round(0.2 / num_cores(), 3))
    assert (found.bend_machine_share, found.bend_resource) == (0.97, "cores")
    assert (found.machine_share, found.waited_share) == ([0.97] * 4, [0.9] * 4)
    assert found.cores["workers"] == [0.15] * 4
    assert found.cores["other"] == pytest.approx([0.97 * num_cores() - 0.3] * 4)
    assert found.queued == {"learner": [0.0] * 4, "workers": [1.5] * 4, "evaluator": [0.0] * 4}
    assert [(fleet.workers, fleet.devices, fleet.success_after) for fleet in found.fleets] == [(1, 8, 0.75)]
