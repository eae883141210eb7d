"""A simulated phone as a Gymnasium environment, for those who know `reset` and `step`.

    env = distrl.make_env("sim-general", seed=0)
    observation, info = env.reset(options={"task": "sim-general/test/00000"})
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

Actions come as a mapping of the action space or as a record of `distrl.types`. The observation holds plain Gymnasium
values; `info["observation"]` is the same as the record that policies see. The reward is 1 for an episode that ends in
success and 0 otherwise; `info["verdict"]` says the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import msgspec
import numpy as np
from gymnasium import spaces
from msgspec.structs import replace
from numpy.typing import NDArray

from distrl.config.schema import WildConfig
from distrl.devices.base import Performed
from distrl.devices.sim.layout import Screen, elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, end_state
from distrl.devices.sim.world import TAME, start_state
from distrl.errors import UsageError, closest
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import SPLITS
from distrl.types import (
    Action,
    Finish,
    LongPress,
    Observation,
    Past,
    Press,
    Split,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Verdict,
    Wait,
)

KINDS = ("tap", "long_press", "swipe", "type", "back", "home", "enter", "wait", "complete", "impossible")
"""What `kind` of the action space counts through."""
FLAGS = ("clickable", "scrollable", "checked", "focused", "enabled")
"""What the five flags of an element say, in this order."""
HISTORY = 6
LETTERS = "".join(chr(code) for code in (*range(0x20, 0x7F), *range(0xA1, 0x180))) + "–—‘’“”…€→←·★\n"
EDGE = 0.999
"""The largest coordinate that is still on the screen."""

PlainAction = Mapping[str, Any]
PlainObservation = dict[str, Any]
Info = dict[str, Any]


def make_env(
    name: str = "sim-general", *, seed: int | None = None, render_mode: str | None = None, wild: WildConfig = TAME
) -> PhoneEnv:
    """An environment over the tasks of a suite; `wild` decides how unruly its phones are."""
    return PhoneEnv(name, seed=seed, render_mode=render_mode, wild=wild)


class PhoneEnv(gymnasium.Env[PlainObservation, "PlainAction | Action"]):
    """One simulated phone that plays one task per episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - Gymnasium reads a plain dict

    def __init__(
        self, name: str, *, seed: int | None = None, render_mode: str | None = None, wild: WildConfig = TAME
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            seen = f"render_mode {render_mode!r} is unknown"
            raise UsageError(seen, expected='None or "rgb_array"', fix='render_mode="rgb_array"')
        self.suite, self.render_mode, self._wild, self._seed = suite(name), render_mode, wild, seed
        self.action_space = _action_space()
        self.observation_space = _observation_space()
        self._episode: _Episode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[PlainObservation, Info]:
        """Begin `options["task"]` (an id or a Task), or a task drawn from `options["split"]` ("train")."""
        super().reset(seed=self._seed if seed is None else seed)
        self._seed = None
        task = self._choose(options or {})
        start = start_state(task, self._wild)
        self._episode = _Episode(task=task, start=start, now=start)
        return self._seen(self._episode)

    def step(self, action: PlainAction | Action) -> tuple[PlainObservation, float, bool, bool, Info]:
        """Carry out one action; one that touches nothing is an invalid step, not an error."""
        episode = self._running()
        if episode.over:
            raise UsageError("the episode is over", fix="call env.reset() before the next step")
        record = action if isinstance(action, Action) else to_action(action)
        self._episode, performed = episode.after(record)
        observation, info = self._seen(self._episode)
        info["performed"] = performed
        terminated = self._episode.now.claim is not None
        if self._episode.over:
            info["verdict"] = self._episode.verdict()
        reward = float(terminated and info["verdict"].success)
        return observation, reward, terminated, self._episode.over and not terminated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The screen as height × width × 3 bytes."""
        if self.render_mode is None:
            return None
        from distrl.devices.sim.render import draw

        return np.asarray(draw(self.state).convert("RGB"), dtype=np.uint8)

    @property
    def state(self) -> PhoneState:
        """The whole phone as one record: keep it, compare it, or assign it to go back to that moment of the task."""
        return self._running().now

    @state.setter
    def state(self, state: PhoneState) -> None:
        self._episode = replace(self._running(), now=state)

    def _running(self) -> _Episode:
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
            return suite(task.partition("/")[0]).find(task)
        return task if isinstance(task, Task) else self._draw(options.get("split", "train"))

    def _draw(self, split: Split) -> Task:
        if split not in SPLITS:
            fix = 'env.reset(options={"split": "train"}), or "tune" or "test"'
            raise UsageError(f"unknown split {split!r}", expected=closest(str(split), SPLITS), fix=fix)
        return self.suite.task(split, int(self.np_random.integers(self.suite.sizes[split])))

    def _seen(self, episode: _Episode) -> tuple[PlainObservation, Info]:
        instruction, elements = episode.task.instruction, _elements(episode.now)
        record = Observation(instruction=instruction, elements=elements, recent=episode.recent)
        plain = {"instruction": _plain(instruction, 400), "elements": tuple(_describe(element) for element in elements)}
        return plain, {"observation": record, "task": episode.task}


class _Episode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode under way."""

    task: Task
    start: PhoneState
    now: PhoneState
    num_steps: int = 0
    recent: tuple[Past, ...] = ()

    @property
    def over(self) -> bool:
        return self.now.claim is not None or self.num_steps >= self.task.max_steps

    def after(self, action: Action) -> tuple[_Episode, Performed]:
        """The episode one step on, and what became of the action."""
        screen = show(self.now)
        outcome = perform(self.now, screen, action)
        changed = _elements(outcome.state) != elements_of(screen, self.now.focus)
        past = Past(action=action, target=_target(screen, action), valid=outcome.valid, changed=changed)
        recent = (*self.recent, past)[-HISTORY:]
        performed = Performed(valid=outcome.valid, changed=changed, why=outcome.why)
        return replace(self, now=outcome.state, num_steps=self.num_steps + 1, recent=recent), performed

    def verdict(self) -> Verdict:
        return judge(self.task, self.start, end_state(self.start, self.now))


def _elements(state: PhoneState) -> tuple[UiElement, ...]:
    return elements_of(show(state), state.focus)


def to_action(plain: PlainAction) -> Action:
    """The record of an action that is given as a mapping; parts that its kind does not need may be left out."""
    try:
        kind = dict(enumerate(KINDS))[int(plain["kind"])]
        x, y, to_x, to_y = (float(plain.get(name, 0.5)) for name in ("x", "y", "to_x", "to_y"))
        text = str(plain.get("text", ""))
    except (KeyError, TypeError, ValueError, AttributeError):
        expected = "a mapping with kind 0 to 9 and x, y, to_x, to_y, text as needed, or a record of distrl.types"
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


def _target(screen: Screen, action: Action) -> str:
    """The text of what was touched."""
    if not isinstance(action, Tap | LongPress):
        return ""
    widget = screen.at(action.x, action.y)
    return (widget.text or widget.detail) if widget else ""
