"""The web shops: what sets one apart from the other, what they hold at first, and what their pages share.

The pages stand in `shop_catalogue` (finding goods) and `shop_checkout` (paying for them); each is a function of a
shop and a `Ui`, and becomes a screen of the browser called `<shop>-<page>`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from distrl.devices.sim import widgets
from distrl.devices.sim.app import Seeder, Ui, back, do, go, push
from distrl.devices.sim.patterns import fill
from distrl.devices.sim.products import product_id, stock_up
from distrl.devices.sim.state import PhoneState, Place, Record, Table, Tables, put
from distrl.devices.sim.widgets import Effect, Style, View, Widget, button, heading, icon, row, tab

ADDRESSES = ("Home", "Office", "Pickup point")
DELIVERIES = ("Standard", "Express", "Evening")
PREFS = {"newsletter": "Newsletter", "alerts": "Delivery alerts", "ads": "Personal offers"}
TAB_SIGNS = {"home": "shop", "wishlist": "heart", "cart": "cart", "account": "person"}
MOST = 5
"""The largest quantity of one thing that a shop sells at once."""


class Shop(msgspec.Struct, frozen=True, kw_only=True):
    """One web shop."""

    key: str
    name: str
    domain: str
    currency: str
    inline: bool
    """Choices stand on the page and main buttons stay in sight; false: choices open a dialog, buttons scroll away."""
    facts: tuple[str, ...]
    """What a product page tells, in this order."""
    style: Style
    """How its pages look."""
    words: dict[str, tuple[str, ...]]
    """What the shop calls things; a phone's variant decides which."""

    def table(self, name: str) -> str:
        """The full name of one of the shop's tables."""
        return f"{self.key}.{name}"

    def screen(self, page: str) -> str:
        """The name of the browser's screen that shows one of the shop's pages."""
        return f"{self.key}-{page}"

    def money(self, cents: int) -> str:
        """An amount in the shop's currency, as its pages write it."""
        return f"{self.currency}{cents / 100:.2f}"


KIOSKO = Shop(
    key="kiosko",
    name="Kiosko",
    domain="kiosko.com",
    currency="€",
    inline=True,
    facts=("price", "rating", "delivery", "brand", "stock"),
    style="list",
    words={
        "search": ("Search products", "What are you looking for?"),
        "cart": ("Cart", "Basket"),
        "add": ("Add to cart", "Put in basket"),
        "wishlist": ("Wishlist", "Favourites"),
        "wish": ("Save to wishlist", "Add to favourites"),
        "unwish": ("Remove from wishlist", "No longer a favourite"),
        "account": ("Account", "My Kiosko"),
        "orders": ("Orders", "My purchases"),
        "checkout": ("Check out", "Pay now"),
        "place": ("Place order", "Buy now"),
        "later": ("Save for later", "Not now"),
        "price": ("Price", "Costs"),
        "rating": ("Rating", "Customers say"),
        "delivery": ("Delivery", "Arrives in"),
        "brand": ("Brand", "Made by"),
        "stock": ("Availability", "Stock"),
    },
)
NORTHMART = Shop(
    key="northmart",
    name="Northmart",
    domain="northmart.com",
    currency="$",
    inline=False,
    facts=("brand", "price", "stock", "delivery", "rating"),
    style="group",
    words={
        "search": ("Search Northmart", "Find items"),
        "cart": ("Bag", "Trolley"),
        "add": ("Add to bag", "Into the trolley"),
        "wishlist": ("Saved items", "Wish list"),
        "wish": ("Keep on my list", "Wish for it"),
        "unwish": ("Take off my list", "Forget it"),
        "account": ("You", "Profile"),
        "orders": ("Your orders", "Order history"),
        "checkout": ("Go to checkout", "Proceed to payment"),
        "place": ("Confirm and pay", "Submit order"),
        "later": ("Put aside", "Buy later"),
        "price": ("Our price", "Today's price"),
        "rating": ("Stars", "Review score"),
        "delivery": ("Shipping time", "Gets to you in"),
        "brand": ("Maker", "Brand"),
        "stock": ("In our warehouse", "Availability"),
    },
)
SHOPS = (KIOSKO, NORTHMART)

PageFn = Callable[[Shop, Ui], View]


# --- what a shop holds on a new phone ---------------------------------------------------------------------------------


def open_shop(shop: Shop, seeder: Seeder) -> Tables:
    """The goods of `shop`, and what the phone's owner has in the cart, on lists and on order there."""
    goods, random = stock_up(seeder), seeder.random
    # goods without options first: their cart line is the product itself
    picked = sorted(random.sample(list(goods), len(goods)), key=lambda found: str(goods[found]["options"]))[:6]
    kept, wished, ordered = picked[: random.randint(0, 1)], picked[1:3], picked[3:]
    return {
        shop.table("product"): goods,
        shop.table("cart"): {id: {"product": id, "option": "", "quantity": random.randint(1, 3)} for id in kept},
        shop.table("saved"): {},
        shop.table("wishlist"): {id: {"name": goods[id]["name"]} for id in wished},
        shop.table("order"): {f"o{number}": _past_order(shop, seeder, goods[id]) for number, id in enumerate(ordered)},
        shop.table("greeting"): {kind: {"due": random.random() < 0.35} for kind in ("newsletter", "cookies")},
        shop.table("pref"): _preferences(random),
    }


def _preferences(random: Random) -> Table:
    prefs: Table = {name: {"on": random.random() < 0.5} for name in PREFS}
    prefs["address"] = {"choice": random.choice(ADDRESSES)}
    prefs["points"] = {"value": f"{random.randint(40, 990)} points"}
    return prefs


def _past_order(shop: Shop, seeder: Seeder, product: Record) -> Record:
    random = seeder.random
    return {
        "items": product["name"],
        "product": product_id(str(product["brand"]), str(product["kind"])),
        "total": product["price"],
        "status": random.choice(("Processing", "Shipped", "Delivered")),
        "eta": f"{random.randint(1, 28)} {random.choice(('May', 'June', 'July', 'August'))}",
        "number": f"{shop.name[0]}-{random.randint(10_000, 99_999)}",
        "address": random.choice(ADDRESSES),
        "delivery": random.choice(DELIVERIES),
        "voucher": "",
    }


# --- getting about ----------------------------------------------------------------------------------------------------


def link(shop: Shop, page: str, **args: str) -> Effect:
    """Open a page of the shop on top of this one."""
    return go("browser", shop.screen(page), **args)


def arrive(shop: Shop, page: str = "home", **args: str) -> Effect:
    """Come to the shop from elsewhere: whatever banner is due lies over the page."""

    def greet(state: PhoneState) -> PhoneState:
        for kind, greeting in state.tables[shop.table("greeting")].items():
            if greeting["due"]:
                state = push(state, Place(app="browser", screen=shop.screen("greeting"), args={"kind": kind}))
        return state

    return do(link(shop, page, **args), greet)


def add_to_cart(shop: Shop, id: str, option: str = "", quantity: int = 1) -> Effect:
    """Put so many more into the cart."""

    def run(state: PhoneState) -> PhoneState:
        line, table = cart_line(id, option), shop.table("cart")
        before = int(state.tables[table].get(line, {}).get("quantity", 0))
        return put(state, table, line, product=id, option=option, quantity=min(before + quantity, MOST))

    return run


def cart_line(id: str, option: str = "") -> str:
    """The id of a product's line in the cart: one for each option."""
    return f"{id}/{option}" if option else id


# --- what pages share -------------------------------------------------------------------------------------------------


def word(shop: Shop, ui: Ui, what: str) -> str:
    """What this shop calls `what` on this phone."""
    return ui.pick(*shop.words[what])


def tabs(shop: Shop, ui: Ui, here: str) -> tuple[Widget, ...]:
    """The bar at the bottom of most pages."""
    names = {"home": "Shop", **{page: word(shop, ui, page) for page in ("wishlist", "cart", "account")}}
    return tuple(
        tab(f"tab:{page}", name, page == here, tap=link(shop, page), icon=TAB_SIGNS[page])
        for page, name in names.items()
    )


def cart_icon(shop: Shop, ui: Ui) -> Widget:
    """The icon that leads to the cart."""
    return icon("cart", "cart", word(shop, ui, "cart"), tap=link(shop, "cart"))


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One of several options that a page asks for; what is chosen is a draft called `field`."""

    field: str
    title: str
    options: tuple[str, ...]
    now: str


def selector(shop: Shop, choice: Choice) -> list[Widget]:
    """The choice on the page itself, or as a row that opens a dialog."""
    if shop.inline:
        return [heading(choice.field, choice.title), *_options(choice, lambda option: fill(choice.field, option))]
    args = {"field": choice.field, "title": choice.title, "options": ",".join(choice.options), "now": choice.now}
    return [row(choice.field, choice.title, choice.now, tap=go("browser", "choose", **args))]


def choose(ui: Ui) -> View:
    """The dialog of a `selector`."""
    options = tuple(ui.args["options"].split(","))
    choice = Choice(field=ui.args["field"], title=ui.args["title"], options=options, now=ui.args["now"])
    body = _options(choice, lambda option: do(back(), fill(choice.field, option)))
    return View(title=choice.title, body=tuple(body), shape="dialog")


def _options(choice: Choice, effect: Callable[[str], Effect]) -> list[Widget]:
    return [
        widgets.choice(f"{choice.field}:{option}", option, option == choice.now, tap=effect(option))
        for option in choice.options
    ]


def stepper(count: int, change: Callable[[int], Effect]) -> list[Widget]:
    """Two buttons that change a quantity by one."""
    return [
        button("more", "+ One more", tap=change(count + 1), enabled=count < MOST, look="quiet"),
        button("fewer", "− One less", tap=change(count - 1), enabled=count > 1, look="quiet"),
    ]


def dialog(title: str, *body: Widget) -> View:
    """A dialog of these widgets."""
    return View(title=title, body=body, shape="dialog")
