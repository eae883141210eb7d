"""Caches of a VLM policy: what they return is what was stored, and they forget in the right order."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from distrl.errors import StoreError
from distrl.policies.vlm import caches
from distrl.policies.vlm.caches import ImageCache, TextCache


class CountingFrames:
    """`FrameReader` that makes an image of its reference and counts."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data, self.read = data, list[str]()

    def get(self, reference: str) -> bytes:
        self.read.append(reference)
        return png(int(reference)) if self.data is None else self.data


def png(shade: int, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 5), (shade % 256, 0, 0)).convert(mode).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_least_recently_used_screenshot_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_IMAGES", 2)
    frames = CountingFrames()
    cache = ImageCache(frames)
    for reference in ("1", "2", "1", "3", "1", "2"):
        assert cache.image(reference).getpixel((0, 0)) == (int(reference), 0, 0)
    assert frames.read == ["1", "2", "3", "2"]


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = ImageCache(CountingFrames(png(255, mode))).image("any")
    assert (image.mode, image.size) == ("RGB", (3, 5))


def test_a_size_is_known_without_decoding() -> None:
    whole = png(1)
    torn = whole[:45]
    assert ImageCache(CountingFrames(torn)).size("torn") == (3, 5)


@pytest.mark.parametrize("data", [b"", b"GIF", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_bytes_that_are_no_image_are_an_error_with_the_reference(data: bytes) -> None:
    cache = ImageCache(CountingFrames(data))
    with pytest.raises(StoreError, match="sha256:7"):
        cache.image("sha256:7")
    assert cache.num_undecodable == 0


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(StoreError, match="bomb is not an image"):
        ImageCache(CountingFrames(png(1))).size("bomb")


@given(st.lists(st.lists(st.text("abc", max_size=3), max_size=5), max_size=12), st.integers(1, 4))
def test_a_text_cache_gives_what_tokenizing_would_give_whatever_its_capacity(
    batches: list[list[str]], capacity: int
) -> None:
    def tokenize(prompts: Sequence[str]) -> list[list[int]]:
        assert len(set(prompts)) == len(prompts)
        return [[len(prompt), *map(ord, prompt)] for prompt in prompts]

    cache = TextCache[str](tokenize, capacity=capacity)
    for batch in batches:
        found = cache.ids(batch)
        assert [list(row) for row in found] == [[len(prompt), *map(ord, prompt)] for prompt in batch]
        assert len(cache._known) <= capacity
