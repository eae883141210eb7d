"""Shopping tasks that cannot be done: the right thing is to look, to say so, and to leave everything as it was."""

from __future__ import annotations

from distrl.devices.sim.products import BRANDS, KINDS, product_id
from distrl.tasks.sim.suites.shopping import Trip, search
from distrl.tasks.sim.suites.shopping_orders import past_order
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, tap

templates = Templates()


def unsold(t: Draft, trip: Trip) -> str:
    """The name of something that this shop does not have."""
    kind = t.choose(KINDS)
    brand = t.choose(BRANDS[KINDS[kind].category])
    if product_id(brand, kind) in trip.rows("product"):
        raise NoInstance("the shop has it")
    return f"{brand} {kind}"


@templates.add
def unsold_to_cart(t: Draft) -> None:
    trip = Trip(t)
    name = unsold(t, trip)
    t.say(
        f"Go to {trip.at}, search for {name}, add it to the {trip.basket}",
        f"Put the {name} from {trip.at} in my {trip.basket}",
        f"I want to buy the {name} on {trip.at}, get it into the {trip.basket}",
        f"Look up {name} at {trip.at} and drop it in my {trip.basket}",
    )
    t.cannot_be_done()
    t.route(*trip.visit(), *search(name))


@templates.add
def sold_out_to_cart(t: Draft) -> None:
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Go to {trip.at}, search for {name}, add it to the {trip.basket}",
        f"Place the {name} from {trip.at} in my {trip.basket}",
        f"I want to buy the {name} at {trip.at}, put it in the {trip.basket}",
        f"Find {name} on {trip.at} and drop it in my {trip.basket}",
    )
    t.given(trip.shop.table("product"), id, stock=False)
    t.cannot_be_done()
    t.route(*trip.visit(), *trip.find(name, id))


@templates.add
def cancel_what_was_sent(t: Draft) -> None:
    trip = Trip(t)
    id, order = past_order(t, trip, "Shipped")
    name = order["items"]
    t.say(
        f"Cancel my order of the {name} on {trip.at}",
        f"I changed my mind about the {name}, call off the order at {trip.at}",
        f"Go to {trip.at} and stop the order for {name}",
        f"Open my purchases on {trip.at} and cancel the {name}",
    )
    t.cannot_be_done()
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"))


@templates.add
def remove_what_is_not_there(t: Draft) -> None:
    trip = Trip(t)
    trip.clear_cart()
    (_, name), (other, _) = trip.two_plain()
    t.say(
        f"Remove the {name} from my {trip.at} {trip.basket}",
        f"Take the {name} out of the {trip.basket} on {trip.at}",
        f"Delete {name} from my {trip.basket} at {trip.at}",
        f"Open {trip.at} and get rid of the {name} in my {trip.basket}",
    )
    trip.given_line(other)
    t.cannot_be_done()
    t.route(*trip.visit(), tap("cart"))


@templates.add_for_test
def unsold_to_wishlist(t: Draft) -> None:
    trip = Trip(t)
    name = unsold(t, trip)
    t.say(
        f"Go to {trip.at}, search for {name} and put it on the {trip.wishes}",
        f"Add the {name} on {trip.at} to my {trip.wishes}",
        f"Find {name} at {trip.at} and save it to the {trip.wishes}",
    )
    t.cannot_be_done()
    t.route(*trip.visit(), *search(name))
