"""Shopping tasks that fill a cart: find something by name, brand, price or rating, and put it in."""

from __future__ import annotations

from distrl.devices.sim.apps.browser import GUIDES
from distrl.devices.sim.apps.shop import SHOPS
from distrl.tasks.sim.suites.shopping import Trip, number, reach, search
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, go_back, open_app, tap, type_in

templates = Templates()


@templates.add
def add_to_cart(t: Draft) -> None:
    """Put a product into the cart."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Go to {trip.at}, search for {name}, add it to the {trip.basket}",
        f"Put the {name} from {trip.at} in my {trip.basket}",
        f"I want to buy the {name} on {trip.at}, get it into the {trip.basket}",
        f"Open {trip.at} and place the {name} in the {trip.basket}",
        f"Look up {name} at {trip.at} and drop it in my {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), *trip.find(name, id), tap("add"))


@templates.add
def add_several(t: Draft) -> None:
    """Put several of a product into the cart."""
    trip, (count, spoken) = Trip(t), number(t)
    id, name = trip.plain()
    t.say(
        f"Add {spoken} pieces of {name} to the {trip.basket} on {trip.at}",
        f"Go to {trip.at} and put {spoken} of the {name} in my {trip.basket}",
        f"I need {spoken} times the {name} from {trip.at}, add them to my {trip.basket}",
        f"On {trip.at}, look for {name} and place {spoken} in the {trip.basket}",
        f"Fill my {trip.at} {trip.basket} with {spoken} units of {name}",
    )
    trip.want_line(id, count)
    t.route(*trip.visit(), *trip.find(name, id), *trip.count(count), tap("add"))


@templates.add
def add_with_option(t: Draft) -> None:
    """Put a product in a size or colour into the cart."""
    trip = Trip(t)
    id, product = trip.product(lambda product: bool(product["options"]))
    name, option = product["name"], t.one_of(*str(product["options"]).split(",")[1:])
    t.say(
        f"Add the {name} in {option} to my {trip.at} {trip.basket}",
        f"Go to {trip.at} and put the {name} in the {trip.basket}, make it {option}",
        f"I want to buy {name} on {trip.at} and I take {option}, put it in the {trip.basket}",
        f"Search {trip.at} for {name}, choose {option} and add it to the {trip.basket}",
        f"Get {name} from {trip.at} into my {trip.basket}, version {option}",
    )
    trip.want_line(id, option=option)
    t.route(*trip.visit(), *trip.find(str(name), id), *trip.select("option", option), tap("add"))


@templates.add
def add_option_and_quantity(t: Draft) -> None:
    """Put several of a product in a size or colour into the cart."""
    trip, (count, spoken) = Trip(t), number(t)
    id, product = trip.product(lambda product: bool(product["options"]))
    name, option = product["name"], t.one_of(*str(product["options"]).split(",")[1:])
    t.say(
        f"Put {spoken} of the {name} in {option} into the {trip.basket}",
        f"Search for {name} here and add {spoken} in {option} to my {trip.basket}",
        f"I want to buy {spoken} times {name}, each of them {option}, so add them to the {trip.basket}",
        f"Find {name}, pick {option} and place {spoken} in the {trip.basket}",
    )
    trip.start()
    trip.want_line(id, count, option)
    t.route(*trip.find(str(name), id), *trip.select("option", option), *trip.count(count), tap("add"))


@templates.add
def add_by_brand(t: Draft) -> None:
    """Put a kind of product of a given brand into the cart."""
    trip = Trip(t)
    id, product = trip.product(lambda product: not product["options"])
    kind, brand = str(product["kind"]), product["brand"]
    t.say(
        f"Search for {kind} on {trip.at} and add the one by {brand} to the {trip.basket}",
        f"I'd like the {kind} made by {brand} from {trip.at} in my {trip.basket}",
        f"On {trip.at} find a {kind} from the brand {brand} and put it in the {trip.basket}",
        f"Go to {trip.at}, look for {kind}, take the {brand} one and add it to my {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), *trip.find(kind, id), tap("add"))


@templates.add
def add_cheapest(t: Draft) -> None:
    """Put the cheapest product of a kind into the cart."""
    trip = Trip(t)
    kind, id = trip.kind("price")
    t.say(
        f"Add the cheapest {kind} on {trip.at} to my {trip.basket}",
        f"Put the least expensive {kind} from {trip.at} in the {trip.basket}",
        f"Go to {trip.at}, search for {kind} and add the one with the lowest price to the {trip.basket}",
        f"I want to buy a {kind} on {trip.at}, place the most affordable one in my {trip.basket}",
        f"Find out which {kind} on {trip.at} costs least and get it into the {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), *trip.find_best(kind, "price", id), tap("add"))


@templates.add
def add_fastest(t: Draft) -> None:
    """Put the product of a kind that arrives soonest into the cart."""
    trip = Trip(t)
    kind, id = trip.kind("days")
    t.say(
        f"Add the {kind} that arrives soonest to my {trip.at} {trip.basket}",
        f"Search {trip.at} for {kind} and put the one with the fastest delivery in the {trip.basket}",
        f"I need a {kind} from {trip.at} as quickly as possible, put it in the {trip.basket}",
        f"Go to {trip.at} and place the {kind} with the shortest shipping time in my {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), *trip.find_best(kind, "days", id), tap("add"))


@templates.add_for_test
def add_best_rated(t: Draft) -> None:
    """Put the best rated product of a kind into the cart."""
    trip = Trip(t)
    kind, id = trip.kind("rating")
    t.say(
        f"Add the best rated {kind} on {trip.at} to my {trip.basket}",
        f"Put the {kind} with the highest rating at {trip.at} in the {trip.basket}",
        f"Go to {trip.at}, search for {kind} and add the one that customers like most to the {trip.basket}",
        f"I want to buy a {kind} on {trip.at}, place the one with the most stars in my {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), *trip.find_best(kind, "rating", id), tap("add"))


@templates.add_for_test
def add_several_of_the_cheapest(t: Draft) -> None:
    """Put several of the cheapest product of a kind into the cart."""
    trip, (count, spoken) = Trip(t), number(t)
    kind, id = trip.kind("price")
    t.say(
        f"Search for {kind} here and add {spoken} of the cheapest to my {trip.basket}",
        f"Put {spoken} of the least expensive {kind} in the {trip.basket}",
        f"I want to buy the {kind} with the lowest price, {spoken} of them into the {trip.basket}",
        f"Find the most affordable {kind} and place {spoken} in my {trip.basket}",
    )
    trip.start()
    trip.want_line(id, count)
    t.route(*trip.find_best(kind, "price", id), *trip.count(count), tap("add"))


@templates.add
def add_two_products(t: Draft) -> None:
    """Put two products into the cart."""
    trip = Trip(t)
    (one, first), (two, second) = trip.two_plain()
    t.say(
        f"Add the {first} and the {second} to my {trip.basket}",
        f"I want to buy a {first} and a {second}, put both in the {trip.basket}",
        f"Search for {first} and then for {second} and place them in my {trip.basket}",
        f"Get these into the {trip.basket}: {first} and {second}",
    )
    trip.start()
    trip.want_line(one)
    trip.want_line(two)
    t.route(*trip.find(first, one), *trip.add_and_return(), *trip.find(second, two), tap("add"))


@templates.add_for_test
def add_in_both_shops(t: Draft) -> None:
    """Put one product into the cart of each shop."""
    here, there = (Trip(t, shop) for shop in t.random.sample(SHOPS, 2))
    (one, first), (two, second) = here.plain(), there.plain()
    t.say(
        f"Add the {first} to my {here.basket} here, then put the {second} in the one on {there.at}",
        f"Place a {first} in the {here.basket} of this shop and a {second} in the {there.basket} of {there.at}",
        f"I want to buy {first} here and {second} on {there.at}, put each in its {here.basket}",
    )
    here.start("product", id=one)
    here.want_line(one)
    there.want_line(two)
    t.route(tap("add"), *there.visit(), *there.find(second, two), tap("add"))


@templates.add
def add_this(t: Draft) -> None:
    """Put the product on the screen into the cart."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Add this {name} to the {trip.basket}",
        f"I'll take it, put the {name} in my {trip.basket}",
        f"Buy this {name}: place it in the {trip.basket}",
        f"The {name} that I am looking at should go in my {trip.basket}",
    )
    trip.start("product", id=id)
    trip.want_line(id)
    t.route(tap("add"))


@templates.add
def add_several_of_this(t: Draft) -> None:
    """Put several of the product on the screen into the cart."""
    trip, (count, spoken) = Trip(t), number(t)
    id, name = trip.plain()
    t.say(
        f"Add {spoken} of this {name} to the {trip.basket}",
        f"I'll take {spoken}, put the {name} in my {trip.basket}",
        f"Put {spoken} pieces of the {name} shown here in my {trip.basket}",
        f"The {name} that I am looking at should go in the {trip.basket}, {spoken} of them",
    )
    trip.start("product", id=id)
    trip.want_line(id, count)
    t.route(*trip.count(count), tap("add"))


@templates.add
def add_from_category(t: Draft) -> None:
    """Find a product by its category and put it into the cart."""
    trip = Trip(t)
    id, product = trip.product(lambda product: not product["options"])
    name, category = product["name"], product["category"]
    t.say(
        f"In the {category} department of {trip.at}, add the {name} to the {trip.basket}",
        f"Browse {category} on {trip.at} and put the {name} in my {trip.basket}",
        f"Go to {trip.at}, open {category} and place the {name} in the {trip.basket}",
        f"You'll find a {name} under {category} on {trip.at}, drop it in my {trip.basket}",
    )
    trip.want_line(id)
    t.route(*trip.visit(), tap(f"category:{category}"), tap(f"product:{id}"), tap("add"))


@templates.add
def add_after_web_search(t: Draft) -> None:
    """Find a product by a web search and put it into the cart."""
    trip = Trip(t)
    id, name = trip.plain()
    t.say(
        f"Search the web for {name} and add the one on {trip.shop.name} to the {trip.basket}",
        f"Look up {name} on the internet, open the offer of {trip.shop.name} and put it in my {trip.basket}",
        f"Use the search engine to find {name} and buy it from {trip.shop.name}: just place it in the {trip.basket}",
        f"Google {name}, follow the link to {trip.shop.name} and add it to my {trip.basket}",
    )
    trip.want_line(id)
    t.route(open_app("browser"), type_in("address", name), enter(), tap(f"result:{trip.shop.key}:{id}"), tap("add"))


def guide_for(t: Draft, trip: Trip) -> tuple[str, str, str]:
    """A guide to something without options that the shop sells: its id, its kind, and the id of its choice."""
    goods = {str(product["name"]): id for id, product in trip.rows("product").items() if not product["options"]}
    taken = trip.rows("cart").keys() | trip.rows("wishlist").keys()
    guide, record = t.row(GUIDES, lambda guide: guide["pick"] in goods and goods[str(guide["pick"])] not in taken)
    return guide, str(record["kind"]), goods[str(record["pick"])]


@templates.add
def add_recommended(t: Draft) -> None:
    """Put the product that the Daily Lantern recommends into the cart."""
    trip = Trip(t)
    guide, kind, id = guide_for(t, trip)
    t.say(
        f"Add the {kind} that the Daily Lantern recommends to my {trip.shop.name} {trip.basket}",
        f"Read the Daily Lantern guide to the best {kind} and put its choice in the {trip.basket} on {trip.shop.name}",
        f"Which {kind} does the Daily Lantern like? Put that one in my {trip.basket} at {trip.shop.name}",
        f"From {trip.shop.name} I want to buy the {kind} praised by the Daily Lantern, place it in the {trip.basket}",
    )
    trip.want_line(id)
    moves = reach(t, "lantern", "Daily Lantern")
    t.route(open_app("browser"), *moves, tap(f"guide:{guide}"), tap(f"offer:{trip.shop.key}"), tap(f"product:{id}"), tap("add"))  # fmt: skip


@templates.add
def replace_in_cart(t: Draft) -> None:
    """Remove one product from the cart and add another."""
    trip = Trip(t)
    (one, first), (two, second) = trip.two_plain()
    if second.split()[-1] == first.split()[-1]:
        raise NoInstance("two of a kind are easily mistaken")
    t.say(
        f"Take the {first} out of my {trip.basket} and add the {second} instead",
        f"Replace the {first} in the {trip.basket} by the {second}",
        f"I no longer want the {first}, I want to buy a {second}: change my {trip.basket}",
        f"Swap the {first} in my {trip.basket} for a {second}",
    )
    trip.start()
    trip.given_line(one)
    t.want_gone(trip.shop.table("cart"), one)
    trip.want_line(two)
    t.route(tap("cart"), tap(f"line:{one}"), tap("remove"), go_back(), *search(second), tap(f"product:{two}"), tap("add"))  # fmt: skip
