"""Finding goods in the web shops: search, sorting, filters, product pages and the wishlist."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.devices.sim.app import Seeder
from distrl.devices.sim.apps.browser import content
from distrl.devices.sim.apps.shop import KIOSKO, MOST, NORTHMART, SHOPS, Shop, cart_line
from distrl.devices.sim.apps.shop_catalogue import FILTERS, PASSES, SORTS, having_all, listed, matching
from distrl.devices.sim.products import BRANDS, KINDS
from distrl.devices.sim.state import Table
from support.shops import choose_option, choose_quantity, in_shop, product_page, some_product

both = pytest.mark.parametrize("shop", SHOPS, ids=lambda shop: shop.key)
GOODS: Table = content(Seeder(5, held_out=False))[KIOSKO.table("product")]


# --- what is sold ---------------------------------------------------------------------------------------------------


def test_held_out_goods_are_sold_on_test_phones_alone() -> None:
    open_kinds, open_brands = set(list(KINDS)[:24]), {brand for names in BRANDS.values() for brand in names[:4]}
    for seed in range(30):
        for shop in SHOPS:
            goods = content(Seeder(seed, held_out=False))[shop.table("product")].values()
            assert {product["kind"] for product in goods} <= open_kinds
            assert {product["brand"] for product in goods} <= open_brands


def test_the_two_shops_sell_different_goods_in_different_words() -> None:
    tables = content(Seeder(5, held_out=False))
    assert tables[KIOSKO.table("product")] != tables[NORTHMART.table("product")]
    assert KIOSKO.words.keys() == NORTHMART.words.keys()
    assert not set(KIOSKO.words["cart"]) & set(NORTHMART.words["cart"])


@pytest.mark.parametrize(
    ("shop", "cents", "written"), [(KIOSKO, 1999, "€19.99"), (NORTHMART, 500, "$5.00"), (KIOSKO, 7, "€0.07")]
)
def test_money_is_written_in_the_shops_currency(shop: Shop, cents: int, written: str) -> None:
    assert shop.money(cents) == written


# --- searching ------------------------------------------------------------------------------------------------------


def test_a_query_matches_all_its_words() -> None:
    id, product = next(iter(GOODS.items()))
    assert matching(GOODS, str(product["name"]).upper()) == [id]
    assert {GOODS[found]["kind"] for found in matching(GOODS, str(product["kind"]))} == {product["kind"]}


def test_failing_that_it_matches_any_of_them() -> None:
    product = next(iter(GOODS.values()))
    assert having_all(GOODS, [str(product["kind"]).split()[0], "zeppelin"]) == []
    assert {GOODS[found]["kind"] for found in matching(GOODS, f"{product['kind']} zeppelin")} >= {product["kind"]}
    assert matching(GOODS, "zeppelin") == []


@settings(max_examples=80, deadline=None)
@given(query=st.text(max_size=30))
def test_no_query_breaks_a_search_and_no_result_comes_twice(query: str) -> None:
    found = matching(GOODS, query)
    assert len(found) == len(set(found))
    assert set(found) <= GOODS.keys()


def test_a_search_for_a_category_finds_all_of_it() -> None:
    kitchen = {id for id, product in GOODS.items() if product["category"] == "Kitchen"}
    assert kitchen <= set(matching(GOODS, "kitchen"))
    assert set(listed(GOODS, {"category": "Kitchen"})) == kitchen


@pytest.mark.parametrize(("by", "best"), [("price", min), ("days", min), ("rating", max)])
def test_sorting_puts_the_best_first(by: str, best: Callable[[list[float]], float]) -> None:
    values = [float(GOODS[id][by]) for id in listed(GOODS, {"category": "Kitchen", "sort": by})]
    assert len(values) > 1
    assert values[0] == best(values)
    assert values == sorted(values, reverse=by == "rating")


@pytest.mark.parametrize("only", FILTERS)
def test_a_filter_lets_through_what_it_says_and_nothing_else(only: str) -> None:
    everything = listed(GOODS, {"query": ""})
    passed = listed(GOODS, {"query": "", "only": only})
    assert passed == [id for id in everything if PASSES[only](GOODS[id])]
    assert (len(passed) == len(everything)) is (only == "all")


@both
def test_results_are_sorted_and_filtered_in_dialogs_without_deepening_the_way_back(shop: Shop) -> None:
    finger = in_shop(shop)
    kind = str(finger.table(shop.table("product"))[some_product(finger, shop)]["kind"])
    finger.enter("search", kind)
    assert finger.text("count") == "3 results"
    finger.tap("sort", "sort:price", "filter", "only:top")
    assert finger.state.place.args == {"query": kind, "sort": "price", "only": "top"}
    goods = finger.table(shop.table("product"))
    found = listed(goods, finger.state.place.args)
    assert [id.removeprefix("product:") for id in finger.ids("product:")] == found
    assert finger.back().title == shop.name


@both
def test_the_chosen_order_is_ticked(shop: Shop) -> None:
    finger = in_shop(shop, "results", query="lamp").tap("sort", "sort:rating", "sort")
    assert [id for id in finger.ids("sort:") if finger.widgets()[id].checked] == ["sort:rating"]
    assert set(finger.ids()) == {f"sort:{name}" for name in SORTS}


@both
def test_a_search_that_finds_nothing_says_so(shop: Shop) -> None:
    finger = in_shop(shop).enter("search", "zeppelin")
    assert finger.text("count") == "Nothing found"
    assert finger.ids("product:") == []


@both
def test_a_category_lists_its_goods(shop: Shop) -> None:
    finger = in_shop(shop)
    category = finger.ids("category:")[0].removeprefix("category:")
    finger.tap(f"category:{category}")
    assert finger.title == category
    goods = finger.table(shop.table("product"))
    assert {goods[id.removeprefix("product:")]["category"] for id in finger.ids("product:")} == {category}


# --- product pages --------------------------------------------------------------------------------------------------


@both
def test_a_page_tells_price_rating_delivery_brand_and_stock_in_the_shops_order(shop: Shop) -> None:
    finger = product_page(shop)
    product = finger.table(shop.table("product"))[finger.state.place.args["id"]]
    assert finger.text("name") == product["name"]
    assert finger.text("price") == shop.money(int(product["price"]))
    assert finger.text("rating") == f"{product['rating']} of 5"
    assert finger.text("delivery") == f"{product['days']} days"
    assert finger.text("brand") == product["brand"]
    assert finger.text("stock") == "In stock"
    assert [id for id in finger.ids() if id in shop.facts] == list(shop.facts)


@both
def test_adding_puts_the_product_in_the_cart_and_adding_again_counts_up(shop: Shop) -> None:
    finger = product_page(shop)
    id = finger.state.place.args["id"]
    finger.tap("add")
    assert finger.changes() == [(shop.table("cart"), {"product": id, "option": "", "quantity": 1})]
    if not shop.inline:
        assert finger.screen == f"browser/{shop.screen('added')}"
        finger.tap("stay")
    finger.tap("add")
    assert finger.table(shop.table("cart"))[id]["quantity"] == 2


def test_a_shop_with_choices_on_the_page_says_that_something_was_added() -> None:
    finger = product_page(KIOSKO)
    before = finger.text("add")
    assert finger.tap("add").text("add") != before


def test_the_other_shop_leads_from_its_dialog_to_the_cart() -> None:
    finger = product_page(NORTHMART).tap("add", "to-cart")
    assert finger.screen == "browser/northmart-cart"
    assert finger.back().screen == "browser/northmart-product"


@both
@pytest.mark.parametrize("quantity", [1, 2, MOST])
def test_option_and_quantity_are_chosen_before_adding(shop: Shop, quantity: int) -> None:
    finger = product_page(shop, options=True)
    id = finger.state.place.args["id"]
    option = str(finger.table(shop.table("product"))[id]["options"]).split(",")[2]
    choose_option(finger, shop, option)
    choose_quantity(finger, shop, quantity)
    finger.tap("add")
    assert finger.table(shop.table("cart")) == {
        cart_line(id, option): {"product": id, "option": option, "quantity": quantity}
    }


@both
def test_the_first_option_is_taken_where_none_is_chosen(shop: Shop) -> None:
    finger = product_page(shop, options=True)
    id = finger.state.place.args["id"]
    option = str(finger.table(shop.table("product"))[id]["options"]).split(",")[0]
    assert list(finger.tap("add").table(shop.table("cart"))) == [cart_line(id, option)]


def test_a_stepper_stops_at_one_and_at_the_most() -> None:
    finger = product_page(KIOSKO)
    assert not finger.widgets()["fewer"].enabled
    finger.tap("fewer", *["more"] * (MOST - 1))
    assert not finger.widgets()["more"].enabled
    finger.tap("more", "add")
    assert [line["quantity"] for line in finger.table("kiosko.cart").values()] == [MOST]


@both
def test_a_cart_takes_no_more_than_the_most_of_one_thing(shop: Shop) -> None:
    finger = product_page(shop)
    choose_quantity(finger, shop, MOST)
    finger.tap("add")
    if not shop.inline:
        finger.tap("stay")
    finger.tap("add")
    assert [line["quantity"] for line in finger.table(shop.table("cart")).values()] == [MOST]


@both
def test_what_is_sold_out_cannot_be_added(shop: Shop) -> None:
    finger = product_page(shop, stock=False)
    assert finger.text("stock") == "Sold out"
    assert not finger.widgets()["add"].enabled
    finger.tap("add")
    assert finger.changes() == []


# --- the wishlist ---------------------------------------------------------------------------------------------------


@both
def test_a_page_puts_a_product_on_the_wishlist_and_takes_it_off(shop: Shop) -> None:
    finger = product_page(shop)
    id = finger.state.place.args["id"]
    finger.tap("wish")
    assert finger.changes() == [(shop.table("wishlist"), {"name": finger.text("name")})]
    assert id in finger.table(shop.table("wishlist"))
    assert finger.tap("wish").changes() == []


@both
def test_a_wish_is_opened_moved_to_the_cart_or_removed(shop: Shop) -> None:
    finger = in_shop(shop, "wishlist")
    id = next(iter(finger.table(shop.table("wishlist"))))
    finger.tap(f"wish:{id}", "wish-open")
    assert finger.state.place.args == {"id": id}
    finger.back()
    finger.tap(f"wish:{id}", "wish-to-cart")
    assert finger.screen == f"browser/{shop.screen('wishlist')}"
    assert id not in finger.table(shop.table("wishlist"))
    assert [line["product"] for line in finger.table(shop.table("cart")).values()] == [id]
    other = next(iter(finger.table(shop.table("wishlist"))))
    finger.tap(f"wish:{other}", "wish-remove")
    assert len(finger.table(shop.table("cart"))) == 1
    assert finger.text("none") == "Nothing here yet"


@both
def test_tabs_lead_to_the_main_pages(shop: Shop) -> None:
    for page in ("wishlist", "cart", "account", "home"):
        finger = in_shop(shop).tap(f"tab:{page}")
        assert finger.screen == f"browser/{shop.screen(page)}"
