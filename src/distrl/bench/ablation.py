"""`distrl bench ablation`: A-RIDE with one part taken away or one switch turned, at equal episodes in the laboratory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, bars, begin, generator, hash_all, measure, row, rows
from distrl.bench.lab_runs import Entry, Ran, made_on, run_labs
from distrl.bench.methods import (
    AT_ONCE,
    EARLIER,
    FIRST,
    LAB_SEED,
    NO_OPTIONS,
    ONE_EACH,
    PUBLISHED,
    QUICK_LAB,
    UNBALANCED,
    LabBudget,
    Method,
    resolve,
    settings_of,
)
from distrl.bench.parts import code_version, parts_for
from distrl.bench.plots import Words, draw_bars, save
from distrl.bench.statistics import Strata, difference

TUNING = "Every variant keeps the settings of the default, which were chosen for the default; none was tuned again."
VARIANTS = (
    Method(name="default, one update per episode"),
    Method(name="no Retrace", settings={"algorithm.trace": "0", "algorithm.importance": "none"}),
    Method(name="no priorities, rarity kept", settings={"replay.alpha": "0"}),
    Method(name="no invalid-action term", settings={"algorithm.invalid_weight": "0"}),
    Method(name="with TD errors in priorities", settings={"replay.td_weight": "50", "replay.beta": "0.4"}),
    Method(name="with an entropy bonus", settings={"algorithm.entropy_weight": "0.003"}),
    Method(name="with both, learning rate 0.001: as before", settings=EARLIER),
    Method(name="no hindsight", settings={"data.hindsight": "false"}),
    Method(name="hindsight by a judge that errs in 10 %", settings={"data.judge_flip": "0.1"}),
    Method(name="wasted steps not cut", settings={"data.cut": "false"}),
    Method(name="demonstrations not kept", settings={"warm_start.keep": "false"}),
    Method(name="no hindsight, nothing cut, no demonstrations kept", settings=NO_OPTIONS),
    Method(name="rare templates not favoured", settings=UNBALANCED),
    Method(name="stale successes and demonstrations not kept", settings={"replay.keep_successes": "false"}),
    Method(name="no critic warm-up", settings=AT_ONCE),
    Method(name="no advantage filter", settings={"algorithm.advantage_floor": "-2"}),
    Method(name="weights not averaged at the end", settings={"learner.average_updates": "0"}),
    Method(name="no renaming of words, nor in cloning", settings={"policy.rename_share": "0"}),
    Method(name="as published", settings=PUBLISHED),
)
QUICK_VARIANTS = 5
"""Rows of `ablation`: the default, each part of the published algorithm that it has taken away and each that it has not put
in, then each other switch turned. The quick form has the first few."""
ABLATION_LAB = LabBudget(episodes=768, evaluate_every=384, tune_tasks=100, settings=ONE_EACH)
"""Short of the ceiling of these tasks, where variants could no longer be told apart; with half the updates, to afford so
many of them."""


class AblationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of held-out tasks; each row is [value, low, high]."""

    iqm: dict[str, Row | None]
    difference: dict[str, Row | None]
    """Variant less default, seed by seed and task by task: what is taken away helped where the whole row is below 0."""
    settings: dict[str, dict[str, str]]
    """What each variant changes."""
    code: str
    """Changes with any source file that may change what a training run comes to."""
    seeds: int
    test_tasks: int
    budget: LabBudget
    tuning: str
    made_on: dict[str, int]
    """How many of the laboratory runs were made on what."""
    config_hash: str


def run(options: BenchOptions) -> AblationFigures:
    """The figures, as `distrl bench ablation` reports them."""
    seeds, budget = begin(options), QUICK_LAB if options.quick else ABLATION_LAB
    variants = VARIANTS[:QUICK_VARIANTS] if options.quick else VARIANTS
    entries = [Entry(method=method, arena=FIRST) for method in variants]
    runs = run_labs(entries, budget, seeds, parts_for(options), first_seed=LAB_SEED)
    if options.out is not None:
        words = Words(title="A-RIDE with one part changed", x="success on held-out tasks (IQM, 95 %)")
        save(draw_bars(bars(measure(_scores(runs))), words), options.out, "ablation")
    return sum_up(runs, budget)


def sum_up(runs: Sequence[Ran], budget: LabBudget) -> AblationFigures:
    """The figures of all variants, the first of which is the default."""
    scores = _scores(runs)
    default, *others = scores
    return AblationFigures(
        iqm=rows(measure(scores)),
        difference={name: row(difference(scores[name], scores[default], generator())) for name in others},
        settings=settings_of(ran.entry.method for ran in runs),
        code=code_version(),
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget=budget,
        tuning=TUNING,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )


def _scores(runs: Sequence[Ran]) -> dict[str, Strata]:
    return {ran.entry.method.name: [ran.outcomes_ST()] for ran in runs}
