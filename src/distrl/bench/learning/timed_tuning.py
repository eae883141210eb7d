"""`distrl bench timed_tuning`: how the settings of the synchronous baseline at equal wall-clock were chosen.

Every try is a real run as in `distrl bench efficiency`, measured on the tuning split and with a seed that no reported
value has. A-RIDE, with the settings that its tuning at equal episodes chose, gets as many tries, each beside one of the
baseline. The best of them is not used: `efficiency` compares the default of `distrl train`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    BASELINE,
    DIGIRL,
    EARLIER_ARIDE,
    FIRST,
    LOCKSTEP,
    LOW_RATE,
    NO_ARIDE_WARMUP,
    NO_DIGIRL_WARMUP,
    NO_OPTIONS,
    ONE_UPDATE,
    OURS,
    QUICK_SETTINGS,
    TUNING_SEED,
    UNIFORM_REPLAY,
    Method,
    TimedBudget,
    hash_all,
    resolve,
)
from distrl.bench.learning.timed_runs import TimedRuns, layers, run_timed
from distrl.bench.result_cache import cache_for

TUNING_BUDGET = TimedBudget(minutes=5, points=4, curve_tasks=100, split="tune")
QUICK_TUNING_BUDGET = TimedBudget(minutes=0.3, points=1, most_test_tasks=20, split="tune", settings=QUICK_SETTINGS)

UNTUNED_SCHEMES = (
    Method(name=OURS, settings=EARLIER_ARIDE),
    Method(name=BASELINE, settings={**DIGIRL, **NO_OPTIONS, **LOW_RATE, **LOCKSTEP, **ONE_UPDATE, **NO_DIGIRL_WARMUP}),
)
TIMED_TRIES = {
    OURS: (
        Method(name="as it is"),
        Method(name="twice the learning rate", settings={"learner.learning_rate": "0.002"}),
        Method(name="half the learning rate", settings={"learner.learning_rate": "0.0005"}),
        Method(name="a fifth of the learning rate", settings={"learner.learning_rate": "0.0002"}),
        Method(name="no critic warm-up", settings=NO_ARIDE_WARMUP),
        Method(name="batches of 32", settings={"learner.batch_trajectories": "32"}),
    ),
    BASELINE: (
        Method(name="as it is"),
        Method(name="five times the learning rate", settings={"learner.learning_rate": "0.001"}),
        Method(name="two and a half times the learning rate", settings={"learner.learning_rate": "0.0005"}),
        Method(name="a quarter of the learning rate", settings={"learner.learning_rate": "0.00005"}),
        Method(name="successes kept and drawn as failures are", settings=UNIFORM_REPLAY),
        Method(name="twice the updates", settings={"learner.updates_per_episode": "2.0"}),
    ),
}
"""Tries at equal wall-clock, on top of the settings that tuning at equal episodes chose. The baseline starts without a
critic warm-up, with which it did worse in earlier tries."""


class TimedTuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks at the end of the budget."""

    tries: dict[str, dict[str, float]]
    """By method and try."""
    best: dict[str, str]
    tries_each: int
    episodes: dict[str, dict[str, float]]
    """Episodes of each try."""
    tune_tasks: int
    seeds: int
    first_seed: int
    budget: TimedBudget
    config_hash: str


def run(options: BenchOptions) -> TimedTuningFigures:
    """Measure everything that `distrl bench timed_tuning` reports."""
    clock = QUICK_TUNING_BUDGET if options.quick else TUNING_BUDGET
    seeds = range(TUNING_SEED, TUNING_SEED + (options.seeds or 1))
    return summarise(run_timed(timed_tries(), FIRST, clock, seeds, cache_for(options)), clock)


def timed_tries() -> list[Method]:
    """Every try, alternating between ours and the baseline's, so that each runs beside the other's."""
    rows = [
        [
            Method(name=f"{scheme.name}: {one.name}", settings={**scheme.settings, **one.settings})
            for one in TIMED_TRIES[scheme.name]
        ]
        for scheme in UNTUNED_SCHEMES
    ]
    return [one for pair in zip(*rows, strict=True) for one in pair]


def summarise(timed: Sequence[TimedRuns], budget: TimedBudget) -> TimedTuningFigures:
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
