"""Hindsight relabelling: a failed episode as a success at some training task that its end does fulfil.

Done by whoever played, right after the verdict, and stored as a trajectory of its own (`source = "hindsight"`), so that
it is never made again. Which tasks an episode fulfilled is up to the suite (`tasks.base.RelabelsEpisodes`).

A worker relabels in `HindsightStage`: the suite is asked in a thread beside the event loop, under a deadline, and what
it raises costs that relabelling alone. The policy is asked where it decides, between two batches, and its bugs raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Protocol, TypeVar

from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.experience.noop import noop_steps
from distrl.tasks.base import Fitting
from distrl.threads import beside
from distrl.types import (
    Action,
    Ending,
    EndState,
    Finish,
    Observation,
    Task,
    Trajectory,
    Verdict,
    WebEnd,
    WebSetup,
)

T = TypeVar("T")

SUFFIX = "+hindsight"
"""Ends the id of a trajectory that was given another task."""
TASKS_TRIED = 4
"""Tasks that a failure is tried as, at most: what it typed has to stand in the new instruction too."""


class Imitates(Protocol):
    """The part of a policy that hindsight asks."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that stands for `action`; None where the grammar cannot express it."""


class Relabeller:
    """Relabels the failures of one policy."""

    def __init__(
        self,
        fitting: Fitting,
        policy: Imitates,
        *,
        filter_noops: bool,
        outcome_flip: float,
        flip_seed: int | None = None,
        first_priority: Callable[[Trajectory], float],
    ) -> None:
        self._fitting, self._policy, self._filter_noops = fitting, policy, filter_noops
        self._outcome_flip, self._flip_seed, self._first_priority = outcome_flip, flip_seed, first_priority
        self.num_relabelled = 0
        self.num_inexpressible = 0
        """Failures that fulfilled other tasks, under whose instructions the policy could not have acted so."""

    def relabel(self, played: Trajectory) -> Trajectory | None:
        """A failure as a success at the first task that it fulfilled and that the policy can express; None: no such."""
        tried = False
        for task in self.candidates(played):
            if (relabelled := self.relabel_as(task, played)) is not None:
                return relabelled
            tried = True
        self.num_inexpressible += tried
        return None

    def candidates(self, played: Trajectory) -> Iterator[Task]:
        """The tasks that an episode is tried as, by what the suite says of it; none where it is not known to have failed."""
        judged = misjudged(played, self._outcome_flip, seed=self._flip_seed)
        if judged.verdict.outcome == "failure":
            yield from islice(self._fitting(judged), TASKS_TRIED)

    def relabel_as(self, task: Task, played: Trajectory) -> Trajectory | None:
        """A failure as a success at `task`; None where the policy cannot express it."""
        judged = misjudged(played, self._outcome_flip, seed=self._flip_seed)
        relabelled = as_success_at(task, judged, self._policy, filter_noops=self._filter_noops)
        if relabelled is None:
            return None
        self.num_relabelled += 1
        return replace(relabelled, priority=self._first_priority(relabelled))


class AskPolicy(Protocol):
    """Does something with the policy of a worker while nobody else uses it."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class HindsightFailed(Exception):
    """The suite raised, gave something that is no task, or took too long: why, in a sentence."""


class HindsightStage:
    """Relabels beside the event loop, to which it belongs.

    At most `at_once` threads ask the suite. One that is past its deadline is left to itself and keeps its place until
    it ends, so a suite that hangs cannot fill a process with threads; those who wait for a place have their deadline too.
    """

    def __init__(self, relabeller: Relabeller, ask_policy: AskPolicy, *, deadline_s: float, at_once: int) -> None:
        self._relabeller, self._ask_policy, self._deadline_s = relabeller, ask_policy, deadline_s
        self._places = asyncio.Semaphore(at_once)

    async def relabel(self, played: Trajectory) -> Trajectory | None:
        """As `Relabeller.relabel`; `HindsightFailed` where the suite fails."""
        try:
            async with asyncio.timeout(self._deadline_s) as deadline:
                return await self._relabel(played)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise HindsightFailed(f"hindsight took over {self._deadline_s:g} s") from None

    async def _relabel(self, played: Trajectory) -> Trajectory | None:
        relabeller, tried = self._relabeller, False
        tasks = relabeller.candidates(played)
        while (task := await self._next(tasks)) is not None:
            relabelled = await self._ask_policy(partial(relabeller.relabel_as, task, played))
            if relabelled is not None:
                return relabelled
            tried = True
        relabeller.num_inexpressible += tried
        return None

    async def _next(self, tasks: Iterator[Task]) -> Task | None:
        await self._places.acquire()
        asking = beside(lambda: next(tasks, None), name="hindsight")
        asking.add_done_callback(self._leave)
        await asyncio.wait([asking])
        return _task_of(asking)

    def _leave(self, asked: asyncio.Future[Task | None]) -> None:
        asked.exception()  # looked at, also where nobody waits for it any more: asyncio would complain
        self._places.release()


def _task_of(asked: asyncio.Future[Task | None]) -> Task | None:
    """What a suite answered. Its own code may raise anything: that costs this relabelling alone."""
    if (error := asked.exception()) is not None:
        raise HindsightFailed(f"hindsight failed: {type(error).__name__}: {str(error)[:300]}") from error
    task = asked.result()
    if task is not None and not isinstance(task, Task):
        raise HindsightFailed(f"hindsight has to give tasks, and this one gave {task!r:.80}")
    return task


def as_success_at(task: Task, played: Trajectory, policy: Imitates, *, filter_noops: bool) -> Trajectory | None:
    """`played` as a success at `task`, with `filter_noops` without its no-op steps; None where a step is inexpressible or none is left."""
    if (cut := _at_its_moment(task, played)) is None:
        return None
    steps, played = [], cut
    noops = noop_steps(played) if filter_noops else [False] * len(played.steps)
    for step, noop in zip(played.steps, noops, strict=True):
        seen = replace(step.observation, instruction=task.instruction)
        choice = None if noop else policy.imitate(seen, step.decision.action)
        if choice is not None:
            steps.append(replace(step, observation=seen, decision=replace(step.decision, choice=choice, runners_up=())))
        elif not noop:
            return None
    if not steps:
        return None
    steps[-1] = replace(steps[-1], reward=steps[-1].reward + 1.0)
    verdict = Verdict(outcome="success", reason="in hindsight", progress=1.0)
    return replace(
        played, id=f"{played.id}{SUFFIX}", task=task, steps=tuple(steps), verdict=verdict, source="hindsight"
    )


def _at_its_moment(task: Task, played: Trajectory) -> Trajectory | None:
    """`played` up to the moment that fulfilled `task`, and a claim then; itself where its end fulfils it, None where nothing was seen then."""
    end, setup = played.end.device, task.setup
    if not isinstance(end, WebEnd) or not isinstance(setup, WebSetup):
        return played
    found = next((one for one in end.fulfilled if (one.task, one.seed) == (setup.task, setup.seed) and one.steps), None)
    if found is None:
        return played
    seen = [step.observation for step in played.steps] + ([played.last] if played.last else [])
    if found.steps >= len(seen):
        return None
    claim, basis = Finish(answer=found.answer), played.steps[min(found.steps, len(played.steps) - 1)]
    decision = replace(basis.decision, action=claim, runners_up=())
    last = replace(
        basis,
        observation=seen[found.steps],
        decision=decision,
        reward=0.0,
        device_reward=0.0,
        valid=True,
        changed=False,
    )
    return replace(
        played, steps=(*played.steps[: found.steps], last), ending=Ending.FINISHED, last=None, last_value=0.0,
        end=EndState(claim=claim),
    )  # fmt: skip


def misjudged(played: Trajectory, share: float, *, seed: int | None = None) -> Trajectory:
    """`played` with the other verdict for this share of the episodes that the agent ended.

    The id decides which. With a `seed`, the situation does that they ended in: the share is then one of situations, and
    whoever gets into one of them again is misjudged again.
    """
    if not played.ending.is_terminal or not played.verdict.known:
        return played
    what = f"verdict {played.id}" if seed is None else f"verdict {seed} {situation_of(played)}"
    if Random(what).random() >= share:
        return played
    success = not played.verdict.success
    last = replace(played.steps[-1], reward=played.steps[-1].reward + (1.0 if success else -1.0))
    verdict = replace(played.verdict, outcome="success" if success else "failure")
    return replace(played, steps=(*played.steps[:-1], last), verdict=verdict)


def situation_of(played: Trajectory) -> str:
    """What looks alike to whoever judges by the end: the kind of task, the app, how much was done and whether it was all."""
    verdict = played.verdict
    return f"{played.task.template} {played.steps[-1].observation.app} {verdict.progress:.1f} {verdict.outcome}"


def flip_seed_of(config: Config) -> int | None:
    """What decides the situations that are misjudged; None: each episode by itself."""
    return config.run.seed if config.data.outcome_flip_by == "situation" else None
