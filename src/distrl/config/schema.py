"""Every setting of a run: one struct per section, one line of meaning under each field.

The text under a field is its documentation: `docs/configuration.md` and `distrl config show` are made from it.
Limits are part of the types, so a value out of range is refused wherever it comes from. The larger families have files
of their own, `devices.py` and `algorithms.py`; all names can be imported from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from distrl.config.algorithms import AlgorithmConfig, DigiRLConfig, ProximalConfig
from distrl.config.devices import DevicesConfig, FaultConfig, LatencyConfig, WildConfig
from distrl.config.section import Count, CountOrNone, NotNegative, Positive, Processor, Section, Share
from distrl.types import DialectName

__all__ = [
    "AlgorithmConfig",
    "Config",
    "DataConfig",
    "DevicesConfig",
    "DigiRLConfig",
    "EvaluationConfig",
    "FaultConfig",
    "LatencyConfig",
    "LearnerConfig",
    "PixelConfig",
    "PolicyConfig",
    "ProximalConfig",
    "ReplayConfig",
    "RolloutConfig",
    "RunConfig",
    "RuntimeConfig",
    "TasksConfig",
    "VlmConfig",
    "WarmStartConfig",
    "WildConfig",
]


class RunConfig(Section, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")] = "sim"
    """Ends up in the name of the run folder."""
    root: str = "runs"
    """Folder that holds the run folders."""
    seed: CountOrNone = 0
    """Decides tasks, phones, weights and sampling."""
    minutes: NotNegative = 4.9
    """Stop collecting after so many minutes; 0: no limit."""
    episodes: CountOrNone = 0
    """Stop collecting after so many episodes; 0: no limit."""


class TasksConfig(Section, frozen=True):
    suite: str = "sim-start"
    """Which tasks to train on: see `distrl tasks list`."""
    max_oracle_steps: CountOrNone = 0
    """Leave out tasks that need more steps than this; 0: keep all."""


class RolloutConfig(Section, frozen=True):
    workers: Count = 2
    """Worker processes."""
    batch_size: Count = 64
    """Most decisions that are made at once."""
    batch_wait_s: NotNegative = 0.004
    """How long a decision may wait for others to share its batch."""
    episode_budget_s: NotNegative = 0.0
    """An episode that lasts longer is cut, bootstrapped and used; 0: 150 s on devices in real time, times `devices.latency.time_scale` on simulated phones, and 30 s at least."""
    step_deadline_s: NotNegative = 0.0
    """A device that takes longer over one action counts as lost; 0: 124 s on devices in real time, times `devices.latency.time_scale` on simulated phones, and 10 s at least."""
    history: Annotated[int, Meta(ge=0, le=16)] = 6
    """Recent actions that a policy is shown."""
    temperature: Positive = 1.0
    """Sampling temperature while collecting."""
    repeat_penalty: NotNegative = 0.01
    """Taken from the reward of a step that is invalid or has no effect."""
    group_size: Count = 1
    """Attempts at a task before the next one comes; GRPO compares them with each other and needs 2 at least."""
    lockstep: bool = False
    """Let the devices of a worker start their episodes together and wait for the slowest at every step; only to compare with."""
    keep_screenshots: bool = False
    """Store the picture of every step; needed for policies that look at pixels."""


class PixelConfig(Section, frozen=True):
    picture_width: Annotated[int, Meta(ge=32, le=1024, multiple_of=16)] = 224
    """Width of what the policy sees; screenshots of another size are resized. Taps land in the middle of squares of 16 × 16."""
    picture_height: Annotated[int, Meta(ge=32, le=2048, multiple_of=16)] = 448
    """Height of what the policy sees."""
    width: Annotated[int, Meta(ge=32, le=1024, multiple_of=32)] = 384
    """Size of a token's vector."""
    vision_layers: Annotated[int, Meta(ge=0, le=24)] = 4
    """Transformer layers over the picture alone."""
    joint_layers: Annotated[int, Meta(ge=1, le=24)] = 4
    """Transformer layers over picture, instruction and history together."""
    text_bytes: Annotated[int, Meta(ge=16, le=512)] = 128
    """Bytes of an instruction that are read; what comes after them is neither read nor typed."""
    jitter: Share = 0.1
    """How far the colours of a picture are shifted in training, so that the policy does not depend on them; 0: not at all."""
    shelf: CountOrNone = 1024
    """Decoded pictures that the learner keeps at hand on its device, 0.3 MB each at 224 × 448; 0: every picture is decoded each time."""


class VlmConfig(Section, frozen=True):
    path: str = ""
    """Folder of a Hugging Face model: config.json, tokenizer, *.safetensors."""
    dialect: DialectName = "json"
    """Format in which the model writes its actions: the one that it was trained on, or "json"."""
    pictures: bool = True
    """Show the screenshot to the model; false: UI elements alone, for models that take no pictures."""
    elements: bool = True
    """List the UI elements in the prompt; false: the screenshot must do."""
    history: Annotated[int, Meta(ge=0, le=16)] = 4
    """Recent actions in the prompt."""
    history_pictures: Annotated[int, Meta(ge=0, le=8)] = 0
    """Screenshots of earlier steps in the prompt, besides the present one."""
    image_max_pixels: Annotated[int, Meta(ge=1024)] = 602_112
    """Larger screenshots are scaled down to so many pixels: they set the length of the prompt."""
    answer_tokens: Count = 64
    """Longest answer; a longer one is cut off there."""
    lora_rank: CountOrNone = 16
    """Rank of the adapters that are trained and published; 0: train and publish all weights."""
    lora_alpha: Positive = 32.0
    """Scale of the adapters, which is divided by their rank."""
    lora_targets: str = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    """Layers of the language model that get adapters, by the last part of their names."""
    value_width: Count = 256
    """Hidden units of the value head, which reads the last token of the prompt."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Numbers that the model computes with; auto: bfloat16 on a GPU, float32 on a CPU."""
    decide_batch: Count = 16
    """Prompts answered at once; fewer need less memory in a worker."""
    score_batch: Count = 2
    """Prompts under gradient at once; fewer need less memory in the learner."""
    fast: bool = True
    """Answer by static caches and captured graphs on a GPU, where the model is a Qwen-VL or a plain language model; false: always as transformers does."""
    merge: bool = False
    """Answer with the adapters added into the weights: several times faster for a small model, at the price of a second copy of the weights and of one more rounding."""
    gradient_checkpointing: bool = True
    """Keep only the input of each layer under gradient and compute the rest again: far less memory, a quarter more time."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model's folder. Read it first."""


class PolicyConfig(Section, frozen=True):
    kind: Literal["pointer", "pixel", "vlm"] = "pointer"
    """Which policy to train: the pointer reads UI elements, the pixel policy sees screenshots alone, "vlm" is a Hugging Face model."""
    device: Processor = "cpu"
    """Where workers and the evaluator decide: "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one and the policy has a use for it)."""
    width: Annotated[int, Meta(ge=16, le=256, multiple_of=16)] = 64
    """Size of a token's vector."""
    layers: Annotated[int, Meta(ge=1, le=8)] = 3
    """Transformer layers."""
    string_match: bool = True
    """Tell the policy which words of an element stand in the instruction; a strong prior, off for comparisons."""
    rename_share: Share = 0.5
    """Share of the words in both instruction and screen that are swapped for others in training, so that the policy learns to match words; 0: none."""
    pixel: PixelConfig = PixelConfig()
    vlm: VlmConfig = VlmConfig()


class WarmStartConfig(Section, frozen=True):
    demonstrations: CountOrNone = 50
    """Oracle episodes to clone before training; 0: start from nothing."""
    epochs: Count = 40
    """Passes over them; not with `samples`."""
    learning_rate: Positive = 2e-3
    """Of the cloning."""
    batch: Count = 64
    """Steps per update of the cloning."""
    samples: CountOrNone = 0
    """Clone a stream of so many steps, drawn by processes beside the learner and never held all at once; 0: `epochs` over what fits in memory."""
    minutes: NotNegative = 0.0
    """End a stream after so many minutes, even if `samples` have not come; 0: no limit."""
    processes: CountOrNone = 0
    """Processes that draw a stream; 0: one for each core but two."""
    pointing_share: Share = 0.0
    """Share of the screens of a stream that are also shown with "Tap" and the name of something on them: teaches to read and to point; 0: none."""
    keep: bool = True
    """Keep the demonstrations in the replay, to be imitated in practice too; they count as no episodes. Not with `samples`: nobody holds a stream."""


class DataConfig(Section, frozen=True):
    cut: bool = True
    """Leave out of what is imitated of a success: steps that the device refused, that had no effect, or that were undone later."""
    hindsight: bool = True
    """Also imitate a failed episode as an attempt at some training task that its end does fulfil, where there is one."""
    judge_flip: Share = 0.0
    """Share of hindsight's verdicts that are turned round, to measure what an erring judge costs; at least `outcome_flip`."""
    outcome_flip: Share = 0.0
    """Share of the verdicts on training episodes that are turned round before the learner sees them, for the same end."""


class ReplayConfig(Section, frozen=True):
    capacity_steps: Count = 60_000
    """Steps kept in memory for sampling; the oldest trajectories go first."""
    max_staleness: CountOrNone = 8
    """Trajectories acted by a policy more versions old than this are no longer sampled."""
    keep_successes: bool = True
    """Go on sampling successful trajectories however stale: imitation of a success does not age."""
    td_weight: NotNegative = 50.0
    """Weight of the mean temporal-difference error in a trajectory's priority."""
    ratio_weight: NotNegative = 1.0
    """Weight of the mean clipped importance ratio in a trajectory's priority."""
    entropy_weight: NotNegative = 0.01
    """Weight of the mean entropy in a trajectory's priority."""
    success_weight: NotNegative = 200.0
    """Added to the priority of a successful trajectory, which has most to teach; 0: as published."""
    alpha: Share = 0.6
    """How strongly priorities bend the sampling; 0: uniform."""
    beta: Share = 0.4
    """How much of that the importance weights undo."""
    balance: Share = 0.0
    """How strongly rare task templates are favoured, among successes and among failures apart; 0: not, 1: every template alike."""


class LearnerConfig(Section, frozen=True):
    device: Processor = "cpu"
    """Where the learner trains: "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one and the policy has a use for it)."""
    learning_rate: Positive = 1e-3
    """Of the policy and the critic."""
    batch_trajectories: Count = 16
    """Trajectories per update."""
    first_update_episodes: Count = 64
    """Episodes to have before the first update."""
    updates_per_episode: Positive = 1.0
    """Most updates per arrived episode: more of them over-fit what has been seen."""
    publish_every_s: Positive = 4.0
    """How often a new version goes to the workers."""
    checkpoint_every_s: Positive = 20.0
    """How often the learner saves all that it needs to go on."""
    gradient_clip: Positive = 1.0
    """Largest norm of a gradient."""
    keep_versions: Count = 4
    """Published versions that stay on disk."""
    mode: Literal["async", "sync"] = "async"
    """Train while collecting, or take turns (a round of episodes, then training) with the same code."""
    round_episodes: Count = 192
    """Episodes of one round in sync mode: whoever is free plays the next one; with `rollout.lockstep`, each worker its equal share."""


class EvaluationConfig(Section, frozen=True):
    episodes: Count = 300
    """Held-out tasks for the figures before and after."""
    every_s: NotNegative = 40.0
    """How often a version is pinned and evaluated during training; 0: never."""
    during_episodes: Count = 60
    """Held-out tasks of each evaluation during training."""
    devices: Count = 64
    """Instant phones that an evaluation plays on at once."""


class RuntimeConfig(Section, frozen=True):
    kind: Literal["local"] = "local"
    """Where the roles run: supervised processes on this machine."""
    heartbeat_s: Positive = 0.5
    """How often a role says what it is doing."""
    silent_after_s: Positive = 10.0
    """A role that has said nothing for so long is named and restarted."""
    max_restarts: CountOrNone = 20
    """Restarts in a row, without progress in between, after which the run gives up."""
    backoff_s: Positive = 0.2
    """Wait before the first restart; doubles with each one in a row, up to 10 s."""


class Config(Section, frozen=True):
    """A whole run."""

    run: RunConfig = RunConfig()
    tasks: TasksConfig = TasksConfig()
    devices: DevicesConfig = DevicesConfig()
    rollout: RolloutConfig = RolloutConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    data: DataConfig = DataConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    runtime: RuntimeConfig = RuntimeConfig()
