"""The pools that apps and tasks draw from: long enough, without doubles, and words that can be typed."""

from __future__ import annotations

from random import Random

import pytest

from distrl.devices.sim import content_pools
from distrl.devices.sim.app import Seeder
from distrl.devices.sim.content_pools import (
    CITY_HOURS,
    PEOPLE,
    SONGS,
    TEXTS,
    between,
    email_of,
    phone_number,
)
from distrl.devices.sim.products import BRANDS, COLOURS, KINDS, SIZES, Kind, product_id, stock_up
from support.sims import Finger

POOLS = {name: tuple(pool) for name, pool in vars(content_pools).items() if name.isupper()}
DRAWN_FROM = {name: pool for name, pool in POOLS.items() if len(pool) >= 20}
"""Pools that keep a fifth for test phones."""


def test_there_are_pools_for_all_apps() -> None:
    assert len(DRAWN_FROM) >= 18


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_holds_no_entry_twice(name: str) -> None:
    assert len({entry.casefold() for entry in POOLS[name]}) == len(POOLS[name])


@pytest.mark.parametrize("name", DRAWN_FROM)
def test_entries_have_no_punctuation_at_their_ends_and_no_double_spaces(name: str) -> None:
    for entry in DRAWN_FROM[name]:
        assert entry[0].isalnum(), entry
        assert entry[-1].isalnum(), entry
        assert " ".join(entry.split()) == entry


@pytest.mark.parametrize(
    "name", ["STEMS", "STREETS", "APP_NAMES", "SONGS", "ARTISTS", "PLAYLISTS", "FILE_NAMES", "CAPTIONS"]
)
def test_names_of_things_are_letters_alone(name: str) -> None:
    assert all(entry.replace(" ", "").isalpha() for entry in DRAWN_FROM[name])


def test_people_have_a_first_and_a_last_name_and_some_share_one() -> None:
    assert all(len(person.split()) == 2 for person in PEOPLE)
    last = [person.split()[1] for person in PEOPLE]
    first = [person.split()[0] for person in PEOPLE]
    assert len(set(last)) < len(last)
    assert len(set(first)) < len(first)


def test_texts_begin_small_so_that_they_fit_into_a_sentence() -> None:
    assert all(text[0].islower() or text.startswith("I ") for text in TEXTS)


def test_cities_lie_within_a_day_of_london() -> None:
    assert CITY_HOURS["London"] == 0
    assert all(-12 <= hours <= 14 for hours in CITY_HOURS.values())


def test_addresses_and_numbers_look_like_such() -> None:
    assert email_of("Ruth Whitman") == "ruth.whitman@post.example"
    random = Random(0)
    for _ in range(50):
        groups = phone_number(random).split()
        assert [len(group) for group in groups] == [3, 3, 4]
        assert all(group.isdigit() for group in groups)


def test_a_whole_number_between_two_comes_from_all_of_them() -> None:
    random = Random(0)
    drawn = [between(random, 3, 7) for _ in range(400)]
    assert set(drawn) == {3, 4, 5, 6, 7}
    assert between(random, 4, 4) == 4


def test_held_out_names_stay_off_training_phones_and_come_to_test_phones() -> None:
    held_out = set(SONGS[-(len(SONGS) // 5) :])
    for number in range(20):
        songs = Finger("music", phone=number).table("music.song").values()
        assert not {song["title"] for song in songs} & held_out


# --- goods ----------------------------------------------------------------------------------------------------------


def test_every_kind_has_a_category_with_brands() -> None:
    assert {kind.category for kind in KINDS.values()} == set(BRANDS)
    assert all(kind.name == name and kind.price > 0 for name, kind in KINDS.items())
    assert all(kind.options in ("", SIZES, COLOURS) for kind in KINDS.values())


def test_brands_belong_to_one_category() -> None:
    brands = [brand for names in BRANDS.values() for brand in names]
    assert len(set(brands)) == len(brands)


def test_the_id_of_a_product_is_its_name_in_small_letters() -> None:
    assert product_id("Nordal", "rain jacket") == "nordal-rain-jacket"


@pytest.mark.parametrize("seed", range(6))
def test_a_shop_sells_three_brands_of_twelve_kinds_on_different_terms(seed: int) -> None:
    goods = stock_up(Seeder(seed, held_out=bool(seed % 2)))
    assert len(goods) == 36
    for id, product in goods.items():
        assert id == product_id(str(product["brand"]), str(product["kind"]))
        assert product["name"] == f"{product['brand']} {product['kind']}"
        assert product["brand"] in BRANDS[str(product["category"])]
        kind: Kind = KINDS[str(product["kind"])]
        assert (product["category"], product["options"]) == (kind.category, kind.options)
        assert 0.7 * 100 * kind.price <= int(product["price"]) < 1.4 * 100 * kind.price
        assert 3.1 <= float(product["rating"]) < 5
        assert 1 <= int(product["days"]) <= 9
        assert product["stock"] is True
    for kind_name in {product["kind"] for product in goods.values()}:
        same = [product for product in goods.values() if product["kind"] == kind_name]
        for field in ("brand", "price", "rating", "days"):
            assert len({product[field] for product in same}) == 3
