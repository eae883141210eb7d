"""`distrl bench miniwob`: one policy on the pages of configs/miniwob.toml, page by page, before and after its training.

A real `distrl train`, from random weights. Before and after are the run's own evaluations on test seeds, which no training task has.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.load import config_hash, load_config
from distrl.devices.web.chromium import chromium_version
from distrl.errors import RoleCrashed
from distrl.evaluation.report import Report, read_report
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary

CONFIG = Path("miniwob")
"""The ready configuration of that name."""
QUICK = {"run.minutes": "2", "evaluation.episodes": "48"}
DEADLINE_S = 5400.0


class PageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One page."""

    before: float
    after: float
    n: int
    """Episodes of each, on other seeds than those of the training."""


class MiniWobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All pages, played by one policy."""

    tasks: dict[str, PageFigures]
    mean_before: float
    mean_after: float
    """Over pages."""
    num_tasks: int
    wall_s: float
    """Of the whole run, both evaluations included."""
    episodes: int
    steps: int
    phones: int
    lost_episodes: int | None
    chromium: str
    seeds: int = 1
    config_hash: str


def run(options: BenchOptions) -> MiniWobFigures:
    """Train once and read the run's reports."""
    overrides = QUICK if options.quick else {}
    config = load_config(CONFIG, overrides)
    version = chromium_version(config.devices.web.chromium)
    with tempfile.TemporaryDirectory() as root:
        flags = [word for key, value in overrides.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "distrl", "train", str(CONFIG), "--run.root", root, *flags]
        ended = subprocess.run(command, timeout=DEADLINE_S, check=False)
        folders = [RunFolder(found.parent) for found in Path(root).glob("*/config.toml")]
        if ended.returncode or not folders or (summary := read_summary(folders[0])) is None:
            raise RoleCrashed(f"the training ended with code {ended.returncode}", fix=" ".join(command))
        reports = [read_report(folders[0].evaluations / f"{name}.json") for name in ("before", "after")]
    return figures(
        reports[0], reports[1], summary, phones=config.devices.per_worker, chromium=version, hash=config_hash(config)
    )


def figures(
    before: Report, after: Report, summary: Summary, *, phones: int, chromium: str, hash: str
) -> MiniWobFigures:
    """Page by page what two evaluations found."""
    first = {row.template: row for row in before.per_task}
    tasks = {
        row.template: PageFigures(before=first[row.template].success, after=row.success, n=row.n)
        for row in after.per_task
    }
    return MiniWobFigures(
        tasks=tasks,
        mean_before=sum(page.before for page in tasks.values()) / len(tasks),
        mean_after=sum(page.after for page in tasks.values()) / len(tasks),
        num_tasks=len(tasks),
        wall_s=summary.wall_s,
        episodes=summary.episodes,
        steps=summary.steps,
        phones=phones,
        lost_episodes=summary.lost_episodes,
        chromium=chromium.rpartition(", ")[2],
        config_hash=hash,
    )
