"""A process that draws demonstrations without end: `python -m distrl.learner.demonstrator`, as `stream` starts it.

It reads one `Order` from its input and writes episodes of `Shown` steps to its output, each after its length, until
nobody reads any more. Pictures travel as JPEG: a thirtieth of their pixels, and what a device would send.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from random import Random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.experience.frame_memory import RecentFrames
from distrl.learner.demonstrations import camera, demonstrate, demonstration_tasks
from distrl.types import Action, Observation, Tap, Task, UiElement

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
