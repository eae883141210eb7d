"""The metrics of one run as curves: followed as they are written, and thinned out so that a long run takes no more memory than a short one."""

from __future__ import annotations

from collections.abc import Mapping

from distrl import Run
from distrl.dashboard.catalogue import VersionTimes
from distrl.types import Value

MOST_POINTS = 600
"""Of one curve; at this number every second one goes."""
MOST_CURVES = 400


class Curve:
    """One metric of one role over time: seconds since the run's first metrics, and its value."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._every, self._skipped = 1, 0

    def add(self, elapsed_s: float, value: float) -> None:
        """One more point, unless it falls between two that are kept."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points.append((round(elapsed_s, 1), float(f"{value:.5g}")))
        if len(self.points) >= MOST_POINTS:
            del self.points[1::2]
            self._every *= 2


class MetricCurves:
    """All metrics of one run, by name and role."""

    def __init__(self, run: Run, versions: VersionTimes) -> None:
        self._tail, self._versions = run.follow(), versions
        self._first_s: float | None = None
        self.curves: dict[str, dict[str, Curve]] = {}
        self.last: dict[str, dict[str, float]] = {}
        """The newest values by role and name, for Prometheus."""
        self.last_s = 0.0
        """When the newest line was written."""
        self._busy: dict[str, tuple[float, float]] = {}

    @property
    def first_s(self) -> float:
        """When the first line was written; 0: there is none."""
        return self._first_s or 0.0

    def refresh(self) -> None:
        """Take in what was written since."""
        for row in self._tail.new():
            self._take(row)

    def _take(self, row: Mapping[str, Value]) -> None:
        time_s, role = float(row["time_s"]), str(row.get("role") or row["event"])
        if self._first_s is None:
            self._first_s = time_s
        self.last_s = max(self.last_s, time_s)
        figures = {name: float(value) for name, value in row.items() if "/" in name and isinstance(value, int | float)}
        if "learner/version" in figures:
            self._versions.note(time_s, int(figures["learner/version"]))
        figures |= self._busy_share(role, figures)
        self.last.setdefault(role, {}).update(figures)
        for name, value in figures.items():
            by_role = self.curves.setdefault(name, {}) if len(self.curves) < MOST_CURVES else self.curves.get(name)
            if by_role is not None:
                by_role.setdefault(role, Curve()).add(max(0.0, time_s - self._first_s), value)

    def _busy_share(self, role: str, figures: Mapping[str, float]) -> dict[str, float]:
        """How busy the devices of a worker were since its line before."""
        busy_s, device_s = figures.get("worker/busy_s"), figures.get("worker/device_s")
        if busy_s is None or device_s is None:
            return {}
        before_busy_s, before_device_s = self._busy.get(role, (0.0, 0.0))
        self._busy[role] = (busy_s, device_s)
        spent_s = device_s - before_device_s
        if spent_s <= 0 or busy_s < before_busy_s:  # a new process counts from 0
            return {}
        return {"worker/busy_share": min(1.0, (busy_s - before_busy_s) / spent_s)}
