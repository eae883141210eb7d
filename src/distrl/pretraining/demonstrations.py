"""What the oracle sees and does on training tasks. Loads no torch: processes of their own draw demonstrations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from random import Random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from distrl.config.rules import looks_at_pictures
from distrl.config.schema import Config, WildConfig
from distrl.devices.sim.layout import WIDTH, elements_of
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import PhoneState
from distrl.errors import TaskError
from distrl.experience.frame_memory import RecentFrames
from distrl.rollout.episode import target_of
from distrl.rollout.scheduler import Portion, TaskFeed
from distrl.tasks.sim.oracle import Played, play_oracle
from distrl.tasks.sim.suites import suite
from distrl.types import Action, Observation, Past, Tap, Task, UiElement

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


# --- A process that draws demonstrations without end: `python -m distrl.pretraining.demonstrations`, ---


LENGTH_BYTES = 4
LONGEST_EPISODE = 64
"""Pictures in memory: more than an oracle's episode has steps."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to draw: its share of the demonstrations of a run."""

    config: Config
    number: int
    """Which of `num` processes this is."""
    num: int


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a demonstration, with its picture."""

    observation: Observation
    action: Action
    picture: bytes = b""


Episode = tuple[Shown, ...]


def draw(order: Order) -> Iterator[Episode]:
    """This process's tasks again and again, each time on a phone in another mood; in some the oracle is lost."""
    random = Random(f"pointing {order.config.run.seed} {order.number}")
    tasks = demonstration_tasks(order.config)[order.number :: order.num]
    turn = 0
    while tasks:
        for task in random.sample(tasks, len(tasks)):
            if shown := tuple(_show(in_another_mood(task, turn), order.config, random)):
                yield shown
        turn += 1


def _show(task: Task, config: Config, random: Random) -> Iterator[Shown]:
    frames = RecentFrames(LONGEST_EPISODE)
    look = camera(config, frames)
    for seen, action in demonstrate([task], config.devices.wild, history=config.rollout.history, look=look):
        picture = frames.get(seen.screenshot) if seen.screenshot else b""
        yield Shown(observation=seen, action=action, picture=picture)
        if random.random() < config.warm_start.pointing_share:
            yield from _pointing(seen, picture, random)


def in_another_mood(task: Task, turn: int) -> Task:
    """The task as it is at first, then with the pop-ups, layout and wordings of another seed."""
    if not turn:
        return task
    digest = blake2b(f"{task.seed} {turn}".encode(), digest_size=6).digest()
    return replace(task, seed=int.from_bytes(digest, "big"))


def _pointing(seen: Observation, picture: bytes, random: Random) -> Iterator[Shown]:
    """The same screen with something on it to tap, by name; nothing where nothing has a name of its own."""
    names = [_name(element) for element in seen.elements]
    named = [e for e in seen.elements if e.clickable and _name(e) and names.count(_name(e)) == 1]
    if named:
        element = random.choice(named)
        asked = replace(seen, instruction=f"Tap {_name(element)}", recent=())
        yield Shown(observation=asked, action=Tap(*element.bounds.centre), picture=picture)


def _name(element: UiElement) -> str:
    return element.text or element.description


def write(episodes: Iterable[Episode], output: BinaryIO) -> None:
    """Every episode after its length."""
    encoder = msgspec.msgpack.Encoder()
    for episode in episodes:
        data = encoder.encode(episode)
        output.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


def read(source: BinaryIO) -> Iterator[Episode]:
    """What `write` has written, to its end."""
    decoder = msgspec.msgpack.Decoder(Episode)
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        size = int.from_bytes(head, "big")
        if len(data := source.read(size)) < size:
            return  # whoever wrote it was ended in the middle
        yield decoder.decode(data)


def main() -> int:
    """Draw until the reader is gone."""
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    try:
        write(draw(order), sys.stdout.buffer)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
