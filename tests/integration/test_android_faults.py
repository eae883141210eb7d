"""200 faults of every kind on phones behind the real adb: every episode ends, and no fault counts against the agent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import AdbConfig
from distrl.devices.android.device import AndroidDevice
from distrl.devices.health import PoolLimits
from distrl.devices.pool import DevicePool
from distrl.devices.serve_sim.server import FAULTS, FaultSettings, ServedPhone
from distrl.errors import DeviceError
from distrl.rollout.episode import EpisodeTools, attempt_of, run_episode, with_verdict
from distrl.tasks.judges import AutoJudge, judge_attempt
from distrl.tasks.sim.oracle import Oracle
from distrl.tasks.sim.suites import suite
from distrl.types import Decision, Ending, Observation, Task, Trajectory, Wait
from support.androids import connected, own_server
from support.rollouts import LIMITS

PHONES, WANTED = 4, 200
FAULTY = FaultSettings(rate=0.12, restart_s=0.2, slow_s=0.1)
SETTINGS = AndroidConfig(quiet_s=0.0, wait_s=0.0, call_s=1.0, reboot_after=8)
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def test_200_faults_cost_episodes_but_never_an_outcome(config: AdbConfig) -> None:
    async def run() -> None:
        async with connected(config, PHONES, faults=FAULTY) as (adb, phones):
            limits = PoolLimits(
                restart_s=10.0, backoff_s=0.02, longest_backoff_s=0.2, quarantine_after=1000, absent_s=0.1
            )
            settings = replace(SETTINGS, port=config.port)
            pool = DevicePool([AndroidDevice(phone.serial, settings, adb) for phone in phones], limits)
            async with asyncio.timeout(LIMIT_S):
                played = await asyncio.gather(*(_play(pool, phones, number) for number in range(PHONES)))
            await pool.close()
            _check([episode for part in played for episode in part], phones)

    asyncio.run(run())


def _check(episodes: list[Trajectory], phones: list[ServedPhone]) -> None:
    injected = sum((phone.injected for phone in phones), Counter[str]())
    assert injected.total() >= WANTED
    assert set(injected) == set(FAULTS)
    outcomes = Counter((episode.ending, episode.verdict.outcome) for episode in episodes)
    assert set(outcomes) <= {(Ending.FINISHED, "success"), (Ending.DEVICE_LOST, "unknown")}, outcomes
    assert outcomes[Ending.FINISHED, "success"] >= 20


async def _play(pool: DevicePool, phones: list[ServedPhone], number: int) -> list[Trajectory]:
    """One episode after another, until there were faults enough."""
    episodes: list[Trajectory] = []
    index = number
    while sum(phone.injected.total() for phone in phones) < WANTED:
        index += PHONES
        task = suite("sim-start").task("train", index)
        try:
            device = await pool.lease(30.0)
        except DeviceError:
            continue
        played = await run_episode(f"{index}", device, task, _tools(task), LIMITS)
        pool.release(device, lost=played.lost, cause=played.cause)
        if played.trajectory is not None:
            verdict = await judge_attempt(AutoJudge(), attempt_of(played.trajectory), deadline_s=10.0)
            episodes.append(with_verdict(played.trajectory, verdict))
    return episodes


def _tools(task: Task) -> EpisodeTools:
    oracle, asked = Oracle(task), set[int]()

    async def decide(observation: Observation) -> tuple[Decision, int]:
        again = id(observation) in asked  # after a cut, for its value alone
        asked.add(id(observation))
        action = Wait() if again else oracle.act(observation.elements)
        return Decision(action=action, choice=(), logp=0.0, entropy=0.0, value=0.5), 0

    return EpisodeTools(decide=decide, clock=time.monotonic)
