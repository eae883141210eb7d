"""The browser and its two shops, driven the way a finger drives them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distrl.devices.sim.app import Seeder, push
from distrl.devices.sim.apps.browser import BOOKMARKS, GUIDES, HISTORY, content
from distrl.devices.sim.apps.shop import KIOSKO, NORTHMART, SHOPS, Shop
from distrl.devices.sim.apps.shop_catalogue import listed, matching
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.products import BRANDS, KINDS
from distrl.devices.sim.state import PhoneState, Place, put
from distrl.devices.sim.world import HOME
from distrl.types import LongPress, Press, Swipe, Tap, TypeText

both = pytest.mark.parametrize("shop", SHOPS, ids=lambda shop: shop.key)


def phone(screen: str = "home", seed: int = 5, **args: str) -> PhoneState:
    """A phone that shows a page of the browser, with both carts empty."""
    tables = content(Seeder(seed, held_out=False)) | {shop.table("cart"): {} for shop in SHOPS}
    return push(PhoneState(seed=seed, tables=tables, stack=(HOME,)), Place(app="browser", screen=screen, args=args))


def tap(state: PhoneState, *ids: str, hold: bool = False) -> PhoneState:
    """The phone after touching these widgets in turn, scrolling down where one is out of sight."""
    for id in ids:
        for _ in range(6):
            screen = show(state)
            spots = [placed.bounds.centre for placed in screen.placed if placed.widget.id == id]
            if spots:
                break
            state = perform(state, screen, Swipe(0.5, 0.6, 0.5, 0.2)).state
        state = perform(state, screen, LongPress(*spots[0]) if hold else Tap(*spots[0])).state
    return state


def enter(state: PhoneState, field: str, text: str) -> PhoneState:
    state = tap(state, field)
    state = perform(state, show(state), TypeText(text)).state
    return perform(state, show(state), Press("enter")).state


def shown(state: PhoneState) -> dict[str, str]:
    """Texts of the widgets in sight, by id."""
    return {placed.widget.id: placed.widget.text for placed in show(state).placed}


def some_product(state: PhoneState, shop: Shop, *, options: bool = False) -> str:
    wished = state.tables[shop.table("wishlist")]
    goods = state.tables[shop.table("product")]
    return next(id for id, product in goods.items() if bool(product["options"]) == options and id not in wished)


def with_line(state: PhoneState, shop: Shop, quantity: int = 1) -> tuple[PhoneState, str]:
    id = some_product(state, shop)
    return put(state, shop.table("cart"), id, product=id, option="", quantity=quantity), id


def test_held_out_goods_are_sold_on_test_phones_alone() -> None:
    open_kinds, open_brands = set(list(KINDS)[:24]), {brand for names in BRANDS.values() for brand in names[:4]}
    for seed in range(30):
        for shop in SHOPS:
            goods = content(Seeder(seed, held_out=False))[shop.table("product")].values()
            assert {product["kind"] for product in goods} <= open_kinds
            assert {product["brand"] for product in goods} <= open_brands


def test_no_two_of_a_kind_share_a_price_or_a_rating() -> None:
    goods = content(Seeder(1, held_out=True))[KIOSKO.table("product")].values()
    for field in ("price", "rating", "days"):
        pairs = [(product["kind"], product[field]) for product in goods]
        assert len(set(pairs)) == len(pairs)


# --- the browser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["northmart.com", "www.northmart.com", "NorthMart.com/"])
def test_an_address_opens_its_site(text: str) -> None:
    state = enter(phone(), "address", text)
    assert "northmart-home" in [place.screen for place in state.stack]
    assert NORTHMART.key in state.tables[HISTORY]


def test_words_are_searched_for_and_lead_to_shops_goods_and_guides() -> None:
    start = phone()
    assert "none" in shown(enter(start, "address", "zeppelin"))
    assert "result:kiosko" in shown(enter(start, "address", "Kiosko"))
    id = some_product(start, KIOSKO)
    name = str(start.tables[KIOSKO.table("product")][id]["name"])
    found = tap(enter(start, "address", name), f"result:kiosko:{id}")
    assert Place(app="browser", screen="kiosko-product", args={"id": id}) in found.stack
    guide = next(iter(start.tables[GUIDES]))
    found = enter(start, "address", str(start.tables[GUIDES][guide]["title"]))
    assert tap(found, f"guide:{guide}").place.screen == "guide"


def test_the_star_makes_a_bookmark_and_takes_it_away() -> None:
    state = phone("kiosko-home")
    before = "kiosko" in state.tables[BOOKMARKS]
    once = tap(state, "star")
    assert ("kiosko" in once.tables[BOOKMARKS]) is not before
    assert ("kiosko" in tap(once, "star").tables[BOOKMARKS]) is before


def test_holding_a_bookmark_offers_to_delete_it() -> None:
    state = put(phone(), BOOKMARKS, "parcel", title="Parcel Post")
    after = tap(tap(state, "site:parcel", hold=True), "delete")
    assert "parcel" not in after.tables[BOOKMARKS]
    assert after.place.screen == "home"


def test_history_can_be_cleared() -> None:
    assert tap(phone(), "history", "clear").tables[HISTORY] == {}


@both
def test_a_banner_greets_the_first_visit_and_no_later_one(shop: Shop) -> None:
    state = phone()
    for kind in ("newsletter", "cookies"):
        state = put(state, shop.table("greeting"), kind, due=True)
    greeted = enter(state, "address", shop.domain)
    assert greeted.place.screen == shop.screen("greeting")
    inside = tap(greeted, "popup:close", "popup:close")
    assert inside.place.screen == shop.screen("home")
    home = perform(inside, show(inside), Press("back")).state
    assert enter(home, "address", shop.domain).place.screen == shop.screen("home")


# --- finding goods ----------------------------------------------------------------------------------------------------


def test_a_query_matches_all_its_words_or_failing_that_any() -> None:
    goods = phone().tables[KIOSKO.table("product")]
    id, product = next(iter(goods.items()))
    assert matching(goods, str(product["name"]).upper()) == [id]
    assert {goods[found]["kind"] for found in matching(goods, f"{product['kind']} zeppelin")} >= {product["kind"]}
    assert matching(goods, "zeppelin") == []


@both
def test_results_can_be_sorted_and_filtered(shop: Shop) -> None:
    state = phone(shop.screen("home"))
    goods = state.tables[shop.table("product")]
    kind = str(goods[some_product(state, shop)]["kind"])
    state = tap(enter(state, "search", kind), "sort", "sort:price", "filter", "only:top")
    assert state.place.args == {"query": kind, "sort": "price", "only": "top"}
    found = listed(goods, state.place.args)
    assert found == sorted(found, key=lambda found_id: int(goods[found_id]["price"]))
    assert all(float(goods[id]["rating"]) >= 4 for id in found)
    assert len(listed(goods, {"query": kind})) == 3


@pytest.mark.parametrize(("by", "best"), [("price", min), ("days", min), ("rating", max)])
def test_sorting_puts_the_best_first(by: str, best: Callable[[list[float]], float]) -> None:
    goods = phone().tables[KIOSKO.table("product")]
    values = [float(goods[id][by]) for id in listed(goods, {"category": "Kitchen", "sort": by})]
    assert len(values) > 1
    assert values[0] == best(values)


@both
def test_a_category_lists_its_goods(shop: Shop) -> None:
    state = phone(shop.screen("home"))
    category = str(next(iter(state.tables[shop.table("product")].values()))["category"])
    after = tap(state, f"category:{category}")
    goods = after.tables[shop.table("product")]
    assert {goods[id]["category"] for id in listed(goods, after.place.args)} == {category}


# --- the cart ---------------------------------------------------------------------------------------------------------


@both
def test_adding_puts_the_product_in_the_cart_and_adding_again_counts_up(shop: Shop) -> None:
    id = some_product(phone(), shop)
    state = tap(phone(shop.screen("product"), id=id), "add")
    assert state.tables[shop.table("cart")] == {id: {"product": id, "option": "", "quantity": 1}}
    state = state if shop.inline else tap(state, "stay")
    assert tap(state, "add").tables[shop.table("cart")][id]["quantity"] == 2


@both
def test_option_and_quantity_are_chosen_before_adding(shop: Shop) -> None:
    id = some_product(phone(), shop, options=True)
    state = phone(shop.screen("product"), id=id)
    option = str(state.tables[shop.table("product")][id]["options"]).split(",")[2]
    choices = (
        [f"option:{option}", "more", "more"]
        if shop.inline
        else ["option", f"option:{option}", "quantity", "quantity:3"]
    )
    after = tap(state, *choices, "add")
    assert after.tables[shop.table("cart")] == {f"{id}/{option}": {"product": id, "option": option, "quantity": 3}}


@both
def test_what_is_sold_out_cannot_be_added(shop: Shop) -> None:
    id = some_product(phone(), shop)
    state = put(phone(shop.screen("product"), id=id), shop.table("product"), id, stock=False)
    assert shown(state)["stock"] == "Sold out"
    assert tap(state, "add").tables[shop.table("cart")] == {}


@both
def test_a_line_changes_its_quantity_moves_aside_comes_back_and_goes(shop: Shop) -> None:
    state, id = with_line(phone(shop.screen("cart")), shop, 2)
    price = int(state.tables[shop.table("product")][id]["price"])
    assert shown(state)["total"] == shop.money(2 * price)
    counted = tap(state, f"line:{id}", *(("more", "close") if shop.inline else ("quantity:3",)))
    assert shown(counted)["total"] == shop.money(3 * price)
    aside = tap(counted, f"line:{id}", "later")
    assert (aside.tables[shop.table("cart")], aside.tables[shop.table("saved")][id]["quantity"]) == ({}, 3)
    again = tap(aside, f"saved:{id}", "unsave")
    assert again.tables[shop.table("saved")] == {}
    assert tap(again, f"line:{id}", "remove").tables[shop.table("cart")] == {}


@both
def test_the_wishlist_takes_gives_and_forgets(shop: Shop) -> None:
    id = some_product(phone(), shop)
    page = phone(shop.screen("product"), id=id)
    kept = tap(page, "wish")
    assert id in kept.tables[shop.table("wishlist")]
    assert id not in tap(kept, "wish").tables[shop.table("wishlist")]
    listed_page = push(kept, Place(app="browser", screen=shop.screen("wishlist")))
    moved = tap(listed_page, f"wish:{id}", "wish-to-cart")
    assert id not in moved.tables[shop.table("wishlist")]
    assert moved.tables[shop.table("cart")][id]["quantity"] == 1
    assert tap(listed_page, f"wish:{id}", "wish-remove").tables[shop.table("cart")] == {}


# --- orders -----------------------------------------------------------------------------------------------------------


@both
def test_checking_out_makes_an_order_and_empties_the_cart(shop: Shop) -> None:
    state, id = with_line(phone(shop.screen("cart")), shop, 2)
    product, orders = state.tables[shop.table("product")][id], state.tables[shop.table("order")]
    choices = (
        ["address:Office", "delivery:Express"]
        if shop.inline
        else ["address", "address:Office", "delivery", "delivery:Express"]
    )
    after = tap(enter(tap(state, "checkout", *choices), "voucher", "SPRING10"), "place", "confirm")
    (made,) = after.tables[shop.table("order")].keys() - orders.keys()
    order = after.tables[shop.table("order")][made]
    assert after.tables[shop.table("cart")] == {}
    assert order["items"] == f"2 × {product['name']}"
    assert order["total"] == round(2 * int(product["price"]) * 0.9)
    assert (order["address"], order["delivery"], order["voucher"]) == ("Office", "Express", "SPRING10")
    assert after.place == Place(app="browser", screen=shop.screen("order"), args={"id": made})


@both
def test_an_order_is_made_only_after_a_yes(shop: Shop) -> None:
    state, id = with_line(phone(shop.screen("cart")), shop)
    after = tap(state, "checkout", "place", "decline")
    assert after.tables == state.tables
    assert id in after.tables[shop.table("cart")]


def test_an_empty_cart_cannot_be_checked_out() -> None:
    assert tap(phone("kiosko-cart"), "checkout").place.screen == "kiosko-cart"


@both
@pytest.mark.parametrize(("status", "after"), [("Processing", "Cancelled"), ("Delivered", "Return requested")])
def test_an_order_can_be_ended_while_its_status_allows_it(shop: Shop, status: str, after: str) -> None:
    state = put(phone(shop.screen("account")), shop.table("order"), "o0", status=status)
    ended = tap(state, "orders", "order:o0", "end", "confirm")
    assert ended.tables[shop.table("order")]["o0"]["status"] == after


def test_an_order_under_way_offers_no_end() -> None:
    state = put(phone("kiosko-order", id="o0"), "kiosko.order", "o0", status="Shipped")
    assert shown(state)["status"] == "Shipped"
    assert "end" not in shown(state)


@both
def test_a_past_order_goes_in_the_cart_again(shop: Shop) -> None:
    state = phone(shop.screen("order"), id="o1")
    after = tap(state, "again")
    assert list(after.tables[shop.table("cart")]) == [state.tables[shop.table("order")]["o1"]["product"]]
    assert after.place.screen == shop.screen("cart")


@both
def test_the_account_keeps_switches_and_the_usual_address(shop: Shop) -> None:
    state = phone(shop.screen("account"))
    before = state.tables[shop.table("pref")]["alerts"]["on"]
    after = tap(state, "alerts", "address", "address:Pickup point").tables[shop.table("pref")]
    assert after["alerts"]["on"] is not before
    assert after["address"]["choice"] == "Pickup point"
