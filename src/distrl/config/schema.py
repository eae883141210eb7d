"""Every setting of a run: one struct per section, one line of meaning under each field.

The text under a field is its documentation: `docs/configuration.md` and `distrl config show` are made from it.
Limits are part of the types, so a value out of range is refused wherever it comes from. The sections that choose a
kind (devices, policy, algorithm) are in `kinds.py`; all names can be imported from here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from distrl.config.judging import (
    AndroidWorldConfig,
    EnsembleConfig,
    ListConfig,
    MiniWobConfig,
    MobileGymConfig,
    ModelJudgeConfig,
    WebAppsConfig,
)
from distrl.config.kinds import (
    NO_PERTURBATIONS,
    AlgorithmConfig,
    AndroidConfig,
    ARideConfig,
    AutoUIConfig,
    Count,
    CountOrNone,
    DevicesConfig,
    DigiRLConfig,
    FaultConfig,
    Few,
    FewOrNone,
    FilteredBCConfig,
    GRPOConfig,
    LatencyConfig,
    Minutes,
    Name,
    NotNegative,
    PerturbationConfig,
    PhonePageConfig,
    PixelConfig,
    PointerConfig,
    PolicyConfig,
    Positive,
    PPOConfig,
    Processor,
    ProximalConfig,
    Seconds,
    SecondsOrNone,
    Section,
    Seed,
    Share,
    SimConfig,
    Some,
    SomeOrNone,
    Temperature,
    VlmConfig,
    WebConfig,
)

__all__ = [
    "NO_PERTURBATIONS",
    "ARideConfig",
    "AlgorithmConfig",
    "AndroidConfig",
    "AutoUIConfig",
    "BalanceConfig",
    "Config",
    "DataConfig",
    "DevicesConfig",
    "DigiRLConfig",
    "EnsembleConfig",
    "EvaluationConfig",
    "FaultConfig",
    "FilteredBCConfig",
    "GRPOConfig",
    "GroundingConfig",
    "InferenceConfig",
    "JudgeConfig",
    "LatencyConfig",
    "LearnerConfig",
    "ListConfig",
    "MiniWobConfig",
    "ModelJudgeConfig",
    "PPOConfig",
    "PerturbationConfig",
    "PhonePageConfig",
    "PixelConfig",
    "PointerConfig",
    "PolicyConfig",
    "ProximalConfig",
    "ReplayConfig",
    "RolloutConfig",
    "RunConfig",
    "RuntimeConfig",
    "SimConfig",
    "TasksConfig",
    "TelemetryConfig",
    "VlmConfig",
    "WarmStartConfig",
    "WebConfig",
]


class RunConfig(Section, frozen=True):
    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9][a-z0-9-]{0,40}$",
            description="1 to 41 of a to z, 0 to 9 and -, which may not come first",
        ),
    ] = "sim"
    """Ends up in the name of the run folder."""
    root: str = "runs"
    """Folder that holds the run folders."""
    storage: str = ""
    """Where episodes and pictures are durable before they are acknowledged, besides the run folder: a folder on a network disk, or a URL of fsspec such as s3://bucket/runs; empty: the run folder alone."""
    seed: Seed = 0
    """Decides tasks, phones, weights and sampling."""
    minutes: Minutes = 4.9
    """Stop collecting after so many minutes; the warm start before and the last evaluation come on top. 0: no limit."""
    episodes: CountOrNone = 0
    """Stop collecting after so many episodes; 0: no limit."""


class TasksConfig(Section, frozen=True):
    suite: Name = "sim-start"
    """Which tasks to train on: see `distrl tasks list`; also list (files of instructions), android_world (with its package), miniwob, mobilegym and webapps (on `devices.kind = "web"`), an entry point or `package.module:attribute`."""
    max_oracle_steps: FewOrNone = 0
    """Leave out tasks that need more steps than this; 0: keep all."""
    rename_share: Share = 0.0
    """Share of the practised tasks that come under other names, on simulated phones where everything is called so, so that neither names nor phones are learnt by heart; 0: none."""
    list: ListConfig = ListConfig()
    android_world: AndroidWorldConfig = AndroidWorldConfig()
    miniwob: MiniWobConfig = MiniWobConfig()
    mobilegym: MobileGymConfig = MobileGymConfig()
    webapps: WebAppsConfig = WebAppsConfig()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of a suite of your own."""


class JudgeConfig(Section, frozen=True):
    kind: Name = "auto"
    """Who says whether an episode succeeded: auto (by the task's check: the state of a simulated or Android phone, the device's own reward, or a model), sim, android, reward, model, ensemble, an entry point or `package.module:attribute`."""
    deadline_s: Seconds = 60.0
    """A judge that takes longer over one episode has failed: the verdict is unknown."""
    at_once: Few = 16
    """Episodes of a worker that are judged at the same time; more of them wait, and so do new episodes."""
    model: ModelJudgeConfig = ModelJudgeConfig()
    ensemble: EnsembleConfig = EnsembleConfig()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of a judge of your own."""


class RolloutConfig(Section, frozen=True):
    workers: Annotated[int, Meta(ge=1, le=1_024)] = 2
    """Worker processes; each holds a copy of the policy."""
    groups: tuple[str, ...] = ()
    """Kinds of worker, instead of `rollout.workers` alike ones: for each, how many, and settings in which they differ from the run's, such as "4 devices.kind=android devices.per_worker=8 runtime.device_resource=phone"."""
    decide: Literal["local", "actors"] = "local"
    """Who decides: each worker with a policy of its own, or actors that decide for all workers and the evaluator, in batches, where the GPUs are (`[inference]`): with one GPU, one copy of the policy for all of them."""
    batch_size: Few = 64
    """Most decisions that are made at once."""
    batch_wait_s: SecondsOrNone = 0.004
    """How long a decision may wait for others to share its batch."""
    episode_budget_s: SecondsOrNone = 0.0
    """An episode that lasts longer is truncated, bootstrapped and used; 0: what the device's own time scales say (an emulator in real time: 150 s)."""
    step_deadline_s: SecondsOrNone = 0.0
    """A device that takes longer over one action counts as lost; 0: what its own time scales say (an emulator in real time: 124 s)."""
    drain_s: SecondsOrNone = 3.0
    """How long running episodes may go on after a worker was told to stop; what is not over by then is truncated and kept."""
    spool_episodes: SomeOrNone = 256
    """Episodes that a worker keeps on its own disk while the store does not answer; when they are full, its devices wait."""
    history: Annotated[int, Meta(ge=0, le=16)] = 6
    """Recent actions that a policy is shown."""
    temperature: Temperature = 1.0
    """Sampling temperature while collecting."""
    repeat_penalty: NotNegative = 0.01
    """Taken from the reward of a step that is invalid or has no effect."""
    group_size: Few = 1
    """Attempts at a task before the next one comes; GRPO compares them with each other and needs 2 at least."""
    lockstep: bool = False
    """Let the devices of a worker start their episodes together and wait for the slowest at every step; only to compare with."""
    keep_screenshots: bool = False
    """Store the picture of every step; needed for policies that look at pixels."""


class InferenceConfig(Section, frozen=True):
    actors: Few = 1
    """Processes that decide for all workers where `rollout.decide` is actors, each with a copy of the policy on `policy.device`; workers ask the one with the least to do."""
    cpus: NotNegative = 1.0
    """CPUs that Ray sets aside for each of them; without Ray, this and the next two are not looked at."""
    gpus: NotNegative = 0.0
    """GPUs that Ray sets aside for each of them; with it, they run on nodes that have some; 0.5 puts two on one."""
    resource: str = ""
    """Ray resource of which each takes 1, so that they run on nodes that declare it; empty: on any node."""
    deadline_s: Seconds = 20.0
    """A decision that has not come by then is asked of another one."""


class GroundingConfig(Section, frozen=True):
    queries: Annotated[int, Meta(ge=1, le=7)] = 4
    """Queries about each screen: what to do next, and things to reach by name, visible or not. Encoding a screen costs as much as two queries."""
    pointing_weight: NotNegative = 1.0
    """Weight of the pointing loss (tap what is named), beside 1 for the next step."""
    reading_weight: NotNegative = 1.0
    """Weight of the OCR loss (the letters on every square of the screen, and the name of what it belongs to); 0: none."""
    rename_share: Share = 0.6
    """Share of the phones on which everything has another name, so that letters are learnt and neither names nor their places."""
    screens_only: CountOrNone = 0
    """Further training tasks of which `distrl ground` shows the screens alone: things to reach by name and texts to read, never the next step. Those of `warm_start.demonstrations`, whose next steps are asked, then keep their names. 0: none; for the pixel policy always."""
    pool: Some = 16_384
    """Screens in the sample pool on the learner's device, 0.3 MB each at 224 × 448. Batches are drawn from it."""
    auxiliary_screens: SomeOrNone = 0
    """Screens of the pool per update of the training that follows, as an auxiliary loss (pointing and OCR, no next steps), so that training on few names does not undo reading; 0: none."""
    compile: bool = True
    """Compile the layers with torch while pretraining on a GPU; where that fails, they run as they are."""


class WarmStartConfig(Section, frozen=True):
    demonstrations: SomeOrNone = 50
    """Oracle episodes for behaviour cloning before training; 0: start from random weights."""
    epochs: Some = 40
    """Passes over them; not with `samples`."""
    learning_rate: Positive = 2e-3
    """Of behaviour cloning."""
    batch: Few = 64
    """Steps per update of behaviour cloning; screens per update of grounding pretraining."""
    samples: CountOrNone = 0
    """Clone a stream of so many steps, drawn by processes beside the learner and never held all at once; 0: `epochs` over what fits in memory. The pixel policy then does its grounding pretraining, for so many queries."""
    minutes: Minutes = 0.0
    """End a stream after so many minutes, even if `samples` have not come; 0: no limit."""
    processes: FewOrNone = 0
    """Data workers, the processes that draw a stream; 0: one for each core but two."""
    pointing_share: Share = 0.0
    """Share of the screens of a stream that also come with "Tap" and the name of an element, as grounding examples; 0: none. The pixel policy has `warm_start.grounding.queries` instead."""
    keep: bool = True
    """Keep the demonstrations in the replay, to be imitated in training too; they count as no episodes. Not with `samples`: a stream is not held."""
    grounding: GroundingConfig = GroundingConfig()
    """The pixel policy's pretraining, with `samples`."""


class DataConfig(Section, frozen=True):
    filter_noops: bool = True
    """Leave out of what is imitated of a success: steps that the device refused, that had no effect, or that were undone later."""
    hindsight: bool = True
    """Also imitate a failed episode as an attempt at some training task that its end does fulfil, where there is one."""
    judge_flip: Share = 0.0
    """Share of hindsight's verdicts that are turned round, to measure what an erring judge costs; at least `outcome_flip`."""
    outcome_flip: Share = 0.0
    """Share of the verdicts on training episodes that are turned round before the learner sees them, for the same end."""
    outcome_flip_by: Literal["episode", "situation"] = "episode"
    """What decides which of them: each episode by itself, at random; or the situation that it ended in (template, app, how much of it was done), so that the same error is made every time, as a model makes it."""


class ReplayConfig(Section, frozen=True):
    capacity_steps: Count = 60_000
    """Steps kept in memory for sampling; the oldest trajectories go first."""
    max_staleness: SomeOrNone = 8
    """Trajectories acted by a policy more versions old than this are no longer sampled."""
    keep_successes: bool = True
    """Go on sampling successful trajectories however stale: imitation of a success does not age."""
    td_weight: NotNegative = 0.0
    """Weight of the mean temporal-difference error in a trajectory's priority; 50: as published."""
    ratio_weight: NotNegative = 1.0
    """Weight of the mean clipped importance ratio in a trajectory's priority."""
    entropy_weight: NotNegative = 0.01
    """Weight of the mean entropy in a trajectory's priority."""
    success_weight: NotNegative = 200.0
    """Added to the priority of a successful trajectory, which has most to teach; 0: as published."""
    alpha: Share = 0.6
    """How strongly priorities bend the sampling; 0: uniform."""
    beta: Share = 0.0
    """How much of that the importance weights undo."""
    class_balance: Share = 0.5
    """How strongly rare task templates are favoured, the successes and the failures of each counted by themselves; 0: not."""
    weight_by: Literal["max", "mean"] = "mean"
    """What the importance weights of prioritised sampling are divided by."""


class LearnerConfig(Section, frozen=True):
    device: Processor = "cpu"
    """Where the learner trains: "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one and the policy has a use for it)."""
    gpu_memory_gb: NotNegative = 0.0
    """GB of a GPU that the learner may take, beside 1 GB for CUDA itself; 0: what is free. For processes that share a GPU."""
    gpus: Annotated[int, Meta(ge=1, le=64)] = 1
    """GPUs of one machine that share every update, each holding all weights; on "cpu", processes that do, to try it with."""
    learning_rate: Positive = 3e-3
    """Of the policy and the critic."""
    batch_trajectories: Few = 16
    """Trajectories per update."""
    first_update_episodes: Some = 64
    """Episodes to have before the first update."""
    updates_per_episode: Positive = 2.0
    """Most updates per arrived episode: more of them over-fit what has been seen."""
    warmup_updates: CountOrNone = 0
    """Learning-rate warm-up: updates over which it rises to its full height, so that first steps do not undo behaviour cloning; 0: none."""
    decay_share: Share = 0.0
    """Learning-rate decay: last share of the run's budget (`run.minutes` or `run.episodes`) over which it falls linearly to 0; 0: none."""
    ema_updates: CountOrNone = 100
    """A run ends with the exponential moving average (EMA) of its weights over about so many last updates, and over a fifth of all updates at most; workers act with the newest all the while; 0: it ends with the newest."""
    agreement_steps: FewOrNone = 4
    """Steps of every batch on which the learner recomputes, with the weights of the version that acted, what the worker recorded, and raises an alarm where they differ; not at a sampling temperature other than 1; 0: none."""
    publish_every_s: Seconds = 4.0
    """How often a new version goes to the workers."""
    checkpoint_every_s: Seconds = 20.0
    """How often the learner saves all that it needs to go on."""
    gradient_clip: Positive = 1.0
    """Largest norm of a gradient."""
    keep_versions: Some = 4
    """Published versions that stay on disk."""
    mode: Literal["async", "sync"] = "async"
    """Train while collecting, or take turns (a round of episodes, then training) with the same code."""
    round_episodes: Some = 192
    """Episodes of one round in sync mode: whoever is free plays the next one; with `rollout.lockstep`, each worker its equal share."""


class BalanceConfig(Section, frozen=True):
    enabled: bool = False
    """Let the measured loads of policy, devices and learner move the settings below, within these limits; every change stands in the role's log with its reason."""
    every_s: Seconds = 10.0
    """How long is measured before each change."""
    least_episodes: Some = 1
    """Fewest episodes that a worker plays at once where its policy cannot keep up; it begins with as many as it has devices, which are the most."""
    longest_batch_wait_s: SecondsOrNone = 0.05
    """Longest that a decision may wait for others to share its batch; it begins with `rollout.batch_wait_s`, which is the shortest."""
    least_updates_per_episode: Positive = 0.5
    """Fewest updates that an arrived episode earns where the learner cannot keep up; it begins with `learner.updates_per_episode`."""
    most_updates_per_episode: Positive = 4.0
    """Most updates that it earns where the learner is idle: more of them over-fit what has been seen."""


class EvaluationConfig(Section, frozen=True):
    episodes: Count = 300
    """Held-out tasks for the figures before and after."""
    every_s: SecondsOrNone = 40.0
    """How often a version is pinned and evaluated during training; 0: never."""
    during_episodes: Some = 60
    """Held-out tasks of each evaluation during training."""
    devices: Few = 64
    """Devices that an evaluation plays on at once; simulated phones are instant in an evaluation."""


class RuntimeConfig(Section, frozen=True):
    kind: Literal["local", "ray"] = "local"
    """Where the roles run: local, as supervised processes on this machine, or ray, on the nodes of a Ray cluster."""
    address: Annotated[str, Meta(min_length=1)] = "auto"
    """The Ray cluster: auto, the one that this machine belongs to; local, one that the run starts here; or HOST:PORT of its head."""
    device_resource: str = ""
    """Ray resource that nodes declare for their devices: a worker takes `devices.per_worker` of it; empty: workers run on any node."""
    worker_cpus: NotNegative = 1.0
    """CPUs that Ray sets aside for each worker; less than 1 puts several on one."""
    worker_gpus: NotNegative = 0.0
    """GPUs that Ray sets aside for each worker that decides on one; 0.25 puts four on one."""
    learner_gpu_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Share of its GPU that Ray sets aside for the learner; 0.5 leaves the other half to an inference actor with `inference.gpus` = 0.5, on a machine with one GPU."""
    min_workers: FewOrNone = 0
    """Workers that have to find a place for a run on Ray to begin; the others join when nodes do; 0: all of them."""
    heartbeat_s: Seconds = 0.5
    """How often a role says what it is doing."""
    silent_after_s: Seconds = 10.0
    """A role that has said nothing for so long is named and restarted."""
    max_restarts: FewOrNone = 20
    """Restarts in a row, without progress in between, after which the run gives up."""
    start_grace_s: Seconds = 60.0
    """A role that loads its libraries or its model may be silent for so long."""
    backoff_s: Seconds = 0.2
    """Wait before the first restart; doubles with each one in a row, up to 10 s."""
    no_devices_s: SecondsOrNone = 3600.0
    """A run whose workers have all been without a device for so long ends, and can be resumed; 0: it waits for ever."""
    no_verdicts: CountOrNone = 100
    """A run ends, and can be resumed, once the judge has left so many claims in a row of every worker without a verdict; 0: it goes on."""


class TelemetryConfig(Section, frozen=True):
    sinks: tuple[Name, ...] = ()
    """Where metrics go besides `metrics.jsonl`: tensorboard, wandb, trackio, an entry point or `package.module:attribute`; several are listed."""


class Config(Section, frozen=True):
    """A whole run."""

    run: RunConfig = RunConfig()
    tasks: TasksConfig = TasksConfig()
    judge: JudgeConfig = JudgeConfig()
    devices: DevicesConfig = DevicesConfig()
    rollout: RolloutConfig = RolloutConfig()
    inference: InferenceConfig = InferenceConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    data: DataConfig = DataConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    balance: BalanceConfig = BalanceConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
