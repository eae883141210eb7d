"""From a configuration to the parts that roles are made of. Everything that can be plugged in is found by name here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import torch
from msgspec.structs import asdict

from distrl import plugins
from distrl.algorithms.base import Algorithm, AlgorithmContext
from distrl.config.groups import group_number
from distrl.config.rules import pictures_read, reads_screenshots
from distrl.config.schema import Config
from distrl.devices.base import Device, DeviceLeases, Fleet, find_devices
from distrl.devices.following import Following, can_follow
from distrl.devices.health import DeviceEvent
from distrl.devices.pool import DevicePool
from distrl.evaluation.evaluate import Evaluation
from distrl.experience.frames import FrameBuffer, FrameCache, FrameReader
from distrl.policies.base import NoFrames, Policy, PolicyContext, notices_of
from distrl.policies.gpu_memory import limit_memory
from distrl.rollout.batching import Batcher, Batching, Decider
from distrl.rollout.deadlines import longest_attempt_s, longest_turn_s, verdicts_of_worker_s
from distrl.rollout.episode import EpisodeLimits, EpisodeTools
from distrl.rollout.hindsight import Imitates, Relabeller, flip_seed_of
from distrl.rollout.outbox import SPOOL_DEADLINE_S, STORE_DEADLINE_S, Spool
from distrl.rollout.remote import Pinned, RemoteDecider, RemoteSettings
from distrl.rollout.rounds import EqualShares, LockStep, NoRounds, Rounds, SharedRound, share_of
from distrl.rollout.scheduler import Admission, Portion, TaskFeed
from distrl.rollout.worker import WorkerParts
from distrl.runtime.base import RoleContext, worker_names
from distrl.runtime.placement import torch_device
from distrl.tasks.base import Fitting, RelabelsEpisodes, Suite, find_suite, tasks_of
from distrl.tasks.judges import find_judge
from distrl.transport.base import EventSink, Transport
from distrl.transport.lease_files import phone_leases

FRAMES_IN_MEMORY = 8192
"""Pictures that a process holds in memory: 100 MB at 224 × 448."""
LONGEST_DEMONSTRATION = 64
"""Pictures of a demonstration, at most."""


def prepare_torch() -> None:
    """One thread per process, no denormals (both cost a multiple on small networks), and attention that can be learnt through.

    On an H100 or H200, torch 2.11 to 2.13 give masked attention to cuDNN, whose backward pass makes NaN of rows that see
    nothing where the length is 64 more than a multiple of 128: https://github.com/pytorch/pytorch/issues/196678.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.backends.cuda.enable_cudnn_sdp(False)


# --- what can be plugged in -------------------------------------------------------------------------------------------


def make_policy(config: Config, frames: FrameReader | None = None, *, learning: bool = False) -> Policy[Any]:
    """A policy with fresh weights, on the device of the learner or of those who act; it reads pictures from `frames`."""
    policy = config.policy
    role, own = ("learner", config.learner) if learning else ("policy", policy)
    device = torch_device(own.device, key=f"{role}.device")
    limit_memory(device, own.gpu_memory_gb, key=f"{role}.gpu_memory_gb")
    context = PolicyContext(
        frames=NoFrames() if frames is None else frames,
        device=device,
        learning=learning,
        seed=config.run.seed,
    )
    made = plugins.make("policies", policy.kind, asdict(policy), policy.options, context)
    return plugins.check_type("policies", policy.kind, made, Policy)  # type: ignore[type-abstract]


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm that the configuration names."""
    algorithm = config.algorithm
    context = AlgorithmContext(seed=config.run.seed, replay=config.replay, group_size=config.rollout.group_size)
    made = plugins.make("algorithms", algorithm.kind, asdict(algorithm), algorithm.options, context)
    return plugins.check_type("algorithms", algorithm.kind, made, Algorithm)


def make_devices(
    config: Config, owner: str, *, purpose: Literal["collection", "evaluation"] = "collection", seed: int | None = None
) -> list[Device]:
    """The devices of one role, `worker-0/phone-3` and the like."""
    own = config.devices
    fleet = Fleet(
        owner=owner,
        count=own.per_worker + own.spares if purpose == "collection" else config.evaluation.devices,
        seed=config.run.seed if seed is None else seed,
        purpose=purpose,
        workers=_alike(config, owner),
    )
    return find_devices(config.devices, fleet)


def make_evaluation(config: Config, *, seed: int, frames: FrameCache | None = None) -> Evaluation:
    """How this run evaluates: on devices of its kind, with its judge."""
    return Evaluation(
        config=config,
        devices=lambda: make_devices(config, "evaluator", purpose="evaluation", seed=seed),
        judge=find_judge(config.judge),
        seed=seed,
        keep_frame=None if frames is None else frames.put,
        picture=None if frames is None else frames.get,
    )


def log_notices(policy: Policy[Any], log: EventSink) -> None:
    """Write what the run's owner should know of its policy to where `distrl status` looks."""
    for text in notices_of(policy):
        log.write("notice", text=text)


def _alike(config: Config, owner: str) -> tuple[str, ...]:
    """The workers of the run that share out devices with this role: those of its group."""
    workers = worker_names(config)
    if owner not in workers:
        return workers
    own = group_number(config, workers.index(owner))
    return tuple(name for number, name in enumerate(workers) if group_number(config, number) == own)


# --- tasks ------------------------------------------------------------------------------------------------------------


def make_feed(config: Config, suite: Suite, *, seed: str) -> TaskFeed:
    """The training tasks of a run, in the order of `seed`."""
    tasks = config.tasks
    portion = Portion(
        max_oracle_steps=tasks.max_oracle_steps,
        group_size=config.rollout.group_size,
        rename_share=tasks.rename_share,
    )
    return TaskFeed(suite, "train", seed=seed, portion=portion)


def make_fitting(config: Config, suite: Suite) -> Fitting | None:
    """Which other training tasks an episode fulfilled; None where hindsight is off, or the suite cannot tell."""
    if not config.data.hindsight or not isinstance(suite, RelabelsEpisodes):
        return None
    data = config.data
    # Who errs about what was asked does not know better about what was not: an exact judge would undo the noise.
    flip = max(data.judge_flip, data.outcome_flip)
    return suite.hindsight(max_oracle_steps=config.tasks.max_oracle_steps, flip=flip)


def make_relabeller(config: Config, suite: Suite, policy: Imitates, algorithm: Algorithm) -> Relabeller | None:
    """What turns failures into successes at other tasks; None where hindsight is off."""
    fitting = make_fitting(config, suite)
    if fitting is None:
        return None
    return Relabeller(
        fitting,
        policy,
        filter_noops=config.data.filter_noops,
        outcome_flip=config.data.outcome_flip,
        flip_seed=flip_seed_of(config),
        first_priority=algorithm.first_priority,
    )


# --- frames -----------------------------------------------------------------------------------------------------------


def make_frame_cache(config: Config, transport: Transport | None = None) -> FrameCache | None:
    """The newest pictures in memory, and those of the run behind them; None for a policy that reads no pictures."""
    if not reads_screenshots(config):
        return None
    return FrameCache(frames_in_memory(config), None if transport is None else transport.frames)


def frames_in_memory(config: Config) -> int:
    """How many pictures a process may hold: demonstrations that are held in memory are held with all their pictures."""
    warm_start = config.warm_start
    if warm_start.samples:
        return FRAMES_IN_MEMORY
    return max(FRAMES_IN_MEMORY, LONGEST_DEMONSTRATION * warm_start.demonstrations)


# --- a worker ---------------------------------------------------------------------------------------------------------


def make_worker_parts(context: RoleContext) -> WorkerParts:
    """Everything that a worker needs, with a seed of its own for every incarnation."""
    config, transport = context.config, context.transport
    seed = f"{config.run.seed} {context.name} {context.incarnation}"
    frames = FrameBuffer(transport.frames, capacity=FRAMES_IN_MEMORY) if config.rollout.keep_screenshots else None
    policy, batcher = _make_decider(context, frames, seed)
    transport.episodes.recover()  # what an earlier incarnation had written and not yet entered into the index
    suite, algorithm = find_suite(config.tasks), make_algorithm(config)
    devices = make_devices(config, context.name)
    limits = episode_limits(config)
    return WorkerParts(
        name=context.name,
        pool=make_pool(context, devices),
        batcher=batcher,
        feed=make_feed(config, suite, seed=seed),
        admission=Admission(config),
        tools=EpisodeTools(
            decide=batcher.decide, clock=time.monotonic, keep_frame=None if frames is None else frames.put
        ),
        limits=limits,
        judge=find_judge(config.judge),
        judge_deadline_s=config.judge.deadline_s,
        judge_at_once=config.judge.at_once,
        sink=transport.episodes,
        spool=make_spool(context),
        store_deadline_s=context.store_deadline_s,
        first_priority=algorithm.first_priority,
        latest_version=lambda: version.version if (version := transport.weights.latest()) else -1,
        log=context.log,
        frames=frames,
        relabeller=make_relabeller(config, suite, policy, algorithm),
        rounds=make_rounds(context, devices, suite),
        lockstep=_make_lockstep(config, batcher, devices, context.log),
        following=make_following(context, devices),
        drain_s=config.rollout.drain_s,
    )


def _make_decider(context: RoleContext, frames: FrameReader | None, seed: str) -> tuple[Imitates, Decider]:
    """Who decides for a worker, and who says what its policy can express: its own policy, or actors elsewhere."""
    config = context.config
    if config.rollout.decide == "actors":
        # On one machine a call costs next to nothing, and each device gets its answer as soon as that is made.
        together = config.rollout.batch_size if config.runtime.kind == "ray" else 1
        remote = _make_remote(context, frames, seed, batch_size=together)
        return remote, remote
    policy = make_policy(config, frames)
    log_notices(policy, context.log)
    return policy, Batcher(policy, context.transport.weights, batching(config, seed))


def make_pinned_decider(
    context: RoleContext, frames: FrameReader | None, pinned: Pinned, *, batch_size: int
) -> RemoteDecider:
    """The actors that decide for workers, asked by one version alone."""
    seed = f"{context.config.run.seed} {context.name} {pinned.version.version}"
    return _make_remote(context, frames, seed, batch_size=batch_size, pinned=pinned)


def _make_remote(
    context: RoleContext, frames: FrameReader | None, seed: str, *, batch_size: int, pinned: Pinned | None = None
) -> RemoteDecider:
    settings = RemoteSettings(
        batch_size=batch_size,
        deadline_s=context.config.inference.deadline_s,
        pictures=pictures_read(context.config),
        seed=crc32(seed.encode()),
        pinned=pinned,
    )
    return RemoteDecider(context.inference, context.transport.weights, settings, frames=frames, log=context.log)


def make_pool(context: RoleContext, devices: Sequence[Device]) -> DevicePool:
    """The devices of a worker, under the leases of the run; what happens to each is in the worker's log."""

    def tell(event: DeviceEvent) -> None:
        told = {name: value for name, value in asdict(event).items() if value and name != "kind"}
        context.log.write(event.kind, **told)

    return DevicePool(devices, leases=leases_of(context), active=context.config.devices.per_worker, tell=tell)


def leases_of(context: RoleContext) -> DeviceLeases:
    """How a role shares devices: with the other roles of its run, and phones over ADB with whatever else runs here."""
    return phone_leases(context.config.devices, context.name) or context.transport.leases(context.name)


def make_following(context: RoleContext, devices: Sequence[Device]) -> Following | None:
    """What looks for devices that come; None for kinds that stay."""
    config = context.config
    settings = config.devices
    android = settings.android
    named = settings.kind == "android" and (android.serials or android.emulator.avds or android.emulator.count)
    if named or not settings.follow_s or config.rollout.lockstep or not can_follow(devices, context.name):
        return None  # those that are named are there from the start, absent ones too
    return Following(
        lambda: make_devices(config, context.name),
        every_s=settings.follow_s,
        most=settings.per_worker + settings.spares,
        tell=lambda why: context.log.write("no_new_devices", why=why),
    )


def make_spool(context: RoleContext, folder: Path | None = None) -> Spool:
    """Where trajectories wait while the store does not answer; a file that cannot be read is told in the worker's log."""

    def tell(path: Path, why: str) -> None:
        context.log.write("spool_damaged", file=str(path), why=why)

    return Spool(folder or context.spool, capacity=context.config.rollout.spool_episodes, damaged=tell)


def hand_over_left(context: RoleContext) -> int:
    """Give the store what other workers of the run have left in their spools; how many episodes that were.

    Works on disks that may hang: do it beside the event loop. What cannot be handed over stays for the next session.
    """
    count = 0
    for folder in context.left_spools():
        spool = make_spool(context, folder)
        for path, trajectory, frames in spool.items():
            context.transport.episodes.add(trajectory, frames)
            if trajectory.source == "played":
                context.log.write("acknowledged", id=trajectory.id, success=trajectory.verdict.success)
            spool.remove(path)
            count += 1
        with suppress(OSError):  # what was damaged stays there
            folder.rmdir()
            if folder.parent != context.spool.parent:
                folder.parent.rmdir()
    return count


def make_rounds(context: RoleContext, devices: Sequence[Device], suite: Suite) -> Rounds:
    """Who may play how much of a version: in sync mode a round of it, else anyone anything."""
    config, episodes = context.config, context.transport.episodes
    round_episodes, workers = config.learner.round_episodes, worker_names(config)
    if config.learner.mode == "async":
        return NoRounds()
    if config.rollout.lockstep:
        share = share_of(round_episodes, len(workers), workers.index(context.name))
        return EqualShares(share, lambda version: episodes.count_of(version, worker=context.name)[0])
    claims = context.transport.claims(context.name, lifetime_s=claim_lifetime_s(config, devices, suite))
    return SharedRound(round_episodes, claims)


def claim_lifetime_s(config: Config, devices: Sequence[Device], suite: Suite) -> float:
    """How long an episode of a round may stay out before someone else may start in its place.

    Verdict and hindsight each have the judge's deadline, and may have to wait for those of all other episodes. What is
    stored prolongs the claims of all others that the worker has. What comes of hindsight is stored before the episode
    itself, and both may have to go through the spool. A store that does not answer for longer than that costs the
    round one episode too many for each that waits in a spool, and none too few.
    """
    return longest_attempt_s(
        episode_limits(config),
        [device.times for device in devices],
        max_s=(task.max_s for task in tasks_of(suite, "train")),
        judge_s=verdicts_of_worker_s(config, len(devices)),
        store_s=2 * (STORE_DEADLINE_S + SPOOL_DEADLINE_S + STORE_DEADLINE_S),
    )


def _make_lockstep(config: Config, batcher: Decider, devices: Sequence[Device], log: EventSink) -> LockStep | None:
    if not config.rollout.lockstep:
        return None
    # A device that takes longer over any of its calls is lost by then, so this deadline passes only for a bug.
    patience_s = longest_turn_s(episode_limits(config), [device.times for device in devices])
    return LockStep(batcher.decide, patience_s=patience_s, tell_late=lambda missing: log.write("late", missing=missing))


def episode_limits(config: Config) -> EpisodeLimits:
    """What an episode may cost; limits of 0 are the device's own."""
    rollout = config.rollout
    return EpisodeLimits(
        budget_s=rollout.episode_budget_s,
        step_deadline_s=rollout.step_deadline_s,
        history=rollout.history,
        repeat_penalty=rollout.repeat_penalty,
    )


def batching(config: Config, seed: str) -> Batching:
    """How a policy of this run gathers decisions."""
    rollout = config.rollout
    return Batching(
        batch_size=rollout.batch_size,
        batch_wait_s=rollout.batch_wait_s,
        temperature=rollout.temperature,
        seed=crc32(seed.encode()),
        aside=config.policy.device != "cpu" and config.policy.kind != "pointer",
    )
