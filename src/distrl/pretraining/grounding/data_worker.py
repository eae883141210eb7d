"""A process that draws sheets without end: `python -m distrl.pretraining.grounding.data_worker`, as `screens` starts it.

It reads one `Order` from its input and writes blocks of `BLOCK` sheets to its output until nobody reads any more. It
plays the oracle on its share of the training tasks again and again, each time on a phone in another mood, and where
`warm_start.rename_share` says so, on one where everything has another name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from random import Random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.devices.sim import render
from distrl.devices.sim.layout import WIDTH, Screen, elements_of
from distrl.devices.sim.names import draw_number
from distrl.devices.sim.paint import Written
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import PhoneState
from distrl.pretraining.demonstrations import Order, demonstration_tasks, in_another_mood, watch
from distrl.pretraining.grounding.queries import Names, Page
from distrl.pretraining.grounding.samples import SheetMaker, block_bytes, views
from distrl.rollout.episode import target_of
from distrl.tasks.sim.oracle import SCROLL_DOWN, SCROLL_UP
from distrl.tasks.sim.renaming import under_other_names
from distrl.types import Observation, Past, Swipe, Task

BLOCK = 32
"""Sheets that travel together."""


def blocks(order: Order) -> Iterator[bytearray]:
    """Block after block; a block is overwritten once the next one is asked for."""
    pixel, random = order.config.policy.pixel, Random(f"sheets {order.config.run.seed} {order.number}")
    maker, block = SheetMaker(pixel, random), bytearray(block_bytes(pixel, BLOCK))
    into, filled = views(block, pixel, BLOCK), 0
    for page in pages(order, random):
        filled += maker.make(page, into, filled)
        if filled == BLOCK:
            yield block
            filled = 0


def pages(order: Order, random: Random) -> Iterator[Page]:
    """This process's tasks again and again, each time on another phone."""
    tasks, turn = demonstration_tasks(order.config)[order.number :: order.num], 0
    while tasks:
        for task in random.sample(tasks, len(tasks)):
            if random.random() < order.config.warm_start.rename_share:
                # From one pool of words: to draw a word for the first time takes long.
                task = under_other_names(task, lambda: draw_number(random, order.number))
            yield from _show(in_another_mood(task, turn), order.config)
        turn += 1


def _show(task: Task, config: Config) -> Iterator[Page]:
    played, recent = watch(task, config.devices.wild), list[Past]()
    if played is None:
        return
    for state, action in zip(played.states, played.actions, strict=False):
        screen = show(state)
        seen = Observation(instruction=task.instruction, elements=elements_of(screen, state.focus))
        seen = replace(seen, recent=tuple(recent[-config.rollout.history :] if config.rollout.history else ()))
        picture, written = _picture(state, config)
        hidden, towards = out_of_sight(screen)
        yield Page(observation=seen, action=action, picture=picture, written=written, hidden=hidden, towards=towards)
        recent.append(Past(action=action, target=target_of(action, seen.elements)))


def out_of_sight(screen: Screen) -> tuple[tuple[Names, ...], Swipe]:
    """What scrolling brings into sight, by its names: as the oracle looks for it, down first, and up from the end."""
    body = screen.view.body
    shown = [number for number, widget in enumerate(body) if any(widget is placed.widget for placed in screen.placed)]
    if not shown or not screen.overflow:
        return (), SCROLL_DOWN
    below, above = body[shown[-1] + 1 :], body[: shown[0]]
    names = (tuple(name for name in (widget.text, widget.detail) if name) for widget in below or above)
    return tuple(filter(None, names)), SCROLL_DOWN if below else SCROLL_UP


def _picture(state: PhoneState, config: Config) -> tuple[bytes, tuple[Written, ...]]:
    """What a phone of the run would send, and the text on it in the pixels that the policy sees."""
    written = list[Written]()
    width = config.devices.picture_width
    image = render.draw(state, width / WIDTH, written)
    size, seen = config.policy.pixel, config.policy.pixel.picture_width / width
    high = size.picture_height / image.height
    lines = tuple(
        Written(line.text, line.middle * high, tuple(place * seen for place in line.letters)) for line in written
    )
    return render.encode_jpeg(image), lines


def main() -> int:
    """Draw until the reader is gone."""
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    output: BinaryIO = open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
    try:
        for block in blocks(order):
            _write(output, memoryview(block))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write(output: BinaryIO, block: memoryview) -> None:
    while block:
        block = block[output.write(block) :]


if __name__ == "__main__":
    sys.exit(main())
