"""Simulated phones behind the real adb program, for benchmarks: a process of their own and an adb server of their own.

Both are gone afterwards. What the phones have been through is read from the reports of `distrl devices serve-sim`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from distrl.bench.jobs import log_progress
from distrl.config.schema import Config
from distrl.devices.android.adb import AdbConfig
from distrl.devices.android.adb_program import find_adb
from distrl.errors import DeviceError
from distrl.evaluation.report import Rate
from distrl.experience.store import ExperienceStore
from distrl.runtime.kinds import make_runtime
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.session import RunSnapshot, Session
from distrl.runtime.summary import Summary
from distrl.types import Value

KILL_SERVER_S = 20.0
REPORT_S = 1.0
PROGRESS_S = 20.0
ANDROID: dict[str, Value] = {
    "devices.kind": "android",
    "devices.android.quiet_s": 0.0,
    "devices.android.wait_s": 0.1,
    "devices.android.call_s": 4.0,
}
"""Simulated phones have changed by the time they answer."""
Row = tuple[float, float, float]
"""A share and its 95 % interval."""


class Served:
    """Phones that are served, and what they tell."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process, self.port = process, port
        self.serials: list[str] = []
        self.commands = 0
        self.faults: dict[str, int] = {}
        self._reading = threading.Thread(target=self._read, name="reports of the phones", daemon=True)

    def start(self) -> None:
        """Wait until they are there."""
        for line in self._process.stdout or ():
            if line.startswith("{"):
                self.serials = json.loads(line)["serials"]
                self._reading.start()
                return
        raise DeviceError("the simulated phones ended before they were up", fix="distrl devices serve-sim --connect")

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.startswith("{"):
                told = json.loads(line)
                self.commands, self.faults = told["commands"], told["faults"]

    def settings(self) -> dict[str, Value]:
        """Of a run that uses all of them."""
        return {**ANDROID, "devices.android.port": self.port, "devices.android.serials": json.dumps(self.serials)}


@contextmanager
def phones_behind_adb(count: int, *, fault_rate: float = 0.0, width: int = 180) -> Iterator[Served]:
    """So many phones that an adb server of their own is connected to."""
    program, port = find_adb(), _free_port()
    command = [sys.executable, "-m", "distrl", "devices", "serve-sim", "--count", str(count), "--first-port", "0"]
    command += ["--width", str(width), "--fault-rate", str(fault_rate), "--connect", "--json"]
    command += ["--report-every", str(REPORT_S), "--devices.android.port", str(AdbConfig(port=port).address[1])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        served = Served(process, port)
        served.start()
        yield served
    finally:
        process.kill()
        process.wait()
        subprocess.run(
            [program, "-P", str(port), "kill-server"], capture_output=True, timeout=KILL_SERVER_S, check=False
        )


class TrainedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One training run, as a benchmark reports it."""

    success_before: Row | None
    success_after: Row | None
    episodes: int
    episodes_per_s: float
    """While collecting."""
    steps_per_s: float
    collect_s: float
    device_utilisation: float
    policy_version: int
    device_lost: int
    """Episodes that a lost device ended; none of them has a known outcome."""
    lost_episodes: int | None
    duplicate_episodes: int
    restarts: int
    """Of roles."""


class Progress:
    """Says how far a run is."""

    def __init__(self, what: str) -> None:
        self._what, self._said_s = what, 0.0

    def __call__(self, moment: RunSnapshot) -> None:
        """Look at the run."""
        if time.monotonic() - self._said_s > PROGRESS_S:
            self._said_s = time.monotonic()
            log_progress(f"{self._what}: {moment.phase}, {moment.stats.episodes} episodes")


def train(
    config: Config, folder: Path, what: str, enough: Callable[[RunSnapshot], bool] = lambda moment: False
) -> tuple[RunFolder, Summary]:
    """A training run in a folder: a whole one, or until there is enough of it."""
    rooted = msgspec.structs.replace(config, run=msgspec.structs.replace(config.run, root=str(folder)))
    run, progress = create_run(rooted, now=datetime.now()), Progress(what)

    def watch(moment: RunSnapshot) -> None:
        progress(moment)
        session.interrupted = session.interrupted or enough(moment)

    session = Session(run, run.config(), make_runtime(rooted, run), watch)
    return run, session.train()


def trained(run: RunFolder, summary: Summary) -> TrainedRun:
    """What a run came to."""
    with ExperienceStore(run.experience) as store:
        rows = [row for row in store.after(0, 1_000_000_000) if row.source == "played"]
    return TrainedRun(
        success_before=_row(summary.success_before_rate),
        success_after=_row(summary.success_after_rate),
        episodes=summary.episodes,
        episodes_per_s=round(summary.episodes / max(1e-9, summary.collect_s), 2),
        steps_per_s=round(summary.steps / max(1e-9, summary.collect_s), 2),
        collect_s=round(summary.collect_s, 1),
        device_utilisation=summary.device_utilisation,
        policy_version=summary.policy_version,
        device_lost=sum(row.ending == "device_lost" for row in rows),
        lost_episodes=summary.lost_episodes,
        duplicate_episodes=summary.duplicate_episodes,
        restarts=summary.restarts,
    )


def _row(rate: Rate | None) -> Row | None:
    return None if rate is None else (rate.value, rate.low, rate.high)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
