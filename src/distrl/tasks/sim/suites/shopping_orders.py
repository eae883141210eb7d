"""Shopping tasks around orders: checking out, cancelling, returning, buying again, and the account."""

from __future__ import annotations

from distrl.devices.sim.apps.shop import ADDRESSES, DELIVERIES
from distrl.devices.sim.state import Record
from distrl.tasks.sim.suites.shopping import Trip
from distrl.tasks.sim.templates import Draft, Templates, tap, type_in

templates = Templates()

VOUCHERS = (
    "SPRING10",
    "HELLO5",
    "SUNNY20",
    "FRIENDS15",
    "MAYDAY",
    "LUCKY7",
    "WEEKEND",
    "PARTY25",
    "WINTER30",
    "BONUS12",
)
SPOKEN_PREFS = {
    "newsletter": ("the newsletter", "mails with news"),
    "alerts": ("delivery alerts", "messages about parcels"),
    "ads": ("personal offers", "offers made for me"),
}


def fill_cart(t: Draft, trip: Trip) -> str:
    """Leave one product in the cart and say what it is called."""
    trip.clear_cart()
    id, name = trip.plain()
    trip.given_line(id)
    t.want_gone(trip.shop.table("cart"), id)
    return name


def usual_address(trip: Trip) -> str:
    """The address that the shop delivers to unless told otherwise."""
    return str(trip.rows("pref")["address"]["choice"])


# --- checking out -----------------------------------------------------------------------------------------------------


@templates.add
def buy(t: Draft) -> None:
    """Buy a product, checkout included."""
    trip = Trip(t)
    trip.clear_cart()
    id, name = trip.plain()
    t.say(
        f"Order the {name} in this shop",
        f"Buy a {name} here and complete the purchase",
        f"Search for {name}, add it to the {trip.basket} and check out",
        f"Purchase {name}, all the way through the checkout",
    )
    trip.start()
    trip.want("order", items=name, status="Processing", address=usual_address(trip), delivery=DELIVERIES[0], voucher="")
    on = (tap("cart"),) if trip.shop.inline else (tap("to-cart"),)
    t.route(*trip.find(name, id), tap("add"), *on, *trip.pay())


@templates.add
def check_out(t: Draft) -> None:
    """Order what is in the cart."""
    trip = Trip(t)
    name = fill_cart(t, trip)
    t.say(
        f"Check out my {trip.basket} on {trip.at}",
        f"Go to {trip.at} and order what is in the {trip.basket}",
        f"Pay for the {name} in my {trip.at} {trip.basket}",
        f"Finish my purchase of the {name} on {trip.at}",
        f"Place the order for the things in my {trip.basket} at {trip.at}",
    )
    trip.want("order", items=name, address=usual_address(trip), delivery=DELIVERIES[0], voucher="")
    t.route(*trip.visit(), tap("cart"), *trip.pay())


@templates.add
def check_out_to_address(t: Draft) -> None:
    """Order what is in the cart to a given address."""
    trip = Trip(t)
    name, place = fill_cart(t, trip), t.one_of(*(place for place in ADDRESSES if place != usual_address(trip)))
    t.say(
        f"Check out my {trip.basket} on {trip.at} and ship it to {place}",
        f"Order the {name} in my {trip.at} {trip.basket}, to be sent to the address {place}",
        f"Go to {trip.at} and pay for the {name} in the {trip.basket}, delivered to {place}",
        f"Have the {name} from my {trip.basket} at {trip.at} brought to {place}: place the order",
    )
    trip.want("order", items=name, address=place, delivery=DELIVERIES[0], voucher="")
    t.route(*trip.visit(), tap("cart"), *trip.pay(*trip.select("address", place)))


@templates.add
def check_out_with_speed(t: Draft) -> None:
    """Order what is in the cart with a given delivery."""
    trip = Trip(t)
    name, speed = fill_cart(t, trip), t.one_of(*DELIVERIES[1:])
    t.say(
        f"Check out my {trip.basket} on {trip.at} with {speed} delivery",
        f"Order the {name} in my {trip.at} {trip.basket} and choose {speed} shipping",
        f"Go to {trip.at} and pay for the {name} in the {trip.basket}, delivery should be {speed}",
        f"Place the order for {name} in the {trip.basket} at {trip.at}, sent as {speed}",
    )
    trip.want("order", items=name, address=usual_address(trip), delivery=speed, voucher="")
    t.route(*trip.visit(), tap("cart"), *trip.pay(*trip.select("delivery", speed)))


@templates.add
def check_out_with_voucher(t: Draft) -> None:
    """Order what is in the cart with a voucher."""
    trip = Trip(t)
    name, code = fill_cart(t, trip), t.choose(VOUCHERS)
    t.say(
        f"Check out my {trip.basket} on {trip.at} with the voucher {code}",
        f"Order the {name} in my {trip.at} {trip.basket} using promo code {code}",
        f"Go to {trip.at} and pay for the {name} in the {trip.basket}, the discount code is {code}",
        f"Place the order for {name} at {trip.at} and redeem {code} for it",
    )
    trip.want("order", items=name, address=usual_address(trip), delivery=DELIVERIES[0], voucher=code)
    t.route(*trip.visit(), tap("cart"), *trip.pay(type_in("voucher", code)))


@templates.add_for_test
def check_out_to_address_with_speed(t: Draft) -> None:
    """Order what is in the cart to a given address with a given delivery."""
    trip = Trip(t)
    name, place = fill_cart(t, trip), t.one_of(*(place for place in ADDRESSES if place != usual_address(trip)))
    speed = t.one_of(*DELIVERIES[1:])
    t.say(
        f"Check out my {trip.basket} on {trip.at} with {speed} delivery to {place}",
        f"Order the {name} in my {trip.at} {trip.basket}, ship it to {place} and choose {speed}",
        f"Go to {trip.at} and pay for the {name} in the {trip.basket}, delivered to {place} by {speed} shipping",
    )
    trip.want("order", items=name, address=place, delivery=speed, voucher="")
    t.route(*trip.visit(), tap("cart"), *trip.pay(*trip.select("address", place), *trip.select("delivery", speed)))


@templates.add
def buy_from_wishlist(t: Draft) -> None:
    """Move a product from the wishlist to the cart and order it."""
    trip = Trip(t)
    trip.clear_cart()
    id, record = t.row(trip.shop.table("wishlist"))
    name = record["name"]
    t.say(
        f"Order the {name} from my {trip.wishes} on {trip.at}",
        f"Go to {trip.at}, move the {name} on the {trip.wishes} to the {trip.basket} and check out",
        f"Buy the {name} that is on my {trip.at} {trip.wishes} and complete the purchase",
        f"Treat me to the {name} on my {trip.wishes} at {trip.at}: place the order",
    )
    t.want_gone(trip.shop.table("wishlist"), id)
    trip.want("order", items=name, address=usual_address(trip), delivery=DELIVERIES[0], voucher="")
    moves = (tap("tab:wishlist"), tap(f"wish:{id}"), tap("wish-to-cart"), tap("tab:cart"))
    t.route(*trip.visit(), *moves, *trip.pay())


# --- orders -----------------------------------------------------------------------------------------------------------


def past_order(t: Draft, trip: Trip, status: str) -> tuple[str, Record]:
    """Some order, made to have this status."""
    id, order = t.row(trip.shop.table("order"))
    t.given(trip.shop.table("order"), id, status=status)
    return id, order


@templates.add
def cancel_order(t: Draft) -> None:
    """Cancel an order that is being processed."""
    trip = Trip(t)
    id, order = past_order(t, trip, "Processing")
    name = order["items"]
    t.say(
        f"Cancel my order of the {name} on {trip.at}",
        f"I changed my mind about the {name}, call off the order at {trip.at}",
        f"Go to {trip.at} and stop the order for {name}",
        f"Open my purchases on {trip.at} and cancel the {name}",
    )
    trip.want("order", id, status="Cancelled")
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"), tap("end"), tap("confirm"))


@templates.add
def return_order(t: Draft) -> None:
    """Return an order that was delivered."""
    trip = Trip(t)
    id, order = past_order(t, trip, "Delivered")
    name = order["items"]
    t.say(
        f"Return the {name} that I ordered on {trip.at}",
        f"Send the {name} back to {trip.at}",
        f"Go to {trip.at} and ask for a return of the {name} that was delivered",
        f"I am not happy with the {name} from {trip.at}, hand it back",
    )
    trip.want("order", id, status="Return requested")
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"), tap("end"), tap("confirm"))


@templates.add
def buy_again(t: Draft) -> None:
    """Put a product of an earlier order into the cart again."""
    trip = Trip(t)
    id, order = t.row(trip.shop.table("order"))
    name = order["items"]
    t.say(
        f"Put the {name} from my past orders on {trip.at} in the {trip.basket} again",
        f"Reorder the {name} that I once ordered at {trip.at}, only up to the {trip.basket}",
        f"Go to my purchases on {trip.at} and use buy again for the {name}",
        f"I want to buy the {name} again, find it in the order history of {trip.at} and add it to the {trip.basket}",
    )
    trip.want_line(str(order["product"]))
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"), tap("again"))


@templates.add_for_test
def cancel_one_reorder_other(t: Draft) -> None:
    """Cancel one order and put the product of another into the cart again."""
    trip = Trip(t)
    (one, first), (two, second) = t.random.sample(list(trip.rows("order").items()), 2)
    t.say(
        f"Cancel my order of the {first['items']} and buy the {second['items']} again from my order history",
        f"Call off the {first['items']} that I ordered, then reorder the {second['items']} into the {trip.basket}",
        f"Among my purchases, stop the {first['items']} and use buy again for the {second['items']}",
    )
    trip.start("orders")
    t.given(trip.shop.table("order"), one, status="Processing")
    trip.want("order", one, status="Cancelled")
    trip.want_line(str(second["product"]))
    t.route(tap(f"order:{one}"), tap("end"), tap("confirm"), tap("tab:account"), tap("orders"))
    t.route(tap(f"order:{two}"), tap("again"))


# --- the account ------------------------------------------------------------------------------------------------------


@templates.add
def switch_account_setting(t: Draft) -> None:
    """Turn a setting of the shop's account on or off."""
    trip = Trip(t)
    name, on = t.one_of(*SPOKEN_PREFS), t.random.random() < 0.5
    spoken, word = t.one_of(*SPOKEN_PREFS[name]), "on" if on else "off"
    t.say(
        f"Turn {word} {spoken} in my {trip.at} account",
        f"Go to {trip.at} and switch {spoken} {word}",
        f"On {trip.at} I {'want' if on else 'do not want'} {spoken} from now on",
        f"{'Enable' if on else 'Disable'} {spoken} at {trip.at}",
    )
    t.given(trip.shop.table("pref"), name, on=not on)
    trip.want("pref", name, on=on)
    t.route(*trip.visit(), tap("tab:account"), tap(name))


@templates.add
def set_usual_address(t: Draft) -> None:
    """Change the usual address of the shop's account."""
    trip = Trip(t)
    place, other = t.random.sample(ADDRESSES, 2)
    t.say(
        f"Make {place} my usual address on {trip.at}",
        f"Change the default address in my {trip.at} account to {place}",
        f"Go to {trip.at} and set {place} as the address for all future orders",
        f"From now on {trip.at} should deliver to {place} by default",
        f"In my account at {trip.at}, pick {place} as the standard address",
    )
    t.given(trip.shop.table("pref"), "address", choice=other)
    trip.want("pref", "address", choice=place)
    t.route(*trip.visit(), tap("tab:account"), tap("address"), tap(f"address:{place}"))
