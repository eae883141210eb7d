"""One episode to look at: played by a policy on one device, every screen kept, every decision told as it is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from distrl.config.schema import Config
from distrl.devices.base import Device, Fleet, find_devices
from distrl.devices.pool import DevicePool
from distrl.errors import DeviceError, DeviceLost
from distrl.evaluation.evaluate import TEMPERATURE
from distrl.evaluation.stored_playback import Playback
from distrl.experience.frames import FrameCache
from distrl.policies.base import Policy
from distrl.rollout.episode import Decide, EpisodeLimits, EpisodeTools, attempt_of, run_episode, with_verdict
from distrl.tasks.judges import Judge, judge_attempt
from distrl.transport.lease_files import phone_leases
from distrl.types import Decision, Observation, Task, Trajectory

PATIENCE_S = 300.0
"""How long whoever watches waits for a phone that something else on this machine drives."""


class Player(msgspec.Struct, frozen=True, kw_only=True):
    """Who plays, and with what."""

    policy: Policy[Any]
    version: int
    frames: FrameCache
    config: Config
    judge: Judge
    temperature: float = TEMPERATURE
    seed: int = 0
    """Decides the choices."""


OnDecision = Callable[[int, Observation, Decision], None]
"""Hears the number of the step, from 1, what was seen and what was decided."""


def play(player: Player, task: Task, on_decision: OnDecision = lambda *_: None) -> Playback:
    """Play `task` once on a device of the run's kind; `DeviceLost` where it is lost before the end."""
    return asyncio.run(_on_a_device(player, task, on_decision))


async def _on_a_device(player: Player, task: Task, on_decision: OnDecision) -> Playback:
    fleet = Fleet(owner="watch", count=1, seed=player.seed, purpose="evaluation")
    devices = player.config.devices
    pool = DevicePool(find_devices(devices, fleet), leases=phone_leases(devices, fleet.owner))
    try:
        async with pool.leased(PATIENCE_S) as device:
            return await _play(player, device, task, on_decision)
    finally:
        await pool.close()


async def _play(player: Player, device: Device, task: Task, on_decision: OnDecision) -> Playback:
    limits, lost = _limits(player.config), ""
    # A device of your own may have elements and no picture: then the first try ends before its first step.
    for keep in (player.frames.put, None):
        decide = _decider(player, task, on_decision)
        tools = EpisodeTools(decide=decide, clock=time.monotonic, keep_frame=keep)
        played = await run_episode("watched", device, task, tools, limits)
        if played.trajectory is not None and not played.lost:
            return await _judged(player, device, played.trajectory, pictures=keep is not None)
        lost = played.lost
        if played.trajectory is not None:
            break
    raise DeviceLost(f"{device.name} was lost: {lost}", fix="the same command again")


def _decider(player: Player, task: Task, on_decision: OnDecision) -> Decide:
    generator, count = torch.Generator().manual_seed(player.seed), 0

    async def decide(seen: Observation) -> tuple[Decision, int]:
        nonlocal count
        count += 1
        (decision,) = player.policy.decide([seen], temperature=player.temperature, generator=generator)
        if count <= task.max_steps:  # beyond them, only the value of the last screen is asked for
            on_decision(count, seen, decision)
        return decision, player.version

    return decide


async def _judged(player: Player, device: Device, played: Trajectory, *, pictures: bool) -> Playback:
    attempt = attempt_of(played, picture=player.frames.get if pictures else None)
    screens = await _screens(played, device, player.frames) if pictures else ()
    verdict = await judge_attempt(player.judge, attempt, deadline_s=player.config.judge.deadline_s)
    return Playback(trajectory=with_verdict(played, verdict), screens=screens)


async def _screens(trajectory: Trajectory, device: Device, frames: FrameCache) -> tuple[bytes, ...]:
    seen = [frames.get(step.observation.screenshot) for step in trajectory.steps]
    try:
        async with asyncio.timeout(device.times.step_s):
            last = (await device.capture(screenshot=True)).screenshot
    except (DeviceError, TimeoutError):
        last = seen[-1]  # a device that cannot be looked at any more
    return (*seen, last)


def _limits(config: Config) -> EpisodeLimits:
    rollout = config.rollout
    return EpisodeLimits(
        budget_s=rollout.episode_budget_s,
        step_deadline_s=rollout.step_deadline_s,
        history=rollout.history,
        repeat_penalty=rollout.repeat_penalty,
    )
