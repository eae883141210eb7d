"""Pictures: photos, covers, goods, faces and the town map are drawn from their names alone, at any size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PIL import Image, ImageChops

from distrl.devices.sim import city_map, goods_art, picture_art, products, scenes
from distrl.devices.sim.content_pools import CAPTIONS
from distrl.devices.sim.paint import Canvas
from distrl.devices.sim.pictograms import pictogram_mask

BOX = (20.0, 10.0, 180.0, 130.0)


def drawn(icon: str, *, dark: bool = False, scale: float = 1.0) -> Image.Image:
    canvas = Canvas(Image.new("RGB", (round(200 * scale), round(140 * scale))), scale)
    picture_art.draw_picture(canvas, icon, BOX, dark=dark)
    return canvas.image


def differs(left: Image.Image, right: Image.Image) -> bool:
    return ImageChops.difference(left, right).getbbox() is not None


# --- photos and covers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "subject"),
    [("Harbour at dawn", "sea"), ("Kitten asleep", "pet"), ("Birthday cake", "food"), ("Old bridge", "town"), ("", "town")],
)  # fmt: skip
def test_the_name_of_a_photo_decides_what_it_shows(name: str, subject: str) -> None:
    assert scenes.subject_of(name) == subject


def test_the_same_name_gives_the_same_photo_after_the_caches_are_emptied() -> None:
    first = scenes.photo("Tulip field", (120, 60)).tobytes()
    scenes._fitted.cache_clear()
    scenes._painting.cache_clear()
    assert scenes.photo("Tulip field", (120, 60)).tobytes() == first


def test_photos_of_a_phone_are_of_many_kinds_and_full_of_colours() -> None:
    photos = [scenes.photo(name, (120, 90)) for name in CAPTIONS]
    assert len({photo.tobytes() for photo in photos}) > len(CAPTIONS) / 2
    assert all(len(photo.getcolors(20_000) or []) > 100 for photo in photos)
    assert {scenes.subject_of(name) for name in CAPTIONS} == set(scenes.PAINTERS)


@pytest.mark.parametrize("size", [(1, 1), (348, 86), (40, 40), (650, 580)])
def test_a_photo_has_the_size_that_was_asked_for(size: tuple[int, int]) -> None:
    assert scenes.photo("Starry night", size).size == size


def test_covers_differ_by_name() -> None:
    assert len({picture_art.cover(name, 32).tobytes() for name in "abcdefghijkl"}) > 5
    assert picture_art.cover("Tidal", 77).size == (77, 77)


# --- goods ----------------------------------------------------------------------------------------------------------


def test_every_kind_of_goods_has_a_drawing_of_its_own() -> None:
    assert goods_art.DRAWINGS.keys() == products.KINDS.keys()
    pictures = {goods_art.product(kind, "red", 60, dark=False).tobytes() for kind in goods_art.DRAWINGS}
    assert len(pictures) == len(products.KINDS)


def test_goods_are_shown_in_the_chosen_colour() -> None:
    for colour in products.COLOURS.split(","):
        assert colour in goods_art.COLOURS
    red, blue = (goods_art.product("scarf", colour, 60, dark=False).resize((1, 1)) for colour in ("red", "blue"))
    assert red.getpixel((0, 0))[0] > blue.getpixel((0, 0))[0]
    assert red.getpixel((0, 0))[2] < blue.getpixel((0, 0))[2]


def test_an_unknown_thing_has_a_picture_too() -> None:
    assert goods_art.product("flying carpet", "", 40, dark=True).size == (40, 40)


# --- pictures by name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", picture_art.DRAWINGS)
@pytest.mark.parametrize("name", ["", "Ada Rossi", "07:40", "5", "kettle:red", "Monday", "\ud800 ½"])
def test_every_picture_can_be_drawn_from_any_name_and_stays_in_its_box(kind: str, name: str) -> None:
    for scale in (0.4, 1.0):
        box = drawn(f"{kind}:{name}", scale=scale).getbbox()
        assert box is not None
        left, top, right, bottom = (side / scale for side in box)
        assert left >= BOX[0] - 3
        assert top >= BOX[1] - 12
        assert right <= BOX[2] + 6
        assert bottom <= BOX[3] + 3


def test_pictures_of_different_names_differ() -> None:
    for kind in ("photo", "cover", "face", "dial", "ring", "week", "stars", "file"):
        names = {
            "dial": ("10:10", "03:40"),
            "ring": ("5", "60"),
            "week": ("Monday", "Friday"),
            "stars": ("1", "4"),
            "file": ("PDF", "Text"),
        }
        one, other = names.get(kind, ("Harbour at dawn", "Chess final"))
        assert differs(drawn(f"{kind}:{one}"), drawn(f"{kind}:{other}")), kind


def test_a_pictogram_is_no_picture() -> None:
    assert not picture_art.is_picture("star")
    assert not picture_art.is_picture("")
    assert picture_art.is_picture("face:Ada")


def test_every_sign_on_a_badge_a_site_or_an_app_is_a_pictogram() -> None:
    signs = {*picture_art.BADGES, *picture_art.APP_SIGNS, *(sign for _, sign in picture_art.SITES.values())}
    signs |= {sign for _, sign in picture_art.FILES.values()}
    assert all(pictogram_mask(sign, 24) is not None for sign in signs)


# --- the map --------------------------------------------------------------------------------------------------------


def a_map(name: str, *, dark: bool = False, free: tuple[float, float, float, float] = (0, 60, 360, 400)) -> Image.Image:
    canvas = Canvas(Image.new("RGB", (360, 400)), 1.0)
    city_map.draw_map(canvas, name, (0, 0, 360, 400), free, dark=dark)
    return canvas.image


def test_a_map_shows_land_water_parks_and_streets() -> None:
    colours = {colour for _, colour in a_map("3:pins:").getcolors(100_000) or []}
    assert {city_map.DAY.block, city_map.DAY.water, city_map.DAY.park, city_map.DAY.street} <= colours


def test_maps_depend_on_the_phone_and_the_theme() -> None:
    assert len({a_map(f"{seed}:here:").tobytes() for seed in range(city_map.TOWNS)}) == city_map.TOWNS
    assert differs(a_map("0:here:"), a_map("0:here:", dark=True))
    assert not differs(a_map("2:car:p3"), a_map("2:car:p3"))


def test_pins_and_routes_are_drawn_on_it() -> None:
    plain = a_map("1:pins:")
    assert differs(plain, a_map("1:pins:p1"))
    assert len({a_map(f"1:{mode}:p1").tobytes() for mode in city_map.MODES}) == 3


def test_what_is_drawn_on_a_map_keeps_to_its_free_part() -> None:
    plain, routed = (a_map(f"1:{shown}:p1", free=(0, 200, 360, 400)) for shown in ("pins", "car"))
    box = ImageChops.difference(plain, routed).getbbox()
    assert box is not None
    assert box[1] >= 195


def test_a_map_without_free_room_has_no_pin() -> None:
    assert not differs(a_map("1:pins:p1", free=(0, 0, 10, 10)), a_map("1:pins:", free=(0, 0, 10, 10)))


@pytest.mark.parametrize(("start", "goal"), [((0, 9), (6, 1)), ((5, 2), (1, 8)), ((3, 3), (3, 3)), ((0, 4), (5, 4))])
def test_a_route_follows_the_streets(start: tuple[int, int], goal: tuple[int, int]) -> None:
    way = city_map.path(start, goal)
    assert (way[0], way[-1]) == (start, goal)
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise(way))


@pytest.mark.parametrize("name", ["", "x", "5", "5:car", "5:car:", "::"])
def test_a_map_of_an_odd_name_is_a_map(name: str) -> None:
    assert a_map(name).getbbox() is not None
