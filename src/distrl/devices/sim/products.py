"""What the web shops of a simulated phone may sell: kinds of goods, the brands that make them, and what they cost.

Every kind is made by every brand of its category. The last fifth of each pool is left to phones of the test split.
"""

from __future__ import annotations

from random import Random

import msgspec

from distrl.devices.sim.app import Seeder
from distrl.devices.sim.state import Record, Table

BRANDS: dict[str, tuple[str, ...]] = {
    "Kitchen": ("Tidewell", "Brava", "Copperline", "Marlow", "Hearthby"),
    "Electronics": ("Voltra", "Sonaro", "Pixelo", "Quanta", "Wattson"),
    "Clothing": ("Nordal", "Fjella", "Cotswick", "Rowanby", "Tessuto"),
    "Home": ("Hygga", "Linden", "Casaro", "Birchley", "Velura"),
    "Sports": ("Stride", "Peakform", "Kestrel", "Rapido", "Summita"),
    "Toys": ("Bobbin", "Jollybox", "Tinkers", "Woodle", "Zappity"),
}
SIZES, COLOURS = "S,M,L,XL", "black,red,green,blue"


class Kind(msgspec.Struct, frozen=True):
    """A kind of goods; `price` is what it costs about, in whole coins of any currency."""

    name: str
    category: str
    price: int
    options: str = ""
    """What a buyer chooses between; empty: nothing."""


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("kettle", "Kitchen", 34),
        Kind("headphones", "Electronics", 79, COLOURS),
        Kind("rain jacket", "Clothing", 88, SIZES),
        Kind("desk lamp", "Home", 42),
        Kind("yoga mat", "Sports", 27, COLOURS),
        Kind("puzzle", "Toys", 18),
        Kind("frying pan", "Kitchen", 39),
        Kind("phone charger", "Electronics", 21),
        Kind("wool sweater", "Clothing", 65, SIZES),
        Kind("blanket", "Home", 31, COLOURS),
        Kind("bike helmet", "Sports", 54, SIZES),
        Kind("kite", "Toys", 16, COLOURS),
        Kind("toaster", "Kitchen", 45),
        Kind("speaker", "Electronics", 58, COLOURS),
        Kind("t-shirt", "Clothing", 19, SIZES),
        Kind("wall clock", "Home", 26),
        Kind("tennis racket", "Sports", 72),
        Kind("train set", "Toys", 49),
        Kind("coffee grinder", "Kitchen", 52),
        Kind("web camera", "Electronics", 61),
        Kind("winter gloves", "Clothing", 24, SIZES),
        Kind("bookshelf", "Home", 96),
        Kind("swim goggles", "Sports", 15, COLOURS),
        Kind("board game", "Toys", 33),
        Kind("bread knife", "Kitchen", 23),
        Kind("smart watch", "Electronics", 129, COLOURS),
        Kind("scarf", "Clothing", 22, COLOURS),
        Kind("mirror", "Home", 47),
        Kind("sleeping bag", "Sports", 83),
        Kind("dolls house", "Toys", 74),
    )
}
KINDS_SOLD, BRANDS_SOLD = 12, 3
"""How much of the pools one shop has on its shelves."""


def product_id(brand: str, kind: str) -> str:
    """The id that a product has in every shop."""
    return f"{brand} {kind}".lower().replace(" ", "-")


def stock_up(seeder: Seeder) -> Table:
    """The goods of one shop. No two of a kind share a price, a rating or a delivery time."""
    goods: Table = {}
    for name in seeder.sample(KINDS, KINDS_SOLD):
        kind = KINDS[name]
        brands = seeder.sample(BRANDS[kind.category], BRANDS_SOLD)
        for brand, terms in zip(brands, _terms(seeder.random, kind), strict=True):
            goods[product_id(brand, name)] = _describe(kind, brand) | terms
    return goods


def _describe(kind: Kind, brand: str) -> Record:
    return {
        "name": f"{brand} {kind.name}",
        "kind": kind.name,
        "category": kind.category,
        "brand": brand,
        "options": kind.options,
        "stock": True,
    }


def _terms(random: Random, kind: Kind) -> list[Record]:
    """A price in hundredths, a rating in stars and days to wait for each of a kind's brands."""
    percents = random.sample(range(70, 140), BRANDS_SOLD)
    stars = random.sample(range(31, 50), BRANDS_SOLD)
    days = random.sample(range(1, 10), BRANDS_SOLD)
    terms = zip(percents, stars, days, strict=True)
    return [{"price": kind.price * percent, "rating": star / 10, "days": day} for percent, star, day in terms]
