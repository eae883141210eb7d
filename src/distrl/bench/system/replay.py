"""`distrl bench replay`: inserts and samples per second of the prioritised replay, beside torchrl's where installed.

A cloned policy plays a few hundred episodes on simulated phones; 10,000 and more are copied from them, each with its own
memory, as the learner would hold them. They are added one by one with a priority each; the last fifth evicts the oldest.
Then batches of the learner's size are sampled, with and without giving each sampled trajectory a new priority, as an
update does.

torchrl's `ReplayBuffer` with `PrioritizedSampler` gets the same trajectories, priorities and batches. It stores whole
objects (`ListStorage`, nothing is stacked or copied), which is its fastest storage for items of different lengths. It has
neither staleness nor ids, so it does slightly less.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import torch
from msgspec.structs import replace

from distrl.algorithms.batch import Episode, prepare
from distrl.bench.base import BenchOptions
from distrl.bench.learning.single_process import warm_start
from distrl.bench.plots import BLUE, ORANGE, check_matplotlib, plot_file
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.evaluation.evaluate import evaluate
from distrl.experience.replay import Replay
from distrl.rollout.scheduler import TaskFeed
from distrl.runtime.factory import make_algorithm, make_evaluation, make_policy, prepare_torch
from distrl.tasks.sim.suites import suite
from distrl.types import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAJECTORIES, QUICK_TRAJECTORIES = 20_000, 10_000
PLAYED, QUICK_PLAYED = 400, 100
DRAWS, QUICK_DRAWS = 20_000, 4_000
"""Batches."""
KEPT_SHARE = 0.8
SETTINGS: dict[str, Value] = {
    "tasks.suite": "sim-general",
    "policy.pointer.width": 32,
    "policy.pointer.layers": 1,
    "warm_start.demonstrations": 40,
    "warm_start.epochs": 5,
}


class ReplayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measured rates and sizes."""

    inserts_per_s: float
    """Trajectories added, with their priority."""
    samples_per_s: float
    """Trajectories sampled, without refreshing their priorities."""
    refreshed_samples_per_s: float
    """Trajectories sampled and given a new priority."""
    set_version_ms: float
    """Time of `set_version`, which decides again which trajectories are eligible."""
    rss_mb: float
    """Memory of the whole process when the replay is full."""
    held_mb: float
    """Of that, memory of the trajectories."""
    trajectories: int
    """Number held when it is full."""
    steps: int
    batch: int
    torchrl: str
    """Its version, or why it was not measured."""
    torchrl_inserts_per_s: float | None
    torchrl_samples_per_s: float | None
    torchrl_refreshed_samples_per_s: float | None
    seeds: int
    config_hash: str


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of one buffer."""

    inserts_per_s: float
    samples_per_s: float
    refreshed_samples_per_s: float


class Buffer(Protocol):
    """What is measured."""

    def add(self, episode: Episode, priority: float) -> None:
        """Insert a trajectory."""

    def sample(self) -> Any:
        """Sample a batch and return what `refresh` needs to know of it."""

    def refresh(self, drawn: Any, priorities: list[float]) -> None:
        """Set the priorities of a sampled batch."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to each buffer, and how many batches are sampled from it."""

    episodes: list[Episode]
    priorities: list[float]
    batch: int
    draws: int


def run(options: BenchOptions) -> ReplayFigures:
    """The figures, as `distrl bench replay` reports them; with several seeds, the mean of each."""
    check_matplotlib(options)
    prepare_torch()
    seeds = max(1, options.seeds)
    found = [measure(options.quick, seed) for seed in range(seeds)]
    figures = mean_of(found)
    if options.out is not None:
        with plot_file(options.out, "replay") as axes:
            draw(figures, axes)
    return figures


def measure(quick: bool, seed: int) -> ReplayFigures:
    """Fill and sample both buffers once."""
    config = load_config(None, {**SETTINGS, "run.seed": seed})
    before_mb = _rss_mb()
    load = make_load(config, QUICK_TRAJECTORIES if quick else TRAJECTORIES, quick=quick)
    ours = OurBuffer(config, load)
    throughput = measure_throughput(ours, load)
    rss_mb = _rss_mb()
    version, theirs = _torchrl(config, load)
    return ReplayFigures(
        inserts_per_s=throughput.inserts_per_s,
        samples_per_s=throughput.samples_per_s,
        refreshed_samples_per_s=throughput.refreshed_samples_per_s,
        set_version_ms=1000 * _timed(lambda: ours.replay.set_version(1)),
        rss_mb=rss_mb,
        held_mb=rss_mb - before_mb,
        trajectories=len(ours.replay),
        steps=ours.replay.num_steps,
        batch=load.batch,
        torchrl=version,
        torchrl_inserts_per_s=theirs.inserts_per_s if theirs else None,
        torchrl_samples_per_s=theirs.samples_per_s if theirs else None,
        torchrl_refreshed_samples_per_s=theirs.refreshed_samples_per_s if theirs else None,
        seeds=1,
        config_hash=config_hash(config),
    )


def mean_of(found: list[ReplayFigures]) -> ReplayFigures:
    """Combine several seeds: means of measured values, the rest as in the first."""
    means = {
        name: float(np.mean([getattr(one, name) for one in found]))
        for name in ReplayFigures.__struct_fields__
        if isinstance(getattr(found[0], name), float)
    }
    return replace(found[0], seeds=len(found), **means)


def make_load(config: Config, trajectories: int, *, quick: bool) -> Load:
    """Trajectories as a learner holds them, none sharing memory with another."""
    policy, algorithm = make_policy(config), make_algorithm(config)
    warm_start(policy, config)
    feed = TaskFeed(suite(config.tasks.suite), "train", seed=f"replay {config.run.seed}")
    tasks = [feed.next() for _ in range(QUICK_PLAYED if quick else PLAYED)]
    played = evaluate(policy, tasks, replace(make_evaluation(config, seed=config.run.seed), temperature=1.0))
    models = [prepare(trajectory, policy) for trajectory in played]
    priorities = [algorithm.first_priority(trajectory) for trajectory in played]
    chosen = [number % len(models) for number in range(trajectories)]
    return Load(
        episodes=[replace(deepcopy(models[model]), id=f"{number}") for number, model in enumerate(chosen)],
        priorities=[priorities[model] for model in chosen],
        batch=config.learner.batch_trajectories,
        draws=QUICK_DRAWS if quick else DRAWS,
    )


def measure_throughput(buffer: Buffer, load: Load) -> Throughput:
    """Fill a buffer and sample from it."""
    fill_s = _timed(lambda: _fill(buffer, load))
    draw_s = _timed(lambda: _draw(buffer, load, refresh=False))
    refresh_s = _timed(lambda: _draw(buffer, load, refresh=True))
    num_drawn = load.draws * load.batch
    return Throughput(
        inserts_per_s=len(load.episodes) / fill_s,
        samples_per_s=num_drawn / draw_s,
        refreshed_samples_per_s=num_drawn / refresh_s,
    )


def _fill(buffer: Buffer, load: Load) -> None:
    for episode, priority in zip(load.episodes, load.priorities, strict=True):
        buffer.add(episode, priority)


def _draw(buffer: Buffer, load: Load, *, refresh: bool) -> None:
    fresh = cycle(load.priorities)
    for _ in range(load.draws):
        drawn = buffer.sample()
        if refresh:
            buffer.refresh(drawn, list(islice(fresh, load.batch)))


class OurBuffer:
    """`experience.replay.Replay` as the learner uses it."""

    def __init__(self, config: Config, load: Load) -> None:
        steps = sum(episode.num_steps for episode in load.episodes)
        bounded = replace(config.replay, capacity_steps=int(KEPT_SHARE * steps))
        self.replay: Replay[Episode] = Replay(bounded, np.random.default_rng(config.run.seed))
        self._batch = load.batch

    def add(self, episode: Episode, priority: float) -> None:
        """Insert a trajectory."""
        self.replay.add(
            episode.id,
            episode,
            steps=episode.num_steps,
            version=episode.version,
            success=episode.success,
            priority=priority,
        )

    def sample(self) -> list[str]:
        """Sample a batch and return its ids."""
        return [sample.id for sample in self.replay.sample(self._batch)]

    def refresh(self, drawn: list[str], priorities: list[float]) -> None:
        """Set the priorities of a sampled batch."""
        for id, priority in zip(drawn, priorities, strict=True):
            self.replay.refresh(id, priority)


class TorchRLBuffer:
    """torchrl's prioritised buffer with the same bound and exponents."""

    def __init__(self, config: Config, load: Load) -> None:
        from torchrl.data import ListStorage, PrioritizedSampler, ReplayBuffer

        capacity = int(KEPT_SHARE * len(load.episodes))
        sampler = PrioritizedSampler(capacity, alpha=config.replay.alpha, beta=config.replay.beta)
        self._buffer = ReplayBuffer(
            storage=ListStorage(capacity), sampler=sampler, batch_size=load.batch, collate_fn=lambda items: items
        )

    def add(self, episode: Episode, priority: float) -> None:
        """Insert a trajectory."""
        self._buffer.update_priority(self._buffer.add(episode), priority)

    def sample(self) -> torch.Tensor:
        """Sample a batch and return its ids."""
        _, info = self._buffer.sample(return_info=True)
        index: torch.Tensor = info["index"]
        return index

    def refresh(self, drawn: torch.Tensor, priorities: list[float]) -> None:
        """Set the priorities of a sampled batch."""
        self._buffer.update_priority(drawn, torch.tensor(priorities))


def _torchrl(config: Config, load: Load) -> tuple[str, Throughput | None]:
    """torchrl's version and rates; why not, where it cannot be used."""
    try:
        import torchrl

        return torchrl.__version__, measure_throughput(TorchRLBuffer(config, load), load)
    except (
        ImportError,
        RuntimeError,
    ) as error:  # its compiled extension is missing where it was built for another torch
        return f"not measured: {str(error).splitlines()[0]}", None


def _timed(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def _rss_mb() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() / 1e6


def draw(figures: ReplayFigures, axes: Axes) -> None:
    """Draw the rates of both buffers side by side."""
    names = ("inserts", "samples", "refreshed_samples")
    ours = [getattr(figures, f"{name}_per_s") for name in names]
    theirs = [getattr(figures, f"torchrl_{name}_per_s") for name in names]
    beside, wide = figures.torchrl_samples_per_s is not None, 0.4
    shift = wide / 2 if beside else 0.0
    axes.bar([place - shift for place in range(3)], ours, wide, color=BLUE, label="distrl")
    if beside:
        axes.bar([place + shift for place in range(3)], theirs, wide, color=ORANGE, label=f"torchrl {figures.torchrl}")
        axes.legend(frameon=False)
    axes.set_xticks(range(3), ["insert", "sample", "sample and\nrefresh"])
    axes.set(ylabel="trajectories per second", xlim=(-0.5, 2.5))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"{figures.trajectories:,} trajectories, batches of {figures.batch}")
