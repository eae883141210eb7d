"""Steps of demonstrations with everything that is known about their screens, and sheets made of them."""

from __future__ import annotations

from functools import cache
from itertools import islice
from random import Random

import numpy as np
import torch
from torch import Tensor

from distrl.pretraining.demonstrations import Order
from distrl.pretraining.grounding.data_worker import pages
from distrl.pretraining.grounding.queries import Page
from distrl.pretraining.grounding.samples import SheetMaker, block_bytes, views
from distrl.types import Value
from support.pixels import TINY, pixel_config

LARGE: dict[str, Value] = {"devices__picture_width": 224}
"""Phones whose text can be read."""


def order(**changes: Value) -> Order:
    """Of one process that draws all of a few demonstrations."""
    given: dict[str, Value] = {"warm_start__demonstrations": 24, "warm_start__rename_share": 0.5, **changes}
    return Order(config=pixel_config(**given), number=0, num=1)


@cache
def some_pages(count: int = 60, **changes: Value) -> tuple[Page, ...]:
    """The first pages of such a process."""
    return tuple(islice(pages(order(**changes), Random(4)), count))


@cache
def some_sheets(count: int = 16) -> dict[str, Tensor]:
    """Pages as sheets, field by field, for the smallest pixel policy."""
    block = bytearray(block_bytes(TINY, count))
    into, maker, row = views(block, TINY, count), SheetMaker(TINY, Random(2)), 0
    for page in some_pages(2 * count):
        row += row < count and maker.make(page, into, row)
    assert row == count
    return {name: torch.from_numpy(np.array(field)) for name, field in into.items()}
