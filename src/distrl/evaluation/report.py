"""What an evaluation found: success with an interval, and a row per template."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from math import sqrt
from pathlib import Path

import msgspec

from distrl.errors import StoreError
from distrl.types import Trajectory

Z_95 = 1.959964


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval (Wilson)."""

    value: float
    low: float
    high: float
    n: int


class TemplateRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one template went."""

    template: str
    n: int
    success: float
    progress: float
    steps: float
    """Mean length of the episodes."""
    seen: bool = True
    """Training has tasks of it too."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation as other programs read it."""

    success: float
    low: float
    high: float
    n: int
    """Every attempt, those without an outcome included."""
    unknown: int = 0
    """Attempts without an outcome: a fault ended them, or the judge failed. They count as no success."""
    unknown_because: dict[str, int] = {}
    """Why, and how often."""
    policy_version: int
    suite: str
    progress: float
    false_completion: float
    side_effects: float
    invalid_steps: float
    per_task: tuple[TemplateRow, ...]

    @property
    def rate(self) -> Rate:
        """The success with its interval."""
        return Rate(value=self.success, low=self.low, high=self.high, n=self.n)


def wilson(successes: float, n: int) -> Rate:
    """A share and its 95 % interval, sound also near 0 and 1; of several evaluations on the same tasks, `successes` is the mean."""
    if n == 0:
        return Rate(value=0.0, low=0.0, high=1.0, n=0)
    share, spread = successes / n, Z_95**2 / n
    centre = (share + spread / 2) / (1 + spread)
    half = Z_95 * sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return Rate(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half), n=n)


def make_report(trajectories: Sequence[Trajectory], *, suite: str, version: int, unseen: Container[str] = ()) -> Report:
    """Sum up the episodes of an evaluation; `unseen` are the templates that training never has."""
    n = len(trajectories)
    rate = wilson(sum(t.verdict.success for t in trajectories), n)
    steps = [step for t in trajectories for step in t.steps]
    return Report(
        success=rate.value,
        low=rate.low,
        high=rate.high,
        n=n,
        unknown=sum(not t.verdict.known for t in trajectories),
        unknown_because=dict(Counter(t.verdict.reason for t in trajectories if not t.verdict.known)),
        policy_version=version,
        suite=suite,
        progress=_mean([t.verdict.progress for t in trajectories]),
        false_completion=_mean([t.verdict.false_completion for t in trajectories]),
        side_effects=_mean([bool(t.verdict.side_effects) for t in trajectories]),
        invalid_steps=_mean([not step.valid for step in steps]),
        per_task=_rows(trajectories, unseen),
    )


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """Success on some of the tasks of an evaluation, and what it was in the one before the training."""

    name: str
    n: int
    before: float | None
    """None: there was no evaluation before, or none of these tasks."""
    after: float


def gains_by_template(before: Report | None, after: Report) -> list[Gain]:
    """A row per template, that with the least success first."""
    rows = [_gain(row.template, before, after, {row.template}) for row in after.per_task]
    return sorted(rows, key=lambda row: (row.after, -row.n, row.name))


def gains_by_seen(before: Report | None, after: Report) -> list[Gain]:
    """A row for the templates that training has and one for the others; empty where all are of one kind."""
    kinds = {
        f"all of {name} templates": {row.template for row in after.per_task if row.seen is seen}
        for name, seen in (("seen", True), ("unseen", False))
    }
    return [_gain(name, before, after, templates) for name, templates in kinds.items()] if all(kinds.values()) else []


def _gain(name: str, before: Report | None, after: Report, templates: set[str]) -> Gain:
    was = [row for row in before.per_task if row.template in templates] if before is not None else []
    now = [row for row in after.per_task if row.template in templates]
    return Gain(name=name, n=sum(row.n for row in now), before=_share(was) if was else None, after=_share(now))


def _share(rows: Sequence[TemplateRow]) -> float:
    return sum(row.success * row.n for row in rows) / max(1, sum(row.n for row in rows))


def read_rate(path: Path) -> Rate | None:
    """The success in a report that was written to a file; None where there is none, `StoreError` where it is damaged."""
    return read_report(path).rate if path.exists() else None


def read_report(path: Path) -> Report:
    """The report in a file; `StoreError` where it is damaged or cannot be read."""
    try:
        found = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror or error}",
            expected="a report as it was written",
            fix=f"move {path} away, or check your rights to it",
        ) from error
    return parse_report(found, source=str(path))


def rate_of(report: bytes, *, source: str) -> Rate:
    """The success in a report as JSON; `StoreError` that names `source` where it is damaged."""
    return parse_report(report, source=source).rate


def parse_report(report: bytes, *, source: str) -> Report:
    """A report from its JSON; `StoreError` that names `source` where it is damaged."""
    try:
        return msgspec.json.decode(report, type=Report)
    except ValueError as error:
        raise StoreError(
            f"{source} is damaged: {error}",
            expected="a report as it was written",
            fix=f"remove {source}; where it is `before`, `distrl train --resume` measures it again",
        ) from error


def _rows(trajectories: Sequence[Trajectory], unseen: Container[str]) -> tuple[TemplateRow, ...]:
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.task.template].append(trajectory)
    return tuple(
        TemplateRow(
            template=name,
            n=len(group),
            success=_mean([t.verdict.success for t in group]),
            progress=_mean([t.verdict.progress for t in group]),
            steps=_mean([len(t.steps) for t in group]),
            seen=name not in unseen,
        )
        for name, group in sorted(groups.items())
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
