"""Shopping tasks that end on a page, and the browser's own bookmarks and history."""

from __future__ import annotations

from distrl.devices.sim.apps.browser import BOOKMARKS, GUIDES, HISTORY, SITES
from distrl.devices.sim.apps.shop import SHOPS
from distrl.tasks.sim.suites.shopping import Trip, reach, search
from distrl.tasks.sim.templates import Draft, Templates, enter, hold, open_app, tap, type_in

templates = Templates()

SPOKEN_SORTS = {
    "price": ("the cheapest first", "the lowest price on top"),
    "rating": ("the best rated first", "the most stars on top"),
    "days": ("the fastest delivery first", "the soonest to arrive on top"),
}
SPOKEN_FILTERS = {
    "top": ("with at least 4 stars", "that are well reviewed"),
    "fast": ("that arrive within 3 days", "that are delivered quickly"),
    "cheap": ("under 40", "for a low budget"),
}
SPOKEN_PAGES = {
    "wishlist": (("tab:wishlist",), ("my wishlist", "my favourites", "my list of saved items")),
    "cart": (("cart",), ("my cart", "my basket", "what I am about to buy")),
    "account": (("tab:account",), ("my account", "my profile", "my customer page")),
    "orders": (("tab:account", "orders"), ("my orders", "my order history", "my purchases so far")),
}


# --- pages of a shop --------------------------------------------------------------------------------------------------


@templates.add
def show_product(t: Draft) -> None:
    """Open a product's page."""
    trip = Trip(t)
    id, product = trip.product()
    name = str(product["name"])
    t.say(
        f"Show me the {name} on {trip.at}",
        f"Go to {trip.at} and open the page of the {name}",
        f"I want to look at the {name} at {trip.at}",
        f"Bring up the {name} in the shop {trip.at}",
    )
    trip.want_page("product", id=id)
    t.route(*trip.visit(), *trip.find(name, id))


@templates.add
def show_sorted(t: Draft) -> None:
    """Show the products of a kind in a given order."""
    trip, by = Trip(t), t.one_of(*SPOKEN_SORTS)
    kind, spoken = str(trip.product()[1]["kind"]), t.one_of(*SPOKEN_SORTS[by])
    t.say(
        f"Search {trip.at} for {kind} with {spoken}",
        f"Go to {trip.at} and look for {kind}, I want to see {spoken}",
        f"List every {kind} at {trip.at} and put {spoken}",
        f"What {kind} can I get on {trip.at}? Show {spoken}",
    )
    trip.want_page("results", query=kind, sort=by)
    t.route(*trip.visit(), *search(kind), tap("sort"), tap(f"sort:{by}"))


@templates.add
def show_filtered(t: Draft) -> None:
    """Show the products of a kind that pass a filter."""
    trip, only = Trip(t), t.one_of(*SPOKEN_FILTERS)
    kind, spoken = str(trip.product()[1]["kind"]), t.one_of(*SPOKEN_FILTERS[only])
    t.say(
        f"Search {trip.at} for {kind} and keep only those {spoken}",
        f"Go to {trip.at}, look for {kind} and filter for those {spoken}",
        f"Of every {kind} at {trip.at}, show me the ones {spoken}",
        f"I want to see {kind} on {trip.at} but just the ones {spoken}",
    )
    trip.want_page("results", query=kind, only=only)
    t.route(*trip.visit(), *search(kind), tap("filter"), tap(f"only:{only}"))


@templates.add_for_test
def show_sorted_and_filtered(t: Draft) -> None:
    """Show the products of a kind that pass a filter, in a given order."""
    trip, by, only = Trip(t), t.one_of(*SPOKEN_SORTS), t.one_of(*SPOKEN_FILTERS)
    kind = str(trip.product()[1]["kind"])
    first, kept = t.one_of(*SPOKEN_SORTS[by]), t.one_of(*SPOKEN_FILTERS[only])
    t.say(
        f"Search for {kind} here and keep only those {kept} with {first}",
        f"Look for {kind}, filter for those {kept} and put {first}",
        f"Show me every {kind} {kept} and {first}",
    )
    trip.start()
    trip.want_page("results", query=kind, sort=by, only=only)
    t.route(*search(kind), tap("sort"), tap(f"sort:{by}"), tap("filter"), tap(f"only:{only}"))


@templates.add
def show_category(t: Draft) -> None:
    """Open a category."""
    trip = Trip(t)
    category = str(trip.product()[1]["category"])
    t.say(
        f"Open the {category} department of {trip.at}",
        f"Show me everything in {category} on {trip.at}",
        f"Go to {trip.at} and browse {category}",
        f"What does {trip.at} have under {category}? Take me there",
        f"I want to look around in {category} at {trip.at}",
    )
    trip.want_page("results", category=category)
    t.route(*trip.visit(), tap(f"category:{category}"))


@templates.add
def show_page(t: Draft) -> None:
    """Open a page of the shop, such as the cart or the account."""
    trip, page = Trip(t), t.one_of(*SPOKEN_PAGES)
    taps, words = SPOKEN_PAGES[page]
    spoken = t.one_of(*words)
    t.say(
        f"Open {spoken} on {trip.at}",
        f"Go to {trip.at} and show {spoken}",
        f"Take me to {spoken} at {trip.at}",
        f"I want to see {spoken} in the shop {trip.at}",
    )
    trip.want_page(page)
    t.route(*trip.visit(), *(tap(id) for id in taps))


@templates.add
def show_wished(t: Draft) -> None:
    """Open the page of a product on the wishlist."""
    trip = Trip(t)
    id, record = t.row(trip.shop.table("wishlist"))
    t.say(
        f"Show me the details of the {record['name']} on my {trip.wishes}",
        f"Open the page of the {record['name']} from the {trip.wishes}",
        f"I want to look at the {record['name']} that stands on my {trip.wishes}",
        f"View the {record['name']} that I have on the {trip.wishes}",
    )
    trip.start("wishlist")
    trip.want_page("product", id=id)
    t.route(tap(f"wish:{id}"), tap("wish-open"))


# --- the browser ------------------------------------------------------------------------------------------------------


@templates.add
def search_the_web(t: Draft) -> None:
    """Search the web for a product."""
    _, product = Trip(t).product()
    name = str(product["name"])
    t.say(
        f"Search the web for {name}",
        f"Look up {name} on the internet",
        f"Use the search engine to find {name}",
        f"Google {name}",
        f"What does the internet say about {name}? Just search for it",
    )
    t.want_showing("browser", "search", query=name)
    t.route(open_app("browser"), type_in("address", name), enter())


@templates.add
def read_guide(t: Draft) -> None:
    """Open a guide of the Daily Lantern."""
    id, guide = t.row(GUIDES)
    kind = guide["kind"]
    t.say(
        f"Open the Daily Lantern guide to the best {kind}",
        f"I want to read what the Daily Lantern writes about the {kind}",
        f"Go to the Daily Lantern and show its article on the {kind}",
        f"Bring up the {kind} test of the Daily Lantern",
    )
    t.want_showing("browser", "guide", id=id)
    t.route(open_app("browser"), *reach(t, "lantern", "Daily Lantern"), tap(f"guide:{id}"))


@templates.add
def bookmark_shop(t: Draft) -> None:
    """Bookmark a shop."""
    shop = t.random.choice(SHOPS)
    at = t.one_of(shop.name, shop.domain)
    t.say(
        f"Bookmark {at}",
        f"Add {at} to the bookmarks of the browser",
        f"Save the site {at} as a favourite in the browser",
        f"Go to {at} and star the page",
        f"I want {at} among my bookmarks",
        f"Open {at} and keep it as a bookmark",
        f"Put {at} on the start page of the browser",
    )
    t.without(BOOKMARKS, shop.key)
    t.want(BOOKMARKS, shop.key, title=shop.name)
    typed = (open_app("browser"), type_in("address", at), enter())
    t.route(*typed, *(() if at == shop.domain else (tap(f"result:{shop.key}"),)), tap("star"))


@templates.add
def delete_bookmark(t: Draft) -> None:
    """Delete a bookmark."""
    site = t.one_of(*SITES)
    name = SITES[site][0]
    t.say(
        f"Delete the bookmark of {name}",
        f"Remove {name} from my bookmarks",
        f"I no longer need {name} among the favourites of the browser",
        f"Take {name} off the start page of the browser",
        f"Get rid of the {name} bookmark",
        f"In the browser, erase the favourite {name}",
    )
    t.given(BOOKMARKS, site, title=name)
    t.want_gone(BOOKMARKS, site)
    t.route(open_app("browser"), hold(f"site:{site}"), tap("delete"))


@templates.add
def clear_history(t: Draft) -> None:
    """Clear the browser's history."""
    browser, past = t.one_of("browser", "web browser", "internet app"), t.one_of("history", "list of visited pages", "past pages")  # fmt: skip
    t.say(
        f"Clear the {past} of the {browser}",
        f"Delete the {past} in my {browser}",
        f"Make the {browser} forget its {past}",
        f"Wipe the {past} from the {browser}",
        f"Nobody should see the {past} of my {browser}, erase it",
    )
    for site in t.tables[HISTORY]:
        t.want_gone(HISTORY, site)
    t.route(open_app("browser"), tap("history"), tap("clear"))
