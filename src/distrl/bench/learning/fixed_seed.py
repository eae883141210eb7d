"""`distrl bench fixed_seed`: short trainings with one seed, down to the hash of the last weights.

Same numbers on the same machine and libraries: what a change of the code must not change unless it says so.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import hash_all, resolve
from distrl.bench.learning.single_process import Plan, SingleProcessTrainer
from distrl.bench.learning.trainer_runs import this_machine
from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.runtime.factory import prepare_torch
from distrl.tasks.base import held_out

COMMON = {"run.seed": "3", "warm_start.epochs": "8"}
CASES: dict[str, dict[str, str]] = {
    "aride": {},
    "aride_general": {
        "tasks.suite": "sim-general",
        "tasks.max_oracle_steps": "5",
        "tasks.rename_share": "0.3",
        "data.judge_flip": "0.1",
        "data.outcome_flip": "0.1",
    },
    "digirl": {"algorithm.kind": "digirl"},
    "filtered_bc": {"algorithm.kind": "filtered_bc"},
    "ppo": {
        "algorithm.kind": "ppo",
        "algorithm.ppo.importance": "full",
        "algorithm.ppo.rho_max": "5",
        "algorithm.ppo.trust_region": "0.2",
        "replay.keep_successes": "false",
    },
    "grpo": {"algorithm.kind": "grpo", "rollout.group_size": "4", "algorithm.grpo.rho_max": "5"},
}
"""Every algorithm with its defaults or settings that use more of it; `aride_general` also renames tasks and errs in verdicts."""
QUICK_CASES = ("aride",)
EPISODES, QUICK_EPISODES = 256, 64
CHUNK, LAG, EVALUATE_EVERY, TUNE_TASKS = 32, 2, 128, 60


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation on the tuning tasks."""

    episodes: int
    success: float
    train_success: float
    updates: int


class FixedSeedCase(msgspec.Struct, frozen=True, kw_only=True):
    """What one training came to."""

    curve: list[CurvePoint]
    losses: dict[str, float]
    """Of the last update."""
    policy_sha256: str
    """Of the last weights, not averaged."""


class FixedSeedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All cases; every number repeats exactly on the same machine with the same libraries."""

    cases: dict[str, FixedSeedCase]
    settings: dict[str, dict[str, str]]
    """What each case sets instead of the defaults."""
    episodes: int
    """Of each training."""
    made_on: str
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> FixedSeedFigures:
    """Train every case, one after the other in this process."""
    if options.seeds > 1:
        raise UsageError("fixed_seed has one seed", expected="no --seeds", fix="distrl bench fixed_seed")
    names, episodes = (QUICK_CASES, QUICK_EPISODES) if options.quick else (tuple(CASES), EPISODES)
    settings = {name: {**COMMON, **CASES[name]} for name in names}
    configs = {name: resolve(settings[name]) for name in names}
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    return FixedSeedFigures(
        cases={name: train(config, episodes) for name, config in configs.items()},
        settings=settings,
        episodes=episodes,
        made_on=this_machine(),
        seeds=1,
        config_hash=hash_all(configs.values()),
    )


def train(config: Config, episodes: int) -> FixedSeedCase:
    """One training with the single-process trainer."""
    plan = Plan(config=config, episodes=episodes, chunk=CHUNK, lag=LAG, evaluate_every=EVALUATE_EVERY)
    trainer = SingleProcessTrainer(plan, held_out(config.tasks, TUNE_TASKS, "tune"))
    points = trainer.run(lambda point: None)
    return FixedSeedCase(
        curve=[
            CurvePoint(episodes=one.episodes, success=one.success, train_success=one.train_success, updates=one.updates)
            for one in points
        ],
        losses=points[-1].losses,
        policy_sha256=sha256(trainer.policy.dump()).hexdigest(),
    )
