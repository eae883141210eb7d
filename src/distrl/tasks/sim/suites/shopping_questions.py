"""Shopping tasks that change nothing: those that end in an answer, and those that cannot be done.

Of an impossible task the agent is to look, to say so, and to leave everything as it was.
"""

from __future__ import annotations

from distrl.devices.sim.apps.browser import GUIDES, PARCEL, PARCEL_FACTS
from distrl.devices.sim.products import BRANDS, KINDS, product_id
from distrl.tasks.sim.suites.shopping import Trip, reach, search
from distrl.tasks.sim.suites.shopping_orders import past_order
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, open_app, tap

templates = Templates()


# --- products ---------------------------------------------------------------------------------------------------------


@templates.add
def ask_price(t: Draft) -> None:
    """Say what a product costs."""
    trip = Trip(t)
    id, product = trip.product()
    name = str(product["name"])
    t.say(
        f"How much is the {name} on {trip.at}?",
        f"What does the {name} cost at {trip.at}?",
        f"Tell me the price of the {name} on {trip.at}",
        f"Go to {trip.at} and find out what they charge for the {name}",
    )
    t.want_answer(trip.shop.money(int(product["price"])))
    t.route(*trip.visit(), *trip.find(name, id))


@templates.add
def ask_rating(t: Draft) -> None:
    """Say how a product is rated."""
    trip = Trip(t)
    id, product = trip.product()
    name = str(product["name"])
    t.say(
        f"How is the {name} rated on {trip.at}?",
        f"How many stars does the {name} have at {trip.at}?",
        f"What do customers of {trip.at} give the {name}? Tell me the review score",
        f"Look up the rating of the {name} on {trip.at}",
    )
    t.want_answer(f"{product['rating']} of 5")
    t.route(*trip.visit(), *trip.find(name, id))


@templates.add
def ask_delivery(t: Draft) -> None:
    """Say how long a product takes to arrive."""
    trip = Trip(t)
    id, product = trip.product()
    name = str(product["name"])
    t.say(
        f"How long does {trip.at} take to deliver the {name}?",
        f"When would the {name} from {trip.at} arrive?",
        f"Tell me the delivery time of the {name} on {trip.at}",
        f"If I order the {name} at {trip.at} today, how long do I wait?",
    )
    t.want_answer(f"{product['days']} days")
    t.route(*trip.visit(), *trip.find(name, id))


@templates.add
def ask_price_of_cheapest(t: Draft) -> None:
    """Say what the cheapest product of a kind costs."""
    trip = Trip(t)
    kind, id = trip.kind("price")
    t.say(
        f"How much is the cheapest {kind} on {trip.at}?",
        f"What does the least expensive {kind} at {trip.at} cost?",
        f"Tell me the lowest price for a {kind} on {trip.at}",
        f"What is the least that I can pay for a {kind} at {trip.at}?",
    )
    t.want_answer(trip.shop.money(int(trip.rows("product")[id]["price"])))
    t.route(*trip.visit(), *trip.find_best(kind, "price", id))


@templates.add
def ask_brand_of_best_rated(t: Draft) -> None:
    """Say who makes the best rated product of a kind."""
    trip = Trip(t)
    kind, id = trip.kind("rating")
    t.say(
        f"Which brand makes the best rated {kind} on {trip.at}?",
        f"Who makes the {kind} with the most stars at {trip.at}?",
        f"Tell me the maker of the {kind} that customers of {trip.at} like most",
        f"The {kind} with the highest rating on {trip.at} is made by whom?",
    )
    t.want_answer(str(trip.rows("product")[id]["brand"]))
    t.route(*trip.visit(), *trip.find_best(kind, "rating", id))


@templates.add_for_test
def ask_price_of_best_rated(t: Draft) -> None:
    """Say what the best rated product of a kind costs."""
    trip = Trip(t)
    kind, id = trip.kind("rating")
    t.say(
        f"How much is the best rated {kind} on {trip.at}?",
        f"What does the {kind} with the most stars at {trip.at} cost?",
        f"Tell me the price of the {kind} that customers of {trip.at} like most",
    )
    t.want_answer(trip.shop.money(int(trip.rows("product")[id]["price"])))
    t.route(*trip.visit(), *trip.find_best(kind, "rating", id))


@templates.add_for_test
def ask_brand_of_cheapest(t: Draft) -> None:
    """Say who makes the cheapest product of a kind."""
    trip = Trip(t)
    kind, id = trip.kind("price")
    t.say(
        f"Which brand makes the cheapest {kind} on {trip.at}?",
        f"Who makes the {kind} with the lowest price at {trip.at}?",
        f"Tell me the maker of the least expensive {kind} on {trip.at}",
    )
    t.want_answer(str(trip.rows("product")[id]["brand"]))
    t.route(*trip.visit(), *trip.find_best(kind, "price", id))


# --- cart, orders and account -----------------------------------------------------------------------------------------


@templates.add
def ask_cart_total(t: Draft) -> None:
    """Say what the cart costs."""
    trip = Trip(t)
    trip.clear_cart()
    (one, first), (two, second) = trip.two_plain()
    t.say(
        f"What is the total of my {trip.basket} on {trip.at}?",
        f"How much do I have to pay for the things in my {trip.at} {trip.basket}?",
        f"Tell me what the {first} and the {second} in the {trip.basket} at {trip.at} cost together",
        f"Go to {trip.at} and add up my {trip.basket}",
    )
    for id in (one, two):
        trip.given_line(id)
    t.want_answer(trip.shop.money(sum(int(trip.rows("product")[id]["price"]) for id in (one, two))))
    t.route(*trip.visit(), tap("cart"))


@templates.add
def ask_order_status(t: Draft) -> None:
    """Say the status of an order."""
    trip, status = Trip(t), t.one_of("Processing", "Shipped", "Delivered")
    id, order = past_order(t, trip, status)
    name = order["items"]
    t.say(
        f"What is the status of my {name} order on {trip.at}?",
        f"How far is the {name} that I ordered at {trip.at}?",
        f"Has my {name} from {trip.at} been sent? Tell me its state",
        f"Check where my order of the {name} on {trip.at} stands",
    )
    t.want_answer(status)
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"))


@templates.add
def ask_order_arrival(t: Draft) -> None:
    """Say when an order arrives."""
    trip = Trip(t)
    id, order = t.row(trip.shop.table("order"))
    name = order["items"]
    t.say(
        f"On which day does the {name} that I ordered on {trip.at} arrive?",
        f"What is the arrival date of my {name} from {trip.at}?",
        f"Go to my purchases at {trip.at} and tell me when the {name} is expected",
        f"When will {trip.at} bring me the {name} that I bought?",
    )
    t.want_answer(str(order["eta"]))
    t.route(*trip.visit(), tap("tab:account"), tap("orders"), tap(f"order:{id}"))


@templates.add
def ask_points(t: Draft) -> None:
    """Say how many bonus points the account has."""
    trip = Trip(t)
    t.say(
        f"How many points do I have on {trip.at}?",
        f"What is my bonus at {trip.at}?",
        f"Tell me the loyalty points in my {trip.at} account",
        f"Go to {trip.at} and look up how many bonus points I have",
        f"Check my balance of loyalty points at {trip.at}",
        f"Have I collected many points at {trip.at}? Say how many",
    )
    t.want_answer(str(trip.rows("pref")["points"]["value"]))
    t.route(*trip.visit(), tap("tab:account"))


# --- other sites ------------------------------------------------------------------------------------------------------


def _ask_guide(t: Draft, field: str, *wordings: str) -> None:
    id, guide = t.row(GUIDES)
    t.say(*(wording.format(kind=guide["kind"]) for wording in wordings))
    t.want_answer(str(guide[field]))
    t.route(open_app("browser"), *reach(t, "lantern", "Daily Lantern"), tap(f"guide:{id}"))


@templates.add
def ask_recommendation(t: Draft) -> None:
    """Say which product the Daily Lantern recommends."""
    _ask_guide(
        t,
        "pick",
        "Which {kind} does the Daily Lantern recommend?",
        "What is the best {kind} this year according to the Daily Lantern?",
        "Go to the Daily Lantern and tell me which {kind} they chose",
        "Find out which {kind} the Daily Lantern likes most",
    )


@templates.add
def ask_author(t: Draft) -> None:
    """Say who wrote a guide of the Daily Lantern."""
    _ask_guide(
        t,
        "author",
        "Who wrote the {kind} guide in the Daily Lantern?",
        "Tell me the author of the Daily Lantern article on the best {kind}",
        "Whose text is the Daily Lantern guide to the {kind}?",
        "Open the Daily Lantern and find the name of the person who tested the {kind}",
    )


@templates.add
def ask_parcel_fact(t: Draft) -> None:
    """Say a price or the opening hours of Parcel Post."""
    name, spoken = t.random.choice(list(PARCEL_FACTS.items()))
    at = t.one_of("Parcel Post", "parcelpost.com")
    t.say(
        f"What does {at} say about: {spoken}?",
        f"Go to {at} and tell me what is given for {spoken}",
        f"Look up {spoken} at {at}",
        f"I need a detail from {at}, namely {spoken}",
        f"Find the entry {spoken} on {at} and read it to me",
    )
    t.want_answer(str(t.tables[PARCEL][name]["value"]))
    t.route(open_app("browser"), *reach(t, "parcel", at))


# --- impossible tasks -------------------------------------------------------------------------------------------------


def unsold(t: Draft, trip: Trip) -> str:
    """The name of something that this shop does not have."""
    kind = t.choose(KINDS)
    brand = t.choose(BRANDS[KINDS[kind].category])
    if product_id(brand, kind) in trip.rows("product"):
        raise NoInstance("the shop has it")
    return f"{brand} {kind}"


@templates.add
def unsold_to_cart(t: Draft) -> None:
    """Put a product into the cart that the shop does not sell: impossible."""
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
    """Put a product into the cart that is sold out: impossible."""
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
    """Cancel an order that was shipped: impossible."""
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
    """Remove a product from a cart that does not hold it: impossible."""
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
    """Put a product on the wishlist that the shop does not sell: impossible."""
    trip = Trip(t)
    name = unsold(t, trip)
    t.say(
        f"Go to {trip.at}, search for {name} and put it on the {trip.wishes}",
        f"Add the {name} on {trip.at} to my {trip.wishes}",
        f"Find {name} at {trip.at} and save it to the {trip.wishes}",
    )
    t.cannot_be_done()
    t.route(*trip.visit(), *search(name))
