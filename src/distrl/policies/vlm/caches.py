"""Caches of one VLM policy: encoded screenshots by reference, and the tokens of prompts without images."""

from __future__ import annotations

import io
import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Generic, TypeVar

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from distrl.errors import StoreError
from distrl.experience.frames import FrameReader

MAX_IMAGES = 256
"""Encoded screenshots held in memory: about 30 MB."""
MAX_PIXELS = 256
"""Decoded and scaled screenshots that wait for the GPU: 200 MB at 364 × 728."""
MAX_PROMPTS = 16_384
"""Tokenized prompts held in memory; at 300 tokens each they take 20 MB."""


@cache
def image_threads() -> ThreadPoolExecutor:
    """Threads that decode and scale screenshots: Pillow does so without Python's lock."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="images")


Prompt = TypeVar("Prompt", bound=Hashable)


class ImageCache:
    """Screenshots by reference, read when a batch needs them; those used last stay in memory, encoded. For several threads."""

    def __init__(self, frames: FrameReader) -> None:
        self._frames = frames
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()
        self.num_undecodable = 0
        """Screenshots that break off in the middle and were replaced by black ones."""

    def image(self, reference: str) -> Image.Image:
        """The screenshot in RGB, whatever mode it was stored in; a truncated one becomes black."""
        return self._decoded(self._open(reference))

    def images(self, references: Sequence[str]) -> list[Image.Image]:
        """Several screenshots, decoded at the same time."""
        return list(image_threads().map(self._decoded, [self._open(reference) for reference in references]))

    def _decoded(self, opened: Image.Image) -> Image.Image:
        try:
            return opened.convert("RGB")
        except (OSError, SyntaxError, ValueError):  # what Pillow raises for truncated and garbled images
            self.num_undecodable += 1
            return Image.new("RGB", opened.size)

    def size(self, reference: str) -> tuple[int, int]:
        """Width and height in pixels; reads the header alone."""
        return self._open(reference).size

    def _open(self, reference: str) -> Image.Image:
        try:
            return Image.open(io.BytesIO(self._bytes(reference)))
        except (UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise StoreError(
                f"the screenshot {reference[:80]} is not an image that can be read",
                expected="a whole PNG or JPEG",
                fix="look at what the device sends: distrl doctor",
            ) from error

    def _bytes(self, reference: str) -> bytes:
        with self._lock:
            if reference in self._held:
                self._held.move_to_end(reference)
                return self._held[reference]
        data = self._frames.get(reference)
        with self._lock:
            self._held[reference] = data
            if len(self._held) > MAX_IMAGES:
                self._held.popitem(last=False)
        return data


class PixelCache:
    """Screenshots decoded and scaled beforehand, each until it is taken. For several threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, reference: str) -> bool:
        return reference in self._held

    def put(self, reference: str, pixels: Tensor) -> None:
        """Keep one; the oldest are forgotten for it where there are too many."""
        with self._lock:
            self._held[reference] = pixels
            while len(self._held) > MAX_PIXELS:
                self._held.popitem(last=False)

    def take(self, reference: str) -> Tensor | None:
        """One, which is forgotten; None where it is not there."""
        with self._lock:
            return self._held.pop(reference, None)


class TextCache(Generic[Prompt]):
    """Prompts as token ids, by a function that tokenizes several at once: a learner meets the same ones again and again.

    For several threads.
    """

    def __init__(self, tokenize: Callable[[Sequence[Prompt]], list[list[int]]], *, capacity: int = MAX_PROMPTS) -> None:
        self._tokenize, self._capacity = tokenize, capacity
        self._known: dict[Prompt, array[int]] = {}
        self._lock = Lock()

    def ids(self, prompts: Sequence[Prompt]) -> list[Sequence[int]]:
        """The tokens of each prompt; over capacity, those made longest ago are forgotten."""
        with self._lock:
            found = {item: self._known[item] for item in prompts if item in self._known}
        new = [item for item in dict.fromkeys(prompts) if item not in found]
        made = dict(zip(new, (array("i", row) for row in self._tokenize(new)), strict=True)) if new else {}
        found.update(made)
        with self._lock:
            self._known.update(made)
            while len(self._known) > self._capacity:
                del self._known[next(iter(self._known))]
        return [found[item] for item in prompts]
