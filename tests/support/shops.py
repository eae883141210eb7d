"""Web shops on simulated phones, with carts that are empty but for what a test puts there."""

from __future__ import annotations

from msgspec.structs import replace

from distrl.devices.sim.apps.shop import SHOPS, Shop
from distrl.devices.sim.state import PhoneState, put
from support.sims import Finger


def in_shop(shop: Shop, page: str = "home", **args: str) -> Finger:
    """A finger on a page of a shop; the carts of both shops are empty."""
    return Finger(state=_tidied(Finger("browser", shop.screen(page), **args).state))


def _tidied(state: PhoneState) -> PhoneState:
    return replace(state, tables={**state.tables, **{shop.table("cart"): {} for shop in SHOPS}})


def some_product(finger: Finger, shop: Shop, *, options: bool = False, skip: int = 0) -> str:
    """Id of a product that is not on the wishlist."""
    wished = finger.table(shop.table("wishlist"))
    goods = finger.table(shop.table("product"))
    found = [id for id, product in goods.items() if bool(product["options"]) == options and id not in wished]
    return found[skip]


def product_page(shop: Shop, *, options: bool = False, stock: bool = True) -> Finger:
    """A finger on the page of some product."""
    id = some_product(in_shop(shop), shop, options=options)
    finger = in_shop(shop, "product", id=id)
    return Finger(state=put(finger.state, shop.table("product"), id, stock=stock))


def with_lines(shop: Shop, *quantities: int) -> tuple[Finger, list[str]]:
    """A finger on the cart, which holds so many of as many products; and their ids."""
    finger = in_shop(shop, "cart")
    ids = [some_product(finger, shop, skip=number) for number in range(len(quantities))]
    state = finger.state
    for id, quantity in zip(ids, quantities, strict=True):
        state = put(state, shop.table("cart"), id, product=id, option="", quantity=quantity)
    return Finger(state=state), ids


def choose(finger: Finger, shop: Shop, field: str, value: str) -> None:
    """Make a choice, on the page or in its dialog."""
    finger.tap(*(() if shop.inline else (field,)), f"{field}:{value}")


def choose_option(finger: Finger, shop: Shop, option: str) -> None:
    """Choose a size or a colour on a product page."""
    choose(finger, shop, "option", option)


def choose_quantity(finger: Finger, shop: Shop, quantity: int) -> None:
    """Choose how many on a product page."""
    if shop.inline:
        finger.tap(*["more"] * (quantity - 1))
    else:
        choose(finger, shop, "quantity", str(quantity))
