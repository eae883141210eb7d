"""`distrl bench weights`: the delay from the call of `publish` to the first decision with the new weights.

A learner and several workers are separate processes and share a folder, as in a run. The learner publishes a version
about every second and computes in between. Each worker decides for 112 phones at their default rate and loads a newer
version before a batch, as `Batcher` does. Weights of a size are those of the smallest pointer policy plus padding, so
that a decision takes almost no time and only the transfer is measured: writing, syncing and checking included.

`p50_s` and `p95_s` are over all versions and workers. If a worker skipped a version, its delay ends with the first decision
of a newer one. The first version of each process is not measured. Each process (`python -m distrl.bench.system.weights ROLE
SPEC`) prints a line of JSON per version; times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.plots import BLUE, GREEN, GREY, ORANGE, check_matplotlib, plot_file
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.errors import RoleCrashed
from distrl.policies.base import Policy
from distrl.pretraining.demonstrations import demonstrate, demonstration_tasks
from distrl.rollout.batching import Batcher, Batching
from distrl.runtime.factory import make_policy, prepare_torch
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Observation, PolicyVersion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES_MB = (1.0, 10.0, 100.0, 500.0)
WORKERS, QUICK_WORKERS = (2, 4), (2,)
VERSIONS, QUICK_VERSIONS = 25, 8
EVERY_S = 1.0
SECONDS_PER_MB = 0.004
"""The pause between versions grows with their size, so that each is in use before the next one is published."""
GOAL_S = 0.2
POLL_S = 0.05

PADDING_NUMBERS = 1_000_000
"""Floats in one tensor of the padding: 4 MB."""
DECISION_EVERY_S = 0.8
"""Mean time between two decisions of one phone: an action of 2 s at the default time scale."""
MAX_SLOWDOWN = 3.0
"""A measurement that takes this many times longer than planned has failed."""


class PublishSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What learner and workers need to know."""

    folder: str
    size_mb: float
    versions: int
    """That are measured; one more comes before them."""
    every_s: float
    seed: int


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What the learner prints of a version."""

    version: int
    called_s: float
    done_s: float


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker prints of the first decision with a version."""

    version: int
    at_s: float


class WeightsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Delays; the lists have an entry per size and number of workers."""

    size_mb: list[float]
    workers: list[int]
    p50_s: list[float]
    """From the call of `publish` to the first decision."""
    p95_s: list[float]
    publish_p50_s: list[float]
    """Of that, until `publish` has returned."""
    versions: int
    """Measured per entry."""
    runtime: str
    seeds: int
    config_hash: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Delays of one size with one number of workers."""

    size_mb: float
    workers: int
    delays_s: list[float]
    publish_s: list[float]


def run(options: BenchOptions) -> WeightsFigures:
    """Measure everything that `distrl bench weights` reports."""
    check_matplotlib(options)
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
        with plot_file(options.out, "weights") as axes:
            draw(figures, axes)
    return figures


def measure(size_mb: float, workers: int, versions: int, seed: int) -> Measured:
    """Measure the delays of `versions` versions of one size."""
    log_progress(f"{versions} versions of {size_mb:g} MB to {workers} workers")
    with tempfile.TemporaryDirectory(prefix="distrl-weights-") as folder:
        spec = PublishSpec(
            folder=folder, size_mb=size_mb, versions=versions, every_s=EVERY_S + SECONDS_PER_MB * size_mb, seed=seed
        )
        published, used = _run_roles(spec, workers)
    return Measured(
        size_mb=size_mb,
        workers=workers,
        delays_s=[delay for one in used for delay in delays(published, one)],
        publish_s=[line.done_s - line.called_s for line in published[1:]],
    )


def delays(published: Sequence[Published], used: Sequence[InUse]) -> list[float]:
    """For each version except the first, seconds until a worker's first decision with it or a newer one."""
    found = []
    for line in published[1:]:
        first = min((use.at_s for use in used if use.version >= line.version), default=None)
        if first is None:
            raise RoleCrashed(
                f"a worker never used version {line.version}",
                expected="every version, or a newer one, in use by every worker",
                fix="measure again on a machine that does nothing else",
            )
        found.append(first - line.called_s)
    return found


def join(seeds: list[Measured]) -> Measured:
    """Combine the measurements of several seeds."""
    return Measured(
        size_mb=seeds[0].size_mb,
        workers=seeds[0].workers,
        delays_s=[delay for one in seeds for delay in one.delays_s],
        publish_s=[seconds for one in seeds for seconds in one.publish_s],
    )


def summarise(found: list[Measured], *, seeds: int) -> WeightsFigures:
    """The quantiles of each measurement."""
    return WeightsFigures(
        size_mb=[one.size_mb for one in found],
        workers=[one.workers for one in found],
        p50_s=[quantile(one.delays_s, 0.5) for one in found],
        p95_s=[quantile(one.delays_s, 0.95) for one in found],
        publish_p50_s=[quantile(one.publish_s, 0.5) for one in found],
        versions=len(found[0].publish_s),
        runtime="local",
        seeds=seeds,
        config_hash=config_hash(Config()),
    )


def quantile(values: list[float], share: float) -> float:
    """This quantile, to a tenth of a millisecond."""
    return round(float(np.quantile(values, share)), 4)


def _run_roles(spec: PublishSpec, workers: int) -> tuple[list[Published], list[list[InUse]]]:
    """Run the learner and the workers to their end, and read what they printed."""
    roles = [_Role("learner", spec), *(_Role("worker", spec, number) for number in range(workers))]
    until_s = time.monotonic() + deadline_s(spec)
    try:
        for role in roles:
            role.await_first_line(until_s)
        roles[0].start()
        for role in roles:
            role.await_end(until_s)
        learner, *others = (role.lines() for role in roles)
    finally:
        for role in roles:
            role.end()
    published = [msgspec.json.decode(line, type=Published) for line in learner]
    return published, [[msgspec.json.decode(line, type=InUse) for line in lines] for lines in others]


class _Role:
    """A process of the measurement, whose output goes to a file."""

    def __init__(self, role: str, spec: PublishSpec, number: int = 0) -> None:
        self._name, self._output = f"{role} {number}", Path(spec.folder, f"{role}-{number}.jsonl")
        command = [sys.executable, "-m", "distrl.bench.system.weights", role, msgspec.json.encode(spec).decode()]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)

    def await_first_line(self, until_s: float) -> None:
        """Wait until the process has printed a line."""
        while not self._output.stat().st_size:
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RoleCrashed(f"{self._name} of the measurement did not start", fix="distrl doctor")
            time.sleep(POLL_S)

    def start(self) -> None:
        """Let the learner publish."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"start\n")
        self._process.stdin.flush()

    def await_end(self, until_s: float) -> None:
        """Wait until the process has ended."""
        try:
            self._process.wait(timeout=max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            fix = "measure again on a machine that does nothing else"
            raise RoleCrashed(f"{self._name} of the measurement did not end in time", fix=fix) from None

    def lines(self) -> list[bytes]:
        """What the process has printed."""
        return self._output.read_bytes().splitlines()

    def end(self) -> None:
        """Kill the process, if it is still there."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def draw(figures: WeightsFigures, axes: Axes) -> None:
    """Draw delays over sizes, a line per number of workers."""
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


# --- the processes ----------------------------------------------------------------------------------------------------


def padded_policy(config: Config, size_mb: float) -> Policy[Any]:
    """A small pointer policy whose weights are padded to `size_mb`."""
    policy = make_policy(config)
    own = sum(tensor.nbytes for tensor in policy.weights().values())
    missing = max(0, round((1e6 * size_mb - own) / 4))
    for number, start in enumerate(range(0, missing, PADDING_NUMBERS)):
        policy.network.register_buffer(f"padding_{number}", torch.full((min(PADDING_NUMBERS, missing - start),), 0.5))
    return policy


def small_config(seed: int) -> Config:
    """The smallest pointer policy: the transfer of weights is measured, not the decision."""
    return load_config(
        None, {"run.seed": seed, "policy.pointer.width": 16, "policy.pointer.layers": 1, "warm_start.demonstrations": 8}
    )


def learn(spec: PublishSpec) -> None:
    """The learner: publish versions and keep a core busy in between."""
    config, folder = small_config(spec.seed), WeightsFolder(Path(spec.folder, "weights"))
    policy = padded_policy(config, spec.size_mb)
    for number in range(spec.versions + 1):
        started_s = time.monotonic()
        folder.publish(policy, version_of(number))
        _print_line(Published(version=number, called_s=started_s, done_s=time.monotonic()))
        if number == 0:
            sys.stdin.readline()  # until all workers have started
        compute_until(started_s + spec.every_s)


def version_of(number: int) -> PolicyVersion:
    """A version that is about to be published."""
    return PolicyVersion(
        version=number, file="", sha256="", size_bytes=0, updates=0, episodes=0, published_s=time.time()
    )


def compute_until(end_s: float) -> None:
    """Keep a core busy, as a learner does."""
    square = torch.rand(256, 256)
    while time.monotonic() < end_s:
        torch.mm(square, square)


def work(spec: PublishSpec) -> None:
    """A worker: decide until the last version is in use."""
    asyncio.run(_work(spec))


async def _work(spec: PublishSpec) -> None:
    config = small_config(spec.seed)
    rollout = config.rollout
    batching = Batching(
        batch_size=rollout.batch_size, batch_wait_s=rollout.batch_wait_s, temperature=1.0, seed=spec.seed
    )
    batcher = Batcher(padded_policy(config, spec.size_mb), WeightsFolder(Path(spec.folder, "weights")), batching)
    phones = make_phones(batcher, config, Random(spec.seed), _print_line)
    await decide_until_last(batcher, phones, spec, count=config.devices.per_worker)


async def decide_until_last(batcher: Batcher, phones: Phones, spec: PublishSpec, *, count: int) -> None:
    """Decide for so many phones until the last version is in use."""
    tasks = [asyncio.create_task(batcher.run())]
    tasks += [asyncio.create_task(phones.play()) for _ in range(count)]
    last = asyncio.create_task(phones.await_version(spec.versions))
    await asyncio.wait({last, *tasks}, return_when=asyncio.FIRST_COMPLETED, timeout=deadline_s(spec))
    for task in (last, *tasks):
        if task.done():
            task.result()
        task.cancel()


def deadline_s(spec: PublishSpec) -> float:
    """Seconds after which the measurement has failed."""
    return 60.0 + MAX_SLOWDOWN * (spec.versions + 1) * spec.every_s


def make_phones(batcher: Batcher, config: Config, random: Random, tell: Callable[[InUse], None]) -> Phones:
    """A fleet with screens of demonstrations."""
    shown = demonstrate(demonstration_tasks(config), config.devices.sim.perturbations, history=6)
    return Phones(batcher, [seen for seen, _ in shown], random, tell)


class Phones:
    """A fleet that asks for decisions and tells the first one of each version."""

    def __init__(
        self, batcher: Batcher, observations: list[Observation], random: Random, tell: Callable[[InUse], None]
    ) -> None:
        self._batcher, self._observations, self._random, self._tell = batcher, observations, random, tell
        self._newest = -1
        self._changed = asyncio.Event()

    async def play(self) -> None:
        """One phone: a decision now and then, for ever."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / DECISION_EVERY_S))
            _, version = await self._batcher.decide(self._random.choice(self._observations))
            if version > self._newest:
                self._newest = version
                self._tell(InUse(version=version, at_s=time.monotonic()))
                self._changed.set()

    async def await_version(self, version: int) -> None:
        """Wait until this version or a newer one has decided."""
        while self._newest < version:
            self._changed.clear()
            await self._changed.wait()


def _print_line(line: Published | InUse) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    prepare_torch()
    {"learner": learn, "worker": work}[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=PublishSpec))
