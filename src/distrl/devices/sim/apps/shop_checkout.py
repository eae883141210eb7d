"""The pages of a web shop on which goods are paid for: cart, checkout, orders and account."""

from __future__ import annotations

from distrl.devices.sim.app import Ui, back, do, erase, flip, write
from distrl.devices.sim.apps.shop import (
    ADDRESSES,
    DELIVERIES,
    MOST,
    PREFS,
    Choice,
    PageFn,
    Shop,
    add_to_cart,
    dialog,
    link,
    selector,
    stepper,
    tabs,
    word,
)
from distrl.devices.sim.apps.shop_catalogue import picture_of
from distrl.devices.sim.patterns import facts
from distrl.devices.sim.state import PhoneState, Record, Table, drop, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, choice, heading, row, switch

DISCOUNT = 0.9
"""What a voucher leaves of the price."""


# --- the cart ---------------------------------------------------------------------------------------------------------


def total(lines: Table, goods: Table) -> int:
    """What the cart costs, in hundredths."""
    return sum(int(line["quantity"]) * int(goods[str(line["product"])]["price"]) for line in lines.values())


def describe(line: Record, goods: Table) -> str:
    """A line of the cart in words: `2 × Nordal scarf (red)`."""
    count, option = int(line["quantity"]), f" ({line['option']})" if line["option"] else ""
    return f"{f'{count} × ' if count > 1 else ''}{goods[str(line['product'])]['name']}{option}"


def cart(shop: Shop, ui: Ui) -> View:
    """The cart with its total, what was saved for later, and the button to check out."""
    goods, lines = ui.table(shop.table("product")), ui.table(shop.table("cart"))
    body = [
        *facts(("total", ui.pick("Total", "To pay"), shop.money(total(lines, goods)))),
        *ui.arrange(
            row(f"line:{id}", describe(line, goods), tap=link(shop, "line", id=id), icon=_picture(line, goods))
            for id, line in lines.items()
        ),
    ]
    if saved := ui.table(shop.table("saved")):
        body.append(heading("saved", word(shop, ui, "later")))
        body += [
            row(f"saved:{id}", describe(line, goods), tap=link(shop, "saved", id=id), icon=_picture(line, goods))
            for id, line in saved.items()
        ]
    pay = button("checkout", word(shop, ui, "checkout"), tap=link(shop, "checkout"), enabled=bool(lines))
    return _with_main_button(shop, ui, "cart", body, pay)


def _picture(line: Record, goods: Table) -> str:
    return picture_of(goods[str(line["product"])], str(line["option"]))


def _with_main_button(shop: Shop, ui: Ui, page: str, body: list[Widget], main: Widget) -> View:
    """A page with one thing to do: always in sight, or at the end."""
    title = word(shop, ui, page)
    if shop.inline:
        return View(title=title, body=tuple(body), bottom=(main,), style=shop.style)
    return View(title=title, body=(*body, main), bottom=tabs(shop, ui, page), style=shop.style)


def line(shop: Shop, ui: Ui) -> View:
    """What can be done with a line of the cart: another quantity, later, remove."""
    id, table = ui.args["id"], shop.table("cart")
    record = ui.record(table, id)
    count = int(record["quantity"])
    if shop.inline:
        counter = stepper(count, lambda number: write(table, id, quantity=number))
    else:
        counter = [
            choice(
                f"quantity:{number}", str(number), number == count, tap=do(write(table, id, quantity=number), back())
            )
            for number in range(1, MOST + 1)
        ]
    others = ui.arrange(
        (
            button("later", word(shop, ui, "later"), tap=do(_move(shop, id, "cart", "saved"), back()), look="quiet"),
            button("remove", ui.pick("Remove", "Delete"), tap=do(erase(table, id), back()), look="danger"),
        )
    )
    close = button("close", ui.pick("Close", "Done"), tap=back(), look="quiet")
    return dialog(describe(record, ui.table(shop.table("product"))), *counter, *others, close)


def saved(shop: Shop, ui: Ui) -> View:
    """What can be done with something saved for later."""
    id = ui.args["id"]
    return dialog(
        describe(ui.record(shop.table("saved"), id), ui.table(shop.table("product"))),
        button("unsave", ui.pick("Move to cart", "Buy it after all"), tap=do(_move(shop, id, "saved", "cart"), back())),
        button("discard", ui.pick("Remove", "Delete"), tap=do(erase(shop.table("saved"), id), back()), look="danger"),
    )


def _move(shop: Shop, id: str, old: str, new: str) -> Effect:
    def run(state: PhoneState) -> PhoneState:
        record = state.tables[shop.table(old)][id]
        return put(drop(state, shop.table(old), id), shop.table(new), id, **record)

    return run


# --- paying -----------------------------------------------------------------------------------------------------------


def checkout(shop: Shop, ui: Ui) -> View:
    """Address, delivery and voucher of an order, and what is due."""
    address = ui.draft("address", str(ui.record(shop.table("pref"), "address")["choice"]))
    delivery, voucher = ui.draft("delivery", DELIVERIES[0]), ui.draft("voucher")
    cents = total(ui.table(shop.table("cart")), ui.table(shop.table("product")))
    body = [
        *facts(("due", ui.pick("Total", "To pay"), shop.money(round(cents * DISCOUNT) if voucher else cents))),
        *selector(shop, Choice(field="address", title=ui.pick("Address", "Ship to"), options=ADDRESSES, now=address)),
        *selector(shop, Choice(field="delivery", title=ui.pick("Speed", "Delivery"), options=DELIVERIES, now=delivery)),
        ui.field("voucher", ui.pick("Voucher code", "Promo code")),
    ]
    terms = {"address": address, "delivery": delivery, "voucher": voucher}
    pay = button("place", word(shop, ui, "place"), tap=link(shop, "confirm", **terms))
    return _with_main_button(shop, ui, "checkout", body, pay)


def confirm(shop: Shop, ui: Ui) -> View:
    """The question before an order is placed."""
    text = ui.pick("Do you want to order this?", "Send the order now?")
    yes = button("confirm", ui.pick("Yes, order", "Order now"), tap=_order(shop, ui.args))
    no = button("decline", ui.pick("Go back", "Not yet"), tap=back(), look="quiet")
    return dialog(text, *ui.arrange((yes, no)))


def _order(shop: Shop, terms: dict[str, str]) -> Effect:
    """Turn the cart into an order and show it."""

    def run(state: PhoneState) -> PhoneState:
        goods, lines = state.tables[shop.table("product")], state.tables[shop.table("cart")]
        orders = state.tables[shop.table("order")]
        id, cents = next_id(orders, "o"), total(lines, goods)
        fields: Record = {
            "items": ", ".join(describe(line, goods) for line in lines.values()),
            "product": next(str(line["product"]) for line in lines.values()),
            "total": round(cents * DISCOUNT) if terms["voucher"] else cents,
            "status": "Processing",
            "eta": "soon",
            "number": f"{shop.name[0]}-{10_000 + len(orders)}",
            **terms,
        }
        state = put(state, shop.table("order"), id, **fields)
        for line in lines:
            state = drop(state, shop.table("cart"), line)
        return do(back(2), link(shop, "order", id=id))(state)

    return run


# --- orders and account -----------------------------------------------------------------------------------------------


def orders(shop: Shop, ui: Ui) -> View:
    """The orders, old and new."""
    rows = [
        row(
            f"order:{id}",
            str(order["items"]),
            str(order["number"]),
            tap=link(shop, "order", id=id),
            icon=_ordered(shop, ui, order),
        )
        for id, order in ui.table(shop.table("order")).items()
    ]
    return View(
        title=word(shop, ui, "orders"), body=ui.arrange(rows), bottom=tabs(shop, ui, "account"), style=shop.style
    )


def _ordered(shop: Shop, ui: Ui, order: Record) -> str:
    product = ui.record(shop.table("product"), str(order["product"]))
    return picture_of(product) if product else "box"


def order(shop: Shop, ui: Ui) -> View:
    """One order: status, arrival, amount and address, with buttons to reorder and to end it."""
    id = ui.args["id"]
    order = ui.record(shop.table("order"), id)
    told = facts(
        ("status", ui.pick("Status", "State"), str(order["status"])),
        ("eta", ui.pick("Arrival", "Expected on"), str(order["eta"])),
        ("paid", ui.pick("Amount", "Paid"), shop.money(int(order["total"]))),
        ("ship", ui.pick("Delivered to", "Address"), str(order["address"])),
    )
    buttons = [
        button(
            "again",
            ui.pick("Buy again", "Reorder"),
            tap=do(add_to_cart(shop, str(order["product"])), link(shop, "cart")),
        )
    ]
    if order["status"] in ENDS:
        buttons.append(
            button("end", ui.pick(*ENDS[str(order["status"])][0]), tap=link(shop, "end", id=id), look="danger")
        )
    body = (heading("items", str(order["items"])), *told, *ui.arrange(buttons))
    return View(
        title=str(order["number"]),
        body=body,
        bottom=tabs(shop, ui, "account"),
        style=shop.style,
        picture=_ordered(shop, ui, order),
        picture_at="aside",
    )


ENDS = {
    "Processing": (("Cancel order", "Call it off"), "Cancelled"),
    "Delivered": (("Return items", "Send it back"), "Return requested"),
}
"""How an order can be ended, and what it is afterwards; one that is under way cannot."""


def end(shop: Shop, ui: Ui) -> View:
    """The question before an order is cancelled or returned."""
    id, table = ui.args["id"], shop.table("order")
    words, after = ENDS[str(ui.record(table, id)["status"])]
    yes = button(
        "confirm", ui.pick("Yes, I am sure", "Confirm"), tap=do(back(), write(table, id, status=after)), look="danger"
    )
    return dialog(
        ui.pick(*words) + "?", *ui.arrange((yes, button("decline", ui.pick("No", "Keep it"), tap=back(), look="quiet")))
    )


def account(shop: Shop, ui: Ui) -> View:
    """Bonus points, orders, the usual address and the account's switches."""
    table = shop.table("pref")
    rows = [
        row("orders", word(shop, ui, "orders"), tap=link(shop, "orders"), icon="box"),
        row("address", ui.pick("Usual address", "Default address"), str(ui.record(table, "address")["choice"]), tap=link(shop, "address")),
        *(switch(name, title, bool(ui.record(table, name)["on"]), tap=flip(table, name, "on")) for name, title in PREFS.items()),
    ]  # fmt: skip
    points = facts(("points", ui.pick("Bonus", "Loyalty"), str(ui.record(table, "points")["value"])))
    return View(
        title=word(shop, ui, "account"),
        body=(*points, *ui.arrange(rows)),
        bottom=tabs(shop, ui, "account"),
        style="group",
    )


def address(shop: Shop, ui: Ui) -> View:
    """The addresses to choose the usual one from."""
    table = shop.table("pref")
    now = ui.record(table, "address")["choice"]
    keep = {place: do(write(table, "address", choice=place), back()) for place in ADDRESSES}
    return dialog("Address", *(choice(f"address:{place}", place, place == now, tap=keep[place]) for place in ADDRESSES))


PAGES: dict[str, PageFn] = {
    "cart": cart,
    "line": line,
    "saved": saved,
    "checkout": checkout,
    "confirm": confirm,
    "orders": orders,
    "order": order,
    "end": end,
    "account": account,
    "address": address,
}
