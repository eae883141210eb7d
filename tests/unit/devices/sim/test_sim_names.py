"""Other names for the people and things on a phone: which texts are names, and what stands for them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.devices.sim.names import (
    KNOWN,
    LONGEST,
    POOLS,
    TIMES,
    OtherNames,
    PhoneNames,
    _made_up,
    _pool,
    draw_number,
    is_name,
    names_in,
    rename_record,
    rename_table,
    rename_tables,
    texts_in,
    texts_of,
    words_of,
)
from distrl.devices.sim.state import Tables
from distrl.devices.sim.world import content, training_words

SMALL: Tables = {
    "contacts.person": {"p0": {"name": "Ruth Whitman", "company": "Northgate", "phone": "123 456", "favourite": True}},
    "clock.alarm": {"a0": {"name": "Gym", "time": "07:30", "on": True}},
    "messages.thread": {"Ruth Whitman": {"lines": "hello", "pinned": False}},
    "clock.now": {"now": {"minutes": 1400}},
    "notes.item": {"i0": {"note": "n0", "text": "Milk"}},
}


@pytest.mark.parametrize(
    ("text", "name"), [("Ruth", True), ("Ruth Whitman", True), ("", False), ("07:30", False), ("Lab 4", False)]
)
def test_what_has_digits_is_no_name(text: str, name: bool) -> None:
    assert is_name(text) is name


def test_names_are_found_in_the_fields_and_keys_that_hold_them() -> None:
    assert names_in(SMALL) == {"Ruth Whitman", "Northgate", "Gym"}


def test_texts_are_all_strings_and_all_keys() -> None:
    assert texts_of(SMALL["notes.item"]) == {"i0", "n0", "Milk"}
    assert {"hello", "Ruth Whitman", "p0", "07:30"} <= texts_in(SMALL)


def test_words_are_in_small_letters_each_once_in_order() -> None:
    assert words_of(["Ruth Whitman", "Noah whitman"]) == ("noah", "ruth", "whitman")


def test_a_phone_knows_its_names_times_and_other_texts() -> None:
    own = PhoneNames.of(SMALL)
    assert own.names == ("Gym", "Northgate", "Ruth Whitman")
    assert own.times == ("07:30",)
    assert "hello" in own.others
    assert not set(own.others) & set(own.names)
    assert set(own.tables) == {"contacts.person", "clock.alarm", "messages.thread"}


def test_tables_are_renamed_in_keys_and_fields_and_others_are_shared() -> None:
    own = PhoneNames.of(SMALL)
    other = OtherNames(3, own, ())
    renamed = rename_tables(SMALL, own, other)
    ruth = other.names["Ruth Whitman"]
    assert list(renamed["messages.thread"]) == [ruth]
    assert renamed["contacts.person"]["p0"]["name"] == ruth
    phone = str(renamed["contacts.person"]["p0"]["phone"])
    assert phone == other.numbers["123 456"] != "123 456"
    assert [len(group) for group in phone.split(" ")] == [3, 3]
    assert phone.replace(" ", "").isdecimal()
    assert renamed["clock.now"]["now"]["minutes"] == (1400 + other.later_min) % 1440
    assert renamed["clock.alarm"]["a0"]["time"] == other.times["07:30"] in TIMES
    assert renamed["notes.item"] is SMALL["notes.item"]
    assert SMALL["contacts.person"]["p0"]["name"] == "Ruth Whitman"


def test_records_and_tables_change_texts_alone() -> None:
    others = {"Ruth": "Kip", "p0": "p9"}
    assert rename_record({"name": "Ruth", "on": True, "size": 3, "more": "Ruth Whitman"}, others) == {
        "name": "Kip",
        "on": True,
        "size": 3,
        "more": "Ruth Whitman",
    }
    assert rename_table({"Ruth": {"name": "x"}}, others) == {"Kip": {"name": "x"}}


@settings(max_examples=30, deadline=None)
@given(number=st.integers(1, 2**40), phone=st.integers(0, 20))
def test_a_number_gives_the_same_names_again_and_all_of_them_differ(number: int, phone: int) -> None:
    own = PhoneNames.of(content(phone, held_out=False))
    one, again = OtherNames(number, own, training_words()), OtherNames(number, own, training_words())
    assert one.names == again.names
    assert one.times == again.times
    assert (one.numbers, one.later_min) == (again.numbers, again.later_min)
    assert len(set(one.names.values())) == len(one.names)
    assert len(set(one.times.values())) == len(one.times)


@settings(max_examples=30, deadline=None)
@given(number=st.integers(1, 2**40))
def test_a_name_keeps_its_number_of_words_and_its_capitals(number: int) -> None:
    own = PhoneNames.of(content(0, held_out=False))
    other = OtherNames(number, own, training_words())
    for name, changed in other.names.items():
        before, after = name.split(), changed.split()
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            if new[:1].isalpha():
                assert old[:1].isupper() == new[:1].isupper()


def test_a_name_that_the_phone_does_not_have_gets_one_too_and_always_the_same() -> None:
    other = OtherNames(3, PhoneNames.of(SMALL), ())
    first = other.of("Somebody New")
    assert first != "Somebody New"
    assert other.of("Somebody New") == first
    assert other.of("New Somebody").split() == first.split()[::-1]


def test_when_the_spare_words_run_out_a_name_stays() -> None:
    other = OtherNames(KNOWN + POOLS, PhoneNames.of({}), ("one", "two"))
    assert {other.of("a"), other.of("b")} == {"one", "two"}
    assert other.of("c") == "c"


def test_a_drawn_number_belongs_to_the_known_words_or_to_its_pool() -> None:
    random = Random(1)
    for pool in (0, 5, POOLS, 3 * POOLS + 2):
        numbers = [draw_number(random, pool) for _ in range(60)]
        assert {number % POOLS for number in numbers} == {KNOWN, 1 + pool % (POOLS - 1)}
        assert all(number >= 1 for number in numbers)


def test_made_up_words_are_words_of_letters_or_numbers_that_can_be_typed() -> None:
    random = Random(0)
    words = [_made_up(random) for _ in range(2000)]
    digits = [word for word in words if any(letter.isdigit() for letter in word)]
    assert 0.08 < len(digits) / len(words) < 0.16
    assert all(word.isalpha() and word.islower() and 3 <= len(word) <= LONGEST for word in words if word not in digits)
    assert all(word.replace(":", "").isdigit() for word in digits)


def test_pools_differ_and_hold_no_word_twice() -> None:
    one, other = _pool(1), _pool(2)
    assert len(set(one)) == len(one) > 1500
    assert len(set(one) & set(other)) < 0.2 * len(one)
