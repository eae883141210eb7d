"""Sheets: a block of bytes of known size in which everything lies where it is looked for."""

from __future__ import annotations

from random import Random

import numpy as np
from msgspec.structs import replace

from distrl.config.schema import PixelConfig
from distrl.devices.sim.paint import Written
from distrl.policies.pixel.decoding import decode
from distrl.policies.pixel.grammar import KINDS, grid_of
from distrl.pretraining.grounding.queries import Page, names_of
from distrl.pretraining.grounding.samples import NAME_LETTERS, SheetMaker, Views, block_bytes, code, fields, views
from distrl.types import Tap, TypeText
from support.pages import LARGE, some_pages
from support.pixels import TINY

WIDE = PixelConfig(text_bytes=64)
"""As large as the pictures of phones whose text can be read."""


def made(page: Page, config: PixelConfig = WIDE) -> Views | None:
    """The sheet of one page, in the second row of a block full of leftovers."""
    block = bytearray(b"\x77") * block_bytes(config, 2)
    into = views(block, config, 2)
    done = SheetMaker(config, Random(0)).make(page, into, 1)
    assert all((field[0].view(np.uint8) == 0x77).all() for field in into.values())
    return {name: field[1] for name, field in into.items()} if done else None


def text(codes: np.ndarray) -> str:  # type: ignore[type-arg]
    return "".join(chr(int(one) + 31) for one in codes if one)


def pages() -> tuple[Page, ...]:
    return some_pages(30, **LARGE)


def test_the_fields_fill_a_block_to_its_last_byte_without_overlapping() -> None:
    block = bytearray(block_bytes(TINY, 3))
    for number, field in enumerate(views(block, TINY, 3).values(), 1):
        assert not field.view(np.uint8).any()
        field.view(np.uint8)[...] = number
    assert 0 not in block
    assert list(dict.fromkeys(block)) == list(range(1, len(fields(TINY)) + 1))


def test_a_sheet_holds_the_picture_and_the_next_step() -> None:
    for page in pages():
        sheet, pixels = made(page), decode(page.picture, (WIDE.picture_width, WIDE.picture_height))
        assert sheet is not None
        assert np.array_equal(sheet["picture"], pixels)
        kind, square, _ = sheet["choice"][0]
        if isinstance(page.action, Tap):
            assert KINDS[kind] == "tap"
            assert square == grid_of(WIDE).square_at(page.action.x, page.action.y)
        assert bytes(sheet["text"][0, 0]).rstrip(b"\0").decode() == page.observation.instruction
        assert 1 <= int(sheet["questions"][0]) <= len(sheet["choice"])
        assert not sheet["text"][int(sheet["questions"][0]) :].any()


def test_a_tap_on_a_square_lies_on_the_element_that_it_is_meant_for() -> None:
    checked = 0
    for page in pages():
        sheet = made(page)
        assert sheet is not None
        for kind, square, _ in sheet["choice"][: int(sheet["questions"][0])]:
            number = int(sheet["element"][square])
            if KINDS[kind] == "tap" and number:
                x, y = grid_of(WIDE).middle_of(int(square))
                checked += page.observation.elements[number - 1].bounds.contains(x, y)
    assert checked > 60


def test_every_letter_lies_on_the_square_under_its_middle() -> None:
    line = Written("Ab c", 24.0, (17.0, 30.0, 33.0, 35.0))
    page = replace(pages()[0], written=(line,), observation=replace(pages()[0].observation, elements=()))
    sheet = made(page)
    assert sheet is not None
    columns = grid_of(WIDE).columns
    letters = {at: text(row) for at, row in enumerate(sheet["letter"]) if row.any()}
    assert letters == {columns + 1: "Ab", columns + 2: "c"}
    assert {at for at, number in enumerate(sheet["name_at"]) if number} == {columns + 1, columns + 2}
    assert text(sheet["name"][1]) == "Ab c"


def test_the_lines_of_a_screen_can_be_read_back_from_its_squares() -> None:
    found = 0
    for page in pages():
        sheet = made(page)
        assert sheet is not None
        told = {text(name) for name in sheet["name"] if name.any()}
        titles = {name[:NAME_LETTERS] for element in page.observation.elements for name in names_of(element)[:1]}
        found += len(titles & told)
        assert all(1 <= number < len(sheet["name"]) for number in set(sheet["name_at"].tolist()) - {0})
    assert found > 120


def test_a_square_without_text_goes_by_the_name_of_its_element() -> None:
    page = replace(pages()[0], written=())
    sheet = made(page)
    assert sheet is not None
    assert not sheet["letter"].any()
    named = [int(element) for element, name in zip(sheet["element"], sheet["name_at"], strict=True) if name]
    assert named
    assert 0 not in named


def test_what_the_policy_cannot_say_or_see_makes_no_sheet() -> None:
    page = pages()[0]
    assert made(page) is not None
    assert made(replace(page, action=TypeText("not in the instruction"))) is None
    assert made(replace(page, picture=b"no picture")) is None


def test_letters_have_numbers_from_one_and_strange_ones_that_of_a_question_mark() -> None:
    assert (code(" "), code("~"), code("é"), code("…")) == (1, 95, code("?"), code("?"))
