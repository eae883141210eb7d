"""From bytes to pixels: any size, any damage, and a cache that never overflows."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from distrl.policies.pixel.batches import ImageCache, ImageLoader
from distrl.policies.pixel.features import Encoded, decode, read_past, read_text
from distrl.policies.pixel.grammar import grid_of
from distrl.types import Observation
from support.pixels import FRAMES, TINY, pictured_screens

SIZE = (TINY.picture_width, TINY.picture_height)
CPU = torch.device("cpu")


def coded(colour: tuple[int, int, int], size: tuple[int, int] = SIZE, form: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.new("RGB", size, colour).save(buffer, form)
    return buffer.getvalue()


def item(picture: bytes) -> Encoded:
    """What the policy keeps of a screen with this picture."""
    nothing = Observation(instruction="")
    past = read_past(nothing, grid_of(TINY), 0)
    return Encoded(reference=FRAMES.put(picture), image=picture, text=read_text("", 16), past_PC=past)


def shade(number: int) -> bytes:
    return coded((number, 0, 255 - number))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
@pytest.mark.parametrize("size", [SIZE, (360, 720), (1080, 2400), (31, 17)])
def test_a_picture_of_any_size_is_brought_to_the_size_that_is_seen(size: tuple[int, int], form: str) -> None:
    pixels = decode(coded((200, 40, 90), size, form), SIZE)
    assert pixels is not None
    assert pixels.shape == (SIZE[1], SIZE[0], 3)
    assert np.abs(pixels.astype(int) - (200, 40, 90)).max() <= 4


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xd8\xff\xd9", b"GIF89a", coded((1, 2, 3))[:-30], b"\x89PNG" + b"x" * 99]
)
def test_what_is_no_picture_is_none(damage: bytes) -> None:
    assert decode(damage, SIZE) is None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("cache", [0, 4, 64])
def test_pictures_come_in_the_order_that_they_were_asked_for(cache: int, threads: int) -> None:
    loader = ImageLoader(SIZE, CPU, cache=cache, threads=threads)
    for asked in ([3, 1, 3], [1, 2, 5], [9, 8, 7, 6, 5, 4], [3], [*range(20), 0]):
        brought = loader.load([item(shade(number)) for number in asked])
        assert brought.shape == (len(asked), SIZE[1], SIZE[0], 3)
        assert brought[:, 5, 5, 0].tolist() == asked


def test_a_picture_in_the_cache_is_not_decoded_again() -> None:
    loader = ImageLoader(SIZE, CPU, cache=4, threads=1)
    torn = item(b"\xff\xd8 torn \xff\xd9")
    for _ in range(3):
        assert not loader.load([torn, item(shade(7))])[0].any()
    assert loader.num_undecodable == 1
    loader.load([item(shade(number)) for number in range(4)])
    loader.load([torn])
    assert loader.num_undecodable == 2  # others had taken its place


def test_a_cache_holds_so_many_and_those_used_last_stay() -> None:
    cache = ImageCache(3, (1, 1), CPU)
    pixels = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 1, 1, 3)
    cache.put(["a", "b", "c"], pixels[:3])
    assert cache.missing(["a", "d"]) == ["d"]
    cache.put(["d"], pixels[3:4])
    assert len(cache) == 3
    assert cache.missing(["a", "b", "c", "d"]) == ["b"]
    assert cache.get(["d", "a", "c"])[:, 0, 0, 0].tolist() == [3, 0, 2]


def test_real_screens_look_as_they_were_drawn() -> None:
    loader = ImageLoader(SIZE, CPU, cache=8, threads=2)
    for seen in pictured_screens(3):
        picture = FRAMES.get(seen.screenshot)
        drawn = np.asarray(Image.open(BytesIO(picture)).convert("RGB"))
        assert (loader.load([item(picture)])[0].numpy() == drawn).all()
