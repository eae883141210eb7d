"""What the learning benchmarks compare, as data: arenas (tasks), methods, variants, and the budgets that all of them get.

Settings are dotted keys with text, as on the command line; `resolve` checks them against the schema. What is common to
all comes first, then an arena's settings; a method's own stand over the budget's in the laboratory and under it at equal
wall-clock, where a budget has settings in its quick form alone. To compare something else, change a table here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.types import Split

Settings = Mapping[str, str]


class Arena(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that methods are compared on."""

    name: str
    settings: dict[str, str]
    test_tasks: int
    """Held-out tasks of the test split for the reported figures; fewer where the suite has no more of them."""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to compare."""

    name: str
    settings: dict[str, str] = {}
    tuning: str = ""
    """How its settings were chosen, for the results file."""


class LabBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What every method gets at equal episodes."""

    episodes: int
    chunk: int = 64
    """Episodes between two versions."""
    lag: int = 2
    """How many versions old the acting policy is."""
    evaluate_every: int
    """Episodes between two points of the curve; a multiple of `chunk`."""
    tune_tasks: int
    """Tasks of each point, from the tuning split."""
    most_test_tasks: int = 1000
    """Never more than this of an arena's test tasks."""
    settings: dict[str, str] = {}


class TimedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What every method gets at equal wall-clock."""

    minutes: float
    points: int
    """Moments after the start, equally far apart, whose version is evaluated."""
    early_s: tuple[float, ...] = ()
    """More of them, where fast methods learn most."""
    curve_tasks: int = 250
    """Tasks at each of them; the last version plays all."""
    split: Split = "test"
    most_test_tasks: int = 1000
    """Never more than this of the arena's test tasks."""
    settings: dict[str, str] = {}

    @property
    def wall_s(self) -> float:
        return 60.0 * self.minutes


# --- common to all ----------------------------------------------------------------------------------------------------

SEEDS, QUICK_SEEDS = 5, 3
LAB_SEED = 10
"""The first seed of what is reported at equal episodes: lower ones were looked at while the default was made. What these came
to led to the last change of the default; what it was changed to was chosen on tuning tasks, with other seeds."""
TIMED = {
    # As many phones a worker as in DigiRL's settings for several machines: in lock-step, more wait longer for the slowest.
    "rollout.workers": "4",
    "devices.per_worker": "8",
    "devices.latency.profile": "emulator",
    "devices.latency.time_scale": "0.2",
    # Evaluation comes afterwards, of all that was published.
    "evaluation.episodes": "1",
    "evaluation.every_s": "0",
    "learner.keep_versions": "1000000",
    "learner.checkpoint_every_s": "60",
}
"""Of every run at equal wall-clock: a fleet that leaves one core time to learn."""
HASTE = {"warm_start.demonstrations": "80", "warm_start.epochs": "8", "learner.updates_per_episode": "0.5"}
"""With `--quick`."""

LAB = LabBudget(episodes=1024, evaluate_every=512, tune_tasks=100)
QUICK_LAB = LabBudget(episodes=256, chunk=32, evaluate_every=128, tune_tasks=40, most_test_tasks=60, settings=HASTE)
CLOCK = TimedBudget(minutes=10, points=20, early_s=(5, 10, 15, 20, 25, 35, 40, 45, 50, 55))
QUICK_CLOCK = TimedBudget(minutes=0.75, points=6, most_test_tasks=60, settings=HASTE)
TUNING_SEED = 100
"""The first seed of tuning runs; no reported figure has it."""

# --- arenas -----------------------------------------------------------------------------------------------------------

EVERYDAY = Arena(
    name="everyday",
    settings={
        "tasks.suite": "sim-general",
        "tasks.max_oracle_steps": "5",
        "warm_start.demonstrations": "300",
        "warm_start.epochs": "20",
    },
    test_tasks=297,
)
SHOPPING = Arena(
    name="shopping",
    settings={
        "tasks.suite": "sim-shopping",
        "tasks.max_oracle_steps": "6",
        "warm_start.demonstrations": "200",
        "warm_start.epochs": "30",
        "policy.string_match": "false",
    },
    test_tasks=236,
)
FIRST = Arena(name="first run", settings={"tasks.suite": "sim-start"}, test_tasks=600)
"""Of all runs at equal wall-clock: what `distrl train` does without any setting."""
ARENAS = (EVERYDAY, SHOPPING)
"""Of `success` at equal episodes. Where the string-matching prior is on, it gives little away: `distrl bench success`
reports how many of an arena's tasks are fulfilled by matching words alone (`bench/matcher.py`)."""

# --- methods ----------------------------------------------------------------------------------------------------------

TRIED = (
    "Eight tries, as for every method (`distrl bench tuning`): four learning rates, two numbers of updates per episode and "
    "two changes of its own, each from the best before; tuning tasks and seeds apart from those of the test."
)
TRIED_TIMED = (
    "Six tries, each a run at equal wall-clock on the tuning tasks, from what the laboratory chose for the algorithm "
    "(`distrl bench timed_tuning`)."
)
THE_DEFAULT = (
    "The default of `distrl train`, made from what eight tries chose by some twenty more on the tuning tasks, which "
    "docs/algorithms/aride.md lists."
)
OURS, TUNED, NO_DATA_OPTIONS = "aride", "aride, eight tries", "aride, no data options"
SAME_DATA, NO_PRACTICE = "digirl, same data", "no practice"
EARLIER = {
    "algorithm.entropy_weight": "0.003",
    "learner.learning_rate": "0.001",
    "replay.beta": "0.4",
    "replay.td_weight": "50",
}
"""What the defaults were while every method was tuned: what the others' settings are on top of."""
NO_OPTIONS = {"data.cut": "false", "data.hindsight": "false", "warm_start.keep": "false"}
"""Without the data options, which are ours and not the rivals' own."""
PUBLISHED = {
    **EARLIER,
    **NO_OPTIONS,
    "algorithm.gamma": "0.5",
    "algorithm.advantage": "signed",
    "algorithm.learn_from": "all",
    "algorithm.importance": "full",
    "algorithm.scale_advantages": "false",
    "algorithm.weight_by": "max",
    "algorithm.critic_warmup_updates": "0",
    "replay.success_weight": "0",
    "replay.balance": "0",
    "replay.capacity_steps": "10000",
    "replay.keep_successes": "false",
    "learner.learning_rate": "0.0001",
}
"""A-RIDE as in configs/aride-published.toml."""
EVEN = {"replay.keep_successes": "false", "replay.success_weight": "0", "replay.alpha": "0"}
"""Successes are kept and drawn as failures are."""
UNBALANCED = {"replay.balance": "0"}
"""Templates are drawn as often as they come."""
AS_IT_CAME = {**EARLIER, **EVEN, **UNBALANCED, "algorithm.rho_max": "5"}
"""What a policy gradient needs of the replay, as in configs/grpo.toml."""
DIGIRL = {"algorithm.name": "digirl", **EARLIER, **UNBALANCED}
CLONING = {"algorithm.name": "filtered_bc", **EARLIER, **UNBALANCED}
GENTLE, ONE_EACH = {"learner.updates_per_episode": "0.5"}, {"learner.updates_per_episode": "1.0"}
"""Fewer than the default: what every method began its tuning with; and half of the default."""
LOCKSTEP = {
    "learner.mode": "sync",
    "rollout.lockstep": "true",
    "learner.round_episodes": "64",
    # In lock-step, waiting for others counts towards an episode's budget.
    "rollout.episode_budget_s": "300",
}
"""DigiRL's scheme: two episodes of each device a round, as in its own settings."""

ALIKE = {"replay.td_weight": "0", "replay.ratio_weight": "0", "replay.entropy_weight": "0"}
"""All successes sampled alike."""
GRADIENT = {**AS_IT_CAME, **NO_OPTIONS, **GENTLE, "learner.learning_rate": "0.00005"}
SLOW, FAST = {"learner.learning_rate": "0.0002"}, {"learner.learning_rate": "0.003"}

ALGORITHMS = (
    Method(name=OURS, tuning=THE_DEFAULT),
    Method(
        name=TUNED,
        settings=EARLIER,
        tuning=f"{TRIED} Best: learning rate 0.001, 2 updates, rare templates favoured. What else it has came of earlier tries.",
    ),
    Method(
        name=NO_DATA_OPTIONS,
        settings={**NO_OPTIONS, **ONE_EACH, **SLOW},
        tuning="None of its own: learning rate and updates are those that DigiRL and filtered BC chose without the options.",
    ),
    Method(
        name="digirl",
        settings={**DIGIRL, **NO_OPTIONS, **ONE_EACH, **SLOW},
        tuning=f"{TRIED} Best: learning rate 0.0002, 1 update.",
    ),
    Method(
        name="filtered_bc",
        settings={**CLONING, **NO_OPTIONS, **ONE_EACH, **SLOW, **ALIKE},
        tuning=f"{TRIED} Best: learning rate 0.0002, 1 update, all successes alike.",
    ),
    Method(
        name=SAME_DATA,
        settings={**DIGIRL, **FAST},
        tuning=f"{TRIED} Best: learning rate 0.003, 2 updates.",
    ),
    Method(
        name="filtered_bc, same data",
        settings={**CLONING, **FAST, **ALIKE},
        tuning=f"{TRIED} Best: learning rate 0.003, 2 updates, all successes alike.",
    ),
    Method(
        name="ppo",
        settings={"algorithm.name": "ppo", **GRADIENT},
        tuning=f"{TRIED} Best: learning rate 0.00005, half an update, with which it does not learn.",
    ),
    Method(
        name="grpo",
        settings={"algorithm.name": "grpo", "rollout.group_size": "8", **GRADIENT, "learner.learning_rate": "0.00001"},
        tuning=f"{TRIED} Best: learning rate 0.00001, half an update, the least that was tried of both.",
    ),
    Method(
        name=NO_PRACTICE,
        settings={**CLONING, **NO_OPTIONS, **GENTLE, "learner.learning_rate": "1e-12"},
        tuning="Nothing to tune: what the warm start comes to.",
    ),
)
"""At equal episodes, all of them with stale data; `OURS` is compared with every other."""

AT_ONCE = {"algorithm.critic_warmup_updates": "0"}
DIGIRL_TIMED = {**DIGIRL, **NO_OPTIONS, **AT_ONCE, "learner.learning_rate": "0.0005"}
SCHEMES = (
    Method(name=OURS, tuning=f"{THE_DEFAULT} None of them at equal wall-clock."),
    Method(
        name="digirl_sync",
        settings={**DIGIRL_TIMED, **LOCKSTEP, **ONE_EACH},
        tuning=f"{TRIED_TIMED} Best: a learning rate of 0.0005.",
    ),
    Method(
        name="aride_sync",
        settings={**LOCKSTEP, **ONE_EACH},
        tuning="As aride, but for one update per episode, as digirl_sync.",
    ),
    Method(
        name=SAME_DATA,
        settings={**DIGIRL, **FAST},
        tuning=f"{TRIED} None of its own at equal wall-clock.",
    ),
)
"""At equal wall-clock: what the claim is about, then ours in the rival's scheme, and the rival's algorithm in ours with our
data. They run in pairs, so they are even in number."""
SHOWN = {
    "aride": "asynchronous A-RIDE",
    "digirl_sync": "DigiRL's scheme",
    "aride_sync": "A-RIDE in DigiRL's scheme",
    SAME_DATA: "asynchronous DigiRL, same data",
}
"""What pictures call them."""

RIVAL = "digirl_sync"
"""Whose success is the target of `efficiency`."""


def resolve(*layers: Settings) -> Config:
    """The whole configuration: the defaults, then each layer over the one before it."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    return load_config(None, merged)


def settings_of(methods: Iterable[Method]) -> dict[str, dict[str, str]]:
    """What each method has instead of the defaults."""
    return {method.name: method.settings for method in methods}


def tuning_of(methods: Iterable[Method]) -> dict[str, str]:
    """What was spent on each method's settings, in words."""
    return {method.name: method.tuning for method in methods}
