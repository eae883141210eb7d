"""Pictures of an Android's screen: read from what `screencap` sends, compared, and coded for the store."""

from __future__ import annotations

import struct
from io import BytesIO

import msgspec
import numpy as np
from PIL import Image

from distrl.errors import CorruptFrame

QUALITY = 85
RGBA_8888, RGBX_8888 = 1, 2
HEADERS = (16, 12)
"""Bytes before the pixels: with the colour space, from Android 9 on, and without."""
LARGEST_SIDE = 10_000
WARNING, WARNING_ENDS, LONGEST_WARNING = b"[Warning] ", b"for valid display IDs.\n", 2000
BLACK_LEVEL = 8
COMPARED_WIDTH = 270
"""Pictures are compared on a grid of about so many columns."""
STATUS_BAR = 0.04
"""Share of the height at the top that does not count: its clock ticks by itself."""
CHANGED_SHARE = 4e-4
"""Share of the compared points from which on a screen has changed: a toggled switch is ten times that, a blinking cursor a third."""

CLEARLY_CHANGED = 0.02
"""The same where the elements are known too, and did not change: a clock on the home screen does not count."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One picture: pixels (height, width, 4) as red, green, blue and something else."""

    pixels_HWC: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width, _ = self.pixels_HWC.shape
        return width, height


def read_raw(data: bytes | bytearray) -> Frame:
    """What `screencap` sent; `CorruptFrame` where it is cut off, no picture or of an unknown format."""
    data = without_warning(data)
    if len(data) < HEADERS[0]:
        raise _corrupt(f"a screenshot of {len(data)} bytes")
    width, height, kind = struct.unpack_from("<3I", data)
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        raise _corrupt(f"a screenshot that begins with {bytes(data[:12])!r}")
    if kind not in (RGBA_8888, RGBX_8888):
        raise CorruptFrame(
            f"a screenshot in pixel format {kind}", expected="RGBA", fix='devices.android.transfer = "png"'
        )
    before = len(data) - 4 * width * height
    if before not in HEADERS:
        raise _corrupt(f"{len(data):,} bytes for a screen of {width}×{height}")
    pixels = np.frombuffer(data, np.uint8, offset=before).reshape(height, width, 4)
    return Frame(pixels_HWC=pixels)


def read_png(data: bytes | bytearray) -> Frame:
    """What `screencap -p` sent."""
    try:
        image = Image.open(BytesIO(without_warning(data)), formats=("PNG",)).convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _corrupt(f"a screenshot of {len(data):,} bytes that is no PNG") from error
    return Frame(pixels_HWC=np.asarray(image))


def without_warning(data: bytes | bytearray) -> bytes | bytearray:
    """What was sent without the words that `screencap` puts before the picture of a phone with several displays."""
    if not data.startswith(WARNING):
        return data
    begin, end = data.find(WARNING_ENDS, 0, LONGEST_WARNING), len(WARNING_ENDS)
    return data if begin < 0 else data[begin + end :]


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a picture to compare it with others: a grid of points, a fortieth of its size."""

    size: tuple[int, int]
    points_HWC: np.ndarray


def glance(frame: Frame) -> Glance:
    """The points of a picture that are compared, without the status bar."""
    width, height = frame.size
    step = max(1, width // COMPARED_WIDTH)
    points = frame.pixels_HWC[round(STATUS_BAR * height) :: step, ::step, :3]
    return Glance(size=frame.size, points_HWC=np.ascontiguousarray(points))


def has_changed(before: Glance, after: Glance, share: float = CHANGED_SHARE) -> bool:
    """Whether a person would say that the screen changed: a blinking cursor and the clock do not count."""
    if before.size != after.size:
        return True
    return float((before.points_HWC != after.points_HWC).any(axis=2).mean()) >= share


def encode(frame: Frame, width: int) -> bytes:
    """The picture as a JPEG, scaled down to `width` where it is wider; 0: as it is."""
    image = Image.fromarray(frame.pixels_HWC[:, :, :3])
    if 0 < width < frame.size[0]:
        image = image.resize((width, round(frame.size[1] * width / frame.size[0])), Image.Resampling.BILINEAR)
    file = BytesIO()
    image.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _corrupt(seen: str) -> CorruptFrame:
    return CorruptFrame(seen, expected="a whole picture", fix="take another one")


def is_black(pixels: np.ndarray) -> bool:
    """Whether these pixels show nothing at all, as those of a phone whose screen is off."""
    return int(pixels.max(initial=0)) < BLACK_LEVEL
