"""A run as a timeline in the Chrome trace format, which chrome://tracing and ui.perfetto.dev open.

A row per device holds its episodes; a worker has rows for its batches of decisions and the weights it took, the learner for its updates, intake,
checkpoints and published versions, and both have counters for batches, queues and idle time. Times are those that were written down: an episode
begins `wall_s` before it was stored, so a wait for its verdict is part of it; where the next of its device began before that, it ends there, since
blocks of a row that overlap are dropped. Of a run without spans in its logs, updates and swaps are seen where
the next line of metrics has another number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from distrl import Run
from distrl.dashboard.catalogue import ending_of, outcome_of, time_limit_s
from distrl.telemetry.spans import Span, spans_in
from distrl.transport.base import IndexRow
from distrl.types import Trajectory, Value

COUNTERS = {
    "worker": ("worker/batch/mean", "worker/judging", "worker/storing", "worker/healthy"),
    "learner": ("learner/idle", "learner/intake", "learner/replay/eligible", "learner/updates"),
    "supervisor": ("gpu/utilisation",),
}
"""Metrics that become counters, by kind of role."""
SWAPS = ("publishes", "takes weights")
STALLS = ("device_lost", "died", "killed", "not_ended", "unjudged")


class TraceEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One event of the format; times are in microseconds. Whoever reads it drops an event without `ts`."""

    name: str
    ph: str
    pid: int
    tid: int = 0
    ts: float = -1.0
    dur: float = -1.0
    cat: str = ""
    s: str = ""
    args: dict[str, Any] = {}


def trace_of(run: Run) -> bytes:
    """The trace as JSON."""
    rows, metrics, spans = _rows(run), run.metrics(), _spans(run)
    starts = [row.created_s - row.wall_s for row in rows] + [float(line["time_s"]) for line in metrics]
    starts += [span.start_s for found in spans.values() for span in found]
    first_s = min(starts, default=0.0)
    places = _Places()
    events = [
        *_episodes(run, rows, first_s, places),
        *_metrics(metrics, first_s, places, exact=spans.keys()),
        *_work(spans, first_s, places),
        *_logs(run, first_s, places),
    ]
    return msgspec.json.encode({"traceEvents": [*places.names(), *events], "displayTimeUnit": "ms"})


class _Places:
    """Numbers for roles (processes of the format) and devices (threads)."""

    def __init__(self) -> None:
        self._roles: dict[str, int] = {}
        self._devices: dict[tuple[str, str], int] = {}

    def role(self, role: str) -> int:
        return self._roles.setdefault(role, len(self._roles) + 1)

    def device(self, role: str, device: str) -> tuple[int, int]:
        return self.role(role), self._devices.setdefault((role, device), len(self._devices) + 1)

    def names(self) -> Iterator[TraceEvent]:
        for role, pid in self._roles.items():
            yield TraceEvent(name="process_name", ph="M", pid=pid, args={"name": role})
        for (role, device), tid in self._devices.items():
            yield TraceEvent(name="thread_name", ph="M", pid=self.role(role), tid=tid, args={"name": device})


def _rows(run: Run) -> list[IndexRow]:
    rows: list[IndexRow] = []
    while found := run.index(after=rows[-1].seq if rows else 0, limit=5000):
        rows += found
    return [row for row in rows if row.source == "played"]


class _Played(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace shows of one episode."""

    place: tuple[int, int]
    began_us: float
    length_us: float
    template: str
    told: dict[str, Any]
    steps: list[tuple[float, int]]
    """How long the device took, in microseconds, and the version that decided."""


def _episodes(run: Run, rows: list[IndexRow], first_s: float, places: _Places) -> Iterator[TraceEvent]:
    limit_s = time_limit_s(run.config)
    played = [
        _played(row, episode, limit_s, places.device(row.worker, episode.device or "device"), first_s)
        for row, episode in zip(rows, run.episodes_of(row.id for row in rows), strict=True)
        if episode is not None
    ]
    next_us: dict[tuple[int, int], float] = {}
    for one in sorted(played, key=lambda one: -one.began_us):
        pid, tid = one.place
        length_us = min(one.length_us, next_us.get(one.place, math.inf) - one.began_us)
        next_us[one.place] = one.began_us
        yield TraceEvent(name=one.template, cat="episode", ph="X", pid=pid, tid=tid, ts=one.began_us, dur=length_us, args=one.told)  # fmt: skip
        # What is left of an episode's time beside its devices is spread evenly: decisions, and waits for them.
        device_us = sum(step_us for step_us, _ in one.steps)
        shrink = min(1.0, length_us / device_us) if device_us else 1.0
        beside_us = max(0.0, length_us - device_us) / max(1, len(one.steps))
        at_us = one.began_us
        for number, (step_us, version) in enumerate(one.steps, 1):
            at_us += beside_us
            yield TraceEvent(name=f"step {number}", cat="device", ph="X", pid=pid, tid=tid, ts=at_us, dur=step_us * shrink, args={"version": version})  # fmt: skip
            at_us += step_us * shrink


def _played(row: IndexRow, episode: Trajectory, limit_s: float, place: tuple[int, int], first_s: float) -> _Played:
    ending = ending_of(row.ending, row.wall_s, episode.task.max_s or limit_s)
    outcome = outcome_of(success=row.success, ending=ending, judged=episode.verdict.outcome)
    told = {"instruction": episode.task.instruction, "outcome": outcome, "steps": row.steps, "version": row.version, "ending": ending, "id": row.id}  # fmt: skip
    return _Played(
        place=place,
        began_us=1e6 * (row.created_s - row.wall_s - first_s),
        length_us=1e6 * row.wall_s,
        template=episode.task.template,
        told=told,
        steps=[(1e6 * step.device_s, step.version) for step in episode.steps],
    )


def _spans(run: Run) -> dict[str, list[Span]]:
    """What each role has said that it did when."""
    found = {role: [span for event in run.follow(role).new() for span in spans_in(event)] for role in run.logs()}
    return {role: spans for role, spans in found.items() if spans}


def _work(found: Mapping[str, list[Span]], first_s: float, places: _Places) -> Iterator[TraceEvent]:
    """A row for each kind of work of each role."""
    for role, spans in found.items():
        for span in spans:
            pid, tid = places.device(role, span.name)
            told = {"version" if span.name in SWAPS else "size": span.size}
            name = (
                f"{span.name}: version {span.size}"
                if span.name in SWAPS
                else f"{span.name}: {span.size}"
                if span.size
                else span.name
            )
            yield TraceEvent(name=name, cat="work", ph="X", pid=pid, tid=tid, ts=1e6 * (span.start_s - first_s), dur=1e6 * span.length_s, args=told)  # fmt: skip


def _metrics(
    lines: list[dict[str, Value]], first_s: float, places: _Places, *, exact: Collection[str]
) -> Iterator[TraceEvent]:
    """Counters; and of roles that are not among `exact`, versions and updates as their metrics tell of them."""
    versions: dict[str, float] = {}
    updates: dict[str, tuple[float, float]] = {}
    for line in lines:
        role, ts = str(line.get("role") or line["event"]), 1e6 * (float(line["time_s"]) - first_s)
        pid = places.role(role)
        for name in COUNTERS.get(role.partition("-")[0], ()):
            if isinstance(value := line.get(name), int | float):
                yield TraceEvent(name=name, ph="C", pid=pid, ts=ts, args={"value": value})
        if role in exact:
            continue
        version = line.get(f"{role.partition('-')[0]}/version")
        if isinstance(version, int | float) and version != versions.get(role):
            versions[role] = version
            what = {"learner": "publishes", "evaluator": "has evaluated"}.get(role, "takes")
            yield TraceEvent(name=f"{what} version {version:.0f}", cat="weights", ph="i", s="p", pid=pid, ts=ts)
        yield from _updates(line, role, pid, ts, updates)


def _updates(
    line: Mapping[str, Value], role: str, pid: int, ts: float, before: dict[str, tuple[float, float]]
) -> Iterator[TraceEvent]:
    """The time between two lines of the learner as one block, with how many updates were made in it."""
    count = line.get("learner/updates")
    if not isinstance(count, int | float):
        return
    last_ts, last_count = before.get(role, (ts, float(count)))
    before[role] = (ts, float(count))
    if count > last_count:
        yield TraceEvent(name=f"{count - last_count:.0f} updates", cat="update", ph="X", pid=pid, ts=last_ts, dur=ts - last_ts, args={"idle": line.get("learner/idle", 0.0)})  # fmt: skip


def _logs(run: Run, first_s: float, places: _Places) -> Iterator[TraceEvent]:
    for log in run.logs():
        for event in run.follow(log).new():
            if event["event"] in STALLS:
                told = {name: value for name, value in event.items() if name not in ("time_s", "event")}
                role = str(event.get("role", log)) if event["event"] == "died" else log
                yield TraceEvent(name=str(event["event"]), cat="stall", ph="i", s="p", pid=places.role(role), ts=1e6 * (float(event["time_s"]) - first_s), args=told)  # fmt: skip
