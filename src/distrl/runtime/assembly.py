"""From a configuration to the parts that roles are made of."""

from __future__ import annotations

import time
from typing import Any
from zlib import crc32

import torch

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import Algorithm
from distrl.algorithms.digirl import DigiRL
from distrl.algorithms.filtered_bc import FilteredBC
from distrl.algorithms.grpo import GRPO
from distrl.algorithms.ppo import PPO
from distrl.config.rules import looks_at_pictures
from distrl.config.schema import Config
from distrl.devices.pool import DevicePool, PoolLimits
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.devices.sim.latency import LONG_EPISODE_S, LONGEST_ACTION_S, pace
from distrl.evaluation.evaluate import judge_on_phone
from distrl.experience.claims import Claims
from distrl.experience.frame_memory import IllustratedStore, RecentFrames, UnwrittenFrames
from distrl.experience.frames import FrameStore
from distrl.experience.priorities import first_priority
from distrl.experience.store import ExperienceStore
from distrl.learner.intake import Fitting
from distrl.learner.weights import WeightsFolder
from distrl.policies.base import NoPictures, Pictures, Policy, Seat, notices_of
from distrl.policies.pointer.policy import PointerPolicy
from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.episode import EpisodeLimits, EpisodeTools
from distrl.rollout.lockstep import LockStep
from distrl.rollout.outbox import STORE_DEADLINE_S
from distrl.rollout.rounds import Delivered, EqualShares, NoRounds, Rounds, SharedRound, share_of
from distrl.rollout.scheduler import Admission, Portion, TaskFeed
from distrl.rollout.worker import WorkerParts
from distrl.runtime.base import worker_names
from distrl.runtime.placement import torch_device
from distrl.runtime.run_folder import RunFolder
from distrl.tasks.sim.hindsight import Hindsight
from distrl.tasks.sim.suites import suite
from distrl.telemetry.events import EventLog, read_events

SHORTEST_BUDGET_S, SHORTEST_DEADLINE_S = 30.0, 10.0
"""However fast the phones are, decisions and a busy machine take their time."""
SHORTEST_PACE = 0.05
"""Of the waits before a lost phone is restarted, where phones take no time."""
FRAMES_AT_HAND = 8192
"""Pictures that a process holds in memory: 100 MB at 224 × 448."""
LONGEST_SHOWN = 64
"""Pictures of a demonstration, at most."""
CALLS_BETWEEN_DECISIONS = 4
"""Of an episode to its device, at most: an action or a reset, a look, and a picture that may be asked for twice."""
CALLS_AFTER_BUDGET = 5
"""The same, and how the device was left."""


def prepare_torch() -> None:
    """One thread per process, no denormals (both cost a multiple on small networks), and attention that can be learnt through.

    On an H100 or H200, torch 2.11 to 2.13 give masked attention to cuDNN, whose backward pass makes NaN of rows that see
    nothing where the length is 64 more than a multiple of 128: https://github.com/pytorch/pytorch/issues/196678.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.backends.cuda.enable_cudnn_sdp(False)


def make_policy(config: Config, pictures: Pictures | None = None, *, learning: bool = False) -> Policy[Any]:
    """A policy with fresh weights, on the device of the learner or of those who act; it sees with `pictures`."""
    policy, seed = config.policy, config.run.seed
    if policy.kind == "pointer":
        return PointerPolicy(policy, seed=seed)
    seat = make_seat(config, pictures, learning=learning)
    # What one policy needs is not loaded for another.
    if policy.kind == "pixel":
        from distrl.policies.pixel.policy import PixelPolicy

        return PixelPolicy(policy.pixel, seat, seed=seed)
    from distrl.policies.vlm.policy import VlmPolicy

    return VlmPolicy(policy.vlm, seed=seed, fetch=seat.pictures.get, device=seat.device)


def log_notices(policy: Policy[Any], log: EventLog) -> None:
    """Write what the run's owner should know of its policy to where `distrl status` looks."""
    for text in notices_of(policy):
        log.write("notice", text=text)


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
    return RecentFrames(frames_at_hand(config), FrameStore(run.frames) if run else None)


def frames_at_hand(config: Config) -> int:
    """How many pictures a process may hold: demonstrations that are held in memory are held with all their pictures."""
    warm_start = config.warm_start
    return FRAMES_AT_HAND if warm_start.samples else max(FRAMES_AT_HAND, LONGEST_SHOWN * warm_start.demonstrations)


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm that the configuration names."""
    settings = config.algorithm
    match settings.name:
        case "aride":
            return ARide(settings)
        case "digirl":
            return DigiRL(settings, seed=config.run.seed)
        case "filtered_bc":
            return FilteredBC(settings)
        case "grpo":
            return GRPO(settings)
        case "ppo":
            return PPO(settings)


def make_feed(config: Config, *, seed: str) -> TaskFeed:
    """The training tasks of a run, in the order of `seed`."""
    tasks = config.tasks
    portion = Portion(
        max_oracle_steps=tasks.max_oracle_steps,
        group_size=config.rollout.group_size,
        rename_share=tasks.rename_share,
    )
    return TaskFeed(suite(tasks.suite), "train", seed=seed, portion=portion)


def make_fitting(config: Config) -> Fitting | None:
    """Which other training tasks an episode fulfilled; None where hindsight is off."""
    if not config.data.hindsight:
        return None
    limit, data = config.tasks.max_oracle_steps, config.data
    # Who errs about what was asked does not know better about what was not: an exact judge would undo the noise.
    flip = max(data.judge_flip, data.outcome_flip)
    return Hindsight(suite(config.tasks.suite), max_oracle_steps=limit, flip=flip).fitting


def make_devices(config: Config, worker: str) -> list[SimDevice]:
    """The devices of one worker, `worker-0/phone-3` and the like."""
    devices = config.devices
    workers = worker_names(config)
    settings = SimSettings(
        wild=devices.wild,
        latency=devices.latency,
        faults=devices.faults,
        seed=config.run.seed,
        picture_width=devices.picture_width,
        slow_machine=worker in workers[max(0, len(workers) - devices.latency.slow_workers) :],
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
    policy = make_policy(config, frames)
    log_notices(policy, log)
    batcher = Batcher(policy, weights, _batching(config, life))
    scale = pace(config.devices.latency) or SHORTEST_PACE
    newest = weights.latest
    store = ExperienceStore(run.experience)
    store.recover()  # what an earlier life had written and not yet entered into the index
    return WorkerParts(
        name=worker,
        pool=DevicePool(
            devices, PoolLimits(backoff_s=0.5 * scale, longest_backoff_s=30 * scale, quarantine_s=120 * scale)
        ),
        batcher=batcher,
        feed=make_feed(config, seed=life),
        admission=Admission(config),
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
        rounds=make_rounds(run, config, worker, store),
        lockstep=_make_lockstep(config, batcher, log),
    )


def make_rounds(run: RunFolder, config: Config, worker: str, store: ExperienceStore) -> Rounds:
    """Who may play how much of a version: in sync mode a round of it, else anyone anything."""
    round_episodes, workers = config.learner.round_episodes, worker_names(config)
    if config.learner.mode == "async":
        return NoRounds()
    if config.rollout.lockstep:
        share = share_of(round_episodes, len(workers), workers.index(worker))
        return EqualShares(share, lambda version: store.count_of(version, worker=worker)[0])
    limits = episode_limits(config)
    # No episode lasts longer: a call that is under way when its budget is over, those that follow, and then the outbox
    # until one trajectory is stored, which prolongs the claims of the others that wait there.
    longest_s = limits.budget_s + CALLS_AFTER_BUDGET * limits.step_deadline_s + STORE_DEADLINE_S
    claims = Claims(run.claims, worker, lifetime_s=longest_s)
    return SharedRound(round_episodes, claims, Delivered(lambda version, after: store.count_of(version, after=after)))


def _make_lockstep(config: Config, batcher: Batcher, log: EventLog) -> LockStep | None:
    if not config.rollout.lockstep:
        return None
    # A device that takes longer over any of its calls is lost by then, so this deadline passes only for a bug.
    patience_s = CALLS_BETWEEN_DECISIONS * episode_limits(config).step_deadline_s
    return LockStep(batcher.decide, patience_s=patience_s, tell_late=lambda missing: log.write("late", missing=missing))


def episode_limits(config: Config) -> EpisodeLimits:
    """What an episode may cost; limits of 0 follow from how long real devices take, at the pace of the phones."""
    rollout, scale = config.rollout, pace(config.devices.latency)
    return EpisodeLimits(
        budget_s=rollout.episode_budget_s or max(SHORTEST_BUDGET_S, scale * LONG_EPISODE_S),
        step_deadline_s=rollout.step_deadline_s or max(SHORTEST_DEADLINE_S, scale * LONGEST_ACTION_S),
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
