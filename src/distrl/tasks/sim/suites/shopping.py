"""What the shopping templates share: a trip to one of the two shops, and the words that people use for it."""

from __future__ import annotations

from collections.abc import Callable

from distrl.devices.sim.apps.browser import BOOKMARKS, SITES
from distrl.devices.sim.apps.shop import SHOPS, Shop
from distrl.devices.sim.state import Record, Table
from distrl.tasks.sim.templates import Draft, NoInstance, enter, go_back, open_app, tap, type_in
from distrl.types import Move, Value

NUMBERS = {2: ("2", "two"), 3: ("3", "three"), 4: ("4", "four")}
BASKETS = ("cart", "basket", "shopping cart", "shopping bag", "trolley")
WISHLISTS = ("wishlist", "favourites", "wish list", "list of saved items")

Moves = tuple[Move, ...]


class Trip:
    """A visit to a shop in the making: what it is called, what it sells, and how the oracle gets about in it."""

    def __init__(self, t: Draft, shop: Shop | None = None) -> None:
        self.t = t
        self.shop = shop or t.random.choice(SHOPS)
        self.at = t.one_of(self.shop.name, self.shop.domain)
        """What the user calls the shop."""
        self.basket, self.wishes = t.one_of(*BASKETS), t.one_of(*WISHLISTS)

    # what is there

    def rows(self, name: str) -> Table:
        """One of the shop's tables on this phone."""
        return self.t.tables[self.shop.table(name)]

    def product(self, fits: Callable[[Record], bool] = lambda product: bool(product)) -> tuple[str, Record]:
        """Something that the shop sells and the user has neither in the cart nor on a list."""
        taken = self.rows("cart").keys() | self.rows("wishlist").keys()
        found = [(id, product) for id, product in self.rows("product").items() if id not in taken and fits(product)]
        if not found:
            raise NoInstance(f"{self.shop.name} has no fitting product")
        return self.t.random.choice(found)

    def plain(self) -> tuple[str, str]:
        """Id and name of some product without options."""
        id, product = self.product(lambda product: not product["options"])
        return id, str(product["name"])

    def two_plain(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Two different products without options."""
        one, two = self.plain(), self.plain()
        if one == two:
            raise NoInstance("the same product twice")
        return one, two

    def best(self, kind: str, field: str) -> str:
        """Id of the cheapest, best rated or soonest delivered product of a kind."""
        goods = {id: float(product[field]) for id, product in self.rows("product").items() if product["kind"] == kind}
        return (max if field == "rating" else min)(goods, key=lambda id_: goods[id_])

    def kind(self, field: str) -> tuple[str, str]:
        """A kind that is sold here without options, and its best product, new to the cart and the wishlist."""
        kind = str(self.product(lambda product: not product["options"])[1]["kind"])
        best = self.best(kind, field)
        if best in self.rows("cart") or best in self.rows("wishlist"):
            raise NoInstance(f"{best} is in the cart or on the list")
        return kind, best

    # what is so before and after

    def clear_cart(self) -> None:
        """Empty the cart before the episode starts."""
        for line in self.rows("cart"):
            self.t.without(self.shop.table("cart"), line)

    def given_line(self, id: str, quantity: int = 1, table: str = "cart") -> None:
        """Put a product without options into the cart, or another list, before the episode starts."""
        self.t.given(self.shop.table(table), id, product=id, option="", quantity=quantity)

    def want_line(self, id: str, quantity: int = 1, option: str = "") -> None:
        """The cart must hold so many of a product at the end."""
        line = f"{id}/{option}" if option else id
        self.t.want(self.shop.table("cart"), line, product=id, option=option, quantity=quantity)

    def want(self, table: str, id: str = "", **fields: Value) -> None:
        """A record of the shop must hold these values at the end."""
        self.t.want(self.shop.table(table), id, **fields)

    def want_page(self, page: str, **args: str) -> None:
        """The episode must end on this page of the shop."""
        self.t.want_showing("browser", self.shop.screen(page), **args)

    # getting about

    def start(self, page: str = "home", **args: str) -> None:
        """Begin inside the shop."""
        self.t.start_on("browser", self.shop.screen(page), **args)

    def visit(self) -> Moves:
        """From anywhere to the shop's first page."""
        return (open_app("browser"), *reach(self.t, self.shop.key, self.at))

    def find(self, text: str, id: str) -> Moves:
        """Search the shop and open a product."""
        return (*search(text), tap(f"product:{id}"))

    def find_best(self, kind: str, field: str, id: str) -> Moves:
        """Search for a kind, sort it and open the first product."""
        return (*search(kind), tap("sort"), tap(f"sort:{field}"), tap(f"product:{id}"))

    def select(self, field: str, value: str) -> Moves:
        """Make a choice on a page."""
        chosen = tap(f"{field}:{value}")
        return (chosen,) if self.shop.inline else (tap(field), chosen)

    def count(self, quantity: int) -> Moves:
        """Set how many to buy on a product page."""
        return (tap("more"),) * (quantity - 1) if self.shop.inline else self.select("quantity", str(quantity))

    def add_and_return(self) -> Moves:
        """Put what is shown into the cart and go back to the results."""
        return (tap("add"), go_back()) if self.shop.inline else (tap("add"), tap("stay"), go_back())

    def pay(self, *choices: Move) -> Moves:
        """From the cart to a confirmed order."""
        return (tap("checkout"), *choices, tap("place"), tap("confirm"))


def search(text: str) -> Moves:
    """Type a query into the shop's search field and press Enter."""
    return (type_in("search", text), enter())


def reach(t: Draft, site: str, spoken: str) -> Moves:
    """From the browser's start page to a site: by its bookmark, by its address or by a web search."""
    if site in t.tables[BOOKMARKS]:
        return (tap(f"site:{site}"),)
    typed = (type_in("address", spoken), enter())
    return typed if spoken == SITES[site][1] else (*typed, tap(f"result:{site}"))


def number(t: Draft) -> tuple[int, str]:
    """A quantity and a way to say it."""
    count = t.random.choice(list(NUMBERS))
    return count, t.one_of(*NUMBERS[count])
