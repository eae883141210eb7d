"""Two real processes on the same devices: never both on one, neither starves, and a killed one holds nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrl.transport.lease_files import FileLeases

NAMES = ("emulator-5554", "emulator-5556", "192.168.0.7:5555")
PATIENCE_S = 60.0
PLAYER = """
import asyncio, random, sys, time
from pathlib import Path
from distrl.devices.base import TimeScales
from distrl.devices.pool import DevicePool
from distrl.errors import DeviceError
from distrl.transport.lease_files import FileLeases

folder, owner, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]

class Phone:
    times = TimeScales()
    def __init__(self, name):
        self.name = name
    async def close(self):
        pass

async def lane(pool, log):
    while True:
        try:
            device = await pool.lease(1.0)
        except DeviceError:
            continue
        began_s = time.monotonic()
        log.write(f"begin {device.name} {began_s}\\n")
        await asyncio.sleep(random.uniform(0.005, 0.03))
        log.write(f"end {device.name} {time.monotonic()}\\n")
        pool.release(device)

async def main():
    pool = DevicePool([Phone(name) for name in names], leases=FileLeases(folder / "leases", owner))
    with (folder / f"{owner}.log").open("w", buffering=1) as log:
        await asyncio.gather(*(lane(pool, log) for _ in names))

asyncio.run(main())
"""


class Players:
    """Roles as processes that lease devices for moments, each with as many lanes as there are devices."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, dict[str, subprocess.Popen[bytes]]()

    def begin(self, owner: str) -> None:
        command = [sys.executable, "-c", PLAYER, str(self.folder), owner, *NAMES]
        self.processes[owner] = subprocess.Popen(command)

    def kill(self, owner: str) -> None:
        self.processes[owner].send_signal(signal.SIGKILL)
        self.processes[owner].wait()

    def leases(self, owner: str) -> list[tuple[str, float, float]]:
        """Device, begin and end of every lease that is over."""
        open_s, found = dict[str, float](), list[tuple[str, float, float]]()
        log = self.folder / f"{owner}.log"
        for line in log.read_text().splitlines() if log.exists() else ():
            what, device, at_s = line.split()
            if what == "begin":
                open_s[device] = float(at_s)
            else:
                found.append((device, open_s.pop(device), float(at_s)))
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until_s, "it took too long"
            assert all(process.poll() is None for process in self.processes.values())
            time.sleep(0.02)


@pytest.fixture
def players(tmp_path: Path) -> Iterator[Players]:
    made = Players(tmp_path)
    yield made
    for owner in made.processes:
        made.kill(owner)


def overlaps(one: list[tuple[str, float, float]], other: list[tuple[str, float, float]]) -> list[object]:
    return [
        (mine, theirs)
        for mine in one
        for theirs in other
        if mine[0] == theirs[0] and mine[1] < theirs[2] and theirs[1] < mine[2]
    ]


def test_two_processes_share_three_devices_and_neither_starves(players: Players) -> None:
    for owner in ("worker-0", "evaluator"):
        players.begin(owner)
    players.until(lambda: all(players.leases(owner) for owner in players.processes))
    before = {owner: len(players.leases(owner)) for owner in players.processes}

    def has_had_turns(owner: str) -> bool:
        """While both ask for every device all the time, a few of each."""
        since = Counter(device for device, _, _ in players.leases(owner)[before[owner] :])
        return all(since[name] >= 5 for name in NAMES)

    players.until(lambda: all(map(has_had_turns, players.processes)))
    found = {owner: players.leases(owner) for owner in players.processes}
    assert overlaps(found["worker-0"], found["evaluator"]) == []


def test_a_killed_process_frees_its_devices_for_the_other(players: Players) -> None:
    for owner in ("worker-0", "evaluator"):
        players.begin(owner)
    players.until(lambda: all(len(players.leases(owner)) >= 5 for owner in players.processes))
    players.kill("worker-0")
    del players.processes["worker-0"]
    count = len(players.leases("evaluator"))
    players.until(lambda: len(players.leases("evaluator")) >= count + 60)
    assert {device for device, _, _ in players.leases("evaluator")[count:]} == set(NAMES)


def test_the_file_of_a_device_can_be_told_by_its_name(tmp_path: Path) -> None:
    assert FileLeases(tmp_path, "worker-0").take("192.168.0.7:5555")
    (held,) = tmp_path.glob("*.lease")
    assert held.name.startswith("192.168.0.7%3A5555-")
