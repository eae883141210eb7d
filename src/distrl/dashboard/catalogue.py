"""All stored episodes of one run in memory, newest first, and what a person filters them by.

The index gives a row for each at once; instruction, device, reason and priority are in the episode files, which are read
newest first, a moment at a time, and kept as short records. A run that grows is followed.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from sys import intern
from typing import Literal

import msgspec
from msgspec.structs import replace

from distrl import Config, Run
from distrl.tasks.base import shown_id
from distrl.types import Ending, Outcome, Trajectory, Verdict

ROWS_AT_ONCE = 5000
DETAILS_AT_ONCE = 50
MOST_DETAILS = 200_000
"""Episodes whose files are read to be searched; of older ones the index alone is known."""
LONGEST_TEXT, MOST_SIDE_EFFECTS = 400, 8
CUT_OFF = "cut_off"
"""How an episode ended that was under way when its session ended: no limit was reached, so that it neither succeeded nor failed."""
LIMIT_S = 300.0
"""The least of the time limits that other devices than simulated phones have of their own (`TimeScales.episode_s`)."""
SIM_LIMIT_S, SIM_LONG_S = 30.0, {"instant": 0.0, "emulator": 150.0, "digirl": 405.56}
"""The same of simulated phones, at least and by the profile of their delays, in the time of a real device. A test holds it against theirs."""

Kind = Literal["", "played", "hindsight", "demonstration"]


class Detail(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the file of an episode says beyond the index."""

    instruction: str
    device: str
    outcome: Outcome
    reason: str
    progress: float
    priority: float
    invalid: int
    """Steps that the device refused."""
    side_effects: tuple[str, ...] = ()
    """What changed without being asked for."""


class Entry(msgspec.Struct, kw_only=True, gc=False):
    """An episode in the list."""

    seq: int
    id: str
    task: str
    suite: str
    template: str
    version: int
    staleness: int
    """Versions that the learner was ahead of it when it was stored."""
    steps: int
    success: bool
    source: str
    ending: str
    wall_s: float
    worker: str
    created_s: float
    detail: Detail | None = None
    """None: its file was not read yet, or cannot be read."""


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which episodes; what is empty or None does not matter."""

    suite: str = ""
    template: str = ""
    task: str = ""
    outcome: Literal["", "success", "failure", "unknown", "cut_off"] = ""
    device: str = ""
    worker: str = ""
    ending: str = ""
    source: Kind = "played"
    version_from: int | None = None
    version_to: int | None = None
    staleness_from: int | None = None
    staleness_to: int | None = None
    steps_from: int | None = None
    steps_to: int | None = None
    text: str = ""
    """All of its words, in instruction, reason, task, template, device or id."""
    before: int = 0
    """Only those with a smaller number; 0: from the newest."""
    limit: int = 50

    @property
    def needs_details(self) -> bool:
        """Whether episode files have to be read to answer."""
        return bool(self.text or self.device or self.outcome in ("failure", "unknown", CUT_OFF))


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a filter came to."""

    entries: list[Entry]
    num_found: int
    num_all: int
    num_unread: int
    """Files that were not read yet: what only they know is not found in them."""
    next_before: int
    """To go on from; 0: that was all."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to choose from, with how many episodes of each."""

    suites: dict[str, int]
    templates: dict[str, int]
    devices: dict[str, int]
    workers: dict[str, int]
    endings: dict[str, int]
    sources: dict[str, int]
    newest_version: int
    most_steps: int
    most_staleness: int


class VersionTimes:
    """When the learner came to which version, to tell how stale an episode was when it was stored."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._versions: list[int] = []

    def note(self, time_s: float, version: int) -> None:
        """The learner said that it is at `version`."""
        if not self._versions or (version > self._versions[-1] and time_s >= self._times_s[-1]):
            self._times_s.append(time_s)
            self._versions.append(version)

    def at(self, time_s: float) -> int:
        """The newest version that it had told of by then; -1: none."""
        at = bisect_right(self._times_s, time_s)
        return self._versions[at - 1] if at else -1


class Catalogue:
    """The episodes of one run. Its owner lets one thread at a time in."""

    def __init__(self, run: Run, versions: VersionTimes) -> None:
        self._run, self._versions = run, versions
        self.entries: list[Entry] = []
        """Oldest first."""
        self.num_played = 0
        """Of them, those that were played."""
        self._by_id: dict[str, Entry] = {}
        self._unread: list[Entry] = []
        """Oldest first: the newest is read next."""
        self._known: tuple[float, str] | None = None

    def refresh(self) -> None:
        """Take in what was stored since."""
        limit_s, found_as = self._settings()
        while rows := self._run.index(after=self.entries[-1].seq if self.entries else 0, limit=ROWS_AT_ONCE):
            for row in rows:
                staleness = max(0, self._versions.at(row.created_s) - row.version)
                task = shown_id(row.task, found_as)
                entry = Entry(
                    seq=row.seq, id=row.id, task=task, suite=intern(suite_of(task)), template=intern(row.template),
                    version=row.version, staleness=staleness, steps=row.steps, success=row.success, source=row.source,
                    ending=intern(ending_of(row.ending, row.wall_s, limit_s)), wall_s=row.wall_s, worker=intern(row.worker), created_s=row.created_s,
                )  # fmt: skip
                self.entries.append(entry)
                self._by_id[entry.id] = entry
                self._unread.append(entry)
                self.num_played += entry.source == "played"
            del self._unread[: max(0, len(self._unread) - MOST_DETAILS)]

    def _settings(self) -> tuple[float, str]:
        """The time limit of the run's episodes, and the name that its suite is found by."""
        if self._known is None:
            config = self._run.config
            self._known = time_limit_s(config), config.tasks.suite
        return self._known

    def entry(self, id: str) -> Entry | None:
        """The episode of this id; None where the index has none."""
        return self._by_id.get(id)

    def neighbours(self, entry: Entry) -> tuple[str, str]:
        """The ids of the played episodes after and before it; empty where there is none."""
        played = [one.id for one in self.entries if one.source == "played" or one is entry]
        at = played.index(entry.id)
        return (played[at + 1] if at + 1 < len(played) else "", played[at - 1] if at else "")

    def read_details(self, budget_s: float) -> int:
        """Read files for so long, newest first; how many are left."""
        until_s = time.monotonic() + budget_s
        while self._unread and time.monotonic() < until_s:
            some, self._unread = self._unread[-DETAILS_AT_ONCE:], self._unread[:-DETAILS_AT_ONCE]
            self._fill(some[::-1])
        return len(self._unread)

    def _fill(self, entries: Sequence[Entry]) -> None:
        missing = [entry for entry in entries if entry.detail is None]
        if not missing:
            return
        for entry, trajectory in zip(missing, self._run.episodes_of(entry.id for entry in missing), strict=True):
            if trajectory is None:
                continue
            entry.detail = detail_of(trajectory)
            if trajectory.task.max_s:  # which stands in the file alone
                entry.ending = ending_of(trajectory.ending, trajectory.wall_s, trajectory.task.max_s)

    def find(self, wanted: EpisodeFilter, *, budget_s: float) -> Found:
        """The newest that fit."""
        num_unread = self.read_details(budget_s) if wanted.needs_details else len(self._unread)
        words = wanted.text.casefold().split()
        fitting = [entry for entry in reversed(self.entries) if fits(entry, wanted, words)]
        behind = [entry for entry in fitting if not wanted.before or entry.seq < wanted.before]
        page = behind[: wanted.limit]
        self._fill(page)
        more = len(behind) > len(page)
        return Found(
            entries=page,
            num_found=len(fitting),
            num_all=len(self.entries),
            num_unread=num_unread,
            next_before=page[-1].seq if page and more else 0,
        )

    def choices(self) -> Choices:
        """What there is to filter by."""
        devices = Counter(entry.detail.device for entry in self.entries if entry.detail is not None)
        return Choices(
            suites=_counted(entry.suite for entry in self.entries if entry.suite),
            templates=_counted(entry.template for entry in self.entries),
            devices=dict(sorted(devices.items())),
            workers=_counted(entry.worker for entry in self.entries if entry.worker),
            endings=_counted(entry.ending for entry in self.entries),
            sources=_counted(entry.source for entry in self.entries),
            newest_version=max((entry.version for entry in self.entries), default=0),
            most_steps=max((entry.steps for entry in self.entries), default=0),
            most_staleness=max((entry.staleness for entry in self.entries), default=0),
        )


def suite_of(task: str) -> str:
    """The suite in a task's id; empty for a task that hindsight made, whose id names none."""
    return task.partition("/")[0] if "/" in task else ""


def time_limit_s(config: Config) -> float:
    """How long an episode of this run could last at least before it was out of time, unless its task says otherwise."""
    latency = config.devices.sim.latency
    sim_s = max(SIM_LIMIT_S, latency.time_scale * SIM_LONG_S[latency.profile])
    return config.rollout.episode_budget_s or (sim_s if config.devices.kind == "sim" else LIMIT_S)


def ending_of(ending: Ending, wall_s: float, limit_s: float) -> str:
    """How an episode ended, with those apart that the end of their session cut off: before their time limit."""
    return CUT_OFF if ending is Ending.TIME_LIMIT and wall_s < limit_s else ending.value


def outcome_of(*, success: bool, ending: str, judged: str) -> str:
    """What an episode came to: one that was cut off neither succeeded nor failed, whatever its judge said of how it was left."""
    return "success" if success else CUT_OFF if ending == CUT_OFF else judged


def without_verdict_if_cut(episode: Trajectory, config: Config) -> Trajectory:
    """A stored episode of a run with these settings; one that was cut off says so instead of what its judge said."""
    ending = ending_of(episode.ending, episode.wall_s, episode.task.max_s or time_limit_s(config))
    if ending != CUT_OFF or episode.verdict.success:
        return episode
    return replace(episode, verdict=Verdict(outcome="unknown", reason="the end of the run cut it off"))


def _outcome(entry: Entry) -> str:
    judged = entry.detail.outcome if entry.detail is not None else ""
    return outcome_of(success=entry.success, ending=entry.ending, judged=judged)


def detail_of(trajectory: Trajectory) -> Detail:
    """What is kept of an episode's file."""
    return Detail(
        instruction=trajectory.task.instruction[:LONGEST_TEXT],
        device=intern(trajectory.device[:LONGEST_TEXT]),
        outcome=trajectory.verdict.outcome,
        reason=trajectory.verdict.reason[:LONGEST_TEXT],
        progress=trajectory.verdict.progress,
        priority=trajectory.priority,
        invalid=sum(not step.valid for step in trajectory.steps),
        side_effects=tuple(effect[:LONGEST_TEXT] for effect in trajectory.verdict.side_effects[:MOST_SIDE_EFFECTS]),
    )


def fits(entry: Entry, wanted: EpisodeFilter, words: Sequence[str]) -> bool:
    """Whether an episode is one of those that are wanted; `words` are those of its text."""
    return (
        (not wanted.source or entry.source == wanted.source)
        and (not wanted.suite or entry.suite == wanted.suite)
        and (not wanted.template or entry.template == wanted.template)
        and (not wanted.task or entry.task == wanted.task)
        and (not wanted.worker or entry.worker == wanted.worker)
        and (not wanted.ending or entry.ending == wanted.ending)
        and (not wanted.outcome or _outcome(entry) == wanted.outcome)
        and (not wanted.device or (entry.detail is not None and entry.detail.device == wanted.device))
        and (wanted.version_from is None or entry.version >= wanted.version_from)
        and (wanted.version_to is None or entry.version <= wanted.version_to)
        and (wanted.staleness_from is None or entry.staleness >= wanted.staleness_from)
        and (wanted.staleness_to is None or entry.staleness <= wanted.staleness_to)
        and (wanted.steps_from is None or entry.steps >= wanted.steps_from)
        and (wanted.steps_to is None or entry.steps <= wanted.steps_to)
        and (not words or _says(entry, words))
    )


def _says(entry: Entry, words: Sequence[str]) -> bool:
    detail = entry.detail
    more = f"{detail.instruction} {detail.reason} {detail.device}" if detail is not None else ""
    said = f"{entry.task} {entry.template} {entry.id} {entry.ending} {more}".casefold()
    return all(word in said for word in words)


def _counted(found: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(found).items()))
