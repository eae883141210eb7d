"""`distrl bench ablation`: A-RIDE with one part removed or one switch changed, at equal episodes in one process."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    EARLIER_ARIDE,
    EPISODE_SEED,
    FIRST,
    NO_ARIDE_WARMUP,
    NO_OPTIONS,
    ONE_UPDATE,
    PUBLISHED,
    QUICK_EPISODE_BUDGET,
    UNBALANCED,
    EpisodeBudget,
    Method,
    hash_all,
    resolve,
    settings_of,
)
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, made_on, run_trainers
from distrl.bench.plots import Labels, draw_bars, save
from distrl.bench.result_cache import cache_for, code_version
from distrl.bench.statistics import (
    Row,
    Strata,
    bars,
    bootstrap_generator,
    check_options,
    difference,
    measure,
    row,
    rows,
)

TUNING = "Every variant keeps the settings of the default, which were chosen for the default; none was tuned again."
VARIANTS = (
    # The default, each part of the published algorithm that it has removed and each that it lacks added, then other switches.
    Method(name="default, one update per episode"),
    Method(name="no Retrace", settings={"algorithm.aride.lambda": "0", "algorithm.aride.importance": "none"}),
    Method(name="no priorities, rarity kept", settings={"replay.alpha": "0"}),
    Method(name="no invalid-action term", settings={"algorithm.aride.invalid_weight": "0"}),
    Method(name="with TD errors in priorities", settings={"replay.td_weight": "50", "replay.beta": "0.4"}),
    Method(name="with an entropy bonus", settings={"algorithm.aride.entropy_weight": "0.003"}),
    Method(name="with both, learning rate 0.001: as before", settings=EARLIER_ARIDE),
    Method(name="no hindsight", settings={"data.hindsight": "false"}),
    Method(name="hindsight by a judge that errs in 10 %", settings={"data.judge_flip": "0.1"}),
    Method(name="no-op steps not filtered", settings={"data.filter_noops": "false"}),
    Method(name="demonstrations not kept", settings={"warm_start.keep": "false"}),
    Method(name="no hindsight, no filter, no demonstrations kept", settings=NO_OPTIONS),
    Method(name="rare templates not favoured", settings=UNBALANCED),
    Method(name="stale successes and demonstrations not kept", settings={"replay.keep_successes": "false"}),
    Method(name="no critic warm-up", settings=NO_ARIDE_WARMUP),
    Method(name="no advantage filter", settings={"algorithm.aride.advantage_floor": "-2"}),
    Method(name="weights not averaged at the end", settings={"learner.ema_updates": "0"}),
    Method(name="no renaming of words, nor in cloning", settings={"policy.pointer.word_swap_share": "0"}),
    Method(name="as published", settings=PUBLISHED),
)
QUICK_VARIANTS = 5
"""How many of the variants `--quick` has."""
ABLATION_BUDGET = EpisodeBudget(episodes=768, evaluate_every=384, tune_tasks=100, settings=ONE_UPDATE)
"""Few episodes, so that no variant reaches the ceiling of these tasks; half the updates, because there are many variants."""


class AblationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of held-out tasks; each row is [value, low, high]."""

    iqm: dict[str, Row | None]
    difference: dict[str, Row | None]
    """Variant less default, paired by seed and task: a removed part helped where the whole row is below 0."""
    settings: dict[str, dict[str, str]]
    """What each variant changes."""
    code: str
    """Fingerprint of the training code."""
    seeds: int
    test_tasks: int
    budget: EpisodeBudget
    tuning: str
    made_on: dict[str, int]
    """How many of the runs were made on which machine."""
    config_hash: str


def run(options: BenchOptions) -> AblationFigures:
    """Measure everything that `distrl bench ablation` reports."""
    seeds, budget = check_options(options), QUICK_EPISODE_BUDGET if options.quick else ABLATION_BUDGET
    variants = VARIANTS[:QUICK_VARIANTS] if options.quick else VARIANTS
    entries = [Entry(method=method, arena=FIRST) for method in variants]
    runs = run_trainers(entries, budget, seeds, cache_for(options), first_seed=EPISODE_SEED)
    if options.out is not None:
        labels = Labels(title="A-RIDE with one part changed", x="success on held-out tasks (IQM, 95 %)")
        save(draw_bars(bars(measure(_scores(runs))), labels), options.out, "ablation")
    return summarise(runs, budget)


def summarise(runs: Sequence[EntryRuns], budget: EpisodeBudget) -> AblationFigures:
    """The figures of all variants, the first of which is the default."""
    scores = _scores(runs)
    default, *others = scores
    return AblationFigures(
        iqm=rows(measure(scores)),
        difference={name: row(difference(scores[name], scores[default], bootstrap_generator())) for name in others},
        settings=settings_of(one.entry.method for one in runs),
        code=code_version(),
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget=budget,
        tuning=TUNING,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*one.entry.layers(budget)) for one in runs),
    )


def _scores(runs: Sequence[EntryRuns]) -> dict[str, Strata]:
    return {one.entry.method.name: [one.outcomes_ST()] for one in runs}
