"""How long new weights are on their way: from the call of `publish` to the first decision that they make.

A learner and several workers are processes of their own and share a folder, as in a run. The learner publishes a version
every second or so and trains in between; each worker decides for 112 phones at the default pace and looks for a newer
version before each batch, as `Batcher` does. Weights of a size are those of the smallest pointer and ballast, so that a
decision costs next to nothing and the way is all that is measured: writing, syncing and checking included.

`p50_s` and `p95_s` are over all versions and workers. A version that a worker skipped for a newer one counts until that
one decides. The first version of each process is left out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.crew import say_on_stderr
from distrl.bench.system.pictures import BLUE, GREEN, GREY, ORANGE, check_drawing, picture
from distrl.bench.system.publishing import InUse, Job, Published, deadline_s
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import RoleCrashed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES_MB = (1.0, 10.0, 100.0, 500.0)
WORKERS, QUICK_WORKERS = (2, 4), (2,)
VERSIONS, QUICK_VERSIONS = 25, 8
EVERY_S = 1.0
SECONDS_PER_MB = 0.004
"""The pause between versions grows with their size, so that each is in use before the next one comes."""
GOAL_S = 0.2
POLL_S = 0.05


class WeightsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; the lists have an entry per size and number of workers."""

    size_mb: list[float]
    workers: list[int]
    p50_s: list[float]
    """From the call of `publish` to the first decision."""
    p95_s: list[float]
    publish_p50_s: list[float]
    """Of that, until `publish` returned."""
    versions: int
    """Timed, for each entry."""
    runtime: str
    seeds: int
    config_hash: str


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One size with one number of workers."""

    size_mb: float
    workers: int
    delays_s: list[float]
    publish_s: list[float]


def run(options: BenchOptions) -> WeightsFigures:
    """The figures, as `distrl bench weights` reports them."""
    check_drawing(options)
    fleets, versions = (QUICK_WORKERS, QUICK_VERSIONS) if options.quick else (WORKERS, VERSIONS)
    seeds = max(1, options.seeds)
    figures = summarise(
        [
            join([measure(size_mb, workers, versions, seed) for seed in range(seeds)])
            for workers in fleets
            for size_mb in SIZES_MB
        ],
        seeds=seeds,
    )
    if options.out is not None:
        with picture(options.out, "weights") as axes:
            draw(figures, axes)
    return figures


def measure(size_mb: float, workers: int, versions: int, seed: int) -> Timed:
    """Time so many versions of one size."""
    say_on_stderr(f"{versions} versions of {size_mb:g} MB to {workers} workers")
    with tempfile.TemporaryDirectory(prefix="distrl-weights-") as folder:
        job = Job(
            folder=folder, size_mb=size_mb, versions=versions, every_s=EVERY_S + SECONDS_PER_MB * size_mb, seed=seed
        )
        published, used = _play(job, workers)
    return Timed(
        size_mb=size_mb,
        workers=workers,
        delays_s=[delay for one in used for delay in delays(published, one)],
        publish_s=[line.done_s - line.called_s for line in published[1:]],
    )


def delays(published: Sequence[Published], used: Sequence[InUse]) -> list[float]:
    """For each version but the first, seconds until a worker first decided by it or by a newer one."""
    found = []
    for line in published[1:]:
        first = min((use.at_s for use in used if use.version >= line.version), default=None)
        if first is None:
            raise RoleCrashed(
                f"a worker never used version {line.version}",
                expected="each version in use before the last one",
                fix="measure again on a machine that does nothing else",
            )
        found.append(first - line.called_s)
    return found


def join(parts: list[Timed]) -> Timed:
    """The same measurement with several seeds as one."""
    return Timed(
        size_mb=parts[0].size_mb,
        workers=parts[0].workers,
        delays_s=[delay for part in parts for delay in part.delays_s],
        publish_s=[seconds for part in parts for seconds in part.publish_s],
    )


def summarise(timed: list[Timed], *, seeds: int) -> WeightsFigures:
    """The quantiles of each measurement."""
    return WeightsFigures(
        size_mb=[one.size_mb for one in timed],
        workers=[one.workers for one in timed],
        p50_s=[_quantile(one.delays_s, 0.5) for one in timed],
        p95_s=[_quantile(one.delays_s, 0.95) for one in timed],
        publish_p50_s=[_quantile(one.publish_s, 0.5) for one in timed],
        versions=len(timed[0].publish_s),
        runtime="local",
        seeds=seeds,
        config_hash=config_hash(Config()),
    )


def _quantile(values: list[float], share: float) -> float:
    return round(float(np.quantile(values, share)), 4)


def _play(job: Job, workers: int) -> tuple[list[Published], list[list[InUse]]]:
    """Run the learner and the workers to their end; what they said."""
    roles = [_Role("learner", job), *(_Role("worker", job, number) for number in range(workers))]
    until_s = time.monotonic() + deadline_s(job)
    try:
        for role in roles:
            role.await_first_word(until_s)
        roles[0].begin()
        for role in roles:
            role.await_end(until_s)
        learner, *others = (role.said() for role in roles)
    finally:
        for role in roles:
            role.end()
    published = [msgspec.json.decode(line, type=Published) for line in learner]
    return published, [[msgspec.json.decode(line, type=InUse) for line in lines] for lines in others]


class _Role:
    """A process of the measurement that says what it has to say in a file."""

    def __init__(self, role: str, job: Job, number: int = 0) -> None:
        self._name, self._words = f"{role} {number}", Path(job.folder, f"{role}-{number}.jsonl")
        command = [sys.executable, "-m", "distrl.bench.system.publishing", role, msgspec.json.encode(job).decode()]
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=words)

    def await_first_word(self, until_s: float) -> None:
        while not self._words.stat().st_size:
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RoleCrashed(f"{self._name} of the measurement did not begin", fix="distrl doctor")
            time.sleep(POLL_S)

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    def await_end(self, until_s: float) -> None:
        try:
            self._process.wait(timeout=max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            fix = "measure again on a machine that does nothing else"
            raise RoleCrashed(f"{self._name} of the measurement did not end in time", fix=fix) from None

    def said(self) -> list[bytes]:
        return self._words.read_bytes().splitlines()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def draw(figures: WeightsFigures, axes: Axes) -> None:
    """Delays over sizes, a line per number of workers."""
    for colour, workers in zip((BLUE, ORANGE, GREEN), sorted(set(figures.workers)), strict=False):
        rows = [index for index, count in enumerate(figures.workers) if count == workers]
        sizes = [figures.size_mb[row] for row in rows]
        axes.plot(
            sizes, [figures.p95_s[row] for row in rows], "o-", color=colour, label=f"{workers} workers, 95th percentile"
        )
        axes.plot(sizes, [figures.p50_s[row] for row in rows], "s--", color=colour, label=f"{workers} workers, median")
    axes.axhline(GOAL_S, color=GREY, linestyle=":")
    axes.annotate(f"goal at 100 MB: {GOAL_S:g} s", (SIZES_MB[0], GOAL_S), va="bottom", color=GREY)
    axes.set(xscale="log", yscale="log", xlabel="size of the weights (MB)", ylabel="publish to first decision (s)")
    axes.legend(frameon=False)
