"""Grounding samples: a block of bytes of known size in which every field lies where it is read."""

from __future__ import annotations

from random import Random

import numpy as np
from msgspec.structs import replace

from distrl.config.schema import PixelConfig
from distrl.devices.sim.paint import Written
from distrl.policies.pixel.features import decode
from distrl.policies.pixel.grammar import KINDS, grid_of
from distrl.pretraining.grounding.queries import AnnotatedScreen, names_of
from distrl.pretraining.grounding.samples import (
    NAME_LETTERS,
    SampleWriter,
    Views,
    block_bytes,
    code,
    sample_fields,
    sample_views,
)
from distrl.types import Tap, TypeText
from support.grounding import LARGE, some_screens
from support.pixels import TINY

WIDE = PixelConfig(text_bytes=64)
"""As large as the pictures of phones whose text can be read."""


def made(screen: AnnotatedScreen, config: PixelConfig = WIDE) -> Views | None:
    """The sample of one screen, in the second row of a block full of leftovers."""
    block = bytearray(b"\x77") * block_bytes(sample_fields(config), 2)
    into = sample_views(block, sample_fields(config), 2)
    done = SampleWriter(config, Random(0)).write(screen, into, 1)
    assert all((field[0].view(np.uint8) == 0x77).all() for field in into.values())
    return {name: field[1] for name, field in into.items()} if done else None


def text(codes: np.ndarray) -> str:  # type: ignore[type-arg]
    return "".join(chr(int(one) + 31) for one in codes if one)


def large_screens() -> tuple[AnnotatedScreen, ...]:
    return some_screens(30, **LARGE)


def test_the_fields_fill_a_block_to_its_last_byte_without_overlapping() -> None:
    block = bytearray(block_bytes(sample_fields(TINY), 3))
    for number, field in enumerate(sample_views(block, sample_fields(TINY), 3).values(), 1):
        assert not field.view(np.uint8).any()
        field.view(np.uint8)[...] = number
    assert 0 not in block
    assert list(dict.fromkeys(block)) == list(range(1, len(sample_fields(TINY)) + 1))


def test_a_sample_holds_the_screenshot_and_the_next_step() -> None:
    for screen in large_screens():
        sample, pixels = made(screen), decode(screen.frame, (WIDE.picture_width, WIDE.picture_height))
        assert sample is not None
        assert np.array_equal(sample["picture"], pixels)
        kind, square, _ = sample["choice"][0]
        if isinstance(screen.action, Tap):
            assert KINDS[kind] == "tap"
            assert square == grid_of(WIDE).square_at(screen.action.x, screen.action.y)
        assert bytes(sample["text"][0, 0]).rstrip(b"\0").decode() == screen.observation.instruction
        assert 1 <= int(sample["num_queries"][0]) <= len(sample["choice"])
        assert not sample["text"][int(sample["num_queries"][0]) :].any()


def test_a_tap_on_a_square_lies_on_the_element_that_it_is_meant_for() -> None:
    checked = 0
    for screen in large_screens():
        sample = made(screen)
        assert sample is not None
        for kind, square, _ in sample["choice"][: int(sample["num_queries"][0])]:
            number = int(sample["element"][square])
            if KINDS[kind] == "tap" and number:
                x, y = grid_of(WIDE).middle_of(int(square))
                checked += screen.observation.elements[number - 1].bounds.contains(x, y)
    assert checked > 60


def test_every_letter_lies_on_the_square_under_its_middle() -> None:
    line = Written("Ab c", 24.0, (17.0, 30.0, 33.0, 35.0))
    screen = replace(
        large_screens()[0], written=(line,), observation=replace(large_screens()[0].observation, elements=())
    )
    sample = made(screen)
    assert sample is not None
    columns = grid_of(WIDE).columns
    letters = {at: text(row) for at, row in enumerate(sample["letter"]) if row.any()}
    assert letters == {columns + 1: "Ab", columns + 2: "c"}
    assert {at for at, number in enumerate(sample["name_at"]) if number} == {columns + 1, columns + 2}
    assert text(sample["name"][1]) == "Ab c"


def test_the_lines_of_a_screen_can_be_read_back_from_its_squares() -> None:
    found = 0
    for screen in large_screens():
        sample = made(screen)
        assert sample is not None
        told = {text(name) for name in sample["name"] if name.any()}
        titles = {name[:NAME_LETTERS] for element in screen.observation.elements for name in names_of(element)[:1]}
        found += len(titles & told)
        assert all(1 <= number < len(sample["name"]) for number in set(sample["name_at"].tolist()) - {0})
    assert found > 120


def test_a_square_without_text_goes_by_the_name_of_its_element() -> None:
    screen = replace(large_screens()[0], written=())
    sample = made(screen)
    assert sample is not None
    assert not sample["letter"].any()
    named = [int(element) for element, name in zip(sample["element"], sample["name_at"], strict=True) if name]
    assert named
    assert 0 not in named


def test_an_inexpressible_action_or_an_undecodable_screenshot_makes_no_sample() -> None:
    screen = large_screens()[0]
    assert made(screen) is not None
    assert made(replace(screen, action=TypeText("not in the instruction"))) is None
    assert made(replace(screen, frame=b"no image")) is None


def test_letters_have_numbers_from_one_and_strange_ones_that_of_a_question_mark() -> None:
    assert (code(" "), code("~"), code("é"), code("…")) == (1, 95, code("?"), code("?"))
