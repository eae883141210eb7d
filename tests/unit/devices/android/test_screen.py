"""Raw screenshots are read whole or refused, and compared as a person would."""

from __future__ import annotations

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from distrl.devices.android.screen import Frame, encode, glance, has_changed, read_png, read_raw
from distrl.errors import CorruptFrame

SIZE = (1080, 2400)


def raw(header: int = 16, kind: int = 1, pixels: bytes | None = None) -> bytes:
    width, height = SIZE
    pixels = bytes(4 * width * height) if pixels is None else pixels
    return struct.pack("<4I", width, height, kind, 0)[:header] + pixels


def a_frame(*boxes: tuple[int, int, int, int]) -> Frame:
    pixels = np.zeros((SIZE[1], SIZE[0], 4), np.uint8)
    for left, top, right, bottom in boxes:
        pixels[top:bottom, left:right] = 255
    return Frame(pixels_HWC=pixels)


@pytest.mark.parametrize("header", [12, 16])
def test_both_headers_of_screencap_are_read(header: int) -> None:
    assert read_raw(raw(header)).size == SIZE


@pytest.mark.parametrize(
    "data", [b"", raw()[:9], raw()[: 10**6], raw() + b"x", bytes(range(256)) * 100, b"error: closed\n" * 9]
)
def test_what_is_cut_off_or_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFrame):
        read_raw(data)


def test_an_unknown_pixel_format_points_to_png() -> None:
    with pytest.raises(CorruptFrame, match="png"):
        read_raw(raw(kind=4))


def test_a_png_is_read_and_a_broken_one_refused() -> None:
    file = BytesIO()
    Image.new("RGB", (90, 160), "red").save(file, "PNG")
    assert read_png(file.getvalue()).size == (90, 160)
    with pytest.raises(CorruptFrame):
        read_png(file.getvalue()[:-30])


def test_a_switch_counts_as_a_change_and_a_cursor_or_the_clock_does_not() -> None:
    def changed(*box: int) -> bool:
        return has_changed(glance(a_frame()), glance(a_frame(box) if box else a_frame()))  # type: ignore[arg-type]

    assert not changed()
    assert changed(900, 1000, 1000, 1060)
    assert not changed(500, 800, 504, 860)
    assert not changed(40, 20, 160, 70)


def test_pictures_are_scaled_down_and_never_up() -> None:
    for width, wanted in ((540, (540, 1200)), (0, SIZE), (2000, SIZE)):
        assert Image.open(BytesIO(encode(a_frame(), width))).size == wanted
