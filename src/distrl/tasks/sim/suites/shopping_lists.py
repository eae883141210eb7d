"""Shopping tasks on what is already there: lines of the cart, things saved for later, and the wishlist."""

from __future__ import annotations

from distrl.tasks.sim.suites.shopping import NUMBERS, Trip, reach
from distrl.tasks.sim.suites.shopping_cart import guide_for
from distrl.tasks.sim.templates import Draft, Templates, open_app, tap
from distrl.types import Move

templates = Templates()


# --- the cart ---------------------------------------------------------------------------------------------------------


@templates.add
def change_quantity(t: Draft) -> None:
    """Change how many of a product are in the cart."""
    trip = Trip(t)
    before, after = t.random.sample(list(NUMBERS), 2)
    (id, name), spoken = trip.plain(), t.one_of(*NUMBERS[after])
    t.say(
        f"Change the quantity of {name} in my {trip.at} {trip.basket} to {spoken}",
        f"I want {spoken} of the {name} in the {trip.basket} on {trip.at}",
        f"Set the {name} in my {trip.basket} at {trip.at} to {spoken} pieces",
        f"Go to {trip.at} and make it {spoken} times {name} in the {trip.basket}",
        f"Update my {trip.basket} on {trip.at} so that it holds {spoken} of {name}",
    )
    trip.given_line(id, before)
    trip.want_line(id, after)
    t.route(*trip.visit(), tap("cart"), tap(f"line:{id}"), *_recount(trip, before, after))


def _recount(trip: Trip, before: int, after: int) -> tuple[Move, ...]:
    if not trip.shop.inline:
        return (tap(f"quantity:{after}"),)
    return (tap("more" if after > before else "fewer"),) * abs(after - before)


@templates.add
def remove_from_cart(t: Draft) -> None:
    """Remove a product from the cart."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Remove the {name} from my {trip.at} {trip.basket}",
        f"Take the {name} out of the {trip.basket} on {trip.at}",
        f"Delete {name} from my {trip.basket} at {trip.at}",
        f"I don't want the {name} any more, go to {trip.at} and throw it out of the {trip.basket}",
        f"Open {trip.at} and get rid of the {name} in my {trip.basket}",
    )
    trip.given_line(id, t.random.randint(1, 2))
    t.want_gone(trip.shop.table("cart"), id)
    t.route(*trip.visit(), tap("cart"), tap(f"line:{id}"), tap("remove"))


@templates.add
def empty_cart(t: Draft) -> None:
    """Remove everything from the cart."""
    trip = Trip(t)
    trip.clear_cart()
    lines = [id for id, _ in trip.two_plain()]
    t.say(
        f"Empty my {trip.basket} on {trip.at}",
        f"Remove everything from the {trip.at} {trip.basket}",
        f"Clear the {trip.basket} at {trip.at}",
        f"Go to {trip.at} and take all items out of my {trip.basket}",
        f"There should be nothing left in my {trip.at} {trip.basket}",
    )
    for id in lines:
        trip.given_line(id)
        t.want_gone(trip.shop.table("cart"), id)
    t.route(*trip.visit(), tap("cart"), *(move for id in lines for move in (tap(f"line:{id}"), tap("remove"))))


@templates.add
def save_for_later(t: Draft) -> None:
    """Move a product from the cart to those saved for later."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Save the {name} in my {trip.at} {trip.basket} for later",
        f"I'll buy the {name} another time: on {trip.at}, put it aside from the {trip.basket}",
        f"Move {name} from the {trip.basket} on {trip.at} to the things saved for later",
        f"Go to {trip.at} and set the {name} in my {trip.basket} aside for later",
    )
    trip.given_line(id)
    t.want_gone(trip.shop.table("cart"), id)
    trip.want("saved", id, product=id, quantity=1)
    t.route(*trip.visit(), tap("cart"), tap(f"line:{id}"), tap("later"))


@templates.add
def fetch_saved(t: Draft) -> None:
    """Move a product saved for later back to the cart."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Move the {name} that I saved for later on {trip.at} back to the {trip.basket}",
        f"I want to buy the {name} after all, it is among what I put aside on {trip.at}, back to the {trip.basket} with it",
        f"Go to {trip.at} and return the {name} saved for later to my {trip.basket}",
        f"On {trip.at}, the {name} that I set aside should go in the {trip.basket} again",
    )
    trip.given_line(id, table="saved")
    t.want_gone(trip.shop.table("saved"), id)
    trip.want_line(id)
    t.route(*trip.visit(), tap("cart"), tap(f"saved:{id}"), tap("unsave"))


@templates.add_for_test
def save_one_remove_other(t: Draft) -> None:
    """Save one product of the cart for later and remove another."""
    trip = Trip(t)
    (one, first), (two, second) = trip.two_plain()
    t.say(
        f"In my {trip.at} {trip.basket}, save the {first} for later and remove the {second}",
        f"Go to {trip.at}, put the {first} aside for later and delete the {second} from the {trip.basket}",
        f"Set the {first} in the {trip.basket} on {trip.at} aside and throw the {second} out",
    )
    trip.given_line(one)
    trip.given_line(two)
    for id in (one, two):
        t.want_gone(trip.shop.table("cart"), id)
    trip.want("saved", one, product=one)
    t.route(*trip.visit(), tap("cart"), tap(f"line:{one}"), tap("later"), tap(f"line:{two}"), tap("remove"))


# --- the wishlist -----------------------------------------------------------------------------------------------------


@templates.add
def wish(t: Draft) -> None:
    """Put a product on the wishlist."""
    trip = Trip(t)
    id, product = trip.product()
    name = str(product["name"])
    t.say(
        f"Add the {name} on {trip.at} to my {trip.wishes}",
        f"Go to {trip.at}, search for {name} and put it on the {trip.wishes}",
        f"I might want the {name} from {trip.at} one day, keep it in my {trip.wishes}",
        f"Find {name} at {trip.at} and save it to the {trip.wishes}",
    )
    trip.want("wishlist", id, name=name)
    t.route(*trip.visit(), *trip.find(name, id), tap("wish"))


@templates.add
def wish_best_rated(t: Draft) -> None:
    """Put the best rated product of a kind on the wishlist."""
    trip = Trip(t)
    kind, id = trip.kind("rating")
    t.say(
        f"Put the best rated {kind} on {trip.at} on my {trip.wishes}",
        f"Go to {trip.at}, search for {kind} and save the one with the most stars to the {trip.wishes}",
        f"Add the {kind} that customers of {trip.at} like most to my {trip.wishes}",
        f"Which {kind} on {trip.at} has the highest rating? Keep it in the {trip.wishes}",
    )
    trip.want("wishlist", id)
    t.route(*trip.visit(), *trip.find_best(kind, "rating", id), tap("wish"))


@templates.add_for_test
def wish_cheapest(t: Draft) -> None:
    """Put the cheapest product of a kind on the wishlist."""
    trip = Trip(t)
    kind, id = trip.kind("price")
    t.say(
        f"Put the cheapest {kind} on {trip.at} on my {trip.wishes}",
        f"Go to {trip.at}, search for {kind} and save the one with the lowest price to the {trip.wishes}",
        f"Add the least expensive {kind} at {trip.at} to my {trip.wishes}",
        f"Which {kind} on {trip.at} costs least? Keep it in the {trip.wishes}",
    )
    trip.want("wishlist", id)
    t.route(*trip.visit(), *trip.find_best(kind, "price", id), tap("wish"))


@templates.add_for_test
def wish_recommended(t: Draft) -> None:
    """Put the product that the Daily Lantern recommends on the wishlist."""
    trip = Trip(t)
    guide, kind, id = guide_for(t, trip)
    t.say(
        f"Put the {kind} that the Daily Lantern recommends on my {trip.shop.name} {trip.wishes}",
        f"Read the Daily Lantern guide to the best {kind} and save its choice to the {trip.wishes} on {trip.shop.name}",
        f"Which {kind} does the Daily Lantern like? Keep that one in my {trip.wishes} at {trip.shop.name}",
    )
    trip.want("wishlist", id)
    moves = reach(t, "lantern", "Daily Lantern")
    t.route(open_app("browser"), *moves, tap(f"guide:{guide}"), tap(f"offer:{trip.shop.key}"), tap(f"product:{id}"), tap("wish"))  # fmt: skip


@templates.add
def unwish(t: Draft) -> None:
    """Remove a product from the wishlist."""
    trip = Trip(t)
    id, record = t.row(trip.shop.table("wishlist"))
    name = record["name"]
    t.say(
        f"Remove the {name} from my {trip.at} {trip.wishes}",
        f"Take {name} off the {trip.wishes} on {trip.at}",
        f"Go to {trip.at} and delete the {name} from my {trip.wishes}",
        f"I no longer dream of the {name}, drop it from the {trip.wishes} at {trip.at}",
    )
    t.want_gone(trip.shop.table("wishlist"), id)
    t.route(*trip.visit(), tap("tab:wishlist"), tap(f"wish:{id}"), tap("wish-remove"))


@templates.add
def move_wish_to_cart(t: Draft) -> None:
    """Move a product from the wishlist to the cart."""
    trip = Trip(t)
    id, record = t.row(trip.shop.table("wishlist"))
    name = record["name"]
    t.say(
        f"Move the {name} from my {trip.at} {trip.wishes} to the {trip.basket}",
        f"I want to buy the {name} on my {trip.wishes} at {trip.at}, move it to the {trip.basket}",
        f"Go to {trip.at} and shift {name} from the {trip.wishes} into the {trip.basket}",
        f"The {name} on the {trip.at} {trip.wishes} should now go in my {trip.basket} instead",
    )
    t.want_gone(trip.shop.table("wishlist"), id)
    trip.want_line(id)
    t.route(*trip.visit(), tap("tab:wishlist"), tap(f"wish:{id}"), tap("wish-to-cart"))
