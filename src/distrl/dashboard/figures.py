"""What the page on learning shows: curves of metrics with their meaning and healthy range, and figures counted from the episodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from distrl.dashboard.catalogue import CUT_OFF, Entry
from distrl.dashboard.run_list import OpenRun
from distrl.evaluation.report import wilson
from distrl.telemetry.metrics import METRICS

WINDOWS = 40
FEWEST = 8
"""Episodes behind a point."""
MOST_GROUPS = MOST_LINES = 40
LENGTHS = ((1, 3), (4, 6), (7, 10), (11, 20), (21, 1_000_000))

Group = Literal["all", "suite", "template", "length"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One curve; `low` and `high` are its 95 % interval, where it has one."""

    name: str
    points: list[tuple[float, float]]
    low: list[float] = []
    high: list[float] = []
    n: int = 0


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn in one frame."""

    id: str
    title: str
    unit: str
    says: str
    """What it shows, in a sentence."""
    healthy: str
    lines: list[Line]
    kind: Literal["lines", "bars", "dots"] = "lines"
    across: Literal["s", "version", "value"] = "s"
    bounded: bool = False
    """From 0 to 1."""


class _Metrics(msgspec.Struct, frozen=True):
    """Metrics that share a frame; the first says what is healthy unless there are words of its own."""

    id: str
    title: str
    names: tuple[str, ...]
    says: str = ""
    healthy: str = ""
    bounded: bool = False


METRIC_CHARTS = (
    _Metrics("loss", "Losses", ("learner/loss/policy", "learner/loss/value", "learner/loss/invalid", "learner/loss/instruction", "learner/loss/total"), "Terms of the loss, mean over the updates since the point before.", "value falls, then level; total finite"),
    _Metrics("entropy", "Entropy", ("learner/entropy",)),
    _Metrics("staleness", "Staleness of what is sampled", ("learner/staleness/mean", "learner/staleness/max"), "Versions between the learner and the policy that acted, over what it sampled.", "at most replay.max_staleness"),
    _Metrics("waits", "Where the learner's time goes", ("learner/idle", "learner/intake"), "Share of its time in which there was nothing to learn, and in which episodes were read.", "idle below 0.5, intake below 0.3", True),
    _Metrics("busy", "Devices at work", ("worker/busy_share",), "Share of their time in which the devices of each worker were inside a call.", "above 0.9 with asynchronous collection", True),
    _Metrics("invalid", "Refused steps", ("worker/invalid/share",), bounded=True),
    _Metrics("batch", "Decisions per batch", ("worker/batch/mean",)),
    _Metrics("gradient", "Gradient norm", ("learner/gradient_norm",)),
    _Metrics("agreement", "Workers and learner agree", ("learner/agreement/kl",)),
    _Metrics("replay", "Replay", ("learner/replay/eligible",)),
    _Metrics("trust", "Inside the trust region", ("learner/trust_region_share",), bounded=True),
    _Metrics("imitated", "Imitated steps", ("learner/imitated_share",), bounded=True),
    _Metrics("gpu", "GPU", ("gpu/utilisation",), bounded=True),
    _Metrics("warm_start", "Warm start", ("warm_start/loss",)),
)  # fmt: skip


def charts_of(opened: OpenRun, group: Group) -> list[Chart]:
    """All charts of a run that have something to show; the caller holds its lock."""
    played = [entry for entry in opened.catalogue.entries if entry.source == "played"]
    first_s = opened.metrics.first_s or (played[0].created_s if played else 0.0)
    counted = [
        _success(played, first_s, group),
        _evaluations(opened),
        _throughput(played, first_s),
        _staleness(played),
        _priorities(opened),
    ]
    measured = [_of_metrics(opened, one) for one in METRIC_CHARTS]
    return [chart for chart in (*counted, *measured) if any(line.points for line in chart.lines)]


def _success(played: Sequence[Entry], first_s: float, group: Group) -> Chart:
    keys: dict[Group, Callable[[Entry], str]] = {
        "all": lambda _: "all episodes",
        "suite": lambda entry: entry.suite,
        "template": lambda entry: entry.template,
        "length": lambda entry: _length(entry.steps),
    }
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in played:
        if entry.ending != CUT_OFF:
            groups[keys[group](entry)].append(entry)
    largest = sorted(groups, key=lambda name: -len(groups[name]))[:MOST_GROUPS]
    return Chart(
        id="success",
        title="Success in training",
        unit="share",
        says="Share of training episodes that succeeded, in windows of equally many episodes, with a 95 % interval; without those that the end of the run cut off.",
        healthy="rises",
        lines=[_windows(name, groups[name], first_s, WINDOWS if group == "all" else 12) for name in largest],
        bounded=True,
    )


def _windows(name: str, entries: Sequence[Entry], first_s: float, count: int) -> Line:
    size = max(FEWEST, -(-len(entries) // count))
    points, low, high = [], [], []
    for at in range(0, len(entries), size):
        window = entries[at : at + size]
        if len(window) < min(size, FEWEST) and at:
            break
        rate = wilson(sum(entry.success for entry in window), len(window))
        points.append((round(max(0.0, window[len(window) // 2].created_s - first_s), 1), round(rate.value, 4)))
        low.append(round(rate.low, 4))
        high.append(round(rate.high, 4))
    return Line(name=name, points=points, low=low, high=high, n=len(entries))


def _length(steps: int) -> str:
    low, high = next((low, high) for low, high in LENGTHS if steps <= high)
    return f"{low} to {high} steps" if high < 1000 else f"{low} steps and more"


def _evaluations(opened: OpenRun) -> Chart:
    found = []
    for name, rate in opened.status().evaluations.items():
        version = {"before": 0.0, "after": opened.metrics.last.get("learner", {}).get("learner/version", 0.0)}.get(name)
        version = float(name[1:]) if version is None and name[1:].isdecimal() else version
        if version is not None:
            found.append((version, rate))
    found.sort(key=lambda one: one[0])
    line = Line(
        name="held-out tasks",
        points=[(version, round(rate.value, 4)) for version, rate in found],
        low=[round(rate.low, 4) for _, rate in found],
        high=[round(rate.high, 4) for _, rate in found],
        n=found[-1][1].n if found else 0,
    )
    says = "Success on held-out tasks by policy version, with a 95 % interval: before, on the way, after."
    return Chart(id="evaluations", title="Evaluation by version", unit="share", says=says, healthy="rises", lines=[line], across="version", kind="dots", bounded=True)  # fmt: skip


def _throughput(played: Sequence[Entry], first_s: float) -> Chart:
    says = "Episodes and steps that reached the store per second."
    if len(played) < FEWEST:
        return Chart(id="throughput", title="Throughput", unit="per s", says=says, healthy="level", lines=[])
    begin_s = played[0].created_s
    span_s = max(1.0, played[-1].created_s - begin_s)
    width_s = span_s / WINDOWS
    episodes, steps = [0] * WINDOWS, [0] * WINDOWS
    for entry in played:
        at = min(WINDOWS - 1, max(0, int((entry.created_s - begin_s) / width_s)))
        episodes[at] += 1
        steps[at] += entry.steps
    lines = [
        Line(
            name=name,
            points=[
                (round(max(0.0, begin_s - first_s) + (at + 0.5) * width_s, 1), round(count / width_s, 4))
                for at, count in enumerate(counts)
            ],
        )
        for name, counts in (("episodes", episodes), ("steps", steps))
    ]
    return Chart(id="throughput", title="Throughput", unit="per s", says=says, healthy="level; dips where devices restart", lines=lines)  # fmt: skip


def _staleness(played: Sequence[Entry]) -> Chart:
    counts: dict[int, int] = defaultdict(int)
    for entry in played:
        counts[min(entry.staleness, 60)] += 1
    points = [(float(at), float(counts[at])) for at in range(max(counts, default=-1) + 1)]
    says = "Episodes by the number of versions that the learner was ahead when they were stored; the last bar holds what is beyond 60."
    healthy = "most of it below replay.max_staleness"
    return Chart(id="arrival", title="Staleness on arrival", unit="episodes by versions behind", says=says, healthy=healthy, lines=[Line(name="episodes", points=points)], kind="bars", across="value")  # fmt: skip


def _priorities(opened: OpenRun) -> Chart:
    every = [entry.detail.priority for entry in opened.catalogue.entries if entry.detail is not None]
    found = [priority for priority in every if 0.0 <= priority < math.inf]
    most = max(found, default=0.0)
    bins = 24
    counts = [0] * bins
    for priority in found:
        counts[min(bins - 1, int(bins * priority / most)) if most > 0 else 0] += 1
    points = [(round(most * (at + 0.5) / bins, 4), float(count)) for at, count in enumerate(counts)] if found else []
    says = f"First priorities that workers gave, over the {len(found)} episodes whose files were read; the learner refreshes them later."
    return Chart(id="priorities", title="Priorities", unit="episodes by priority", says=says, healthy="spread out, not all in one bar", lines=[Line(name="episodes", points=points)], kind="bars", across="value")  # fmt: skip


def _of_metrics(opened: OpenRun, wanted: _Metrics) -> Chart:
    declared = METRICS.get(wanted.names[0])
    lines = []
    for name in wanted.names:
        by_role = opened.metrics.curves.get(name, {})
        for role, curve in sorted(by_role.items()):
            label = name.rpartition("/")[2] if len(wanted.names) > 1 else role
            lines.append(Line(name=label, points=curve.points))
    many = f" {len(lines)} roles have told of it; the first {MOST_LINES} are drawn." if len(lines) > MOST_LINES else ""
    return Chart(
        id=wanted.id,
        title=wanted.title,
        unit=declared.unit if declared else "share",
        says=(wanted.says or (f"{declared.meaning[:1].upper()}{declared.meaning[1:]}." if declared else "")) + many,
        healthy=wanted.healthy or (declared.healthy if declared else ""),
        lines=lines[:MOST_LINES],
        bounded=wanted.bounded,
    )
