"""`distrl bench view`: the dashboard over 10,000 stored episodes, its memory while it streams, and what it costs a training beside it.

The list is timed in a real Chromium, from the start of the navigation to the first paint and to the rows on the screen, and as a request alone,
each over a server that has just started. Memory is the server's resident size while pages follow 300 devices that all change each second, and
this process's before and after the readings of an hour of that, sped up: each reading does what a second of streaming does. The cost is counted in one
run: while it trains, the fleet's page is open in a real Chromium on the same machine and not open, in turn, and what was collected and learned is
counted in each window, beside the processor time that the browser, the server and the training took in it: a browser on another machine costs a
training the server's alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from urllib.request import urlopen

import msgspec
import numpy as np

import distrl
from distrl.bench.base import BenchOptions
from distrl.bench.statistics import DRAWS, Row
from distrl.bench.system.page_paint import Painted, Tab, open_tab, painted
from distrl.bench.system.processes import Sample, cpu_rate, machine, parents, sample_of, tree
from distrl.bench.system.stored_run import write_stored_run
from distrl.config.schema import Config
from distrl.dashboard.run_list import OpenRun
from distrl.devices.web.chromium import chromium_version
from distrl.errors import UsageError
from distrl.experience.store import IndexRow
from distrl.installing import install
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from distrl.types import Bounds, Observation, Tap, UiElement

STORED, DEVICES, FOLLOWERS = 10_000, 300, 3
PATIENCE_S = 120.0
PAIRS, WINDOW_S = 24, 20.0
SETTLE_S = 3.0
"""After a page was opened or left, before its window begins."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a training, with the fleet's page open in a browser or not."""

    opened: bool
    episodes_per_s: float
    steps_per_s: float
    updates_per_s: float
    cores: dict[str, float] = {}
    """CPU seconds per second of the browser, the dashboard's server, the roles of the training and the whole machine."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """When a window began and ended, in seconds since the epoch, and what was measured in it."""

    opened: bool
    begin_s: float
    end_s: float
    cores: dict[str, float] = {}


class ViewFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    episodes: int
    list_ms: float
    """Median time of the first page of 10,000 episodes over a server that has just started: the request alone."""
    list_again_ms: float
    """The same once the run is open."""
    first_paint_ms: float
    """Median first contentful paint of that page in Chromium, over a server that has just started."""
    rows_painted_ms: float
    """The same until the first rows of the 10,000 are on the screen."""
    chromium: str
    devices: int
    streamed_s: float
    """While so many seconds, pages followed the fleet of a server of its own, and asked for its other pages."""
    server_rss_before_mb: float
    """Of that server after a quarter of that time."""
    server_rss_after_mb: float
    readings: int
    """Of the fleet, each what a second of streaming does."""
    rss_before_mb: float
    rss_after_mb: float
    """Of this process, which reads as the server does."""
    training_minutes: float
    training_devices: int
    """In a training beside which the fleet's page is open in Chromium, and not open, in turn."""
    steps_share: Row
    """Steps collected per second with the page open over those without, and its 95 % interval: 1.0 costs nothing."""
    episodes_share: Row
    """The same of episodes."""
    updates_share: Row
    """The same of the learner's updates."""
    browser_cores: float
    """Mean processor time of the browser with the page open, in CPU seconds per second."""
    server_cores: float
    """The same of the dashboard's server, which has a lower priority."""
    training_cores: float
    """The same of all roles of the training."""
    other_cores: float
    """The same of all else on the machine, in all windows: what disturbed the comparison."""
    window_s: float
    windows: list[Window]
    """In the order in which they were taken."""


def run(options: BenchOptions) -> ViewFigures:
    """Measure everything that `distrl bench view` reports."""
    with TemporaryDirectory(prefix="distrl-view-") as folder:
        root = Path(folder)
        stored = write_stored_run(root / "stored", STORED).path
        first, again = _list_ms(stored, 3 if options.quick else 7)
        paints = _paints(stored, 3 if options.quick else 7)
        streamed_s = 20.0 if options.quick else 90.0
        server_mb = _server_memory(stored, streamed_s)
        readings = 300 if options.quick else 3600
        before_mb, after_mb = _memory(stored, readings)
        window_s = 10.0 if options.quick else WINDOW_S
        windows, minutes = _training(root / "runs", pairs=2 if options.quick else PAIRS, window_s=window_s)
    return ViewFigures(
        episodes=STORED,
        list_ms=round(first, 1),
        list_again_ms=round(again, 1),
        first_paint_ms=round(median(paint.first_ms for paint in paints), 1),
        rows_painted_ms=round(median(paint.rows_ms for paint in paints), 1),
        chromium=chromium_version(),
        devices=DEVICES,
        streamed_s=streamed_s,
        server_rss_before_mb=round(server_mb[0], 1),
        server_rss_after_mb=round(server_mb[1], 1),
        readings=readings,
        rss_before_mb=round(before_mb, 1),
        rss_after_mb=round(after_mb, 1),
        training_minutes=round(minutes, 2),
        training_devices=Config().rollout.workers * Config().devices.per_worker,
        steps_share=share(windows, lambda one: one.steps_per_s),
        episodes_share=share(windows, lambda one: one.episodes_per_s),
        updates_share=share(windows, lambda one: one.updates_per_s),
        browser_cores=cores_with_page(windows, "browser"),
        server_cores=cores_with_page(windows, "server"),
        training_cores=cores_with_page(windows, "training"),
        other_cores=other_cores(windows),
        window_s=window_s,
        windows=windows,
    )


# --- the list of episodes ---------------------------------------------------------------------------------------------


@contextmanager
def _server(place: Path) -> Iterator[tuple[str, int]]:
    """Its address and its process."""
    command = [sys.executable, "-m", "distrl", "view", str(place), "--no-browser", "--json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/"), process.pid
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _list_ms(stored: Path, times: int) -> tuple[float, float]:
    """Median milliseconds of the first list of episodes, over a fresh server and once it is open."""
    first, again = [], []
    for _ in range(times):
        with _server(stored) as (url, _):
            address = f"{url}/api/runs/{stored.name}/episodes"
            first.append(_asked_ms(address))
            again.append(_asked_ms(address))
    return median(first), median(again)


def _asked_ms(address: str) -> float:
    began_s = time.perf_counter()
    with urlopen(address, timeout=PATIENCE_S) as answer:  # noqa: S310  # our own server
        answer.read()
    return 1000 * (time.perf_counter() - began_s)


def _paints(stored: Path, times: int) -> list[Painted]:
    found = []
    for _ in range(times):
        with _server(stored) as (url, _):
            found.append(painted(f"{url}/runs/{stored.name}/episodes"))
    return found


# --- memory -----------------------------------------------------------------------------------------------------------


def _server_memory(stored: Path, seconds: float) -> tuple[float, float]:
    """Resident megabytes of a server after a quarter of the time and at its end, while the fleet moves and pages follow it."""
    screens, stop, before_mb = FileScreens(stored / "heartbeats", "worker-0"), Event(), 0.0
    with _server(stored) as (url, pid):
        api = f"{url}/api/runs/{stored.name}"
        for _ in range(FOLLOWERS):
            Thread(target=_read_stream, args=(f"{api}/stream?fleet=1", stop), daemon=True).start()
        for second in range(round(seconds)):
            views = tuple(_view(device, second) for device in range(DEVICES))
            screens.show(DeviceViews(time_s=float(second), devices=views))
            for page in ("episodes?text=tanaka", "learning?by=template", "health", "logs"):
                _asked_ms(f"{api}/{page}")
            if second == round(seconds) // 4:
                before_mb = _rss_mb(pid)
            time.sleep(1.0)
        after_mb = _rss_mb(pid)
        stop.set()
    return before_mb, after_mb


def _memory(stored: Path, readings: int) -> tuple[float, float]:
    """Resident megabytes after a tenth of the readings, and after all of them."""
    run = distrl.open_run(stored)
    screens, opened = FileScreens(run.path / "heartbeats", "worker-0"), OpenRun(stored)
    before_mb = 0.0
    for number in range(readings):
        screens.show(
            DeviceViews(time_s=float(number), devices=tuple(_view(device, number) for device in range(DEVICES)))
        )
        opened.refresh()
        _, tiles = opened.fleet.tiles()
        msgspec.json.encode(tiles)
        if number == readings // 10:
            before_mb = _rss_mb()
    return before_mb, _rss_mb()


def _view(device: int, number: int) -> DeviceView:
    elements = tuple(
        UiElement(bounds=Bounds(0.1, row / 25, 0.9, (row + 1) / 25), text=f"entry {row} {number}", clickable=True)
        for row in range(22)
    )
    seen = Observation(instruction="Call Mei Tanaka", elements=elements, width_px=360, height_px=720)
    return DeviceView(
        device=f"worker-0/phone-{device}",
        role="worker-0",
        state="playing",
        step=number % 12,
        max_steps=12,
        action=Tap(0.5, 0.5),
        seen=seen,
    )


def _rss_mb(pid: int = 0) -> float:
    """Of a process; 0: this one."""
    pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


# --- beside a training ------------------------------------------------------------------------------------------------


def _training(root: Path, *, pairs: int, window_s: float) -> tuple[list[Window], float]:
    """One training with the fleet's page open in a browser and not open, in turn; and how many minutes that took."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "distrl", "train", "--run.root", str(root), "--run.minutes", "600", "--evaluation.every_s", "0", "--evaluation.episodes", "2"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = _said_address(process)
        run = _started_run(root)
        _wait_for(run, 100)
        stretches = []
        with open_tab(url) as tab:
            for number in range(pairs):
                # The order turns from pair to pair, so that a run that gets faster favours neither.
                for opened in (True, False) if number % 2 == 0 else (False, True):
                    address = f"{url}/runs/{run.name}/fleet" if opened else ""
                    stretches.append(_stretch(tab, address, window_s, training=process.pid))
        time.sleep(SETTLE_S)  # until the last lines of the learner are there
        return counted(stretches, run), (time.monotonic() - began_s) / 60
    finally:
        process.kill()
        process.communicate()
        _await_roles(root)


def _stretch(tab: Tab, address: str, window_s: float, *, training: int) -> Stretch:
    """A window with this page open, or none, after a moment for the change to settle."""
    if address:
        tab.show(address, until="document.querySelectorAll('.tile canvas').length > 0")
    else:
        tab.close()
    time.sleep(SETTLE_S)
    began_s, before = time.time(), processes(training, tab.pid)
    time.sleep(window_s)
    ended_s, after = time.time(), processes(training, tab.pid)
    if address and not tab.read("document.querySelectorAll('.tile canvas').length > 0"):
        raise UsageError("the fleet's page has lost its devices while it was measured", fix="distrl view, and look")
    cores = {name: round(cpu_rate([before[name], after[name]]), 4) for name in before}
    return Stretch(opened=bool(address), begin_s=began_s, end_s=ended_s, cores=cores)


def processes(training: int, browser: int) -> dict[str, Sample]:
    """What browser, server and training have used so far."""
    parent_of = parents()
    server = [pid for pid, parent in parent_of.items() if parent == training and _is_view(pid)]
    rest = {name: set(tree(pid, parent_of)) for name, pid in (("training", training), ("browser", browser))}
    found = {"browser": rest["browser"], "server": set(server), "training": rest["training"] - set(server)}
    return {name: sample_of(pids) for name, pids in found.items()} | {"machine": machine()}


def _is_view(pid: int) -> bool:
    try:
        return b"view" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def counted(stretches: Sequence[Stretch], run: distrl.Run) -> list[Window]:
    """What was collected and learned in each window."""
    rows = [row for row in _rows(run) if row.source == "played"]
    learned = [(float(line["time_s"]), float(line["learner/updates"])) for line in run.metrics() if "learner/updates" in line]  # fmt: skip
    return [_window(one, rows, learned) for one in stretches]


def _window(one: Stretch, rows: Sequence[IndexRow], learned: Sequence[tuple[float, float]]) -> Window:
    length_s = one.end_s - one.begin_s
    within = [row for row in rows if one.begin_s <= row.created_s < one.end_s]
    times_s, updates = zip(*learned, strict=True)
    made = float(np.interp(one.end_s, times_s, updates) - np.interp(one.begin_s, times_s, updates))
    return Window(
        opened=one.opened,
        episodes_per_s=round(len(within) / length_s, 3),
        steps_per_s=round(sum(row.steps for row in within) / length_s, 3),
        updates_per_s=round(made / length_s, 3),
        cores=one.cores,
    )


def cores_with_page(windows: Sequence[Window], name: str) -> float:
    """Mean CPU seconds per second while the page was open."""
    return round(float(np.mean([one.cores[name] for one in windows if one.opened])), 4)


def other_cores(windows: Sequence[Window]) -> float:
    """Mean CPU seconds per second of what belongs to neither the page nor the training."""
    ours = ("browser", "server", "training")
    return round(float(np.mean([one.cores["machine"] - sum(one.cores[name] for name in ours) for one in windows])), 4)


def share(windows: Sequence[Window], read: Callable[[Window], float]) -> Row:
    """A rate with the page open over the same without, and its 95 % interval from a bootstrap over pairs of windows in a row."""
    pairs_P2 = np.asarray([[read(one) for one in sorted(pair, key=lambda one: not one.opened)] for pair in zip(windows[::2], windows[1::2], strict=True)])  # fmt: skip
    drawn = np.random.default_rng(0).integers(len(pairs_P2), size=(DRAWS, len(pairs_P2)))
    sums_D2 = pairs_P2[drawn].sum(axis=1)
    low, high = np.percentile(sums_D2[:, 0] / sums_D2[:, 1], (2.5, 97.5))
    opened, closed = pairs_P2.sum(axis=0)
    return [round(float(one), 4) for one in (opened / closed, low, high)]


def _rows(run: distrl.Run) -> list[IndexRow]:
    rows: list[IndexRow] = []
    while found := run.index(after=rows[-1].seq if rows else 0):
        rows += found
    return rows


def _said_address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("dashboard  "):
            Thread(target=process.stderr.read, daemon=True).start()  # or it would wait for a reader
            return line.split()[1].rstrip("/")
    raise UsageError("the training has not said where its dashboard is", fix=install("view"))


def _started_run(root: Path) -> distrl.Run:
    until_s = time.monotonic() + PATIENCE_S
    while not (found := list(root.glob("*/config.toml"))):
        if time.monotonic() > until_s:
            raise UsageError("the training has not begun", fix="distrl train, which says why")
        time.sleep(0.1)
    return distrl.open_run(found[0].parent)


def _wait_for(run: distrl.Run, episodes: int) -> None:
    until_s = time.monotonic() + 5 * PATIENCE_S
    while len(run.index(limit=episodes)) < episodes:
        if time.monotonic() > until_s:
            raise UsageError("the training collects nothing", fix="distrl train, which says why")
        time.sleep(0.5)


def _read_stream(address: str, stop: Event) -> None:
    with urlopen(address, timeout=PATIENCE_S) as answer:  # noqa: S310  # our own server
        while not stop.is_set() and answer.readline():
            pass


def _await_roles(root: Path) -> None:
    """Roles end once their supervisor is gone: wait, so that their folder can be removed."""
    from distrl.runtime.run_folder import held

    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and any(held(lock) for lock in root.glob("*/heartbeats/*.lock")):
        time.sleep(0.2)
