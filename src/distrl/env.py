"""A phone as a Gymnasium environment, for those who know `reset` and `step`.

    env = distrl.make_env("sim-general", seed=0)
    observation, info = env.reset(options={"task": "sim-general/test/00000"})
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

With `import distrl`, before or after `import gymnasium`, each suite has an id: `gymnasium.make("distrl/sim-general-v0")`. Without
an import, `gymnasium.make("distrl.env:distrl/sim-general-v0")` does both.

Without `config` the device is a simulated phone without delays, whose calls return at once. With it, device, judge and suite
are those of the configuration, plug-ins and Androids too; their calls block, each with the device's own deadlines. An episode is
judged as in training: the judge is shown the last screens, with their pictures where `rollout.keep_screenshots` is on, has
`judge.deadline_s`, and where it fails the outcome is unknown.

Actions come as a mapping of the action space or as a record of `distrl.types`. The observation holds plain Gymnasium
values; `info["observation"]` is the same as the record that policies see. The reward is 1 for an episode that ends in
success and 0 otherwise; `info["verdict"]` says the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from msgspec.structs import replace
from numpy.typing import NDArray

from distrl import register_environments
from distrl.config.load import load_config
from distrl.config.schema import (
    NO_PERTURBATIONS,
    Config,
    DevicesConfig,
    PerturbationConfig,
    SimConfig,
    TasksConfig,
)
from distrl.devices.base import Device, Fleet, find_devices
from distrl.errors import UsageError, closest
from distrl.experience.frames import FrameCache
from distrl.rollout.stepping import Drive, EventLoopThread, SteppedEpisode, drive
from distrl.tasks.base import SPLITS, find_suite, find_task, suite, unknown_split
from distrl.tasks.judges import LAST_SCREENS, find_judge
from distrl.types import (
    Action,
    Finish,
    LongPress,
    Observation,
    Press,
    SettingValue,
    Split,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Wait,
)

KINDS = ("tap", "long_press", "swipe", "type", "back", "home", "enter", "wait", "complete", "impossible")
"""What `kind` of the action space counts through."""
FLAGS = ("clickable", "scrollable", "checked", "focused", "enabled")
"""What the five flags of an element say, in this order."""
JUDGE_MARGIN_S = 5.0
"""How much longer than a judge's own deadline the event loop is waited for: a late verdict is no fault of the device."""
LAST_PICTURES = 2 * LAST_SCREENS
"""Pictures of an episode that are held for its judge."""
LETTERS = "".join(chr(code) for code in (*range(0x20, 0x7F), *range(0xA1, 0x180))) + "–—‘’“”…€→←·★\n"
EDGE = 0.999
"""The largest coordinate that is still on the screen."""

PlainAction = Mapping[str, Any]
PlainObservation = dict[str, Any]
Info = dict[str, Any]
Settings = str | PathLike[str] | Mapping[str, SettingValue] | Config | None
"""A TOML file, a mapping with dotted keys, a `Config`, or None."""


def make_env(
    name: str | None = None,
    *,
    seed: int | None = None,
    render_mode: str | None = None,
    perturbations: PerturbationConfig | None = None,
    config: Settings = None,
) -> PhoneEnv:
    """An environment over the tasks of a suite.

    Without `config` the suite is `name` ("sim-general"), the device a simulated phone, and `perturbations` are how often it
    misbehaves. With it, device and judge are those that the configuration names, and so is the suite where `name` is None.
    """
    return PhoneEnv(name, seed=seed, render_mode=render_mode, perturbations=perturbations, config=config)


def _resolve(name: str | None, perturbations: PerturbationConfig | None, config: Settings) -> Config:
    """The configuration that is meant, with the suite that is meant."""
    if not isinstance(perturbations, PerturbationConfig | None):
        raise UsageError(
            f"perturbations = {perturbations!r:.100} does not fit",
            expected="a PerturbationConfig of distrl.config.schema, or None",
            fix="perturbations=None",
        )
    if config is None:
        devices = DevicesConfig(sim=SimConfig(perturbations=perturbations or NO_PERTURBATIONS))
        return Config(devices=devices, tasks=TasksConfig(suite=name or "sim-general"))
    if perturbations is not None:
        fix = "set devices.sim.perturbations in the configuration"
        raise UsageError("make_env was given config and perturbations", expected="one of them", fix=fix)
    if isinstance(config, Mapping):
        config = load_config(None, config)
    elif isinstance(config, str | PathLike):
        config = load_config(Path(config))
    elif not isinstance(config, Config):
        raise UsageError(
            f"{config!r:.100} is no configuration",
            expected="a TOML file, a mapping with dotted keys, a Config or None",
            fix='make_env(config="my.toml")',
        )
    return config if name in (None, config.tasks.suite) else replace(config, tasks=TasksConfig(suite=str(name)))


class PhoneEnv(gymnasium.Env[PlainObservation, "PlainAction | Action"]):
    """One device that plays one task per episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - Gymnasium reads a plain dict

    def __init__(
        self,
        name: str | None = None,
        *,
        seed: int | None = None,
        render_mode: str | None = None,
        perturbations: PerturbationConfig | None = None,
        config: Settings = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            seen = f"render_mode {render_mode!r} is unknown"
            raise UsageError(seen, expected='None or "rgb_array"', fix='render_mode="rgb_array"')
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0):
            raise UsageError(
                f"seed = {seed!r:.100} does not fit", expected="a whole number from 0 on, or None", fix="seed=0"
            )
        meant = _resolve(name, perturbations, config)
        self._found_as = meant.tasks.suite
        self.suite, self.render_mode, self._seed = find_suite(meant.tasks), render_mode, seed
        fleet = Fleet(owner="env", count=1, seed=0, purpose="evaluation")
        self._device, *_ = find_devices(meant.devices, fleet)
        self._judge, self._judge_s = find_judge(meant.judge), meant.judge.deadline_s
        self._history, self._keeps_pictures = meant.rollout.history, meant.rollout.keep_screenshots
        self._loop = _event_loop(self._device, judge_s=self._judge_s) if config is not None else None
        self._drive: Drive = self._loop or drive
        self.action_space = _action_space()
        self.observation_space = _observation_space()
        self._episode: SteppedEpisode | None = None
        self._seen = Observation(instruction="")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[PlainObservation, Info]:
        """Begin `options["task"]` (an id or a Task), or a task drawn from `options["split"]` ("train")."""
        super().reset(seed=self._seed if seed is None else seed)
        self._seed = None
        task = self._choose(options or {})
        frames = FrameCache(LAST_PICTURES) if self._keeps_pictures else None
        self._episode = SteppedEpisode(self._device, task, history=self._history, drive=self._drive, frames=frames)
        self._seen = self._episode.observe()
        return self._shown()

    def step(self, action: PlainAction | Action) -> tuple[PlainObservation, float, bool, bool, Info]:
        """Carry out one action; one that touches nothing is an invalid step, not an error."""
        episode = self._running()
        if episode.over:
            raise UsageError("the episode is over", fix="call env.reset() before the next step")
        record = action if isinstance(action, Action) else to_action(action)
        performed = episode.act(self._seen, record)
        self._seen = episode.observe()
        observation, info = self._shown()
        info["performed"] = performed
        if episode.over:
            info["verdict"] = episode.verdict(self._judge, deadline_s=self._judge_s)
        reward = float(episode.terminated and info["verdict"].success)
        return observation, reward, episode.terminated, episode.truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The screen as height × width × 3 bytes."""
        if self.render_mode is None:
            return None
        from PIL import Image

        picture = Image.open(BytesIO(self._running().capture(screenshot=True).screenshot))
        return np.asarray(picture.convert("RGB"), dtype=np.uint8)

    def close(self) -> None:
        """Release the device; doing it twice changes nothing."""
        if self._loop is not None:
            self._loop(self._device.close())
            self._loop.close()
            self._loop = None
        super().close()

    def save_state(self) -> bytes:
        """The whole phone as it is: keep it, compare it, or give it to `load_state`."""
        return self._running().save_state()

    def load_state(self, state: bytes) -> None:
        """Go back to that moment of the task."""
        self._running().load_state(state)
        self._seen = self._running().observe()

    def _running(self) -> SteppedEpisode:
        if self._episode is None:
            raise UsageError("the environment has no task yet", fix="call env.reset() first")
        return self._episode

    def _choose(self, options: dict[str, Any]) -> Task:
        unknown = sorted(options.keys() - {"task", "split"})
        if unknown:
            known = closest(unknown[0], ("task", "split"))
            fix = 'env.reset(options={"split": "train"})'
            raise UsageError(f"reset has no option {unknown[0]!r}", expected=known, fix=fix)
        task = options.get("task")
        if isinstance(task, str):
            named = task.partition("/")[0]
            own = named in (self.suite.name, self._found_as)
            return find_task(self.suite if own else suite(named), task, self._found_as if own else named)
        if isinstance(task, Task):
            return task
        if task is not None:
            raise UsageError(
                f"task = {task!r:.100} is no task",
                expected="an id or a Task of distrl.types",
                fix=f'env.reset(options={{"task": "{self._found_as}/test/00000"}})',
            )
        return self._draw(options.get("split", "train"))

    def _draw(self, split: Split) -> Task:
        if split not in SPLITS:
            raise unknown_split(str(split))
        return self.suite.task(split, int(self.np_random.integers(self.suite.size(split))))

    def _shown(self) -> tuple[PlainObservation, Info]:
        seen = self._seen
        elements = tuple(_describe(element) for element in seen.elements)
        plain = {"instruction": _plain(seen.instruction, 400), "elements": elements}
        return plain, {"observation": seen, "task": self._running().task}


def _event_loop(device: Device, *, judge_s: float) -> EventLoopThread:
    times = device.times
    deadline_s = max(times.boot_s + times.reset_s, times.step_s, judge_s + JUDGE_MARGIN_S)
    return EventLoopThread(name=f"environment on {device.name}", deadline_s=deadline_s)


def to_action(plain: PlainAction) -> Action:
    """The record of an action that is given as a mapping; parts that its kind does not need may be left out."""
    try:
        named = plain["kind"]
        kind = named if isinstance(named, str) and named in KINDS else dict(enumerate(KINDS))[int(named)]
        x, y, to_x, to_y = (float(plain.get(name, 0.5)) for name in ("x", "y", "to_x", "to_y"))
        text = str(plain.get("text", ""))
    except (KeyError, TypeError, ValueError, AttributeError):
        expected = f"a mapping with kind 0 to 9 or one of {', '.join(KINDS)} and x, y, to_x, to_y, text as needed, or a record of distrl.types"
        raise UsageError(
            f"{str(plain)[:200]} is no action", expected=expected, fix="look at env.action_space.sample()"
        ) from None
    match kind:
        case "tap":
            return Tap(x, y)
        case "long_press":
            return LongPress(x, y)
        case "swipe":
            return Swipe(x, y, to_x, to_y)
        case "type":
            return TypeText(text)
        case "back" | "home" | "enter":
            return Press(kind)
        case "complete" | "impossible":
            return Finish(status=kind, answer=text)
        case _:
            return Wait()


def _action_space() -> spaces.Dict:
    places = {name: spaces.Box(0.0, EDGE, (), np.float32) for name in ("x", "y", "to_x", "to_y")}
    return spaces.Dict({"kind": spaces.Discrete(len(KINDS)), **places, "text": _text(80)})


def _observation_space() -> spaces.Dict:
    texts = {name: _text(200) for name in ("text", "description", "class_name", "resource_id")}
    element = spaces.Dict(
        {**texts, "bounds": spaces.Box(0.0, 1.0, (4,), np.float32), "flags": spaces.MultiBinary(len(FLAGS))}
    )
    return spaces.Dict({"instruction": _text(400), "elements": spaces.Sequence(element)})


def _text(longest: int) -> spaces.Text:
    return spaces.Text(max_length=longest, min_length=0, charset=LETTERS)


def _plain(text: str, longest: int = 200) -> str:
    """Text that the space can hold; letters that it does not know become question marks."""
    return "".join(letter if letter in LETTERS else "?" for letter in text[:longest])


def _describe(element: UiElement) -> dict[str, Any]:
    texts = {name: _plain(getattr(element, name)) for name in ("text", "description", "class_name", "resource_id")}
    bounds = element.bounds
    edges = np.clip(np.array([bounds.left, bounds.top, bounds.right, bounds.bottom], np.float32), 0.0, 1.0)
    return {**texts, "bounds": edges, "flags": np.array([bool(getattr(element, name)) for name in FLAGS], np.int8)}


register_environments()
