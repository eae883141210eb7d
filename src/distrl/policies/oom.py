"""Too little memory on a GPU, as an error that names the setting to lower. Who can go on with less does so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from distrl.errors import OutOfMemory


@contextmanager
def memory_errors(
    setting: str, present: int, *, smallest: str = "a smaller policy", besides: str = ""
) -> Iterator[None]:
    """Turn a lack of memory for `present` at once into `OutOfMemory` that says to halve `setting`, their limit.

    `smallest` is what to try where that cannot be, `besides` what would help as well.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        less = f"--{setting} {present // 2}" if present > 1 else smallest
        raise OutOfMemory(
            f"the GPU ran out of memory on a batch of {present} ({setting})",
            expected="room for the weights and for so many at once",
            fix=f"{less}, {besides}or a GPU that nobody else uses",
        ) from error
