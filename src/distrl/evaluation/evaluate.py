"""Play held-out tasks with one pinned policy on phones that never wait, and report what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from distrl.config.schema import Config, FaultConfig, LatencyConfig
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.devices.sim.world import start_state
from distrl.errors import TaskError
from distrl.policies.base import Policy
from distrl.rollout.batching import Batcher, Batching, all_or_first_error
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, KeepFrame, run_episode
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.suites import suite
from distrl.types import Decision, EndState, Observation, Split, Task, Trajectory, Verdict

TEMPERATURE = 0.5
"""Of the choices in an evaluation: likelier than in training, but a loop is not repeated for ever."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How to evaluate."""

    config: Config
    seed: int = 0
    temperature: float = TEMPERATURE
    version: int = 0
    beat: Callable[[int], None] = lambda done: None
    """Hears how many episodes are done, often."""
    keep_frame: KeepFrame | None = None
    """Where the policy finds the pictures that it is shown; None: none are taken."""


def evaluate(policy: Policy[Any], tasks: Iterable[Task], how: Evaluation) -> list[Trajectory]:
    """One episode for each task."""
    return asyncio.run(_evaluate(policy, list(tasks), how))


async def _evaluate(policy: Policy[Any], tasks: list[Task], how: Evaluation) -> list[Trajectory]:
    config = how.config
    lanes = min(len(tasks), config.evaluation.devices)
    batching = Batching(batch_size=lanes, batch_wait_s=0.0, temperature=how.temperature, seed=how.seed)
    batcher = Batcher(policy, None, batching)
    batcher.version = how.version
    done: list[Trajectory] = []
    queue = iter(enumerate(tasks))
    deciding = asyncio.create_task(batcher.run(), name="decisions")
    playing = [
        asyncio.create_task(_lane(f"eval-{n}", queue, batcher, how, done), name=f"lane {n}") for n in range(lanes)
    ]
    try:
        await all_or_first_error(playing, deciding)
    finally:
        for task in (deciding, *playing):
            task.cancel()
        await asyncio.gather(deciding, *playing, return_exceptions=True)
    return done


async def _lane(
    name: str, queue: Iterator[tuple[int, Task]], batcher: Batcher, how: Evaluation, done: list[Trajectory]
) -> None:
    config = how.config
    settings = SimSettings(
        wild=config.devices.wild,
        latency=LatencyConfig(profile="instant"),
        faults=FaultConfig(),
        seed=how.seed,
        picture_width=config.devices.picture_width,
    )
    device = SimDevice(name, settings)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        how.beat(len(done))  # at every decision: on a busy machine, the first episode may be long in coming
        return await batcher.decide(seen)

    tools = EpisodeTools(decide=decide, judge=judge_on_phone, clock=time.monotonic, keep_frame=how.keep_frame)
    limits = EpisodeLimits(
        budget_s=600.0,
        step_deadline_s=60.0,
        history=config.rollout.history,
        repeat_penalty=config.rollout.repeat_penalty,
    )
    for number, task in queue:
        played = await run_episode(f"evaluation-{number}", device, task, tools, limits)
        if played.trajectory is not None:
            done.append(played.trajectory)
        how.beat(len(done))


def held_out(config: Config, count: int, split: Split = "test") -> list[Task]:
    """The first `count` held-out tasks of the run's suite that are within its limits; `TaskError` without any."""
    chosen: list[Task] = []
    limit = config.tasks.max_oracle_steps
    for task in suite(config.tasks.suite).tasks(split):
        if not limit or len(task.route) <= limit:
            chosen.append(task)
        if len(chosen) == count:
            break
    if not chosen:
        raise TaskError(
            f"no {split} task of {config.tasks.suite} is done in {limit} step(s)",
            expected="tasks.max_oracle_steps of 0 (no limit), or large enough for some task",
            fix="--max-oracle-steps 0",
        )
    return chosen


def judge_on_phone(task: Task, end: EndState) -> Verdict:
    """The verdict on a simulated phone, whose start follows from the task."""
    return judge(task, start_state(task), end)
