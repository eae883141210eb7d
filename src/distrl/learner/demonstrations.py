"""What the oracle sees and does on training tasks. Loads no torch: processes of their own draw demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from distrl.config.rules import looks_at_pictures
from distrl.config.schema import Config, WildConfig
from distrl.devices.sim.layout import WIDTH, elements_of
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import PhoneState
from distrl.errors import TaskError
from distrl.experience.frame_memory import RecentFrames
from distrl.rollout.episode import target_of
from distrl.rollout.scheduler import Portion, TaskFeed
from distrl.tasks.play import Played, play_oracle
from distrl.tasks.suites import suite
from distrl.types import Action, Observation, Past, Task

Look = Callable[[PhoneState], str]
"""Takes a picture of a phone and returns its reference; empty: none is taken."""


def no_picture(_state: PhoneState) -> str:
    """For policies that do not look."""
    return ""


def camera(config: Config, frames: RecentFrames) -> Look:
    """Takes pictures as the phones of a run do, into `frames`; takes none for a policy that does not look."""
    if not looks_at_pictures(config):
        return no_picture
    from distrl.devices.sim import render  # Pillow and its fonts are loaded only where someone wants pictures

    scale = config.devices.picture_width / WIDTH
    return lambda state: frames.put(render.encode_jpeg(render.draw(state, scale)))


def demonstration_tasks(config: Config) -> list[Task]:
    """The training tasks that the oracle shows."""
    tasks = config.tasks
    portion = Portion(max_oracle_steps=tasks.max_oracle_steps)
    feed = TaskFeed(suite(tasks.suite), "train", seed=f"demonstrations {config.run.seed}", portion=portion)
    return [feed.next() for _ in range(config.warm_start.demonstrations)]


def demonstrate(
    tasks: Iterable[Task], wild: WildConfig, *, history: int, look: Look = no_picture
) -> list[tuple[Observation, Action]]:
    """What the oracle saw and did on these tasks."""
    return [pair for task in tasks for pair in _one(task, wild, history, look)]


def watch(task: Task, wild: WildConfig) -> Played | None:
    """The oracle's episode; None where it fails or does not find its way, as in some moods of a phone."""
    try:
        played = play_oracle(task, wild)
    except TaskError:
        return None
    return played if played.verdict.success else None


def _one(task: Task, wild: WildConfig, history: int, look: Look) -> list[tuple[Observation, Action]]:
    played = watch(task, wild)
    if played is None:
        return []
    pairs: list[tuple[Observation, Action]] = []
    recent: list[Past] = []
    for state, action in zip(played.states, played.actions, strict=False):
        elements = elements_of(show(state), state.focus)
        seen = Observation(
            instruction=task.instruction,
            elements=elements,
            screenshot=look(state),
            recent=tuple(recent[-history:] if history else ()),
        )
        pairs.append((seen, action))
        recent.append(Past(action=action, target=target_of(action, elements), screenshot=seen.screenshot))
    return pairs
