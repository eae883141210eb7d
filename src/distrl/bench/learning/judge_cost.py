"""`distrl bench judge_cost`: what a judge that errs costs training, by how often it errs and whether its errors repeat.

A model that judges errs in the same way on what looks alike. Errors `at random` turn verdicts round episode by episode;
`correlated` ones turn them round for whole situations (`data.outcome_flip_by`), so that a policy can learn to get into those that
are wrongly called a success. Random errors are there for the largest share alone, beside which the correlated ones are to be seen. All runs are without hindsight, which needs to know the outcome exactly. Success is measured by the state of the
phone, which never errs. The share of verdicts that were really wrong is reported beside the one that was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    EPISODE_SEED,
    FIRST,
    ONE_UPDATE,
    QUICK_EPISODE_BUDGET,
    EpisodeBudget,
    Method,
    hash_all,
    resolve,
    settings_of,
)
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, made_on, run_trainers
from distrl.bench.result_cache import cache_for, code_version
from distrl.bench.statistics import Row, Strata, bootstrap_generator, check_options, difference, measure, row, rows

NO_HINDSIGHT = {"data.hindsight": "false"}
SHARES = (0.05, 0.1, 0.2)
EXACT = "exact judge"
BUDGET = EpisodeBudget(episodes=768, evaluate_every=384, tune_tasks=100, settings=ONE_UPDATE)


class JudgeCost(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of held-out tasks, by the state of the phone; each row is [value, low, high]."""

    iqm: dict[str, Row | None]
    cost: dict[str, Row | None]
    """Exact judge less this one, paired by seed and task: what its errors cost."""
    cost_of_repetition: dict[str, Row | None]
    """By share: random errors less correlated ones of the same share."""
    wrong_verdicts: dict[str, dict[str, float]]
    """Of the training episodes: the share of failures called successes, of successes called failures, and of all, means over seeds."""
    train_success: dict[str, float]
    """Share of the last training episodes that really succeeded, means over seeds."""
    settings: dict[str, dict[str, str]]
    code: str
    seeds: int
    test_tasks: int
    budget: EpisodeBudget
    made_on: dict[str, int]
    config_hash: str


def methods(*, quick: bool) -> list[Method]:
    """The exact judge, each share of correlated errors, and the largest share at random."""
    shares = SHARES[-1:] if quick else SHARES
    return [
        Method(name=EXACT, settings=NO_HINDSIGHT),
        *(erring(share, "situation", "correlated") for share in shares),
        erring(SHARES[-1], "episode", "at random"),
    ]


def erring(share: float, by: str, words: str) -> Method:
    """A judge of whose verdicts so many are turned round."""
    noise = {"data.outcome_flip": f"{share:g}", "data.outcome_flip_by": by}
    return Method(name=name_of(share, words), settings={**NO_HINDSIGHT, **noise})


def name_of(share: float, words: str) -> str:
    """A row."""
    return f"{share:.0%} wrong, {words}"


def run(options: BenchOptions) -> JudgeCost:
    """Measure everything that `distrl bench judge_cost` reports."""
    seeds, budget = check_options(options), QUICK_EPISODE_BUDGET if options.quick else BUDGET
    entries = [Entry(method=method, arena=FIRST) for method in methods(quick=options.quick)]
    return summarise(run_trainers(entries, budget, seeds, cache_for(options), first_seed=EPISODE_SEED), budget)


def summarise(runs: Sequence[EntryRuns], budget: EpisodeBudget) -> JudgeCost:
    """The figures of all judges, the first of which is the exact one."""
    scores: dict[str, Strata] = {one.entry.method.name: [one.outcomes_ST()] for one in runs}
    exact = scores[EXACT]
    others = {name: score for name, score in scores.items() if name != EXACT}
    pairs = {f"{share:.0%}": (name_of(share, "at random"), name_of(share, "correlated")) for share in SHARES}
    return JudgeCost(
        iqm=rows(measure(scores)),
        cost={name: row(difference(exact, score, bootstrap_generator())) for name, score in others.items()},
        cost_of_repetition={
            share: row(difference(scores[random], scores[repeated], bootstrap_generator()))
            for share, (random, repeated) in pairs.items()
            if random in scores
        },
        wrong_verdicts={one.entry.method.name: _mean_errors(one) for one in runs},
        train_success={
            one.entry.method.name: round(mean(result.curve[-1].train_success for result in one.results), 4)
            for one in runs
        },
        settings=settings_of(one.entry.method for one in runs),
        code=code_version(),
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget=budget,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*one.entry.layers(budget)) for one in runs),
    )


def _mean_errors(one: EntryRuns) -> dict[str, float]:
    names = one.results[0].judge_errors
    return {name: round(mean(result.judge_errors[name] for result in one.results), 4) for name in names}
