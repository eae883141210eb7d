"""The two ends of `distrl bench weights` as processes: `python -m distrl.bench.system.publishing ROLE JOB`.

A learner publishes versions of a policy that carries as much ballast as asked for, and trains in between. A worker
answers the phones of a usual fleet through a `Batcher` and says when each version first decided. Both print a line of
JSON per version; times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import torch

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.learner.weights import WeightsFolder
from distrl.policies.base import Policy
from distrl.pretraining.cloning import demonstrate, demonstration_tasks
from distrl.rollout.batching import Batcher, Batching
from distrl.runtime.assembly import make_policy, prepare_torch
from distrl.types import Observation, PolicyVersion

PIECE = 1_000_000
"""Numbers in one tensor of the ballast: 4 MB."""
DECISION_EVERY_S = 0.8
"""Mean time between two decisions of one phone: an action of 2 s at the default time scale."""
PATIENCE = 3.0
"""A job may take so much longer than planned before it counts as failed."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What both ends have to know."""

    folder: str
    size_mb: float
    versions: int
    """That are timed; one more comes first, to begin with."""
    every_s: float
    seed: int


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the learner."""

    version: int
    called_s: float
    done_s: float


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a worker."""

    version: int
    at_s: float


def laden_policy(config: Config, size_mb: float) -> Policy[Any]:
    """A small pointer whose weights are `size_mb` large all the same."""
    policy = make_policy(config)
    own = sum(tensor.nbytes for tensor in policy.weights().values())
    left = max(0, round((1e6 * size_mb - own) / 4))
    for number, start in enumerate(range(0, left, PIECE)):
        policy.network.register_buffer(f"ballast_{number}", torch.full((min(PIECE, left - start),), 0.5))
    return policy


def small_config(seed: int) -> Config:
    """The smallest pointer: what is measured is the way of the weights, not the decision."""
    return load_config(None, {"run.seed": seed, "policy.width": 16, "policy.layers": 1, "warm_start.demonstrations": 8})


def learn(job: Job) -> None:
    """Publish, and train in between as a learner does: that takes a core."""
    config, folder = small_config(job.seed), WeightsFolder(Path(job.folder, "weights"))
    policy = laden_policy(config, job.size_mb)
    for number in range(job.versions + 1):
        began_s = time.monotonic()
        folder.publish(policy, _version(number))
        _say(Published(version=number, called_s=began_s, done_s=time.monotonic()))
        if number == 0:
            sys.stdin.readline()  # until all workers have begun
        _train_until(began_s + job.every_s)


def _version(number: int) -> PolicyVersion:
    return PolicyVersion(
        version=number, file="", sha256="", size_bytes=0, updates=0, episodes=0, published_s=time.time()
    )


def _train_until(end_s: float) -> None:
    square = torch.rand(256, 256)
    while time.monotonic() < end_s:
        torch.mm(square, square)


def work(job: Job) -> None:
    """Decide until the last version is in use."""
    asyncio.run(_work(job))


async def _work(job: Job) -> None:
    config = small_config(job.seed)
    rollout = config.rollout
    batching = Batching(
        batch_size=rollout.batch_size, batch_wait_s=rollout.batch_wait_s, temperature=1.0, seed=job.seed
    )
    batcher = Batcher(laden_policy(config, job.size_mb), WeightsFolder(Path(job.folder, "weights")), batching)
    screens = [seen for seen, _ in demonstrate(demonstration_tasks(config), config.devices.wild, history=6)]
    phones = _Phones(batcher, screens, Random(job.seed))
    tasks = [asyncio.create_task(batcher.run())]
    tasks += [asyncio.create_task(phones.ask()) for _ in range(config.devices.per_worker)]
    last = asyncio.create_task(phones.await_version(job.versions))
    await asyncio.wait({last, *tasks}, return_when=asyncio.FIRST_COMPLETED, timeout=deadline_s(job))
    for task in (last, *tasks):
        if task.done():
            task.result()
        task.cancel()


def deadline_s(job: Job) -> float:
    """When a job that is not done by then has failed."""
    return 60.0 + PATIENCE * (job.versions + 1) * job.every_s


class _Phones:
    """A fleet that asks for decisions and notes which version made the first of its kind."""

    def __init__(self, batcher: Batcher, screens: list[Observation], random: Random) -> None:
        self._batcher, self._screens, self._random = batcher, screens, random
        self._newest = -1
        self._changed = asyncio.Event()

    async def ask(self) -> None:
        """One phone: a decision now and then."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / DECISION_EVERY_S))
            _, version = await self._batcher.decide(self._random.choice(self._screens))
            if version > self._newest:
                self._newest = version
                _say(InUse(version=version, at_s=time.monotonic()))
                self._changed.set()

    async def await_version(self, version: int) -> None:
        while self._newest < version:
            self._changed.clear()
            await self._changed.wait()


def _say(line: Published | InUse) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    prepare_torch()
    {"learner": learn, "worker": work}[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=Job))
