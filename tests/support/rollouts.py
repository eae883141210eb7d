"""What a rollout needs besides devices: a policy that does as told, versions and sinks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

from distrl.config.schema import NO_PERTURBATIONS, Config, FaultConfig, LatencyConfig
from distrl.devices.base import Capture, Device, Performed, TimeScales
from distrl.devices.pool import DevicePool, PoolLimits
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.errors import StoreError
from distrl.policies.base import Policy, Scores
from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, Played, attempt_of, run_episode, with_verdict
from distrl.rollout.outbox import Spool
from distrl.rollout.scheduler import Admission, TaskFeed
from distrl.rollout.worker import WorkerParts
from distrl.tasks.judges import AutoJudge, judge_attempt
from distrl.tasks.sim.suites import suite
from distrl.telemetry.events import EventLog
from distrl.types import (
    Action,
    CustomEnd,
    CustomSetup,
    Decision,
    Observation,
    PolicyVersion,
    Press,
    RewardCheck,
    SimEnd,
    Split,
    Task,
    Trajectory,
)

SUITE = "sim-general"
HANGS_S = 30.0
DEAF_S = 60.0
"""How long a double that does not heed its cancellation goes on: a test that waits for it fails, and ends."""
VALUE = 0.625
LIMITS = EpisodeLimits(budget_s=60.0, step_deadline_s=10.0, history=6, repeat_penalty=0.01)


PATIENT = TimeScales(backoff_s=0.001)


def a_page_task(index: int = 0, *, at_least: float = 1.0, max_steps: int = 20) -> Task:
    """A task whose device says itself when it is over, and what it is worth."""
    return Task(
        id=f"pages/train/{index}",
        suite="pages",
        template="page",
        split="train",
        instruction=f"Submit form {index}",
        setup=CustomSetup(values={"page": index}),
        check=RewardCheck(at_least=at_least),
        max_steps=max_steps,
    )


async def ignore_cancellation() -> None:
    """Go on for `DEAF_S`, however often one is cancelled."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + DEAF_S
    while clock() < until_s:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(until_s - clock())


class Pages:
    """`tasks.base.Suite` of such tasks."""

    name = "pages"

    def size(self, split: Split) -> int:
        return 8

    def task(self, split: Split, index: int) -> Task:
        return a_page_task(index)


def a_task(index: int = 0, *, max_steps: int = 20) -> Task:
    """A training task of the simulated phones."""
    return replace(suite(SUITE).task("train", index), max_steps=max_steps)


def a_phone(name: str = "phone-0", *, faults: FaultConfig | None = None) -> SimDevice:
    """A phone without delays and without perturbations."""
    settings = SimSettings(
        perturbations=NO_PERTURBATIONS, latency=LatencyConfig(profile="instant"), faults=faults or FaultConfig()
    )
    return SimDevice(name, settings)


class OddPhone(SimDevice):
    """A phone to which something happens before its n-th call of one method."""

    def __init__(self, method: str, at: int, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__("odd", SimSettings(perturbations=NO_PERTURBATIONS, latency=LatencyConfig(profile="instant")))
        self._method, self._left, self._happens = method, at, happens

    async def capture(self, *, screenshot: bool) -> Capture:
        await self._wear("capture")
        return await super().capture(screenshot=screenshot)

    async def perform(self, action: Action) -> Performed:
        await self._wear("perform")
        return await super().perform(action)

    async def end_state(self) -> SimEnd:
        await self._wear("end_state")
        return await super().end_state()

    async def _wear(self, method: str) -> None:
        self._left -= method == self._method
        if self._left == 0 and method == self._method:
            await self._happens()


class Page:
    """A device that is no phone: it ends its episode itself after a few actions, and pays for the last one."""

    def __init__(self, name: str = "page-0", *, ends_after: int = 3, reward: float = 1.0, times: TimeScales = PATIENT):
        self.name, self.times = name, times
        self._ends_after, self._reward, self._left = ends_after, reward, 0
        self.happens: dict[str, Callable[[], Awaitable[object]]] = {}
        """What happens before a method, by its name."""
        self.calls: list[str] = []

    async def reset(self, task: Task) -> None:
        await self._call("reset")
        self._left = self._ends_after

    async def capture(self, *, screenshot: bool) -> Capture:
        await self._call("capture")
        return Capture(app="browser", width_px=100, height_px=200)

    async def perform(self, action: Action) -> Performed:
        await self._call("perform")
        self._left -= 1
        done = self._left == 0
        return Performed(valid=True, changed=True, done=done, reward=self._reward if done else 0.25)

    async def end_state(self) -> CustomEnd:
        await self._call("end_state")
        return CustomEnd(values={"left": self._left})

    async def restart(self) -> None:
        await self._call("restart")

    async def close(self) -> None:
        await self._call("close")

    async def _call(self, method: str) -> None:
        self.calls.append(method)
        if method in self.happens:
            await self.happens[method]()


class ScriptedPolicy:
    """`policies.base.Policy` that answers with whatever `act` says, and notes what it was asked."""

    def __init__(self, act: Callable[[Observation], Action] = lambda seen: Press("back")) -> None:
        self.act = act
        self.batches: list[int] = []
        self.weights = b""
        self._network = nn.Linear(1, 1)

    @property
    def network(self) -> nn.Module:
        return self._network

    def encode(self, observation: Observation) -> Any:
        return observation

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        self.batches.append(len(observations))
        return [
            Decision(action=self.act(seen), choice=(0,), logp=-1.0, entropy=1.0, value=VALUE) for seen in observations
        ]

    def score(self, encoded: Sequence[Any], choices: Sequence[tuple[int, ...]]) -> Scores:
        zeros = torch.zeros(len(encoded))
        return Scores(logp_N=zeros, entropy_N=zeros, value_logit_N=zeros)

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        return (0,)

    def dump(self) -> bytes:
        return self.weights

    def restore(self, data: bytes, *, source: str) -> None:
        self.weights = data


class Published:
    """`transport.base.Weights` whose newest version the test sets."""

    def __init__(self, newest: int = 0) -> None:
        self.newest = newest
        self.gone: set[int] = set()
        self.on_load: Callable[[], None] = lambda: None

    def latest(self) -> PolicyVersion | None:
        return make_version(self.newest) if self.newest >= 0 else None

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        self.on_load()
        if version.version in self.gone:
            raise StoreError(f"version {version.version} is gone")
        policy.restore(str(version.version).encode(), source="memory")

    def find(self, version: int) -> PolicyVersion | None:
        return make_version(version) if version <= self.newest else None

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        self.newest = version.version
        return version


def make_version(number: int) -> PolicyVersion:
    return PolicyVersion(
        version=number, file=f"v{number}", sha256="", size_bytes=1, updates=0, episodes=0, published_s=0.0
    )


class Kept:
    """`transport.base.EpisodeSink` in memory."""

    def __init__(self) -> None:
        self.trajectories: list[Trajectory] = []
        self.frames: dict[str, bytes] = {}
        self.on_add: Callable[[Trajectory], None] = lambda trajectory: None

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes]) -> None:
        self.on_add(trajectory)
        self.frames |= frames
        self.trajectories.append(trajectory)


def make_batcher(
    policy: Policy[Any], weights: Published | None = None, *, batch_size: int = 64, wait_s: float = 0.0
) -> Batcher:
    return Batcher(policy, weights, Batching(batch_size=batch_size, batch_wait_s=wait_s, temperature=1.0, seed=0))


def make_tools(decide: Any, *, clock: Callable[[], float] = lambda: 0.0) -> EpisodeTools:
    return EpisodeTools(decide=decide, clock=clock)


def make_parts(
    folder: Path, policy: Policy[Any], weights: Published, devices: Sequence[Device], config: Config | None = None
) -> WorkerParts:
    """A worker on these devices that keeps its episodes in memory and ends in no time."""
    config = config or Config()
    batcher = make_batcher(policy, weights)
    return WorkerParts(
        name="worker-0",
        pool=DevicePool(devices, PoolLimits(backoff_s=0.001, longest_backoff_s=0.01)),
        batcher=batcher,
        feed=TaskFeed(suite(SUITE), "train", seed="test"),
        admission=Admission(config),
        tools=make_tools(batcher.decide),
        limits=LIMITS,
        judge=AutoJudge(),
        sink=Kept(),
        spool=Spool(folder / "spool", capacity=8),
        first_priority=lambda trajectory: 1.0,
        latest_version=lambda: weights.newest,
        log=EventLog(folder / "worker-0.jsonl"),
        drain_s=0.01,
    )


async def play(id: str, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits = LIMITS) -> Played:
    """One episode, judged as a worker has it judged."""
    played = await run_episode(id, device, task, tools, limits)
    if played.trajectory is None:
        return played
    verdict = await judge_attempt(AutoJudge(), attempt_of(played.trajectory), deadline_s=10.0)
    return replace(played, trajectory=with_verdict(played.trajectory, verdict))


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until something holds, or fail."""
    async with asyncio.timeout(HANGS_S):
        while not holds():
            await asyncio.sleep(0.001)
