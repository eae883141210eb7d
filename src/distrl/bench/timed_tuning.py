"""`distrl bench timed_tuning`: how the settings of the synchronous rival at equal wall-clock were chosen.

Every try is a real run as `distrl bench efficiency` makes it, measured on the tuning split and with a seed that no reported
figure has. Beside each runs one of as many tries for A-RIDE as its eight tries chose it; what is compared instead of their best
is the default.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import hash_all
from distrl.bench.methods import (
    AT_ONCE,
    DIGIRL,
    EARLIER,
    EVEN,
    FIRST,
    HASTE,
    LOCKSTEP,
    NO_OPTIONS,
    ONE_EACH,
    OURS,
    RIVAL,
    SLOW,
    TUNING_SEED,
    Method,
    TimedBudget,
    resolve,
)
from distrl.bench.parts import parts_for
from distrl.bench.timed_runs import Timed, layers, run_timed

TUNING_CLOCK = TimedBudget(minutes=5, points=4, curve_tasks=100, split="tune")
QUICK_TUNING_CLOCK = TimedBudget(minutes=0.3, points=1, most_test_tasks=20, split="tune", settings=HASTE)

UNTUNED_SCHEMES = (
    Method(name=OURS, settings=EARLIER),
    Method(name=RIVAL, settings={**DIGIRL, **NO_OPTIONS, **SLOW, **LOCKSTEP, **ONE_EACH, **AT_ONCE}),
)
TIMED_TRIES = {
    OURS: (
        Method(name="as it is"),
        Method(name="twice the learning rate", settings={"learner.learning_rate": "0.002"}),
        Method(name="half the learning rate", settings={"learner.learning_rate": "0.0005"}),
        Method(name="a fifth of the learning rate", settings={"learner.learning_rate": "0.0002"}),
        Method(name="no critic warm-up", settings=AT_ONCE),
        Method(name="batches of 32", settings={"learner.batch_trajectories": "32"}),
    ),
    RIVAL: (
        Method(name="as it is"),
        Method(name="five times the learning rate", settings={"learner.learning_rate": "0.001"}),
        Method(name="two and a half times the learning rate", settings={"learner.learning_rate": "0.0005"}),
        Method(name="a quarter of the learning rate", settings={"learner.learning_rate": "0.00005"}),
        Method(name="successes kept and drawn as failures are", settings=EVEN),
        Method(name="twice the updates", settings={"learner.updates_per_episode": "2.0"}),
    ),
}
"""What was tried at equal wall-clock, from what the laboratory chose for the algorithm. The rival begins
without updates of its critics alone, with which it did worse in earlier tries."""


class TimedTuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks at the end of the budget."""

    tries: dict[str, dict[str, float]]
    """By method and try."""
    best: dict[str, str]
    tries_each: int
    episodes: dict[str, dict[str, float]]
    """That each try played."""
    tune_tasks: int
    seeds: int
    first_seed: int
    budget: TimedBudget
    config_hash: str


def run(options: BenchOptions) -> TimedTuningFigures:
    """The figures, as `distrl bench timed_tuning` reports them."""
    clock = QUICK_TUNING_CLOCK if options.quick else TUNING_CLOCK
    seeds = range(TUNING_SEED, TUNING_SEED + (options.seeds or 1))
    return sum_up(run_timed(timed_tries(), FIRST, clock, seeds, parts_for(options)), clock)


def timed_tries() -> list[Method]:
    """Every try at equal wall-clock, ours and its rival's in turn, so that each runs beside the other's."""
    rows = [
        [
            Method(name=f"{scheme.name}: {one.name}", settings={**scheme.settings, **one.settings})
            for one in TIMED_TRIES[scheme.name]
        ]
        for scheme in UNTUNED_SCHEMES
    ]
    return [one for pair in zip(*rows, strict=True) for one in pair]


def sum_up(timed: Sequence[Timed], budget: TimedBudget) -> TimedTuningFigures:
    """The tries of each method, and the best of them."""
    tries: dict[str, dict[str, float]] = {}
    episodes: dict[str, dict[str, float]] = {}
    for one in timed:
        method, _, name = one.method.name.partition(": ")
        tries.setdefault(method, {})[name] = round(float(one.outcomes_ST().mean()), 4)
        played = [result.summary.episodes for result in one.results]
        episodes.setdefault(method, {})[name] = sum(played) / len(played)
    return TimedTuningFigures(
        tries=tries,
        best={method: max(found, key=lambda name: found[name]) for method, found in tries.items()},
        tries_each=len(next(iter(tries.values()))),
        episodes=episodes,
        tune_tasks=len(timed[0].results[0].outcomes),
        seeds=len(timed[0].results),
        first_seed=TUNING_SEED,
        budget=budget,
        config_hash=hash_all(resolve(*layers(FIRST, one.method, budget)) for one in timed),
    )
