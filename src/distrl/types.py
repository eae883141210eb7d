"""The records that travel round the circle: tasks → rollout → experience → learner → rollout.

Every record is a frozen msgspec struct: the same type in memory, on the wire and on disk. Coordinates are
normalised to [0, 1] with the origin at the top left, whatever the device. Nothing here imports torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from distrl.errors import nothing_to_check

Value = str | int | float | bool
"""A plain value: of a setting, or of one field of a record on a device."""
SettingValue = Value | tuple[Value, ...]
"""What a setting may hold: a plain value or a list of them."""
Split = Literal["train", "tune", "test"]


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """A rectangle in normalised coordinates."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def centre(self) -> tuple[float, float]:
        """Where a tap on the middle goes."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def contains(self, x: float, y: float) -> bool:
        """Whether a point is inside; the right and bottom edges belong to the neighbours."""
        return self.left <= x < self.right and self.top <= y < self.bottom


class UiElement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the accessibility tree, as far as the device exposes it."""

    bounds: Bounds
    text: str = ""
    description: str = ""
    class_name: str = "View"
    resource_id: str = ""
    clickable: bool = False
    scrollable: bool = False
    checked: bool | None = None
    focused: bool = False
    enabled: bool = True


# --- actions: one space for every device and every model ------------------------------------------------------------


class Tap(msgspec.Struct, frozen=True, tag="tap"):
    """Touch a point, in normalised coordinates from the top left."""

    x: float
    y: float


class LongPress(msgspec.Struct, frozen=True, tag="long_press"):
    """Touch a point and stay there."""

    x: float
    y: float


class Swipe(msgspec.Struct, frozen=True, tag="swipe"):
    """The finger moves from (x, y) to (to_x, to_y); swiping up scrolls the content down."""

    x: float
    y: float
    to_x: float
    to_y: float


class TypeText(msgspec.Struct, frozen=True, tag="type"):
    """Type into the focused field; what it held before is replaced."""

    text: str


class Press(msgspec.Struct, frozen=True, tag="press"):
    """Press a key of the phone or its keyboard."""

    key: Literal["back", "home", "enter"]


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Let the screen settle."""


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """End the episode with a claim, and with an answer where the task is a question."""

    status: Literal["complete", "impossible"] = "complete"
    answer: str = ""


class Unparsed(msgspec.Struct, frozen=True, tag="unparsed"):
    """What a model said that is no action: always an invalid step, never a crash."""

    raw: str


Action = Tap | LongPress | Swipe | TypeText | Press | Wait | Finish | Unparsed

DialectName = Literal[
    "json", "aitw", "qwen2.5_vl", "qwen3_vl", "ui_tars", "ui_tars_1.5", "android_world", "brief", "grid"
]  # fmt: skip
"""A format in which a model writes its actions: see `distrl.policies.dialects`."""


# --- what a policy sees ---------------------------------------------------------------------------------------------


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recent action as the policy remembers it."""

    action: Action
    target: str = ""
    """Text of the element that the action touched."""
    valid: bool = True
    changed: bool = True
    """Whether the screen looked different afterwards."""
    screenshot: str = ""
    """The picture on which it was decided, as in `Observation`."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a policy may look at before a decision."""

    instruction: str
    elements: tuple[UiElement, ...] = ()
    screenshot: str = ""
    """Reference into the frame store; empty where no picture was kept."""
    width_px: int = 0
    height_px: int = 0
    """Size of the device's screen; 0: not known."""
    app: str = ""
    """The app in the foreground; empty: not known."""
    recent: tuple[Past, ...] = ()
    """Oldest first."""


# --- tasks ----------------------------------------------------------------------------------------------------------


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Write fields of one record on a simulated phone; `fields=None` removes the record."""

    table: str
    id: str
    fields: dict[str, Value] | None = None


class Want(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition on the end state: some record of `table` holds `fields`, or (absent) record `id` is gone."""

    table: str
    id: str = ""
    """Empty: any record of the table may fulfil it, which is how a task asks for something new."""
    fields: dict[str, Value] = {}
    absent: bool = False

    def __post_init__(self) -> None:
        if not (self.id or self.fields or self.absent):
            raise nothing_to_check(f"a Want on the table {self.table!r} without id, fields and absent")


class Showing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A screen of a simulated phone."""

    app: str
    screen: str = ""
    args: dict[str, str] = {}


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One leg of the scripted oracle's route, in terms of what is on the screen."""

    verb: Literal["open", "tap", "hold", "type", "enter", "back", "home", "finish"]
    target: str = ""
    """An app for `open`, a resource id for the others."""
    text: str = ""


class SimSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="sim"):
    """How a simulated phone begins: its content, then what the task changes about it."""

    phone: int
    """Decides what the phone holds."""
    seed: int
    """Decides the perturbations: pop-ups, slow screens, wordings."""
    names: int = 0
    """Decides the other names of people and things on the phone; 0: their own."""
    records: tuple[Put, ...] = ()
    start: Showing | None = None
    """The screen that the episode begins on; None: the home screen."""


class AndroidSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="android"):
    """How an Android phone begins: packages to stop, packages whose data to clear, settings, and what to open, in this order."""

    stop: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """Such as {"global/airplane_mode_on": "0"}."""
    open: str = ""
    """A package, package/activity or URL that is opened last; empty: the home screen stays."""
    world: str = ""
    """Name and seed of a task of AndroidWorld, such as ContactsAddContact/7, which sets the phone up and checks it; first of all."""


class WebSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="web"):
    """How a Chromium phone begins: the page that it opens, with no trace of earlier tasks."""

    url: str
    """An address of `devices.web.allow`; of the kind miniwob, the name of one of its tasks, such as click-test."""
    page: Literal["web", "miniwob", "phone", "mobilegym"] = "web"
    """web: any page. miniwob: a task of MiniWoB++, which asks, rewards and ends by itself. phone: a page that is a phone, and
    offers the functions of `devices.web.phone`. mobilegym: such a page, on which MobileGym's own classes set up and judge `task`."""
    task: str = ""
    """Name of a task of MobileGym, such as alipay.EnableDarkMode."""
    seed: int = 0
    """Decides what a page of the kind miniwob asks for, and the parameters of a task of MobileGym."""
    language: Literal["zh", "en"] = "zh"
    """Wording of a task of MobileGym; where it has no English one, Chinese."""
    answers: Literal["form", "action"] = "form"
    """How a question of MobileGym is answered: in the form of an app of its phone, or with the agent's claim."""
    draws: int = 0
    """Of each other training task of MobileGym, as many are tried on the end of a failure, for hindsight; 0: none."""
    width: int = 0
    height: int = 0
    """Size of the screen in CSS pixels; 0: as `devices.web` says."""


class AppSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="app"):
    """How a web app on a Chromium phone begins: with these records and nothing else."""

    app: Literal["budget", "mail", "wiki"]
    records: tuple[Put, ...] = ()


class CustomSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="custom"):
    """Plain data that a device of your own understands."""

    values: dict[str, Any] = {}


Setup = SimSetup | AndroidSetup | WebSetup | AppSetup | CustomSetup
"""How the device is brought to the start of a task. `SimSetup` is for simulated phones, `AndroidSetup` for real ones, `WebSetup`
and `AppSetup` for Chromium phones."""


class SimCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="sim"):
    """What must hold on a simulated phone when the agent says that it is done."""

    wants: tuple[Want, ...] = ()
    showing: Showing | None = None
    answer: str = ""
    answer_shown: bool = True
    """Whether the answer stands on a screen; False: the agent has to work it out, such as a count."""
    impossible: bool = False

    def __post_init__(self) -> None:
        if not (self.wants or self.showing or self.answer or self.impossible):
            raise nothing_to_check("a SimCheck without wants, showing, answer and impossible")


class RewardCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reward"):
    """The device ends and rewards the episode itself, as web pages do."""

    at_least: float = 1.0
    """Sum of the rewards that counts as success; above 0, which every episode has."""

    def __post_init__(self) -> None:
        if self.at_least <= 0:
            raise nothing_to_check(f"a RewardCheck of at least {self.at_least:g}")


class AndroidCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="android"):
    """What must hold on an Android phone when the agent says that it is done: all of it."""

    settings: dict[str, str] = {}
    """Such as {"global/airplane_mode_on": "1"}; what is not set reads "null"."""
    packages: dict[str, bool] = {}
    files: dict[str, bool] = {}
    """Whether these packages are installed, and these paths exist."""
    rows: dict[str, dict[str, str]] = {}
    """Columns that some row of a content provider holds: {"content://sms/sent": {"address": "555", "body": "Hi"}}."""
    activity: str = ""
    """What is in the foreground: a package, or package/activity."""

    def __post_init__(self) -> None:
        if not (self.settings or self.packages or self.files or self.activity or any(self.rows.values())):
            raise nothing_to_check("an AndroidCheck without settings, packages, files, rows and activity")


class AppCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="app"):
    """What must have come about in the data of a web app when the agent says that it is done, and nothing else with it."""

    wants: tuple[Want, ...] = ()
    answer: str = ""
    """What the agent has to say; empty: nothing is asked."""

    def __post_init__(self) -> None:
        if not (self.wants or self.answer):
            raise nothing_to_check("an AppCheck without wants and answer")


class ModelCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="model"):
    """A vision-language model says from the last screens whether the instruction was carried out."""

    criterion: str = ""
    """What must be seen at the end, in words; empty: the instruction says it."""


class CustomCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="custom"):
    """Plain data that a judge of your own understands."""

    values: dict[str, Any]

    def __post_init__(self) -> None:
        if not self.values:
            raise nothing_to_check("a CustomCheck without values")


Check = SimCheck | RewardCheck | AndroidCheck | AppCheck | ModelCheck | CustomCheck
"""How the outcome of a task is judged. Something to check is always there: nothing would make every claim a success."""


class SimRoute(msgspec.Struct, frozen=True, kw_only=True, tag="sim"):
    """How the scripted oracle does the task on a simulated phone. No policy ever sees this."""

    moves: tuple[Move, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instruction, a way to set the device up, and a way to judge the outcome: data for any device."""

    id: str
    suite: str
    template: str
    split: Split
    instruction: str
    setup: Setup
    check: Check
    solution: SimRoute | None = None
    """A known way to do it, for demonstrations; None: nobody knows one."""
    max_steps: int = 20
    max_s: float = 0.0
    """Seconds that an attempt may take; 0: what the device's time scales allow."""

    @property
    def oracle_steps(self) -> int:
        """Steps of the known solution; 0 without one."""
        return len(self.solution.moves) if self.solution else 0


Outcome = Literal["success", "failure", "unknown"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a judge found, each aspect on its own."""

    outcome: Outcome
    """Unknown where a fault or a failing judge left nothing to go by: never a failure of the agent."""
    reason: str = ""
    """Why, for people."""
    progress: float = 0.0
    """Share of the conditions that hold."""
    false_completion: bool = False
    """The agent said that it was done, and it was not."""
    side_effects: tuple[str, ...] = ()
    """What changed without being asked for; any of them makes the episode a failure."""

    @property
    def success(self) -> bool:
        """Whether the task is known to be done."""
        return self.outcome == "success"

    @property
    def known(self) -> bool:
        """Whether there is an outcome to learn from."""
        return self.outcome != "unknown"


# --- experience -----------------------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One record that differs between two states; None stands for a record that is not there."""

    table: str
    id: str
    before: dict[str, Value] | None
    after: dict[str, Value] | None


class SimEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="sim"):
    """How a simulated phone was left: what changed since the start of the task, and what it showed."""

    changes: tuple[Change, ...] = ()
    showing: Showing | None = None


class AndroidEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="android"):
    """How an Android phone was left: what was seen of all that the task's check asks about."""

    settings: dict[str, str] = {}
    packages: dict[str, bool] = {}
    files: dict[str, bool] = {}
    rows: dict[str, bool] = {}
    """Whether the content provider has such a row."""
    activity: str = ""
    """package/activity in the foreground."""


class WebTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a Chromium phone by name, and what it asks for."""

    task: str
    seed: int
    instruction: str
    steps: int = 0
    """After so many steps it was fulfilled; 0: at the end."""
    answer: str = ""
    """What had to be answered then."""


class WebEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="web"):
    """How a Chromium phone was left."""

    url: str = ""
    title: str = ""
    reason: str = ""
    """What the page said of its reward."""
    progress: float | None = None
    """Share of the task's conditions that hold, by its own judge; None: it has none that tells."""
    changes: tuple[str, ...] = ()
    """What changed without being asked for, by its own judge."""
    fulfilled: tuple[WebTask, ...] = ()
    """Other training tasks that this end fulfils and its start did not, or that a moment of the episode did; the best to learn from first."""


class AppEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="app"):
    """How a web app was left: what changed in its data since the start of the task, and the page that it showed."""

    changes: tuple[Change, ...] = ()
    url: str = ""


class CustomEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="custom"):
    """Plain data with which a device of your own describes how it was left."""

    values: dict[str, Any] = {}


DeviceEnd = SimEnd | AndroidEnd | WebEnd | AppEnd | CustomEnd
"""What a device knows about its own end state, for the judge."""


class EndState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an episode ended: what the agent claimed, what the device paid, and how it was left."""

    claim: Finish | None = None
    reward: float = 0.0
    """Sum of what the device itself gave."""
    device: DeviceEnd | None = None
    """None where the device does not tell, or was lost."""


class RunnerUp(msgspec.Struct, frozen=True, array_like=True):
    """What a policy might have done instead."""

    action: Action
    logp: float


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy's answer to one observation."""

    action: Action
    choice: tuple[int, ...]
    """The action in the policy's own grammar, so that it can be scored again exactly."""
    logp: float
    entropy: float
    value: float
    runners_up: tuple[RunnerUp, ...] = ()
    """The likeliest other choices, the likeliest first, for people; empty where the policy does not enumerate its choices."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision and what came of it."""

    observation: Observation
    decision: Decision
    version: int
    """The policy version that acted: weights may be swapped in the middle of an episode."""
    reward: float = 0.0
    """What the outcome and the penalty of no-ops give."""
    device_reward: float = 0.0
    """What the device itself gave for this step."""
    valid: bool = True
    changed: bool = True
    content: int | None = None
    """Which content the device held afterwards: equal numbers, equal content; 0: that of the start; None: not known."""
    device_s: float = 0.0
    """Seconds that the device took to perform the action and show the result."""


class Ending(StrEnum):
    """Who or what ended an episode."""

    FINISHED = "finished"
    """The agent, with a claim."""
    ENVIRONMENT = "environment"
    """The device itself, as web pages do."""
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    DEVICE_LOST = "device_lost"

    @property
    def is_terminal(self) -> bool:
        """The episode truly ended: nothing is bootstrapped after it."""
        return self in (Ending.FINISHED, Ending.ENVIRONMENT)

    @property
    def is_truncated(self) -> bool:
        """A limit cut it off: the value of what was seen last is bootstrapped."""
        return self in (Ending.STEP_LIMIT, Ending.TIME_LIMIT)

    @property
    def is_error(self) -> bool:
        """A fault cut it off. It is bootstrapped too, and its outcome is unknown."""
        return self is Ending.DEVICE_LOST


Source = Literal["played", "hindsight", "demonstration"]


class Trajectory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one episode."""

    id: str
    task: Task
    steps: tuple[Step, ...]
    ending: Ending
    verdict: Verdict
    end: EndState
    last: Observation | None = None
    """What the screen showed after the last step of an episode that was cut off."""
    last_value: float = 0.0
    """The acting policy's value of `last`."""
    priority: float = 1.0
    """The worker's own estimate; the learner refreshes it."""
    source: Source = "played"
    """Where it comes from: an attempt, an attempt under another instruction that it fulfilled, or the oracle."""
    worker: str = ""
    device: str = ""
    wall_s: float = 0.0

    @property
    def version(self) -> int:
        """The oldest policy version that acted in it."""
        return min((step.version for step in self.steps), default=0)


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A published set of weights."""

    version: int
    file: str
    sha256: str
    size_bytes: int
    updates: int
    episodes: int
    published_s: float
    """Wall-clock time of publication, seconds since the epoch."""
