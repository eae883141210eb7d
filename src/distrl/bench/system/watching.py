"""The window of a training run in which its collection is measured, and what happened in it.

The window opens with the first version that is published once a round's worth of episodes is in, and closes with the
first version that is published `window_s` later or more. So processes that start, the warm start, the first weights and
the first episodes are outside; a synchronous scheme is measured over whole rounds, training included; and the rule is
the same for every scheme.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from distrl.errors import RoleCrashed
from distrl.experience.store import IndexRow
from distrl.learner.weights import WeightsFolder
from distrl.runtime.train import Moment
from distrl.types import PolicyVersion

PATIENCE_S = 600.0
"""A run in which the window has not closed by then is given up."""

Series = list[tuple[float, float]]
"""Times and what a counter stood at."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From one publication to another, seconds since the epoch."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet did in a window."""

    window_s: float
    episodes: int
    steps: int
    episodes_per_s: float
    device_utilisation: float
    """Time that the devices themselves needed, divided by the time that they were there."""
    limit_episodes_per_s: float
    """What the fleet would play if every device were busy all the time, each worker's at its own pace."""


class Watcher:
    """Looks at every moment of a run until its window has closed."""

    def __init__(self, *, warm_episodes: int, window_s: float) -> None:
        self._warm_episodes, self._window_s = warm_episodes, window_s
        self._weights: WeightsFolder | None = None
        self._opened: PolicyVersion | None = None
        self._began_s: float | None = None
        self.window: Window | None = None
        self.busy: dict[str, Series] = {}
        """Device time by worker."""

    def see(self, moment: Moment, now_s: float) -> None:
        """Take in how the run stands now."""
        for role in moment.roles:
            beat = role.heartbeat
            if beat is not None and "busy_s" in beat.figures:
                self.busy.setdefault(role.role, []).append((beat.beat_s, beat.figures["busy_s"]))
        self._weights = self._weights or WeightsFolder(moment.run.weights)
        if newest := self._weights.latest():
            self.publish(newest)
        self._began_s = self._began_s or now_s
        if now_s > self._began_s + PATIENCE_S:
            raise RoleCrashed(
                f"no version closed the window within {PATIENCE_S:g} s",
                expected="a run that learns",
                fix="measure again on a machine that does nothing else",
            )

    def publish(self, version: PolicyVersion) -> None:
        """A version is there: it may open the window or close it."""
        if self._opened is None:
            self._opened = version if version.version and version.episodes >= self._warm_episodes else None
        elif self.window is None and version.published_s - self._opened.published_s >= self._window_s:
            self.window = Window(start_s=self._opened.published_s, end_s=version.published_s)


def sum_up(window: Window, rows: Sequence[IndexRow], busy: dict[str, Series], devices_per_worker: int) -> Collected:
    """The figures of a window from the episodes of a run and the device time of its workers."""
    inside = [row for row in rows if window.start_s < row.created_s <= window.end_s]
    used = {worker: spent_in(window, series) for worker, series in busy.items()}
    played = {worker: sum(row.worker == worker for row in inside) for worker in used}
    paces = [devices_per_worker * played[worker] / used[worker] for worker in used if played[worker]]
    return Collected(
        window_s=window.length_s,
        episodes=len(inside),
        steps=sum(row.steps for row in inside),
        episodes_per_s=len(inside) / window.length_s,
        device_utilisation=sum(used.values()) / (devices_per_worker * len(used) * window.length_s),
        limit_episodes_per_s=sum(paces),
    )


def spent_in(window: Window, series: Series) -> float:
    """How much a counter rose in a window; between two sightings it is taken to rise evenly."""
    times, values = zip(*sorted(series), strict=True)
    start, end = np.interp([window.start_s, window.end_s], times, values)
    return float(end - start)
