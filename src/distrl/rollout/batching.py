"""Many devices ask, one policy answers: decisions are made in batches as they come, and weights change between two.

The batcher owns the policy of a worker. A request waits at most `batch_wait_s` for others to share its batch; new
weights are taken before a batch, so every decision is made by exactly one version, and no episode is dropped. Others who
need the policy ask the batcher too (`between_batches`), so that no two threads ever use it; an evaluation that has its version
decide here does so (`decide_with`).

A policy that answers continuously gets every request at once, and each device its decision as soon as that is made; what it does
on the CPU for a request is done beforehand, on a thread of its own, while it computes the answers under way. For new
weights, and for others who need the policy, requests wait until those under way are answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import torch

from distrl.errors import OutOfMemory, StoreError
from distrl.policies.base import ContinuousPolicy, Policy, Prepares
from distrl.policies.nonfinite import skipped_counters
from distrl.telemetry.spans import Spans
from distrl.transport.base import Weights
from distrl.types import Decision, Observation, PolicyVersion

T = TypeVar("T")
Request = tuple[Observation, "asyncio.Future[tuple[Decision, int]]"]
PREPARED_AT_ONCE = 16
"""Observations, so that the first are ready while others are being prepared."""
MOST_TOKENS = 64
"""Tokens between two looks at what else there is to do, where nothing ends and nobody asks."""


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """How decisions are gathered."""

    batch_size: int
    batch_wait_s: float
    temperature: float
    """0: the likeliest choice."""
    seed: int
    aside: bool = False
    """Decide on a thread beside the event loop, so that devices move on meanwhile: for policies that wait for a GPU."""


class Decider(Protocol):
    """Who decides for the devices of a worker: its own `Batcher`, or actors elsewhere (`rollout.remote`)."""

    version: int
    """The version in use; -1: none has been published yet."""
    num_decisions: int
    num_batches: int
    num_halved: int
    busy_s: float
    batch_wait_s: float
    spans: Spans
    """Batches and weights, for the trace."""

    @property
    def skipped_counters(self) -> dict[str, float]:
        """What was skipped or repeated so far, by metric name."""

    @property
    def waiting(self) -> str:
        """What decisions have been waiting for, for too long; empty: for nothing."""

    async def decide(self, observation: Observation) -> tuple[Decision, int]:
        """A decision and the version that made it."""

    async def run(self) -> None:
        """Answer requests until cancelled."""

    def swap(self) -> None:
        """Use the newest weights from now on."""

    async def between_batches(self, work: Callable[[], T]) -> T:
        """What comes of `work`, which uses the policy, while nobody else does."""


class Batcher:
    """Answers observations with decisions, and says which version decided."""

    def __init__(self, policy: Policy[Any], weights: Weights | None, batching: Batching) -> None:
        self._policy, self._weights, self._batching = policy, weights, batching
        self._generator = torch.Generator().manual_seed(batching.seed)
        self._queue: list[Request] = []
        self._continuous = policy if isinstance(policy, ContinuousPolicy) and policy.is_continuous else None
        self._under_way: dict[int, Request] = {}
        """What a policy that answers continuously is answering."""
        self._num_asked = 0
        self._num_waiting = 0
        """Who waits for the policy until nothing is under way."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._arrived = asyncio.Event()
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="decisions") if batching.aside else None
        self._prepares = (
            policy if self._continuous is not None and isinstance(policy, Prepares) and batching.aside else None
        )
        self._beforehand = ThreadPoolExecutor(1, thread_name_prefix="prompts") if self._prepares is not None else None
        self._unprepared: list[Request] = []
        self._preparing: asyncio.Task[None] | None = None
        self._num_aside = 0
        """Calls that the thread beside the event loop has to answer."""
        self.version = -1
        """The version in use; -1: none has been published yet."""
        self._in_use: PolicyVersion | None = None
        """The same, where it was taken from the published ones."""
        self.num_decisions = 0
        self.num_batches = 0
        self.spans = Spans()
        """Batches and weights, for the trace."""
        self._most = batching.batch_size
        self.batch_wait_s = batching.batch_wait_s
        """How long a decision may wait for others at present."""
        self.busy_s = 0.0
        """Time in which the policy computed."""
        self.num_halved = 0
        """How often a batch ran out of memory (OOM); smaller ones are decided since."""

    waiting = ""
    """Decisions are made here: a policy that hangs is a worker that hangs."""

    @property
    def skipped_counters(self) -> dict[str, float]:
        """Undecodable screenshots and skipped results of the policy so far, by metric name."""
        return skipped_counters(self._policy)

    async def decide(self, observation: Observation) -> tuple[Decision, int]:
        """A decision and the version that made it."""
        answer: asyncio.Future[tuple[Decision, int]] = asyncio.get_running_loop().create_future()
        if self._prepares is not None:
            self._unprepared.append((observation, answer))
            if self._preparing is None or self._preparing.done():
                self._preparing = asyncio.create_task(self._prepare(self._prepares), name="prompts")
        else:
            self._queue.append((observation, answer))
            self._arrived.set()
        return await answer

    async def _prepare(self, policy: Prepares) -> None:
        """Move requests to the queue once the policy has prepared them."""
        while self._unprepared:
            batch, self._unprepared = self._unprepared[:PREPARED_AT_ONCE], self._unprepared[PREPARED_AT_ONCE:]
            observations = [observation for observation, _ in batch]
            call = asyncio.get_running_loop().run_in_executor(self._beforehand, policy.prepare, observations)
            await asyncio.wait({call})
            call.exception()  # whatever it is, it happens again where they are asked about, and ends the worker there
            self._queue += batch
            self._arrived.set()

    async def run(self) -> None:
        """Answer requests until cancelled; an error in the policy goes to whoever asked, and ends the worker."""
        while True:
            await self._arrived.wait()
            if self._continuous is not None:
                await self._answer_continuously(self._continuous)
                continue
            if len(self._queue) < self._batching.batch_size and self.batch_wait_s:
                await asyncio.sleep(self.batch_wait_s)
            self.swap()
            await self._answer(self._take())
            # Let the devices move before the next batch, however many requests there are.
            await asyncio.sleep(0)

    def swap(self) -> None:
        """Take the newest weights, if there are newer ones than those in use and nobody is using the policy."""
        weights = self._weights
        newest = weights.latest() if weights and not self._num_aside and not self._under_way else None
        if weights is None or newest is None or newest.version <= self.version:
            return
        try:
            with self.spans.span("takes weights", newest.version):
                weights.load(self._policy, newest)
        except StoreError:
            # While this process was held up it may have been removed for newer ones, which the next swap takes.
            if weights.latest() == newest:
                raise
        else:
            self._use(newest)

    def _use(self, version: PolicyVersion) -> None:
        self._in_use, self.version = version, version.version

    async def _answer_continuously(self, policy: ContinuousPolicy) -> None:
        """Take in what has arrived and go on until a decision is made, or something else arrives."""
        while self._num_waiting and not self._under_way:
            await asyncio.sleep(0.001)
        self.swap()
        joining = {} if self._num_waiting or self._is_outdated() else self._join()
        if not self._under_way:
            return
        self._quiet.clear()
        try:
            with self.spans.span("answers", len(self._under_way)):
                found = await self._with_policy(partial(self._advance, policy, joining))
        except OutOfMemory:
            if len(self._under_way) == 1:
                raise
            self._most, self.num_halved = len(self._under_way) // 2, self.num_halved + 1
            self._queue = [*self._under_way.values(), *self._queue]
            self._under_way.clear()
            found = []
        for ticket, decision in found:
            _, answer = self._under_way.pop(ticket)
            self.num_decisions += 1
            if not answer.done():  # nobody waits for it any more
                answer.set_result((decision, self.version))
        if not self._under_way:
            self._quiet.set()
            if not self._queue:
                self._arrived.clear()
        await asyncio.sleep(0)  # let the devices move

    def _is_outdated(self) -> bool:
        """Whether there are newer weights, which can be taken once nothing is under way."""
        newest = self._weights.latest() if self._weights is not None and self._under_way else None
        return newest is not None and newest.version > self.version

    def _join(self) -> dict[int, Observation]:
        """Move requests from the queue to those under way."""
        room = max(0, self._most - len(self._under_way))
        taken, self._queue = self._queue[:room], self._queue[room:]
        joining = {}
        for observation, answer in taken:
            if not answer.done():
                joining[self._num_asked] = observation
                self._under_way[self._num_asked] = observation, answer
                self._num_asked += 1
        self.num_batches += bool(joining)
        if not self._queue and not self._under_way:
            self._arrived.clear()
        return joining

    def _advance(self, policy: ContinuousPolicy, joining: dict[int, Observation]) -> list[tuple[int, Decision]]:
        """Ask what has arrived; tokens until something is answered, or more has arrived."""
        if joining:
            policy.ask(joining, temperature=self._batching.temperature, generator=self._generator)
        for _ in range(MOST_TOKENS):
            found = policy.advance()
            if found or (self._queue and len(self._under_way) < self._most):
                break
        return found

    def _take(self) -> list[Request]:
        size = self._batching.batch_size
        batch, self._queue = self._queue[:size], self._queue[size:]
        if not self._queue:
            self._arrived.clear()
        return [(observation, answer) for observation, answer in batch if not answer.done()]

    async def _answer(self, batch: list[Request]) -> None:
        if not batch:
            return
        with self.spans.span("decides", len(batch)):
            decisions = await self._decide([observation for observation, _ in batch])
        self.num_decisions += len(batch)
        self.num_batches += 1
        for decision, (_, answer) in zip(decisions, batch, strict=True):
            if not answer.done():  # nobody waits for it any more
                answer.set_result((decision, self.version))

    async def _decide(self, observations: list[Observation]) -> list[Decision]:
        return await self.between_batches(partial(self._decide_in_parts, observations, self._batching.temperature))

    async def between_batches(self, work: Callable[[], T]) -> T:
        """What comes of `work` with the policy, done where batches are decided, while none is."""
        if self._continuous is None:
            return await self._with_policy(work)
        self._num_waiting += 1
        try:
            await self._quiet.wait()
            return await self._with_policy(work)
        finally:
            self._num_waiting -= 1

    async def decide_with(
        self, load: Callable[[], None], observations: Sequence[Observation], *, temperature: float
    ) -> list[Decision]:
        """Decisions by the weights that `load` puts into the policy, between two batches; those in use come back at once."""
        return await self.between_batches(partial(self._decide_with, load, observations, temperature))

    def _decide_with(
        self, load: Callable[[], None], observations: Sequence[Observation], temperature: float
    ) -> list[Decision]:
        with self.spans.span("decides with other weights", len(observations)):
            try:
                load()
                return self._decide_in_parts(observations, temperature)
            finally:
                self._take_back()

    def _take_back(self) -> None:
        """Put the weights in use back into the policy; where they are not kept any more, the newest ones."""
        weights, in_use = self._weights, self._in_use
        if weights is None or in_use is None:
            raise ValueError("only weights that were published can come back")
        try:
            weights.load(self._policy, in_use)
        except StoreError:
            newest = weights.latest()
            if newest is None or newest == in_use:
                raise
            weights.load(self._policy, newest)
            self._use(newest)

    async def _with_policy(self, work: Callable[[], T]) -> T:
        if self._aside is None:
            return self._timed(work)
        self._num_aside += 1
        call = asyncio.get_running_loop().run_in_executor(self._aside, self._timed, work)
        call.add_done_callback(self._answered)
        return await asyncio.shield(call)  # who stops waiting does not take the policy away from the thread

    def _timed(self, work: Callable[[], T]) -> T:
        started_s = time.perf_counter()
        try:
            return work()
        finally:
            self.busy_s += time.perf_counter() - started_s

    def _answered(self, _: asyncio.Future[T]) -> None:
        self._num_aside -= 1

    def _decide_in_parts(self, observations: Sequence[Observation], temperature: float) -> list[Decision]:
        """All at once, until that runs out of memory (OOM); from then on in parts of half the size."""
        decide = partial(self._policy.decide, temperature=temperature, generator=self._generator)
        decisions: list[Decision] = []
        while len(decisions) < len(observations):
            part = observations[len(decisions) :][: self._most]
            try:
                decisions += decide(part)
            except OutOfMemory:
                if len(part) == 1:
                    raise
                self._most, self.num_halved = len(part) // 2, self.num_halved + 1
        return decisions


async def all_or_first_error(tasks: list[asyncio.Task[None]], *background: asyncio.Future[None]) -> None:
    """Wait for all `tasks`; the first error among them or in the `background` is raised at once."""
    pending: set[asyncio.Future[None]] = {*tasks, *background}
    while pending.difference(background):
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
