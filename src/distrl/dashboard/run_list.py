"""The runs that a dashboard shows, each opened once and followed; only those that it lists can be asked for."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal

import msgspec

import distrl
from distrl.dashboard.catalogue import CUT_OFF, Catalogue, VersionTimes, ending_of, time_limit_s
from distrl.dashboard.fleet import FleetView
from distrl.dashboard.pace import Paced
from distrl.dashboard.series import MetricCurves
from distrl.errors import DistrlError, StoreError
from distrl.evaluation.report import Rate
from distrl.experience.index import IndexRow
from distrl.runtime.run_folder import held, open_run
from distrl.runtime.run_sizes import reason, runs_in, state_of
from distrl.runtime.summary import RunStatus

MOST_OPEN = 6
"""Runs whose episodes and curves are held in memory; of others, those of the longest ago are forgotten."""
FRESH_S = 0.5
"""How old what is shown may be."""
STATUS_S = 3.0
"""The same of what is read from whole logs and indices, unless that takes long."""
NO_TEXT = "the name of this folder is no UTF-8 text: rename it"
MOST_RUNS = 300
"""In the list, the newest."""


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list."""

    name: str
    state: Literal["live", "finished", "stopped", "unreadable"]
    why: str = ""
    """Why it cannot be read."""
    suite: str = ""
    algorithm: str = ""
    policy: str = ""
    seed: int = 0
    success_before: Rate | None = None
    success_after: Rate | None = None
    """After the training, or the last evaluation on the way."""
    episodes: int = 0
    wall_s: float = 0.0
    curve: list[tuple[float, float]] = []
    """Success by seconds of training, in windows of episodes."""


class OpenRun:
    """One run with its episodes and curves; `fresh` lets one thread at a time in."""

    def __init__(self, path: Path) -> None:
        self.run = distrl.open_run(path)
        versions = VersionTimes()
        self.metrics = MetricCurves(self.run, versions)
        self.catalogue = Catalogue(self.run, versions)
        self.fleet = FleetView(self.run)
        self.versions = versions
        self.lock = Lock()
        self._refreshed_s = float("-inf")
        self._status = Paced(self.run.status, fresh_s=STATUS_S)
        self._stored: tuple[float, RunStatus] | None = None
        self._folder = open_run(path)

    def refresh(self) -> None:
        """Take in what has come, unless that was done a moment ago; the caller holds the lock."""
        if time.monotonic() - self._refreshed_s < FRESH_S:
            return
        self.metrics.refresh()
        self.catalogue.refresh()
        self._refreshed_s = time.monotonic()

    def status(self) -> RunStatus:
        """Its status, as of a moment ago. It reads whole logs, so that of a run on which nobody works is read again only where one changed."""
        if self.live:
            self._stored = None
            return self._status.get()
        stamp = _changed_s(self.run.path)
        if self._stored is None or self._stored[0] != stamp:
            self._stored = (stamp, self.run.status())
        return self._stored[1]

    @property
    def live(self) -> bool:
        """Whether someone works on it."""
        return held(self._folder.lock("supervisor"))

    @property
    def state(self) -> str:
        """Live, finished or stopped."""
        try:
            return state_of(self._folder)
        except StoreError:
            return "stopped"  # its summary is damaged, which its status says


class RunList:
    """The runs of a folder, or a single one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.single = (place / "config.toml").exists()
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock, self._describing = Lock(), Lock()
        self._cards: dict[str, tuple[float, RunCard]] = {}
        self._live: dict[str, Paced[RunCard]] = {}
        if self.single:
            self.open(as_text(place.resolve().name))  # which says what is wrong with it

    def paths(self) -> dict[str, Path]:
        """The runs by name, the newest first."""
        if self.single:
            return {as_text(self.place.resolve().name): self.place}
        return {as_text(path.name): path for path in runs_in(self.place)[:MOST_RUNS]}

    def open(self, name: str) -> OpenRun:
        """The run of this name; `StoreError` where the list has none."""
        path = self.paths().get(name)
        if path is None:
            raise StoreError(f"there is no run {name[:100]!r}", expected="one of the list of runs")
        if not is_text(path.name):
            raise StoreError(f"{name} cannot be shown: {NO_TEXT}", fix=f"give it another name: mv … {name}")
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = OpenRun(path)
            self._open.move_to_end(name)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return found

    def cards(self) -> list[RunCard]:
        """Every run in a few figures; one that cannot be read says why."""
        with self._describing:  # whoever asks meanwhile gets the same
            return [self._card(name, path) for name, path in self.paths().items()]

    def _card(self, name: str, path: Path) -> RunCard:
        stamp = _changed_s(path)
        known = self._cards.get(name)
        if known is not None and known[1].state == "live":
            card = self._live.setdefault(name, Paced(partial(_card_of, name, path), fresh_s=STATUS_S)).get()
        elif known is not None and known[0] == stamp:
            return known[1]
        else:
            card = _card_of(name, path)
        self._cards[name] = (stamp, card)
        return card


def is_text(name: str) -> bool:
    """Whether the name of a file is text; others hold bytes that stand for no letter."""
    return as_text(name) == name


def as_text(name: str) -> str:
    """The name of a file as it can be shown."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _card_of(name: str, path: Path) -> RunCard:
    if not is_text(path.name):
        return RunCard(name=name, state="unreadable", why=NO_TEXT)
    try:
        return _describe(path)
    except (DistrlError, OSError) as error:
        return RunCard(name=name, state="unreadable", why=reason(error))


def _changed_s(path: Path) -> float:
    """When something last changed that a card tells of."""
    changed_s = 0.0
    for name in (
        "config.toml",
        "summary.json",
        "metrics.jsonl",
        "evaluations",
        "logs/supervisor.jsonl",
        "heartbeats/supervisor.lock",
    ):
        try:
            changed_s = max(changed_s, (path / name).stat().st_mtime)
        except OSError:
            continue
    return changed_s


def _describe(path: Path) -> RunCard:
    run, folder = distrl.open_run(path), open_run(path)
    config, status = run.config, run.status()
    rates = status.evaluations
    last = rates.get("after") or next((rates[name] for name in reversed(rates) if name != "before"), None)
    return RunCard(
        name=run.name,
        state=state_of(folder),
        suite=config.tasks.suite,
        algorithm=config.algorithm.kind,
        policy=config.policy.kind,
        seed=config.run.seed,
        success_before=rates.get("before"),
        success_after=last,
        episodes=status.episodes,
        wall_s=status.budget.wall_s,
        curve=success_curve(run),
    )


def success_curve(run: distrl.Run, *, windows: int = 24) -> list[tuple[float, float]]:
    """Success in training over time, in windows of equally many episodes: seconds since the first, and the share."""
    limit_s, found = time_limit_s(run.config), []
    rows = [
        row for row in _rows(run) if row.source == "played" and ending_of(row.ending, row.wall_s, limit_s) != CUT_OFF
    ]
    size = max(10, -(-len(rows) // windows))
    for at in range(0, len(rows), size):
        window = rows[at : at + size]
        if len(window) >= size // 2:
            found.append(
                (
                    round(window[-1].created_s - rows[0].created_s, 1),
                    round(sum(r.success for r in window) / len(window), 4),
                )
            )
    return found


def _rows(run: distrl.Run) -> list[IndexRow]:
    rows: list[IndexRow] = []
    while found := run.index(after=rows[-1].seq if rows else 0, limit=5000):
        rows += found
    return rows
