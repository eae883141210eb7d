"""`distrl bench mobilegym`: one policy on MobileGym's own splits, level by level, before and after its training.

A real `distrl train` with a file of yours, since MobileGym is yours: the environment variable `DISTRL_MOBILEGYM` names a copy of
configs/mobilegym.toml with the folder of your clone, and with what `distrl tasks check` left out. Before and after are the run's own evaluations on the
test split, whose templates no training task has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.judging import MobileGymConfig
from distrl.config.load import config_hash, load_config
from distrl.devices.web.chromium import chromium_version
from distrl.errors import RoleCrashed, UsageError
from distrl.evaluation.report import Report, read_report, wilson
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary
from distrl.tasks.mobilegym import MobileGymSuite

VARIABLE = "DISTRL_MOBILEGYM"
QUICK = {"run.minutes": "4", "evaluation.episodes": "12"}
DEADLINE_S = 4 * 3600.0


class LevelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One level of the test split."""

    before: float
    after: float
    low: float
    """95 % interval of `after` (Wilson)."""
    high: float
    rise_low: float
    """95 % interval of what `after` is above `before` (Newcombe)."""
    rise_high: float
    n: int
    """Episodes of each."""
    tasks: int
    """Templates that these episodes are of."""


class MobileGymFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All levels, played by one policy."""

    levels: dict[str, LevelFigures]
    usable_tasks: int
    """Of both splits, in this run: what the clone's code can load, without what the file leaves out."""
    left_out: dict[str, str]
    """Every other task of the chosen levels and names, with the reason."""
    version: str
    """Of MobileGym, as the clone says."""
    language: str
    answers: str
    train_tasks: int
    """Templates that were practised."""
    episodes: int
    steps: int
    wall_s: float
    phones: int
    lost_episodes: int | None
    chromium: str
    seeds: int = 1
    config_hash: str


def run(options: BenchOptions) -> MobileGymFigures:
    """Train once and read the run's reports."""
    named = os.environ.get(VARIABLE, "")
    if not named or not Path(named).is_file():
        raise UsageError(
            f"the environment variable {VARIABLE} names no file: {named!r:.200}",
            expected="a copy of configs/mobilegym.toml with tasks.mobilegym.folder in it",
            fix=f"{VARIABLE}=my-mobilegym.toml distrl bench mobilegym",
        )
    file, overrides = Path(named), QUICK if options.quick else {}
    config = load_config(file, overrides)
    suite = MobileGymSuite(config.tasks.mobilegym)
    version = chromium_version(config.devices.web.chromium)
    with tempfile.TemporaryDirectory() as root:
        flags = [word for key, value in overrides.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "distrl", "train", str(file), "--run.root", root, "--no-view", *flags]
        ended = subprocess.run(command, timeout=DEADLINE_S, check=False)
        folders = [RunFolder(found.parent) for found in Path(root).glob("*/config.toml")]
        if ended.returncode or not folders or (summary := read_summary(folders[0])) is None:
            raise RoleCrashed(f"the training ended with code {ended.returncode}", fix=" ".join(command))
        before, after = (read_report(folders[0].evaluations / f"{name}.json") for name in ("before", "after"))
    return msgspec.structs.replace(
        figures(before, after, summary, suite),
        left_out=exclusion_reasons(suite.left_out, config.tasks.mobilegym),
        language=config.tasks.mobilegym.language,
        answers=config.tasks.mobilegym.answers,
        phones=config.devices.per_worker,
        chromium=version.rpartition(", ")[2],
        config_hash=config_hash(config),
    )


def exclusion_reasons(unloaded: dict[str, str], settings: MobileGymConfig) -> dict[str, str]:
    """Why each excluded task is, without the path of the clone on this machine."""
    folder = str(Path(settings.folder).expanduser().absolute())
    reasons = {name: why.replace(f"{folder}/", "") for name, why in unloaded.items()}
    return {**reasons, **dict.fromkeys(settings.leave_out, "excluded by leave_out in the settings")}


def figures(before: Report, after: Report, summary: Summary, suite: MobileGymSuite) -> MobileGymFigures:
    """Level by level what two evaluations found."""
    names = sorted({suite.level_of(row.template) for row in after.per_task})
    return MobileGymFigures(
        levels={name: _level(before, after, suite, name) for name in names},
        usable_tasks=sum(len(tasks) for tasks in suite.templates.values()),
        left_out={},
        version=suite.version,
        language="",
        answers="",
        train_tasks=len(suite.templates["train"]),
        episodes=summary.episodes,
        steps=summary.steps,
        wall_s=summary.wall_s,
        phones=0,
        lost_episodes=summary.lost_episodes,
        chromium="",
        config_hash="",
    )


def _level(before: Report, after: Report, suite: MobileGymSuite, level: str) -> LevelFigures:
    rows = [[row for row in report.per_task if suite.level_of(row.template) == level] for report in (before, after)]
    counts = [(round(sum(row.success * row.n for row in found)), sum(row.n for row in found)) for found in rows]
    first, then = (wilson(*count) for count in counts)
    rise = then.value - first.value
    return LevelFigures(
        before=first.value,
        after=then.value,
        low=then.low,
        high=then.high,
        rise_low=rise - ((then.value - then.low) ** 2 + (first.high - first.value) ** 2) ** 0.5,
        rise_high=rise + ((then.high - then.value) ** 2 + (first.value - first.low) ** 2) ** 0.5,
        n=counts[1][1],
        tasks=len({row.template for row in rows[1]}),
    )
