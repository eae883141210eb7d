"""`distrl bench ablation`: A-RIDE with one part taken away or one switch turned, at equal episodes in the laboratory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, bars, begin, generator, hash_all, measure, row, rows
from distrl.bench.lab_runs import Entry, Ran, run_labs
from distrl.bench.methods import EVERYDAY, LAB, QUICK_LAB, QUICK_VARIANTS, VARIANTS, LabBudget, resolve
from distrl.bench.parts import parts_for
from distrl.bench.plots import Words, draw_bars, save
from distrl.bench.statistics import Strata, difference

TUNING = "Every variant keeps the settings of the default, which were chosen for the default; none was tuned again."


class AblationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of held-out tasks; each row is [value, low, high]."""

    iqm: dict[str, Row | None]
    difference: dict[str, Row | None]
    """Variant less default, seed by seed and task by task: a part helps where the whole row is below 0."""
    settings: dict[str, dict[str, str]]
    """What each variant changes."""
    seeds: int
    test_tasks: int
    budget: LabBudget
    tuning: str
    config_hash: str


def run(options: BenchOptions) -> AblationFigures:
    """The figures, as `distrl bench ablation` reports them."""
    seeds, budget = begin(options), QUICK_LAB if options.quick else LAB
    variants = VARIANTS[:QUICK_VARIANTS] if options.quick else VARIANTS
    runs = run_labs([Entry(method=method, arena=EVERYDAY) for method in variants], budget, seeds, parts_for(options))
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
        settings={ran.entry.method.name: ran.entry.method.settings for ran in runs},
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget=budget,
        tuning=TUNING,
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )


def _scores(runs: Sequence[Ran]) -> dict[str, Strata]:
    return {ran.entry.method.name: [ran.outcomes_ST()] for ran in runs}
