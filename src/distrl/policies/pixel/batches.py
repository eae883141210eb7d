"""Batches on the network's device: encoded observations as tensors, and their screenshots decoded and uploaded.

Screenshots stay encoded (some 12 kB of JPEG against 300 kB of pixels) wherever they wait: in the store, between
processes and in replay memory. A few threads decode them. The learner keeps the ones it used last, decoded, in an image
cache on its device, since it reads each of them many times. Suffixes as in features.py, and B batch, N images.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.policies.pixel.features import NO_TINT, Encoded, Size, decode


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the screenshots; `word_mask_BI` is true where a word stands."""

    byte_BL: Tensor
    word_BL: Tensor
    first_BI: Tensor
    last_BI: Tensor
    word_mask_BI: Tensor
    past_BPC: Tensor
    tint_BC: Tensor


def collate(items: Sequence[Encoded], device: torch.device) -> Batch:
    """A batch on `device`. Where an instruction has no word, an empty one stands for it."""
    texts = [item.text for item in items]
    most = max(1, max(text.num_words for text in texts))
    spans_BIC = np.zeros((len(items), most, 3), np.int16)
    for row, text in enumerate(texts):
        spans_BIC[row, : text.num_words, 0], spans_BIC[row, : text.num_words, 1] = text.first_I, text.last_I
        spans_BIC[row, : max(1, text.num_words), 2] = 1
    # Few transfers: each of them costs more than what it carries.
    text_BCL = _send(np.stack([np.stack([text.byte_L, text.word_L]) for text in texts]), device).long()
    spans = _send(spans_BIC, device).long()
    return Batch(
        byte_BL=text_BCL[:, 0],
        word_BL=text_BCL[:, 1],
        first_BI=spans[..., 0],
        last_BI=spans[..., 1],
        word_mask_BI=spans[..., 2] > 0,
        past_BPC=_send(np.stack([item.past_PC for item in items]), device).long(),
        tint_BC=_send(np.stack([NO_TINT if item.tint_C is None else item.tint_C for item in items]), device),
    )


def _send(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # Without waiting: a GPU that is asked to wait here finishes all its work first.
    return torch.from_numpy(array).to(device, non_blocking=True)


class ImageLoader:
    """Decodes screenshots and uploads them to a device as bytes, `[image, row, column, colour]`.

    An undecodable screenshot becomes a black one, here and whenever it is loaded again, and is counted: it points to a
    faulty device and is no reason to stop a training.
    """

    def __init__(self, size: Size, device: torch.device, *, cache: int, threads: int) -> None:
        self._size, self._device = size, device
        self._cache = ImageCache(cache, size, device) if cache else None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="images") if threads > 1 else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._staged = torch.empty(0, dtype=torch.uint8)
        self.num_undecodable = 0
        """Screenshots that could not be decoded."""

    def load(self, items: Sequence[Encoded]) -> Tensor:
        """The screenshots of `items`, from the cache where it holds them."""
        wanted = {item.reference: item.image for item in items}
        if self._cache is None or len(wanted) > self._cache.capacity:
            return self._decode([item.image for item in items])
        missing = self._cache.missing(wanted)
        if missing:
            self._cache.put(missing, self._decode([wanted[reference] for reference in missing]))
        return self._cache.get([item.reference for item in items])

    def _decode(self, images: list[bytes]) -> Tensor:
        staged_NHWC = self._stage(len(images))
        target = staged_NHWC.numpy()

        def place(row: int) -> bool:
            pixels = decode(images[row], self._size)
            target[row] = 0 if pixels is None else pixels
            return pixels is None

        rows = range(len(images))
        self.num_undecodable += sum(self._pool.map(place, rows, chunksize=4) if self._pool else map(place, rows))
        return self._upload(staged_NHWC)

    def _stage(self, num: int) -> Tensor:
        """Host memory for `num` images; for a GPU it is pinned and reused."""
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


class ImageCache:
    """The images used last, decoded, in one block of memory on the device (least recently used ones are evicted)."""

    def __init__(self, capacity: int, size: Size, device: torch.device) -> None:
        self.capacity = capacity
        self._memory_NHWC = torch.empty(capacity, *size[::-1], 3, dtype=torch.uint8, device=device)
        self._unused = list(range(capacity))
        self._slot_of: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slot_of)

    def missing(self, references: Collection[str]) -> list[str]:
        """Those that are not cached; the others become the newest, so that the next `put` does not evict them."""
        for reference in references:
            if reference in self._slot_of:
                self._slot_of.move_to_end(reference)
        return [reference for reference in references if reference not in self._slot_of]

    def put(self, references: Sequence[str], images_NHWC: Tensor) -> None:
        """Add images, in place of those that were used longest ago."""
        slots = [self._unused.pop() if self._unused else self._slot_of.popitem(last=False)[1] for _ in references]
        self._memory_NHWC[self._rows(slots)] = images_NHWC
        self._slot_of.update(zip(references, slots, strict=True))

    def get(self, references: Sequence[str]) -> Tensor:
        """Copies of cached images."""
        return self._memory_NHWC[self._rows([self._slot_of[reference] for reference in references])]

    def _rows(self, slots: list[int]) -> Tensor:
        return torch.tensor(slots).to(self._memory_NHWC.device, non_blocking=True)
