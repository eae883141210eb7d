"""The browser outside its shops: addresses, searches, bookmarks, history, guides and the parcel service."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.devices.sim.apps.browser import BOOKMARKS, GUIDES, HISTORY, PARCEL, PARCEL_FACTS, SITES, look_up
from distrl.devices.sim.apps.shop import SHOPS, Shop
from distrl.devices.sim.state import PhoneState, Place, Table, put
from support.sims import Finger

both = pytest.mark.parametrize("shop", SHOPS, ids=lambda shop: shop.key)


def no_banners(state: PhoneState) -> PhoneState:
    for shop in SHOPS:
        for kind in ("newsletter", "cookies"):
            state = put(state, shop.table("greeting"), kind, due=False)
    return state


def browser(screen: str = "home", **args: str) -> Finger:
    return Finger(state=no_banners(Finger("browser", screen, **args).state))


def bookmarked(*sites: str) -> Finger:
    finger = browser()
    marks = {site: {"title": SITES[site][0]} for site in sites}
    finger.state = finger.start = _with_table(finger.state, BOOKMARKS, marks)
    return finger


def _with_table(state: PhoneState, table: str, rows: Table) -> PhoneState:
    return replace(state, tables={**state.tables, table: rows})


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [str, str.upper, lambda domain: f"www.{domain}", lambda domain: f"{domain}/"])
@pytest.mark.parametrize("site", SITES)
def test_an_address_opens_its_site_and_is_remembered(site: str, change) -> None:
    finger = browser().enter("address", change(SITES[site][1]))
    assert finger.title == SITES[site][0]
    assert finger.table(HISTORY)[site] == {"title": SITES[site][0]}
    assert finger.changes() == [], "history is no side effect"


def test_words_are_searched_for() -> None:
    finger = browser().enter("address", "warm socks")
    assert finger.state.place == Place(app="browser", screen="search", args={"query": "warm socks"})
    assert finger.text("address") == "warm socks"


def test_nothing_typed_leads_nowhere() -> None:
    assert look_up("") is None
    assert look_up("  /") is None


# --- searching ------------------------------------------------------------------------------------------------------


def test_a_search_finds_sites_by_name() -> None:
    for site, (name, domain) in SITES.items():
        finger = browser("search", query=name)
        assert finger.widgets()[f"result:{site}"].detail == domain
        finger.tap(f"result:{site}")
        assert finger.title == name


@both
def test_a_search_finds_goods_of_both_shops_a_few_of_each(shop: Shop) -> None:
    finger = browser()
    id, product = next(iter(finger.table(shop.table("product")).items()))
    finger.enter("address", str(product["name"]))
    assert f"result:{shop.key}:{id}" in finger.ids()
    finger.tap(f"result:{shop.key}:{id}")
    assert finger.state.place.args == {"id": id}
    many = browser("search", query=str(product["category"]).lower())
    assert len(many.ids(f"result:{shop.key}:")) <= 3


def test_a_search_finds_guides_by_their_titles() -> None:
    finger = browser()
    id, guide = next(iter(finger.table(GUIDES).items()))
    finger.enter("address", str(guide["title"])).tap(f"guide:{id}")
    assert (finger.screen, finger.title) == ("browser/guide", guide["title"])


def test_a_search_that_finds_nothing_says_so() -> None:
    finger = browser("search", query="zeppelin")
    assert finger.text("none") == "Nothing found"


def test_a_search_from_the_results_is_a_new_one() -> None:
    finger = browser("search", query="zeppelin").enter("address", "Kiosko")
    assert finger.state.place.args == {"query": "Kiosko"}
    assert finger.back().state.place.args == {"query": "zeppelin"}


# --- bookmarks and history ------------------------------------------------------------------------------------------


def test_a_bookmark_opens_its_site() -> None:
    finger = bookmarked("parcel", "lantern").tap("site:parcel")
    assert finger.title == "Parcel Post"


@both
def test_the_star_of_a_shop_makes_a_bookmark_and_takes_it_away(shop: Shop) -> None:
    finger = bookmarked().enter("address", shop.domain).tap("star")
    assert finger.changes() == [(BOOKMARKS, {"title": shop.name})]
    assert finger.tap("star").changes() == []


def test_holding_a_bookmark_opens_or_deletes_it() -> None:
    finger = bookmarked("parcel", "lantern")
    finger.hold("site:parcel").tap("delete")
    assert finger.changes() == [(BOOKMARKS, None)]
    assert finger.screen == "browser/home"
    finger.hold("site:lantern").tap("open")
    assert finger.title == "Daily Lantern"
    assert finger.back().screen == "browser/home"


def test_a_start_page_without_bookmarks_is_empty_below_its_heading() -> None:
    finger = bookmarked()
    assert finger.ids() == ["history", "address", "bookmarks"]


def test_history_lists_what_was_visited_and_is_cleared() -> None:
    finger = browser()
    for site in SITES:
        finger.open("browser").enter("address", SITES[site][1])
    finger.open("browser").tap("history")
    assert set(finger.ids("past:")) == {f"past:{site}" for site in SITES}
    finger.tap("past:lantern")
    assert finger.title == "Daily Lantern"
    finger.back().tap("clear")
    assert finger.table(HISTORY) == {}
    assert finger.ids() == ["clear"]


# --- guides and parcels ---------------------------------------------------------------------------------------------


def test_every_guide_tells_its_choice_its_author_and_its_length() -> None:
    finger = browser("lantern")
    assert set(finger.ids("guide:")) == {f"guide:{id}" for id in finger.table(GUIDES)}
    for id, guide in finger.table(GUIDES).items():
        finger.tap(f"guide:{id}")
        assert [finger.text(name) for name in ("pick", "author", "minutes")] == [
            guide["pick"],
            guide["author"],
            guide["minutes"],
        ]
        finger.back()


def test_a_guide_recommends_something_that_some_shop_sells() -> None:
    finger = browser("lantern")
    sold = {product["name"] for shop in SHOPS for product in finger.table(shop.table("product")).values()}
    assert all(guide["pick"] in sold for guide in finger.table(GUIDES).values())


@both
def test_a_guide_leads_to_its_choice_in_a_shop(shop: Shop) -> None:
    finger = browser("lantern")
    id, guide = next(iter(finger.table(GUIDES).items()))
    finger.tap(f"guide:{id}", f"offer:{shop.key}")
    assert finger.state.place == Place(app="browser", screen=shop.screen("results"), args={"query": str(guide["pick"])})


def test_the_parcel_service_tells_its_prices_and_hours() -> None:
    finger = browser("parcel")
    for name in PARCEL_FACTS:
        assert finger.text(name) == finger.table(PARCEL)[name]["value"]


# --- banners --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("answer", ["greeting:accept", "popup:close"])
def test_a_banner_greets_a_visit_once(shop: Shop, answer: str) -> None:
    finger = browser()
    for kind in ("newsletter", "cookies"):
        finger.state = put(finger.state, shop.table("greeting"), kind, due=True)
    finger.start = finger.state
    finger.enter("address", shop.domain)
    assert finger.screen == f"browser/{shop.screen('greeting')}"
    finger.tap(answer, answer)
    assert finger.title == shop.name
    assert {greeting["accepted"] for greeting in finger.table(shop.table("greeting")).values()} == {
        answer == "greeting:accept"
    }
    assert finger.changes() == [], "banners are no side effect"
    assert finger.back().enter("address", shop.domain).title == shop.name


@both
def test_going_back_from_a_banner_leaves_it_due(shop: Shop) -> None:
    finger = browser()
    finger.state = put(finger.state, shop.table("greeting"), "cookies", due=True)
    finger.enter("address", shop.domain).back()
    assert finger.title == shop.name
    assert finger.table(shop.table("greeting"))["cookies"]["due"] is True
