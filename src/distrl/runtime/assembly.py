"""From a configuration to the parts that roles are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

import torch

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import Algorithm
from distrl.algorithms.filtered_bc import FilteredBC
from distrl.config.rules import looks_at_pictures
from distrl.config.schema import AlgorithmConfig, Config
from distrl.devices.pool import DevicePool, PoolLimits
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.evaluation.evaluate import judge_on_phone
from distrl.experience.frame_memory import IllustratedStore, RecentFrames, UnwrittenFrames
from distrl.experience.frames import FrameStore
from distrl.experience.priorities import first_priority
from distrl.experience.store import ExperienceStore
from distrl.learner.weights import WeightsFolder
from distrl.policies.base import Policy
from distrl.policies.pictures import NoPictures, Pictures
from distrl.policies.pointer.policy import PointerPolicy
from distrl.policies.seat import Seat
from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.episode import EpisodeLimits, EpisodeTools
from distrl.rollout.scheduler import Admission, TaskFeed
from distrl.rollout.worker import WorkerParts
from distrl.runtime.base import worker_names
from distrl.runtime.placement import torch_device
from distrl.runtime.run_folder import RunFolder
from distrl.tasks.suites import suite
from distrl.telemetry.events import EventLog, read_events

FRAMES_AT_HAND = 8192
"""Pictures that a process holds in memory, at most: 100 MB at 224 × 448."""


def prepare_torch() -> None:
    """One thread per process, and no denormals: both cost a multiple on small networks."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def make_policy(config: Config, pictures: Pictures | None = None, *, learning: bool = False) -> Policy[Any]:
    """A policy with fresh weights, on the device of the learner or of those who act; it sees with `pictures`."""
    policy, seed = config.policy, config.run.seed
    match policy.kind:
        case "pointer":
            return PointerPolicy(policy, seed=seed)
        case "pixel":
            from distrl.policies.pixel.policy import PixelPolicy

            return PixelPolicy(policy.pixel, make_seat(config, pictures, learning=learning), seed=seed)


def make_seat(config: Config, pictures: Pictures | None, *, learning: bool) -> Seat:
    """Where a policy that looks sits in this role."""
    device = config.learner.device if learning else config.policy.device
    key = "learner.device" if learning else "policy.device"
    return Seat(
        pictures=NoPictures() if pictures is None else pictures,
        device=torch_device(device, key=key),
        learning=learning,
    )


def make_sight(config: Config, run: RunFolder | None = None) -> RecentFrames | None:
    """The newest pictures in memory, and those of `run` behind them; None for a policy that does not look."""
    if not looks_at_pictures(config):
        return None
    return RecentFrames(FRAMES_AT_HAND, FrameStore(run.frames) if run else None)


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm that the configuration names."""
    made: dict[str, Callable[[AlgorithmConfig], Algorithm]] = {"aride": ARide, "filtered_bc": FilteredBC}
    return made[config.algorithm.name](config.algorithm)


def make_devices(config: Config, worker: str) -> list[SimDevice]:
    """The devices of one worker, `worker-0/phone-3` and the like."""
    devices = config.devices
    settings = SimSettings(
        wild=devices.wild,
        latency=devices.latency,
        faults=devices.faults,
        seed=config.run.seed,
        picture_width=devices.picture_width,
    )
    return [SimDevice(f"{worker}/phone-{number}", settings) for number in range(devices.per_worker)]


def make_worker_parts(
    run: RunFolder, config: Config, worker: str, devices: list[SimDevice], log: EventLog
) -> WorkerParts:
    """Everything that a worker needs, with a seed of its own for every life."""
    number = 1 + sum(event["event"] == "born" for event in read_events(run.log(worker)))
    log.write("born", life=number)
    life = f"{config.run.seed} {worker} {number}"
    weights = WeightsFolder(run.weights)
    frames = _frames(run, config)
    batcher = Batcher(make_policy(config, frames), weights, _batching(config, life))
    scale = config.devices.latency.time_scale if config.devices.latency.profile == "emulator" else 0.05
    newest = weights.latest
    store = ExperienceStore(run.experience)
    store.recover()  # what an earlier life had written and not yet entered into the index
    return WorkerParts(
        name=worker,
        pool=DevicePool(
            devices, PoolLimits(backoff_s=0.5 * scale, longest_backoff_s=30 * scale, quarantine_s=120 * scale)
        ),
        batcher=batcher,
        feed=TaskFeed(suite(config.tasks.suite), "train", seed=life, max_oracle_steps=config.tasks.max_oracle_steps),
        admission=Admission(config, worker=worker_names(config).index(worker)),
        tools=EpisodeTools(
            decide=batcher.decide,
            judge=judge_on_phone,
            clock=time.monotonic,
            keep_frame=None if frames is None else frames.put,
        ),
        limits=episode_limits(config),
        sink=store if frames is None else IllustratedStore(store, frames),
        first_priority=lambda trajectory: first_priority(trajectory, config.replay, gamma=config.algorithm.gamma),
        latest_version=lambda: version.version if (version := newest()) else -1,
        log=log,
        delivered=lambda version: store.count_of(worker, version) if config.learner.mode == "sync" else 0,
    )


def episode_limits(config: Config) -> EpisodeLimits:
    """What an episode may cost."""
    rollout = config.rollout
    return EpisodeLimits(
        budget_s=rollout.episode_budget_s,
        step_deadline_s=rollout.step_deadline_s,
        history=rollout.history,
        repeat_penalty=rollout.repeat_penalty,
    )


def _batching(config: Config, life: str) -> Batching:
    rollout = config.rollout
    return Batching(
        batch_size=rollout.batch_size,
        batch_wait_s=rollout.batch_wait_s,
        temperature=rollout.temperature,
        seed=crc32(life.encode()),
        aside=config.policy.device != "cpu" and config.policy.kind != "pointer",
    )


def _frames(run: RunFolder, config: Config) -> UnwrittenFrames | None:
    if not config.rollout.keep_screenshots:
        return None
    return UnwrittenFrames(FrameStore(run.frames), capacity=FRAMES_AT_HAND)
