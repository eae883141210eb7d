"""What sections are made of, and the sections that choose a kind: devices, policies and algorithms.

Sections are strict frozen structs, their numbers know their limits. Each kind has a table of its own, which that kind alone
reads: `[devices.sim]`, `[policy.pointer]`, `[algorithm.aride]` and so on. What is plugged in reads `options`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from distrl.types import DialectName

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, Meta(gt=0.0, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0.0, le=1e9)]
Signed = Annotated[float, Meta(ge=-1e6, le=1e6)]
Temperature = Annotated[float, Meta(ge=0.01, le=100.0)]
"""Below it the softmax overflows or is greedy, which is no sampling."""
MOST_SECONDS = 1e6
"""Longer waits than 11 days are slips of the hand, and clocks overflow."""
Seconds = Annotated[float, Meta(gt=0.0, le=MOST_SECONDS)]
SecondsOrNone = Annotated[float, Meta(ge=0.0, le=MOST_SECONDS)]
Minutes = Annotated[float, Meta(ge=0.0, le=525_600.0)]
"""A year at most."""
# Every whole number has an end: a slip of the hand is refused before it takes all memory.
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Few = Annotated[int, Meta(ge=1, le=10_000)]
FewOrNone = Annotated[int, Meta(ge=0, le=10_000)]
"""Of what is held in memory, or is a process or device each."""
Some = Annotated[int, Meta(ge=1, le=1_000_000)]
SomeOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""What every generator of random numbers takes."""
# A pattern comes with a description, which is what people are shown of it.
Name = Annotated[
    str, Meta(min_length=1, description="a built-in name, an entry point's name or package.module:attribute")
]
"""Of a kind that can be plugged in."""
Processor = Annotated[str, Meta(pattern=r"^(cpu|auto|cuda(:\d+)?)$", description='"cpu", "auto", "cuda" or "cuda:N"')]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a configuration: an unknown key is an error."""


# --- devices ----------------------------------------------------------------------------------------------------------


class PerturbationConfig(Section, frozen=True):
    """Domain randomisation of the simulated phones."""

    popup_rate: Share = 0.05
    """Chance that opening an app brings up something that nobody asked for."""
    slow_rate: Share = 0.05
    """Chance that a new screen needs a few moments to load."""
    update_rate: Share = 0.05
    """Chance that one app is updated, and looks different, in the middle of an episode."""
    variants: bool = True
    """Give every phone its own wordings and layouts; false: all alike."""


NO_PERTURBATIONS = PerturbationConfig(popup_rate=0.0, slow_rate=0.0, update_rate=0.0, variants=False)
"""Phones that never misbehave and all look alike."""


class LatencyConfig(Section, frozen=True):
    """How long the simulated phones take."""

    profile: Literal["instant", "emulator", "digirl"] = "emulator"
    """How long the phone takes: not at all; chosen delays with a heavy tail and stalls; or the fixed waits in the environment code of DigiRL and DistRL."""
    time_scale: Positive = 0.4
    """Multiplies every delay of the profile; 1 is real time."""
    stall_rate: Share = 0.002
    """Chance that a step of the profile emulator stalls for many seconds."""
    slow_machine_share: Share = 0.2
    """Share of the phones that sit on a machine half as fast."""
    slow_workers: FewOrNone = 0
    """So many of the workers, the last ones, sit with all their phones on machines half as fast."""


class FaultConfig(Section, frozen=True):
    """How often the simulated phones fail."""

    crash_rate: Share = 0.0
    """Chance per step that the phone crashes; it answers again after a restart."""
    freeze_rate: Share = 0.0
    """Chance per step that the phone stops answering until it is restarted."""
    disconnect_rate: Share = 0.0
    """Chance per step that the phone is gone for a while."""
    corrupt_rate: Share = 0.0
    """Chance that a screenshot arrives damaged."""
    fail_device: str = ""
    """Name of one phone, such as worker-0/phone-3, that is made to crash on purpose, to be seen recovering; empty: none."""
    fail_after_steps: Some = 20
    """Steps after which that phone crashes."""


class SimConfig(Section, frozen=True):
    """Everything about simulated phones: `[devices.sim]`."""

    screenshot_width: Annotated[int, Meta(ge=48, le=1440)] = 360
    """Width of a simulated phone's screenshots in pixels, and half their height; text is hard to read below 200."""
    perturbations: PerturbationConfig = PerturbationConfig()
    latency: LatencyConfig = LatencyConfig()
    faults: FaultConfig = FaultConfig()


AvdName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$", max_length=80, description="letters, digits, '.', '_' and '-'")
]
"""Of an emulator's AVD or of one of its snapshots."""


class EmulatorConfig(Section, frozen=True):
    """Emulators that are started where they do not run yet: `[devices.android.emulator]`."""

    avds: tuple[AvdName, ...] = ()
    """AVDs that exist, as `emulator -list-avds` names them; one that runs is used as it is, and not stopped."""
    count: Annotated[int, Meta(ge=0, le=64)] = 0
    """Emulators to make from `image`: distrl-0, distrl-1 and so on. Each is created once and kept; 0: none."""
    image: str = ""
    """System image that they are made from, such as `system-images;android-34;google_apis;x86_64`."""
    device: str = "pixel_6"
    """Hardware profile that they are made with, as `avdmanager list device` names it; empty: avdmanager's own."""
    sdk: str = ""
    """Folder of Android's SDK; empty: ANDROID_HOME, ANDROID_SDK_ROOT, ~/Android/Sdk or the path."""
    snapshot: AvdName = "distrl"
    """Snapshot that an emulator starts from and comes back to; saved after its first boot where there is none."""
    reset: Literal["setup", "snapshot"] = "setup"
    """How a task begins: by its own set-up alone, or after the snapshot was loaded, which takes seconds and leaves nothing of earlier episodes."""
    boot_s: Seconds = 240.0
    """An emulator that shows no picture after so many seconds has failed to boot."""
    memory_mb: Annotated[int, Meta(ge=0, le=65536)] = 0
    """Memory of each emulator; 0: as its AVD says."""
    cores: Annotated[int, Meta(ge=0, le=64)] = 0
    """Cores of each emulator; 0: as its AVD says."""
    first_port: Annotated[int, Meta(ge=5554, le=5682, multiple_of=2)] = 5554
    """Even port from which on a free pair is looked for; adb finds emulators by itself up to 5584."""
    grpc: bool = False
    """Open the gRPC port of each emulator, its console's plus 3000, to this machine without a token: AndroidWorld's package needs it."""
    arguments: tuple[str, ...] = ()
    """More arguments of the emulator program, such as "-gpu", "swiftshader_indirect"."""


class AndroidConfig(Section, frozen=True):
    """Android phones and emulators over ADB: `[devices.android]`."""

    serials: tuple[str, ...] = ()
    """The devices to use, as `adb devices` names them; empty: all that are connected when a role starts."""
    evaluation_serials: tuple[str, ...] = ()
    """Devices for evaluations alone; empty: the first ones of all, which workers use too."""
    adb: str = "adb"
    """The adb program, which starts the server where none runs."""
    host: str = "127.0.0.1"
    """Where the adb server listens."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port of the adb server; 0: ANDROID_ADB_SERVER_PORT where that is set, else 5037."""
    screenshot_width: Annotated[int, Meta(ge=0, le=4320)] = 540
    """Screenshots are scaled down to so many pixels in width; 0: kept as they are."""
    transfer: Literal["raw", "png"] = "raw"
    """How pictures come over: raw is quickest on a local emulator, png smaller over USB."""
    display: Annotated[str, Meta(pattern=r"^[0-9]{0,20}$")] = ""
    """Display that is photographed where a phone has several, as `adb shell dumpsys SurfaceFlinger --display-id` numbers them; empty: the first."""
    elements: bool = True
    """Read the UI hierarchy, which takes Android a second or two; false: pictures alone, for policies that read no elements."""
    quiet_s: SecondsOrNone = 0.4
    """The screen has settled once it has not changed for so long; 0: one picture after an action, without waiting."""
    settle_s: SecondsOrNone = 6.0
    """Go on after so many seconds even if the screen keeps changing, as with a video."""
    wait_s: SecondsOrNone = 1.0
    """How long the action "wait" takes."""
    call_s: Seconds = 15.0
    """A single adb call that takes longer has failed, and the device is lost."""
    reboot_after: FewOrNone = 3
    """Losses in a row after which a device is rebooted instead of reconnected; 0: never."""
    logcat: str = ""
    """Folder for the last lines of a device's log after it was lost; empty: none are kept."""
    world_python: str = ""
    """The Python that has AndroidWorld's package, for tasks of that suite; empty: the one that runs distrl."""
    emulator: EmulatorConfig = EmulatorConfig()


Function = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*)?$",
        description="names with dots between them, such as __OS__.goHome",
    ),
]
"""Of a page."""
Origin = Annotated[
    str,
    Meta(
        pattern=r"^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?$",
        description="scheme, host and port, such as http://127.0.0.1:8000, without a path",
    ),
]


class PhonePageConfig(Section, frozen=True):
    """Functions of a page that is a phone, with MobileGym's names: `[devices.web.phone]`. What is empty, the browser does itself."""

    tap: Function = "__SIM_INPUT__.tap"
    """Taps at x, y in CSS pixels."""
    long_press: Function = "__SIM_INPUT__.longPress"
    """Presses long at x, y."""
    swipe: Function = "__SIM_INPUT__.swipe"
    """Swipes from one point to another, objects with x and y."""
    type: Function = "__SIM_INPUT__.type"
    """Types a text into the focused field."""
    enter: Function = "__SIM_INPUT__.enter"
    """Presses enter."""
    back: Function = "__OS__.handleBack"
    """Goes back."""
    home: Function = "__OS__.goHome"
    """Goes to the home screen."""
    route: Function = "__OS__.getAppRoute"
    """Tells which app is in the foreground, as text or as an object with `app`."""
    ready: Function = "__SIM__.waitForData"
    """Ends once the page has all its data."""
    reset: Function = "__SIM__.resetState"
    """Brings the phone back to its first state."""
    get_state: Function = "__SIM__.getState"
    """Gives the whole state."""
    set_state: Function = "__SIM__.setState"
    """Sets the state."""
    keyboard: Annotated[str, Meta(max_length=200)] = "[data-keyboard]"
    """CSS selector of the keyboard that the page draws, whose keys are no elements: a text is typed at once. Empty: it draws none."""


class WebConfig(Section, frozen=True):
    """Chromium phones: `[devices.web]`."""

    chromium: str = ""
    """The Chromium or Chrome program; empty: the first one that is installed."""
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's sandbox, which root cannot have; auto: off for root alone."""
    allow: tuple[Origin, ...] = ()
    """Where pages may go, such as "http://127.0.0.1:8000"; everything else is out of reach. Pages that a suite brings need no entry."""
    width: Annotated[int, Meta(ge=64, le=4096)] = 360
    """Width of the screen in CSS pixels."""
    height: Annotated[int, Meta(ge=64, le=4096)] = 720
    """Height of the screen in CSS pixels."""
    pixel_ratio: Annotated[float, Meta(ge=0.25, le=8.0)] = 1.0
    """Pixels of a screenshot for each CSS pixel."""
    screenshot_quality: Annotated[int, Meta(ge=10, le=100)] = 80
    """Of the JPEGs."""
    elements: bool = True
    """Read the page's elements; false: pictures alone, for policies that read no elements."""
    most_elements: Few = 200
    """Elements of a screen that are read."""
    kept_pages: Few = 32
    """Pages of MiniWoB++ that a phone keeps loaded, a few MB each: a task on one of them begins at once."""
    quiet_s: SecondsOrNone = 0.02
    """The screen is at rest once the page has not changed for so long, nothing on it moves and it waits for nothing."""
    settle_s: Seconds = 2.0
    """Go on after so many seconds even if the page keeps changing."""
    wait_s: SecondsOrNone = 0.5
    """How long the action "wait" takes."""
    load_s: Seconds = 15.0
    """A page that takes longer to load has failed, and the phone is lost."""
    call_s: Seconds = 8.0
    """A browser that takes longer to answer hangs, and the phone is lost."""
    gym_folder: str = ""
    """Folder of your clone of MobileGym, whose code sets up and judges its tasks; empty: as `tasks.mobilegym.folder` says."""
    gym_python: str = ""
    """The Python that has what its code needs; empty: as `tasks.mobilegym.python` says, else the one that runs distrl."""
    apps_folder: str = ""
    """Folder that the apps of the suite webapps are installed in: their programs are run, some for each phone; empty: there are none."""
    phone: PhonePageConfig = PhonePageConfig()


class DevicesConfig(Section, frozen=True):
    """What the workers drive, and how many."""

    kind: Name = "sim"
    """What the workers drive: sim (simulated phones), android (phones and emulators over ADB), web (Chromium with a phone's screen), an entry point or `package.module:attribute`."""
    per_worker: Few = 72
    """Devices that each worker process drives at once."""
    spares: FewOrNone = 0
    """Further devices of each worker that are used only while others are down or away."""
    follow_s: SecondsOrNone = 5.0
    """How often a worker looks for devices that have come since it started, such as a phone that was plugged in; 0: never. Simulated phones do not come or go."""
    sim: SimConfig = SimConfig()
    android: AndroidConfig = AndroidConfig()
    web: WebConfig = WebConfig()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of devices of your own."""


# --- policies ---------------------------------------------------------------------------------------------------------


class PointerConfig(Section, frozen=True):
    width: Annotated[int, Meta(ge=16, le=256, multiple_of=16)] = 64
    """Size of a token's vector."""
    layers: Annotated[int, Meta(ge=1, le=8)] = 3
    """Transformer layers."""
    max_elements: Annotated[int, Meta(ge=1, le=1_000)] = 40
    """UI elements of a screen that are read, the first ones; those after them do not exist for the policy. Weights fit any number."""
    fitting_actions: bool = False
    """Tap; type and press enter with a field in focus; swipe up and down where something scrolls; hardly ever anything else, finishing included. For pages that end by themselves, and a policy that begins from random weights."""
    fitting_claims: bool = False
    """With `fitting_actions`: also go back, and say that it is done. For tasks that end with a claim, as MobileGym's do."""
    transition_graph: bool = False
    """Keep a graph of which screens the elements of each app led to, and show the policy what an instruction names, how near it lies behind each element, and what was never tried. For devices with many apps and screens."""
    quoted_spans: bool = False
    """Prefer to type what stands between quotation marks or brackets in the instruction; a prior that training can undo."""
    answer_lines: bool = False
    """Answer with the whole line of an element, its label and what stands beside or below it, instead of its label alone: for questions whose answer stands beside what they name."""
    string_match: bool = True
    """Give the policy features that say which words of an element stand in the instruction; a strong prior, off for comparisons."""
    word_swap_share: Share = 0.5
    """Data augmentation: share of the words in both instruction and screen that are swapped for others in training, so that the policy learns to match words; 0: none."""


class PixelConfig(Section, frozen=True):
    picture_width: Annotated[int, Meta(ge=32, le=1024, multiple_of=16)] = 224
    """Width of the input image; screenshots of another size are resized. Taps land in the middle of squares of 16 × 16."""
    picture_height: Annotated[int, Meta(ge=32, le=2048, multiple_of=16)] = 448
    """Height of the input image."""
    width: Annotated[int, Meta(ge=32, le=1024, multiple_of=32)] = 384
    """Size of a token's vector."""
    vision_layers: Annotated[int, Meta(ge=0, le=24)] = 4
    """Transformer layers over the image alone."""
    joint_layers: Annotated[int, Meta(ge=1, le=24)] = 4
    """Transformer layers over image, instruction and history together."""
    text_layers: Annotated[int, Meta(ge=0, le=8)] = 2
    """Transformer layers over the instruction alone."""
    text_bytes: Annotated[int, Meta(ge=16, le=512)] = 128
    """Bytes of an instruction that are read; what comes after them is neither read nor typed."""
    jitter: Share = 0.1
    """Colour jitter in training, as a share of the colour range, so that the policy does not depend on colours; 0: none."""
    image_cache: SomeOrNone = 1024
    """Decoded screenshots that the learner caches on its device, 0.3 MB each at 224 × 448; 0: every screenshot is decoded each time."""


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
    """Recent actions in the prompt, `rollout.history` of them at most."""
    history_pictures: Annotated[int, Meta(ge=0, le=8)] = 0
    """Screenshots of earlier steps in the prompt, besides the present one."""
    image_max_pixels: Annotated[int, Meta(ge=1024, le=100_000_000)] = 602_112
    """Larger screenshots are scaled down to so many pixels: they set the length of the prompt."""
    answer_tokens: Few = 64
    """Longest answer; a longer one is cut off there."""
    lora_rank: FewOrNone = 16
    """Rank of the adapters that are trained and published; 0: train and publish all weights."""
    lora_alpha: Positive = 32.0
    """Scale of the adapters, which is divided by their rank."""
    lora_targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Layers of the language model that get adapters, by the last part of their names."""
    value_width: Few = 256
    """Hidden units of the value head, which reads the last token of the prompt."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Numbers that the model computes with; auto: bfloat16 on a GPU, float32 on a CPU."""
    decide_batch: Few = 16
    """Prompts answered at once; fewer need less memory in a worker."""
    score_batch: Few = 2
    """Prompts under gradient at once; fewer need less memory in the learner."""
    fast: bool = True
    """Answer by static caches and captured graphs on a GPU, and learn through fewer kernels, where the model is a Qwen-VL or a plain language model; false: always as transformers does."""
    fp8: Literal["none", "tower", "all"] = "none"
    """Frozen weights in float8, on the fast path of a GPU that has it (Ada, Hopper and newer): tower, those of Qwen2.5-VL's vision tower, in workers and learner alike; all, besides those of the language model in workers, whose log-probabilities are then further from the learner's. Faster for large batches, at the price of a second copy of these weights."""
    merge: bool = False
    """Answer with the adapters added into the weights: several times faster for a small model, at the price of a second copy of the weights and of one more rounding."""
    gradient_checkpointing: bool = True
    """Where the GPU has no memory for all activations, keep only the input of each layer and compute the rest again. False: never; the last micro-batch keeps all, and the others are computed again as a whole."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model's folder. Read it first."""


class AutoUIConfig(Section, frozen=True):
    """Auto-UI, a T5 that is shown the screenshot as one vector: `[policy.autoui]`."""

    path: str = ""
    """Folder of a checkpoint of Auto-UI: config.json, tokenizer, *.safetensors."""
    vision_path: str = ""
    """Folder of BLIP-2, whose vision tower makes the vectors and is not trained."""
    answer_tokens: Few = 128
    """Longest answer; a longer one is cut off there."""
    prompt_tokens: Annotated[int, Meta(ge=16, le=4096)] = 512
    """Longer prompts lose their beginning."""
    value_width: Few = 256
    """Hidden units of the value head, which reads the mean of the prompt's hidden states."""
    decide_batch: Few = 16
    """Prompts answered at once; fewer need less memory in a worker."""
    score_batch: Few = 8
    """Prompts that go through the model together in an update."""


class PolicyConfig(Section, frozen=True):
    kind: Name = "pointer"
    """Which policy to train: pointer (reads UI elements), pixel (reads screenshots alone), vlm (a Hugging Face model), autoui (a T5 with one vector of the screenshot), an entry point or `package.module:attribute`."""
    device: Processor = "cpu"
    """Where workers and the evaluator decide: "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one and the policy has a use for it)."""
    gpu_memory_gb: NotNegative = 0.0
    """GB of a GPU that each process that decides may take, beside 1 GB for CUDA itself; 0: what is free. For processes that share a GPU."""
    pointer: PointerConfig = PointerConfig()
    pixel: PixelConfig = PixelConfig()
    vlm: VlmConfig = VlmConfig()
    autoui: AutoUIConfig = AutoUIConfig()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of a policy of your own."""


# --- algorithms -------------------------------------------------------------------------------------------------------


class ARideConfig(Section, frozen=True):
    gamma: Share = 0.95
    """Discount per step."""
    lambda_: Share = msgspec.field(default=0.95, name="lambda")
    """Lambda of Retrace: how far credit travels."""
    rho_max: Positive = 1.0
    """Clip of the importance ratio."""
    importance: Literal["none", "targets", "full"] = "targets"
    """Where clipped importance ratios correct for the policy that acted: nowhere, in the value targets, or there and in the policy term (as published)."""
    advantage: Literal["signed", "positive", "binary"] = "binary"
    """What the policy learns from: every advantage, the positive ones, or 1 where the advantage is above `advantage_floor`."""
    advantage_floor: Signed = -0.1
    """With binary advantages, what an advantage must exceed to count: a little below 0 keeps steps that went as expected."""
    positive_only: bool = True
    """Raise the probability of actions of successful episodes alone; false: of every episode (as published)."""
    scale_advantages: bool = True
    """Divide advantages by their root mean square over the batch (not with binary ones)."""
    value_weight: NotNegative = 0.5
    """Weight of the critic's loss."""
    entropy_weight: NotNegative = 0.0
    """Weight of the entropy bonus; 0: none."""
    invalid_weight: NotNegative = 0.05
    """Weight of the unlikelihood term on invalid actions; 0: none."""
    unlikelihood: Literal["invalid", "certain"] = "invalid"
    """Which steps that term takes: those the device refused, or also those without effect and false claims of failed episodes."""
    critic_warmup_updates: SomeOrNone = 40
    """Updates that train the critic alone."""


class DigiRLConfig(Section, frozen=True):
    gamma: Share = 0.95
    """Discount per step, in the TD errors of a trajectory's first priority."""
    outcome_decay: Share = 0.5
    """Lambda of the step advantage: with each step before the end the outcome counts less by this factor, and the critic more."""
    step_floor: Signed = 0.05
    """What the advantage of a step must exceed for the step to be imitated."""
    top_share: Share = 0.5
    """Share of a batch's episodes that may be imitated: those that went furthest beyond what their instruction promised."""
    value_weight: NotNegative = 0.5
    """Weight of the losses of both critics."""
    critic_warmup_updates: SomeOrNone = 40
    """Updates that train the critics alone."""


class FilteredBCConfig(Section, frozen=True):
    gamma: Share = 0.95
    """Discount per step, in the TD errors of a trajectory's first priority."""
    value_weight: NotNegative = 0.5
    """Weight of the critic's loss."""


class ProximalConfig(Section, frozen=True):
    """What PPO and GRPO share: the decoupled clip, and the trust region around the policy that acted."""

    clip: Share = 0.2
    """How far the ratio to the proximal policy may stray from 1 before its gradient stops."""
    every_updates: Some = 4
    """Updates after which the present policy becomes the proximal one; 1: they are always the same."""
    trust_region: NotNegative = 0.0
    """A step is masked once its ratio to the policy that acted is beyond 1 + trust_region or 1 / (1 + trust_region), on the side to which it is driven; 0: never."""
    importance: Literal["none", "full"] = "full"
    """Correct for the policy that acted by the importance ratio and the trust region, or not at all."""
    rho_max: Positive = 1.0
    """Clip of the importance ratio."""
    value_weight: NotNegative = 0.5
    """Weight of the critic's loss."""
    entropy_weight: NotNegative = 0.0
    """Weight of the entropy bonus; 0: none."""
    gamma: Share = 0.95
    """Discount per step."""


class PPOConfig(ProximalConfig, frozen=True):
    lambda_: Share = msgspec.field(default=0.95, name="lambda")
    """Lambda of the generalised advantage estimate: how far credit travels."""
    critic_warmup_updates: SomeOrNone = 40
    """Updates that train the critic alone."""


class GRPOConfig(ProximalConfig, frozen=True):
    whole_groups: bool = False
    """Make batches of whole groups that have successes and failures, as long as there are any; false: of single episodes, drawn by priority."""


class AlgorithmConfig(Section, frozen=True):
    kind: Name = "aride"
    """Which algorithm updates the policy: aride, digirl, filtered_bc, grpo, ppo, an entry point or `package.module:attribute`. All but the default have a file in configs/ with the learning rate and the replay that they need."""
    aride: ARideConfig = ARideConfig()
    digirl: DigiRLConfig = DigiRLConfig()
    filtered_bc: FilteredBCConfig = FilteredBCConfig()
    grpo: GRPOConfig = GRPOConfig()
    ppo: PPOConfig = PPOConfig()
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of an algorithm of your own."""
