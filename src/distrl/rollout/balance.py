"""Auto-balance: measured loads of a role move a few of its settings, within limits, one at a time.

Pure decisions: what was measured over a while goes in, at most one change with its reason comes out. The next one waits
until the effect of the last has been measured too. Between `IDLE` and `SATURATED` nothing is changed, so that nothing swings.
"""

from __future__ import annotations

from math import ceil

import msgspec

from distrl.config.schema import BalanceConfig

SATURATED, IDLE = 0.9, 0.6
"""Share of its time that a worker's policy computes: above the first it holds devices up, below the second it has time."""
HELD_UP = 0.7
"""Share of an episode's time on a device below which that device counts as waiting for decisions."""
LEARNER_IDLE, LEARNER_BUSY = 0.3, 0.05
"""Share of its time that a learner has nothing to learn: above the first it could do more with each episode."""
STEP = 1.25
SHORTEST_WAIT_S = 0.002
"""Where a wait begins to grow from."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that was moved."""

    setting: str
    before: float
    after: float
    why: str


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker measured since the last look, as shares of that time."""

    deciding: float
    """In which its policy computed."""
    on_devices: float
    """In which its episodes were inside calls to devices, on average."""


class WorkerBalance:
    """How many episodes a worker plays at once, and how long decisions wait for others."""

    def __init__(self, config: BalanceConfig, *, devices: int, batch_wait_s: float) -> None:
        self._config, self._shortest_s = config, batch_wait_s
        self.episodes, self.batch_wait_s = devices, batch_wait_s
        self._devices = devices

    def turn(self, load: WorkerLoad, *, devices: int) -> Change | None:
        """What to change now, with so many devices there; None: nothing."""
        # Devices come and go: who plays on all of them goes on doing so.
        self.episodes = devices if self.episodes >= self._devices else min(self.episodes, devices)
        self._devices = devices
        if load.deciding > SATURATED and load.on_devices < HELD_UP:
            return self._relieve(load)
        return self._fill(load, devices) if load.deciding < IDLE else None

    def _relieve(self, load: WorkerLoad) -> Change | None:
        why = f"the policy computes {load.deciding:.0%} of the time and episodes spend {load.on_devices:.0%} of theirs on devices"
        longest_s = max(self._config.longest_batch_wait_s, self._shortest_s)
        if self.batch_wait_s < longest_s:
            return self._wait(min(longest_s, max(2 * self.batch_wait_s, SHORTEST_WAIT_S)), f"{why}: larger batches")
        fewest = min(self._config.least_episodes, self.episodes)
        fewer = max(fewest, int(self.episodes / STEP))
        return self._play(fewer, f"{why}: fewer episodes, which end sooner") if fewer < self.episodes else None

    def _fill(self, load: WorkerLoad, devices: int) -> Change | None:
        why = f"the policy computes {load.deciding:.0%} of the time"
        if self.episodes < devices:
            return self._play(min(devices, ceil(self.episodes * STEP)), f"{why}: more episodes")
        if self.batch_wait_s > self._shortest_s:
            shorter_s = self.batch_wait_s / 2
            return self._wait(
                shorter_s if shorter_s > self._shortest_s else self._shortest_s, f"{why}: decisions sooner"
            )
        return None

    def _wait(self, batch_wait_s: float, why: str) -> Change:
        before, self.batch_wait_s = self.batch_wait_s, batch_wait_s
        return Change(setting="rollout.batch_wait_s", before=before, after=batch_wait_s, why=why)

    def _play(self, episodes: int, why: str) -> Change:
        before, self.episodes = self.episodes, episodes
        return Change(setting="episodes at once", before=before, after=episodes, why=why)


class LearnerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner measured since the last look."""

    idle: float
    """Share of the time in which it had nothing to learn."""
    behind: float
    """Updates that it may make and has not made."""
    arrived: int
    """Episodes that came."""


class LearnerBalance:
    """How many updates each arrived episode earns."""

    def __init__(self, config: BalanceConfig, *, updates_per_episode: float) -> None:
        self._config, self.updates_per_episode = config, updates_per_episode

    def turn(self, load: LearnerLoad) -> Change | None:
        """What to change now; None: nothing."""
        before, config = self.updates_per_episode, self._config
        if not load.arrived:
            return None  # who has no episodes is idle for another reason
        if load.idle > LEARNER_IDLE:
            after, why = min(before * STEP, config.most_updates_per_episode), "more from each episode"
        elif load.idle < LEARNER_BUSY and load.behind > load.arrived * before:
            after, why = max(before / STEP, config.least_updates_per_episode), "fewer, so that it keeps up"
        else:
            return None
        if (after > before) != (load.idle > LEARNER_IDLE) or after == before:
            return None  # at its limit, or set beyond it by hand
        self.updates_per_episode = after
        reason = f"the learner was idle {load.idle:.0%} of the time, {load.behind:.0f} updates behind: {why}"
        return Change(setting="learner.updates_per_episode", before=before, after=after, why=reason)
