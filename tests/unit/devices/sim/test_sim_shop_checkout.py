"""Paying in the web shops: the cart, what is saved for later, checkout, orders and the account."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps.shop import ADDRESSES, DELIVERIES, MOST, PREFS, SHOPS, Shop
from distrl.devices.sim.apps.shop_checkout import DISCOUNT, describe, total
from distrl.devices.sim.state import Table, put
from support.shops import choose, in_shop, with_lines
from support.sims import Finger

both = pytest.mark.parametrize("shop", SHOPS, ids=lambda shop: shop.key)
GOODS: Table = {"cup": {"name": "Brava cup", "price": 250}, "hat": {"name": "Nordal hat", "price": 1000}}


def a_line(product: str, quantity: int = 1, option: str = "") -> dict[str, str | int]:
    return {"product": product, "quantity": quantity, "option": option}


def order_of(shop: Shop, status: str) -> Finger:
    """The page of an order with this status."""
    finger = in_shop(shop, "order", id="o0")
    return Finger(state=put(finger.state, shop.table("order"), "o0", status=status))


# --- sums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "cents"),
    [({}, 0), ({"cup": a_line("cup", 3)}, 750), ({"cup": a_line("cup"), "hat/red": a_line("hat", 2, "red")}, 2250)],
)
def test_a_cart_costs_the_sum_of_its_lines(lines: Table, cents: int) -> None:
    assert total(lines, GOODS) == cents


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (a_line("cup"), "Brava cup"),
        (a_line("cup", 2), "2 × Brava cup"),
        (a_line("hat", 1, "red"), "Nordal hat (red)"),
        (a_line("hat", 4, "red"), "4 × Nordal hat (red)"),
    ],
)
def test_a_line_in_words(line: dict[str, str | int], words: str) -> None:
    assert describe(line, GOODS) == words


# --- the cart -------------------------------------------------------------------------------------------------------


@both
def test_an_empty_cart_costs_nothing_and_cannot_be_checked_out(shop: Shop) -> None:
    finger = in_shop(shop, "cart")
    assert finger.text("total") == shop.money(0)
    assert not finger.widgets()["checkout"].enabled
    finger.tap("checkout")
    assert finger.screen == f"browser/{shop.screen('cart')}"


@both
def test_a_cart_lists_its_lines_and_their_total(shop: Shop) -> None:
    finger, ids = with_lines(shop, 2, 1)
    goods = finger.table(shop.table("product"))
    assert set(finger.ids("line:")) == {f"line:{id}" for id in ids}
    assert finger.text("total") == shop.money(2 * int(goods[ids[0]]["price"]) + int(goods[ids[1]]["price"]))


@both
def test_a_line_changes_its_quantity(shop: Shop) -> None:
    finger, (id,) = with_lines(shop, 2)
    finger.tap(f"line:{id}", *(("more", "more", "fewer", "close") if shop.inline else ("quantity:3",)))
    assert finger.screen == f"browser/{shop.screen('cart')}"
    assert finger.changes() == [(shop.table("cart"), a_line(id, 3))]


def test_a_stepper_of_a_line_stops_at_both_ends() -> None:
    finger, (id,) = with_lines(SHOPS[0], MOST)
    finger.tap(f"line:{id}", "more")
    assert finger.table("kiosko.cart")[id]["quantity"] == MOST
    finger.tap(*["fewer"] * (MOST + 1))
    assert finger.table("kiosko.cart")[id]["quantity"] == 1


@both
def test_a_line_is_removed(shop: Shop) -> None:
    finger, (one, other) = with_lines(shop, 1, 1)
    finger.tap(f"line:{one}", "remove")
    assert finger.changes() == [(shop.table("cart"), None)]
    assert finger.ids("line:") == [f"line:{other}"]


@both
def test_a_line_moves_aside_comes_back_and_is_discarded(shop: Shop) -> None:
    finger, (id,) = with_lines(shop, 3)
    finger.tap(f"line:{id}", "later")
    assert finger.text("total") == shop.money(0)
    assert finger.table(shop.table("saved")) == {id: a_line(id, 3)}
    finger.tap(f"saved:{id}", "unsave")
    assert finger.changes() == []
    finger.tap(f"line:{id}", "later", f"saved:{id}", "discard")
    assert finger.table(shop.table("saved")) == finger.table(shop.table("cart")) == {}


# --- checking out ---------------------------------------------------------------------------------------------------


@both
def test_checking_out_makes_an_order_and_empties_the_cart(shop: Shop) -> None:
    finger, (one, other) = with_lines(shop, 2, 1)
    goods = finger.table(shop.table("product"))
    finger.tap("checkout")
    choose(finger, shop, "address", "Office")
    choose(finger, shop, "delivery", "Express")
    finger.tap("place", "confirm")
    made = finger.made(shop.table("order"))
    order = finger.table(shop.table("order"))[made]
    cents = 2 * int(goods[one]["price"]) + int(goods[other]["price"])
    assert finger.table(shop.table("cart")) == {}
    assert order["items"] == f"2 × {goods[one]['name']}, {goods[other]['name']}"
    assert (order["total"], order["status"], order["voucher"]) == (cents, "Processing", "")
    assert (order["address"], order["delivery"]) == ("Office", "Express")
    assert finger.state.place.args == {"id": made}
    assert finger.text("paid") == shop.money(cents)


@both
def test_the_usual_address_and_delivery_are_taken_unless_told_otherwise(shop: Shop) -> None:
    finger, _ = with_lines(shop, 1)
    finger.tap("checkout", "place", "confirm")
    order = finger.table(shop.table("order"))[finger.made(shop.table("order"))]
    assert order["address"] == finger.table(shop.table("pref"))["address"]["choice"]
    assert order["delivery"] == DELIVERIES[0]


@both
def test_a_voucher_takes_a_tenth_off(shop: Shop) -> None:
    finger, (id,) = with_lines(shop, 3)
    cents = 3 * int(finger.table(shop.table("product"))[id]["price"])
    finger.tap("checkout")
    assert finger.text("due") == shop.money(cents)
    finger.enter("voucher", "SPRING10")
    assert finger.text("due") == shop.money(round(cents * DISCOUNT))
    finger.tap("place", "confirm")
    order = finger.table(shop.table("order"))[finger.made(shop.table("order"))]
    assert (order["voucher"], order["total"]) == ("SPRING10", round(cents * DISCOUNT))


@both
@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_can_be_chosen(shop: Shop, address: str) -> None:
    finger, _ = with_lines(shop, 1)
    finger.tap("checkout")
    choose(finger, shop, "address", address)
    assert finger.tap("place").state.place.args["address"] == address


@both
def test_an_order_is_made_only_after_a_yes(shop: Shop) -> None:
    finger, _ = with_lines(shop, 1)
    finger.tap("checkout", "place", "decline")
    assert (finger.screen, finger.changes()) == (f"browser/{shop.screen('checkout')}", [])


# --- orders ---------------------------------------------------------------------------------------------------------


@both
def test_orders_are_listed_by_what_was_bought(shop: Shop) -> None:
    finger = in_shop(shop, "account").tap("orders")
    orders = finger.table(shop.table("order"))
    assert {id: finger.text(id) for id in finger.ids("order:")} == {
        f"order:{id}": order["items"] for id, order in orders.items()
    }


@both
def test_an_order_tells_status_arrival_amount_and_address(shop: Shop) -> None:
    finger = in_shop(shop, "order", id="o1")
    order = finger.table(shop.table("order"))["o1"]
    assert finger.title == order["number"]
    assert [finger.text(name) for name in ("items", "status", "eta", "ship")] == [
        order["items"],
        order["status"],
        order["eta"],
        order["address"],
    ]
    assert finger.text("paid") == shop.money(int(order["total"]))


@both
@pytest.mark.parametrize(("status", "after"), [("Processing", "Cancelled"), ("Delivered", "Return requested")])
def test_an_order_can_be_ended_while_its_status_allows_it(shop: Shop, status: str, after: str) -> None:
    finger = order_of(shop, status)
    finger.tap("end", "decline")
    assert finger.changes() == []
    finger.tap("end", "confirm")
    assert finger.changes() == [
        (shop.table("order"), {**finger.start.tables[shop.table("order")]["o0"], "status": after})
    ]
    assert finger.text("status") == after
    assert "end" not in finger.ids(), "it cannot be ended twice"


@both
def test_an_order_under_way_cannot_be_ended(shop: Shop) -> None:
    assert "end" not in order_of(shop, "Shipped").ids()


@both
def test_a_past_order_goes_in_the_cart_again(shop: Shop) -> None:
    finger = in_shop(shop, "order", id="o1")
    product = str(finger.table(shop.table("order"))["o1"]["product"])
    finger.tap("again")
    assert finger.changes() == [(shop.table("cart"), a_line(product))]
    assert finger.screen == f"browser/{shop.screen('cart')}"


# --- the account ----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name", PREFS)
def test_a_switch_of_the_account(shop: Shop, name: str) -> None:
    finger = in_shop(shop, "account")
    before = finger.table(shop.table("pref"))[name]["on"]
    assert finger.widgets()[name].checked is before
    assert finger.tap(name).changes() == [(shop.table("pref"), {"on": not before})]


@both
def test_the_usual_address_is_chosen_from_a_list(shop: Shop) -> None:
    finger = in_shop(shop, "account")
    now = finger.table(shop.table("pref"))["address"]["choice"]
    other = next(address for address in ADDRESSES if address != now)
    finger.tap("address")
    assert [id for id in finger.ids() if finger.widgets()[id].checked] == [f"address:{now}"]
    finger.tap(f"address:{other}")
    assert finger.changes() == [(shop.table("pref"), {"choice": other})]
    assert finger.widgets()["address"].detail == other


@both
def test_the_account_tells_its_points(shop: Shop) -> None:
    finger = in_shop(shop, "account")
    assert finger.text("points") == finger.table(shop.table("pref"))["points"]["value"]
