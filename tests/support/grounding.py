"""Annotated screens of demonstrations, and grounding samples made of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from random import Random

import numpy as np
import torch
from torch import Tensor

from distrl.pretraining.demonstrations import WorkerJob
from distrl.pretraining.grounding.data_worker import annotated_screens
from distrl.pretraining.grounding.queries import AnnotatedScreen
from distrl.pretraining.grounding.samples import SampleWriter, block_bytes, sample_fields, sample_views
from distrl.types import Value
from support.pixels import TINY, pixel_config

Give = Callable[[dict[str, Tensor]], None]
LARGE: dict[str, Value] = {"devices__sim__screenshot_width": 224}
"""Phones whose text can be read."""


def job(**changes: Value) -> WorkerJob:
    """The job of one data worker that draws all of a few demonstrations."""
    given: dict[str, Value] = {"warm_start__demonstrations": 24, "warm_start__grounding__rename_share": 0.5, **changes}
    return WorkerJob(config=pixel_config(**given), number=0, num=1)


@cache
def some_screens(count: int = 60, **changes: Value) -> tuple[AnnotatedScreen, ...]:
    """The first screens of such a worker."""
    return tuple(islice(annotated_screens(job(**changes), Random(4), (TINY.picture_width, TINY.picture_height)), count))


@cache
def some_samples(count: int = 16) -> dict[str, Tensor]:
    """Screens as samples, field by field, for the smallest pixel policy."""
    block = bytearray(block_bytes(sample_fields(TINY), count))
    into, writer, row = sample_views(block, sample_fields(TINY), count), SampleWriter(TINY, Random(2)), 0
    for screen in some_screens(2 * count):
        row += row < count and writer.write(screen, into, row)
    assert row == count
    return {name: torch.from_numpy(np.array(field)) for name, field in into.items()}


class FromMemory:
    """`SampleSource` that always gives the same screens."""

    def __init__(self, block: dict[str, Tensor]) -> None:
        self._block, self.given = block, 0

    def take(self, give: Give, *, most: int) -> int:
        give(self._block)
        self.given += len(self._block["picture"])
        return 1

    def fill(self, give: Give, *, blocks: int, on_wait: Callable[[], None]) -> None:
        for _ in range(blocks):
            self.take(give, most=1)


class RecordingReporter:
    """`Reporter` that remembers what it was told."""

    def __init__(self) -> None:
        self.said = list[str]()
        self.logged = list[str]()
        self.figures = list[dict[str, float]]()
        self.num_alive = 0

    def say(self, what: str) -> None:
        self.said.append(what)

    def alive(self) -> None:
        self.num_alive += 1

    def measured(self, values: dict[str, float]) -> None:
        self.figures.append(values)

    def log(self, what: str) -> None:
        self.logged.append(what)
