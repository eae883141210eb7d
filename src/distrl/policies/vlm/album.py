"""Screenshots by reference: fetched when a batch needs them, a few of the last kept as they came."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable

from PIL import Image, UnidentifiedImageError

from distrl.errors import StoreError

Fetch = Callable[[str], bytes]
"""The bytes of a picture by its reference, such as `FrameStore.get`."""
KEPT = 256
"""Encoded pictures held in memory: about 30 MB of screenshots."""


class Album:
    """Pictures by reference."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._held: OrderedDict[str, bytes] = OrderedDict()

    def picture(self, reference: str) -> Image.Image:
        """The picture in colours, whatever it was stored in; one that breaks off in the middle is seen as a black one."""
        opened = self._open(reference)
        try:
            return opened.convert("RGB")
        except (OSError, SyntaxError, ValueError):  # whatever Pillow says of pictures that were cut off or garbled
            return Image.new("RGB", opened.size)

    def size(self, reference: str) -> tuple[int, int]:
        """Width and height in pixels; reads the header alone."""
        return self._open(reference).size

    def _open(self, reference: str) -> Image.Image:
        try:
            return Image.open(io.BytesIO(self._bytes(reference)))
        except (UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise StoreError(
                f"the screenshot {reference[:80]} is no picture that can be read",
                expected="a whole PNG or JPEG",
                fix="look at what the device sends: distrl doctor",
            ) from error

    def _bytes(self, reference: str) -> bytes:
        if reference in self._held:
            self._held.move_to_end(reference)
            return self._held[reference]
        data = self._held[reference] = self._fetch(reference)
        if len(self._held) > KEPT:
            self._held.popitem(last=False)
        return data
