"""From the bytes of a screenshot to pixels on the device that the network runs on.

Pictures stay encoded (some 12 kB of JPEG against 300 kB of pixels) wherever they wait: in the store, between
processes and in replay memory. They are decoded by a few threads, and the learner keeps those that it decoded last on
a shelf on its device, since it sees each of them many times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from distrl.policies.pixel.decoding import Size, decode
from distrl.policies.pixel.features import Encoded


class PictureRoom:
    """Brings pictures to a device as bytes, `[picture, row, column, colour]`.

    A picture that cannot be decoded is seen as a black one, here and whenever it is seen again, and counted: a device
    that sends such things is one to look at, and no reason to stop a training.
    """

    def __init__(self, size: Size, device: torch.device, *, shelf: int, threads: int) -> None:
        self._size, self._device = size, device
        self._shelf = Shelf(shelf, size, device) if shelf else None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures") if threads > 1 else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._staged = torch.empty(0, dtype=torch.uint8)
        self.num_dark = 0
        """Pictures that could not be decoded."""

    def bring(self, items: Sequence[Encoded]) -> Tensor:
        """The pictures of `items`."""
        wanted = {item.reference: item.picture for item in items}
        if self._shelf is None or len(wanted) > self._shelf.capacity:
            return self._decode([item.picture for item in items])
        missing = self._shelf.missing(wanted)
        if missing:
            self._shelf.put(missing, self._decode([wanted[reference] for reference in missing]))
        return self._shelf.take([item.reference for item in items])

    def _decode(self, pictures: list[bytes]) -> Tensor:
        staged_NHWC = self._stage(len(pictures))
        target = staged_NHWC.numpy()

        def place(row: int) -> bool:
            pixels = decode(pictures[row], self._size)
            target[row] = 0 if pixels is None else pixels
            return pixels is None

        rows = range(len(pictures))
        self.num_dark += sum(self._pool.map(place, rows, chunksize=4) if self._pool else map(place, rows))
        return self._upload(staged_NHWC)

    def _stage(self, num: int) -> Tensor:
        """Room for `num` pictures in memory that the GPU can fetch from, used again and again."""
        if self._stream is None:
            return torch.empty(num, *self._size[::-1], 3, dtype=torch.uint8)
        if len(self._staged) < num:
            self._staged = torch.empty(num, *self._size[::-1], 3, dtype=torch.uint8, pin_memory=True)
        return self._staged[:num]

    def _upload(self, staged_NHWC: Tensor) -> Tensor:
        if self._stream is None:
            return staged_NHWC
        # On a stream of its own, which alone is waited for: the network goes on with the batch before meanwhile.
        with torch.cuda.stream(self._stream):
            there_NHWC = staged_NHWC.to(self._device, non_blocking=True)
        self._stream.synchronize()
        there_NHWC.record_stream(torch.cuda.current_stream(self._device))
        return there_NHWC


class Shelf:
    """The pictures used last, decoded, in one block of memory on the device."""

    def __init__(self, capacity: int, size: Size, device: torch.device) -> None:
        self.capacity = capacity
        self._room = torch.empty(capacity, *size[::-1], 3, dtype=torch.uint8, device=device)
        self._unused = list(range(capacity))
        self._slot_of: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slot_of)

    def missing(self, references: Collection[str]) -> list[str]:
        """Those that are not on the shelf; the others are now the newest, and safe from the next `put`."""
        for reference in references:
            if reference in self._slot_of:
                self._slot_of.move_to_end(reference)
        return [reference for reference in references if reference not in self._slot_of]

    def put(self, references: Sequence[str], pictures_NHWC: Tensor) -> None:
        """Put pictures in, those that nobody has used for longest making room."""
        slots = [self._unused.pop() if self._unused else self._slot_of.popitem(last=False)[1] for _ in references]
        self._room[self._rows(slots)] = pictures_NHWC
        self._slot_of.update(zip(references, slots, strict=True))

    def take(self, references: Sequence[str]) -> Tensor:
        """Copies of pictures that are on the shelf."""
        return self._room[self._rows([self._slot_of[reference] for reference in references])]

    def _rows(self, slots: list[int]) -> Tensor:
        return torch.tensor(slots).to(self._room.device, non_blocking=True)
