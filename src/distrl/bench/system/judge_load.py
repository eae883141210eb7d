"""`distrl bench judge_load`: a list of 500 instructions, trained on with a model as the judge: does judging slow collection?

The list is plain text, one instruction a line, as those of Android in the Wild are published. It is loaded, split by its text and played on 8
phones behind the real adb program; the episodes are judged through a local endpoint (`judge_endpoint`) that believes every claim.
First with an answer at once, which shows how many requests a second there are; then with answers so slow that about eight requests
are under way at any time; then the same with one at a time (`judge.at_once = 1`). What counts is the episodes a second of each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.judge_endpoint import JudgeEndpoint
from distrl.bench.system.phones_behind_adb import phones_behind_adb, train
from distrl.config.load import config_hash, load_config
from distrl.config.schema import ListConfig
from distrl.experience.store import ExperienceStore, IndexRow
from distrl.runtime.run_folder import RunFolder
from distrl.tasks.base import SPLITS, suite, tasks_of
from distrl.tasks.lists import ListSuite
from distrl.types import Value

PHONES, LINES, AT_ONCE = 8, 500, 8
EPISODES, QUICK_EPISODES = 400, 80
SETTLING = 0.25
"""Share of the episodes before the rate is taken."""
LONGEST_DELAY_S = 30.0
SETTINGS: dict[str, Value] = {
    "run.name": "bench-judge-load",
    "run.minutes": 0.0,
    "tasks.suite": "list",
    "tasks.list.max_steps": 6,
    "judge.kind": "model",
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
"""The policy does not change, so that all three runs play the same kind of episodes."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    episodes: int
    episodes_per_s: float
    requests_per_s: float
    judge_delay_s: float
    judged_at_once: float
    """Requests under way on average, while they were counted."""
    most_at_once: int
    pictures: int
    """Screenshots that the endpoint was sent."""
    unknown: int
    """Episodes without a verdict."""


class JudgeLoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Three runs of the same list."""

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
    kept_one_at_a_time: float
    phones: int
    seeds: int
    config_hash: str
    devices: str = "simulated phones of 180 pixels in width behind the real adb; the endpoint is no model"


def run(options: BenchOptions) -> JudgeLoadFigures:
    """Load the list, then train three times."""
    episodes = QUICK_EPISODES if options.quick else EPISODES
    with tempfile.TemporaryDirectory(prefix="distrl-judge-load-") as root, phones_behind_adb(PHONES) as served:
        path = Path(root, "instructions.txt")
        write_list(path)
        listed = ListSuite(ListConfig(path=str(path)))
        settings = {**SETTINGS, **served.settings(), "tasks.list.path": str(path), "run.episodes": episodes}
        quick = _measure(settings, 0.0, AT_ONCE, Path(root, "quick"))
        delay_s = min(LONGEST_DELAY_S, AT_ONCE / max(1e-9, quick.requests_per_s))
        log_progress(f"{quick.requests_per_s:.2f} requests/s: answers take {delay_s:.1f} s from now on")
        slow = _measure(settings, delay_s, 2 * AT_ONCE, Path(root, "slow"))
        single = _measure({**settings, "run.episodes": episodes // 2}, delay_s, 1, Path(root, "single"))
    sizes = {split: listed.size(split) for split in SPLITS}
    return JudgeLoadFigures(
        instructions=sum(sizes.values()),
        splits={str(split): size for split, size in sizes.items()},
        overlap=count_overlap(listed),
        at_once=AT_ONCE,
        answer_at_once=quick,
        slow_answers=slow,
        slow_answers_one_at_a_time=single,
        kept=round(slow.episodes_per_s / quick.episodes_per_s, 3),
        kept_one_at_a_time=round(single.episodes_per_s / quick.episodes_per_s, 3),
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


def _measure(settings: dict[str, Value], delay_s: float, at_once: int, folder: Path) -> Load:
    with JudgeEndpoint(delay_s) as endpoint:
        changed = {**settings, "judge.model.url": endpoint.url, "judge.at_once": at_once, "judge.deadline_s": 300.0}
        run, _ = train(load_config(None, changed), folder, f"answers after {delay_s:.1f} s, {at_once} at once")
        return load_of(run, endpoint)


def load_of(run: RunFolder, endpoint: JudgeEndpoint) -> Load:
    """What a run collected, once it had settled, and what the endpoint had to do."""
    with ExperienceStore(run.experience) as store:
        rows = [row for row in store.after(0, 1_000_000) if row.source == "played"]
        unknown = sum(not store.read(row.id).verdict.known for row in rows)
    per_s = rate_of(rows)
    return Load(
        episodes=len(rows),
        episodes_per_s=round(per_s, 3),
        requests_per_s=round(per_s * endpoint.requests / max(1, len(rows)), 3),
        judge_delay_s=round(endpoint.delay_s, 2),
        judged_at_once=round(per_s * endpoint.busy_s / max(1, len(rows)), 2),
        most_at_once=endpoint.most_at_once,
        pictures=endpoint.pictures,
        unknown=unknown,
    )


def rate_of(rows: Iterable[IndexRow]) -> float:
    """Episodes a second, without those that came before the run had settled."""
    times = sorted(row.created_s for row in rows)
    counted = times[round(SETTLING * len(times)) :]
    return (len(counted) - 1) / max(1e-9, counted[-1] - counted[0]) if len(counted) > 1 else 0.0
