"""`distrl bench judge_load`: a list of 500 instructions, trained on with a model as the judge: does judging slow collection?

The list is plain text, one instruction a line, as those of Android in the Wild are published. It is loaded, split by its text and played on 8
phones behind the real adb program; the episodes are judged through a local endpoint in a process of its own (`judge_endpoint`), which believes
every claim. It answers at once for a while, which shows how many requests a second there are. From then on it takes turns, in the same
run: for a window it takes so long that about eight requests are under way at any time, for the next one it answers at once. What counts is the
ratio of the episodes a second of both; since they alternate, other work on the machine hits both. A second run has the slow answers one at
a time (`judge.at_once = 1`): what it would look like if collection did wait for its judge.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.judge_endpoint import EndpointCounts, JudgeEndpoint
from distrl.bench.system.phones_behind_adb import phones_behind_adb, train
from distrl.config.load import config_hash, load_config
from distrl.config.schema import ListConfig
from distrl.errors import RoleCrashed
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import RunSnapshot
from distrl.tasks.base import SPLITS, suite, tasks_of
from distrl.tasks.lists import ListSuite
from distrl.types import Value

PHONES, LINES, AT_ONCE = 8, 500, 8
PAIRS, QUICK_PAIRS = 4, 2
WINDOW_S, QUICK_WINDOW_S = 30.0, 12.0
WARM_EPISODES = 3 * PHONES
"""Before anything is measured."""
LEAST_PAUSE_S, DELAYS_OF_PAUSE = 3.0, 2.0
"""Between two windows nothing is counted for this long, or for so many delays: until what was asked before has been answered."""
LONGEST_DELAY_S = 30.0
SLOW = (False, True, True, False)
"""The order of two pairs of windows, so that a drift of the machine favours neither."""
SETTINGS: dict[str, Value] = {
    "run.name": "bench-judge-load",
    "run.minutes": 30.0,
    "tasks.suite": "list",
    "tasks.list.max_steps": 6,
    "judge.kind": "model",
    "judge.deadline_s": 300.0,
    "judge.model.model": "local",
    "judge.model.key_env": "",
    "judge.model.cache": 0,
    "rollout.workers": 1,
    "rollout.drain_s": 10.0,
    "rollout.keep_screenshots": True,
    "devices.per_worker": PHONES,
    "devices.android.screenshot_width": 180,
    "warm_start.demonstrations": 0,
    "data.hindsight": False,
    "learner.learning_rate": 1e-12,
    "learner.updates_per_episode": 0.25,
    "evaluation.episodes": 1,
    "evaluation.every_s": 0.0,
}
"""The policy does not change, so that the same kind of episodes is played throughout."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """All windows with the same delay."""

    judge_delay_s: float
    windows_s: float
    """Together."""
    episodes: int
    episodes_per_s: float
    requests_per_s: float
    judged_at_once: float
    """Requests under way, on average."""
    pictures: int
    """Screenshots that the endpoint was sent."""
    unknown: int
    """Episodes without a verdict."""
    held_back: float
    """Share of the looks at the worker that found it waiting for the judge."""


class JudgeLoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The same list with an endpoint that is fast, slow, and slow with one request at a time."""

    instructions: int
    splits: dict[str, int]
    overlap: int
    """Instructions in more than one split."""
    at_once: int
    answer_at_once: Load
    slow_answers: Load
    slow_answers_one_at_a_time: Load
    kept: float
    """Episodes a second with slow answers over those with an answer at once."""
    kept_spread: tuple[float, float]
    """The smallest and the largest ratio of two windows in a row."""
    kept_one_at_a_time: float
    most_at_once: int
    """Requests under way in the run of both."""
    phones: int
    seeds: int
    config_hash: str
    devices: str = "simulated phones of 180 pixels in width behind the real adb; the endpoint is no model"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a run with one delay, and what the endpoint was asked in it."""

    delay_s: float
    start_s: float
    end_s: float
    """Seconds since the epoch."""
    requests: int
    pictures: int
    busy_s: float
    looks: int
    """At the worker."""
    waiting: int
    """Of these, how often it waited for its judge."""

    @property
    def length_s(self) -> float:
        """Its duration."""
        return self.end_s - self.start_s


class WindowPlan:
    """Takes the windows of a run while it goes on, and sets the delay of the endpoint for each."""

    def __init__(
        self, endpoint: JudgeEndpoint, delays_s: Sequence[float | None], window_s: float, *, warm_episodes: int
    ) -> None:
        """A delay of None: as long as `AT_ONCE` requests at a time take, by what the first window has shown."""
        self._endpoint, self._delays_s, self._window_s = endpoint, delays_s, window_s
        self._warm_episodes = warm_episodes
        self._opens_s: float | None = None
        """When the window that comes next begins; None: the run is not warm."""
        self._opened: tuple[float, EndpointCounts] | None = None
        self._delay_s, self._looks, self._waiting = 0.0, 0, 0
        self.windows: list[Window] = []
        self.slow_s = 0.0

    def look(self, moment: RunSnapshot, now_s: float) -> bool:
        """Take the state of the run; whether all windows are over."""
        if self._opens_s is None:
            if moment.phase == "training" and moment.stats.episodes >= self._warm_episodes:
                self._next(now_s)
        elif self._opened is None:
            if now_s >= self._opens_s:
                self._opened, self._looks, self._waiting = (now_s, self._endpoint.counts()), 0, 0
        else:
            self._looks += 1
            self._waiting += waits_for_judge(moment)
            if now_s >= self._opened[0] + self._window_s:
                self._close(*self._opened, now_s)
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether all windows have been taken."""
        return len(self.windows) == len(self._delays_s)

    def _close(self, start_s: float, before: EndpointCounts, now_s: float) -> None:
        after, self._opened = self._endpoint.counts(), None
        window = Window(
            delay_s=self._delay_s,
            start_s=start_s,
            end_s=now_s,
            requests=after.requests - before.requests,
            pictures=after.pictures - before.pictures,
            busy_s=after.busy_s - before.busy_s,
            looks=self._looks,
            waiting=self._waiting,
        )
        self.windows.append(window)
        if len(self.windows) < len(self._delays_s):
            self._next(now_s)

    def _next(self, now_s: float) -> None:
        delay_s = self._delays_s[len(self.windows)]
        if delay_s is None:
            delay_s = self.slow_s = self.slow_s or delay_for(self.windows[0])
        # Also after a window with the same delay: all are measured alike.
        self._opens_s = now_s + max(LEAST_PAUSE_S, DELAYS_OF_PAUSE * max(delay_s, self._delay_s))
        self._delay_s = delay_s
        self._endpoint.set_delay(delay_s)
        log_progress(f"window {len(self.windows) + 1} of {len(self._delays_s)}: answers after {delay_s:.2f} s")


def delay_for(window: Window) -> float:
    """How long answers have to take for `AT_ONCE` of them to be under way, at the rate of a window."""
    return min(LONGEST_DELAY_S, AT_ONCE * window.length_s / max(1, window.requests))


def waits_for_judge(moment: RunSnapshot) -> bool:
    """Whether a worker plays no new episode because too many wait for their verdict."""
    beats = [role.heartbeat for role in moment.roles if role.role.startswith("worker")]
    return any(beat.phase == "waiting" and beat.what.startswith("the judge") for beat in beats if beat is not None)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A window and the episodes that were stored in it."""

    window: Window
    episodes: int
    unknown: int

    @property
    def per_s(self) -> float:
        """Episodes a second."""
        return self.episodes / self.window.length_s


def run(options: BenchOptions) -> JudgeLoadFigures:
    """Load the list, then train twice."""
    pairs, window_s = (QUICK_PAIRS, QUICK_WINDOW_S) if options.quick else (PAIRS, WINDOW_S)
    turns = [SLOW[number % len(SLOW)] for number in range(2 * pairs)]
    with tempfile.TemporaryDirectory(prefix="distrl-judge-load-") as root, phones_behind_adb(PHONES) as served:
        path = Path(root, "instructions.txt")
        write_list(path)
        listed = ListSuite(ListConfig(path=str(path)))
        settings = {**SETTINGS, **served.settings(), "tasks.list.path": str(path)}
        with JudgeEndpoint() as endpoint:
            # The first window shows how long slow answers have to take; it is not one of the pairs.
            delays_s: list[float | None] = [0.0, *(None if is_slow else 0.0 for is_slow in turns)]
            plan = WindowPlan(endpoint, delays_s, window_s, warm_episodes=WARM_EPISODES)
            both = measure(settings, plan, endpoint, Path(root, "both"))[1:]
            most_at_once = endpoint.counts().most_at_once
            alone = WindowPlan(endpoint, [plan.slow_s], window_s, warm_episodes=PHONES)
            single = load_of(measure({**settings, "judge.at_once": 1}, alone, endpoint, Path(root, "single")))
    sizes = {split: listed.size(split) for split in SPLITS}
    ratios = ratios_of(both)
    fast = load_of([one for one, is_slow in zip(both, turns, strict=True) if not is_slow])
    slow = load_of([one for one, is_slow in zip(both, turns, strict=True) if is_slow])
    return JudgeLoadFigures(
        instructions=sum(sizes.values()),
        splits={str(split): size for split, size in sizes.items()},
        overlap=count_overlap(listed),
        at_once=AT_ONCE,
        answer_at_once=fast,
        slow_answers=slow,
        slow_answers_one_at_a_time=single,
        kept=round(slow.episodes_per_s / fast.episodes_per_s, 3),
        kept_spread=(round(min(ratios), 3), round(max(ratios), 3)),
        kept_one_at_a_time=round(single.episodes_per_s / fast.episodes_per_s, 3),
        most_at_once=most_at_once,
        phones=PHONES,
        seeds=1,
        config_hash=config_hash(
            load_config(None, {**SETTINGS, "devices.kind": "android", "tasks.list.path": "instructions.txt"})
        ),
    )


def write_list(path: Path) -> None:
    """500 instructions, one a line, with a heading and blank lines as such files have them."""
    tasks = (task for split in SPLITS for task in tasks_of(suite("sim-general"), split, 600))
    every = list({task.instruction.casefold(): task.instruction for task in tasks}.values())
    found = every[:: len(every) // LINES][:LINES]  # of all kinds, so that each split gets some
    path.write_text("# instructions\n\n" + "\n".join(found) + "\n", encoding="utf-8")


def count_overlap(listed: ListSuite) -> int:
    """Instructions that are in more than one split, whatever their case."""
    seen = [{task.instruction.casefold() for task in tasks_of(listed, split)} for split in SPLITS]
    return sum(len(part) for part in seen) - len(set().union(*seen))


def measure(settings: dict[str, Value], plan: WindowPlan, endpoint: JudgeEndpoint, folder: Path) -> list[Measured]:
    """Train until the windows of the plan are over, and count the episodes in each."""
    config = load_config(None, {**settings, "judge.model.url": endpoint.url})
    what = f"judged {config.judge.at_once} at once"
    run, _ = train(config, folder, what, lambda moment: plan.look(moment, time.time()))
    if not plan.is_over:
        raise RoleCrashed("the run ended before it was measured", fix="measure again on a machine that does less else")
    return count_episodes(run, plan.windows)


def count_episodes(run: RunFolder, windows: Sequence[Window]) -> list[Measured]:
    """The windows with the episodes that were stored in each."""
    with ExperienceStore(run.experience) as store:
        rows = [row for row in store.after(0, 1_000_000) if row.source == "played"]
        inside = [[row for row in rows if one.start_s < row.created_s <= one.end_s] for one in windows]
        unknown = [sum(not store.read(row.id).verdict.known for row in found) for found in inside]
    return [
        Measured(window=window, episodes=len(found), unknown=number)
        for window, found, number in zip(windows, inside, unknown, strict=True)
    ]


def load_of(measured: Sequence[Measured]) -> Load:
    """What was collected in windows with the same delay, and what the endpoint had to do."""
    windows = [one.window for one in measured]
    length_s, episodes = sum(one.length_s for one in windows), sum(one.episodes for one in measured)
    return Load(
        judge_delay_s=round(windows[0].delay_s, 2),
        windows_s=round(length_s, 1),
        episodes=episodes,
        episodes_per_s=round(episodes / length_s, 3),
        requests_per_s=round(sum(one.requests for one in windows) / length_s, 3),
        judged_at_once=round(sum(one.busy_s for one in windows) / length_s, 2),
        pictures=sum(one.pictures for one in windows),
        unknown=sum(one.unknown for one in measured),
        held_back=round(sum(one.waiting for one in windows) / max(1, sum(one.looks for one in windows)), 3),
    )


def ratios_of(measured: Sequence[Measured]) -> list[float]:
    """Of each two windows in a row: episodes a second of the slow one over those of the fast one."""
    pairs = zip(measured[::2], measured[1::2], strict=True)
    ordered = [sorted(pair, key=lambda one: one.window.delay_s) for pair in pairs]
    return [slow.per_s / max(1e-9, fast.per_s) for fast, slow in ordered]
