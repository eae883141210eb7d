"""The data worker of grounding pretraining: `python -m distrl.pretraining.grounding.data_worker`, as `stream` starts it.

It reads one `WorkerJob` from its input and writes blocks of `BLOCK` samples to its output until nobody reads any more. It
plays the oracle on its share of the training tasks again and again, each time with other perturbations (domain
randomisation), and on `warm_start.grounding.rename_share` of the phones everything has another name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import BinaryIO, Protocol

import msgspec

from distrl.config.schema import Config
from distrl.devices.sim import render
from distrl.devices.sim.layout import WIDTH, Screen
from distrl.devices.sim.names import draw_number
from distrl.devices.sim.paint import Written
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import PhoneState
from distrl.pretraining.demonstrations import (
    WorkerJob,
    demonstration_tasks,
    observations_of,
    play_successfully,
    with_perturbation_seed,
)
from distrl.pretraining.grounding.queries import AnnotatedScreen, Names
from distrl.pretraining.grounding.samples import Fields, SampleWriter, Views, block_bytes, sample_fields, sample_views
from distrl.tasks.sim.oracle import SCROLL_DOWN, SCROLL_UP
from distrl.tasks.sim.renaming import under_other_names
from distrl.types import Swipe, Task

BLOCK = 32
"""Samples that travel together."""


def blocks(job: WorkerJob) -> Iterator[bytearray]:
    """Blocks of the pixel policy's samples."""
    pixel, random = job.config.policy.pixel, Random(f"sheets {job.config.run.seed} {job.number}")
    size = (pixel.picture_width, pixel.picture_height)
    return filled_blocks(SampleWriter(pixel, random), sample_fields(pixel), annotated_screens(job, random, size))


class Writer(Protocol):
    """Writes screens as samples."""

    def write(self, screen: AnnotatedScreen, into: Views, row: int) -> bool:
        """Write a screen into a row of a block; False, with the row unusable, where it makes no sample."""


def filled_blocks(writer: Writer, fields: Fields, screens: Iterable[AnnotatedScreen]) -> Iterator[bytearray]:
    """Block after block of samples; a block is overwritten once the next one is asked for."""
    block = bytearray(block_bytes(fields, BLOCK))
    into, filled = sample_views(block, fields, BLOCK), 0
    for screen in screens:
        filled += writer.write(screen, into, filled)
        if filled == BLOCK:
            yield block
            filled = 0


def annotated_screens(job: WorkerJob, random: Random, size: tuple[int, int]) -> Iterator[AnnotatedScreen]:
    """This worker's tasks again and again, each time on another phone; text is located on an image of width and height `size`.

    With `screens_only`, tasks beyond the demonstrated ones come too, and they alone come under other names.
    """
    warm_start, turn = job.config.warm_start, 0
    more, share = warm_start.grounding.screens_only, warm_start.grounding.rename_share
    drawn = demonstration_tasks(job.config, warm_start.demonstrations + more)
    tasks = list(enumerate(drawn))[job.number :: job.num]
    while tasks:
        for place, task in random.sample(tasks, len(tasks)):
            demonstrated = place < warm_start.demonstrations
            if not (more and demonstrated) and random.random() < share:
                # From one pool of words: to draw a word for the first time takes long.
                task = under_other_names(task, lambda: draw_number(random, job.number))
            yield from _screens(with_perturbation_seed(task, turn), job.config, size, demonstrated=demonstrated)
        turn += 1


def _screens(task: Task, config: Config, size: tuple[int, int], *, demonstrated: bool) -> Iterator[AnnotatedScreen]:
    played = play_successfully(task, config.devices.sim.perturbations)
    if played is None:
        return
    width_px = config.devices.sim.screenshot_width
    observations = observations_of(played, task, history=config.rollout.history, width_px=width_px)
    for state, action, seen in zip(played.states, played.actions, observations, strict=False):
        frame, written = _render(state, config, size)
        hidden, towards = hidden_below_or_above(show(state))
        yield AnnotatedScreen(
            observation=seen,
            action=action,
            frame=frame,
            written=written,
            hidden=hidden,
            towards=towards,
            demonstrated=demonstrated,
        )


def hidden_below_or_above(screen: Screen) -> tuple[tuple[Names, ...], Swipe]:
    """What scrolling would make visible, by its names, and the way to scroll: down first, and up from the end of a list."""
    body = screen.view.body
    shown = [number for number, widget in enumerate(body) if any(widget is placed.widget for placed in screen.placed)]
    if not shown or not screen.overflow:
        return (), SCROLL_DOWN
    below, above = body[shown[-1] + 1 :], body[: shown[0]]
    names = (tuple(name for name in (widget.text, widget.detail) if name) for widget in below or above)
    return tuple(filter(None, names)), SCROLL_DOWN if below else SCROLL_UP


def _render(state: PhoneState, config: Config, size: tuple[int, int]) -> tuple[bytes, tuple[Written, ...]]:
    """The screenshot that a phone of the run would send, and its text in pixels of the policy's input image, which has this size."""
    written = list[Written]()
    width = config.devices.sim.screenshot_width
    image = render.draw(state, width / WIDTH, written)
    seen, high = size[0] / width, size[1] / image.height
    lines = tuple(
        Written(line.text, line.middle * high, tuple(place * seen for place in line.letters)) for line in written
    )
    return render.encode_jpeg(image), lines


def main(draw: Callable[[WorkerJob], Iterator[bytearray]] = blocks) -> int:
    """Draw until the reader is gone."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerJob)
    output: BinaryIO = open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
    try:
        for block in draw(job):
            _write(output, memoryview(block))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write(output: BinaryIO, block: memoryview) -> None:
    while block:
        block = block[output.write(block) :]


if __name__ == "__main__":
    sys.exit(main())
