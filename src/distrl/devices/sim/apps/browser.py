"""The browser: a start page with bookmarks, a search engine, two web shops, a guide to goods and a parcel service."""

from __future__ import annotations

from functools import partial
from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, go, write
from distrl.devices.sim.apps import shop_catalogue, shop_checkout
from distrl.devices.sim.apps.shop import SHOPS, arrive, choose, open_shop
from distrl.devices.sim.patterns import facts
from distrl.devices.sim.state import PhoneState, Table, Tables
from distrl.devices.sim.widgets import Effect, View, Widget, button, heading, icon, label, row

app = App("browser", "Browser", icon="globe", colour="#1a73e8")

BOOKMARKS, HISTORY = "browser.bookmark", "browser.history"
GUIDES, PARCEL = "browser.guide", "browser.parcel"
app.incidental = {HISTORY, *(shop.table("greeting") for shop in SHOPS)}

SITES = {shop.key: (shop.name, shop.domain) for shop in SHOPS} | {
    "lantern": ("Daily Lantern", "dailylantern.com"),
    "parcel": ("Parcel Post", "parcelpost.com"),
}
"""Name and address of everything that can be visited."""
SHOP_BY_KEY = {shop.key: shop for shop in SHOPS}
AUTHORS = ("Ines Moreau", "Tom Okafor", "Lena Vogt", "Raj Patel", "Mia Lind", "Sven Holt", "Ada Rossi", "Yuki Sato", "Omar Haddad", "Eva Novak")  # fmt: skip
PARCEL_FACTS = {"letter": "Letter", "small": "Small parcel", "large": "Large parcel", "hours": "Opening hours"}
NUM_GUIDES, NUM_FOUND = 8, 3


@app.content
def content(seeder: Seeder) -> Tables:
    """The goods of both shops, bookmarks, history, guides and parcel prices of a new phone."""
    tables: Tables = {}
    for shop in SHOPS:
        tables |= open_shop(shop, seeder)
    random = seeder.random
    marked = [site for site in SITES if random.random() < 0.6]
    visited = random.sample(list(SITES), 2)
    return tables | {
        BOOKMARKS: {site: {"title": SITES[site][0]} for site in marked},
        HISTORY: {site: {"title": SITES[site][0]} for site in visited},
        GUIDES: _guides(seeder, tables),
        PARCEL: _parcel_facts(random),
    }


def _parcel_facts(random: Random) -> Table:
    told: Table = {name: {"value": f"€{random.randint(1, 19)}.{random.randint(10, 99)}"} for name in PARCEL_FACTS}
    told["hours"] = {"value": f"{random.randint(7, 10)}:00 to {random.randint(16, 20)}:30"}
    return told


def _guides(seeder: Seeder, tables: Tables) -> Table:
    """What the Daily Lantern recommends: something that one of the shops sells, for each of several kinds."""
    goods = [product for shop in SHOPS for product in tables[shop.table("product")].values()]
    picks = {str(product["kind"]): product for product in seeder.random.sample(goods, len(goods))}
    return {
        kind.replace(" ", "-"): {
            "title": f"The best {kind} this year",
            "kind": kind,
            "pick": pick["name"],
            "author": seeder.choose(AUTHORS),
            "minutes": f"{seeder.random.randint(2, 12)} minutes",
        }
        for kind, pick in list(picks.items())[:NUM_GUIDES]
    }


# --- going to places --------------------------------------------------------------------------------------------------


def visit(site: str) -> Effect:
    """Open a site at its first page, and remember it."""
    opened = arrive(SHOP_BY_KEY[site]) if site in SHOP_BY_KEY else go("browser", site)
    return do(write(HISTORY, site, title=SITES[site][0]), opened)


def look_up(text: str) -> Effect | None:
    """What Enter does with a text in the address field: an address opens its site, anything else is searched for."""
    typed = text.casefold().removeprefix("www.").strip("/ ")
    for site, (_, domain) in SITES.items():
        if typed == domain:
            return visit(site)
    return go("browser", "search", query=text) if typed else None


def _address(ui: Ui) -> Widget:
    hint = ui.pick("Search or type address", "Where to?")
    return ui.field("address", hint, ui.args.get("query", ""), submit=look_up(ui.draft("address")))


# --- pages ------------------------------------------------------------------------------------------------------------


@app.screen("home")
def home(ui: Ui) -> View:
    """The start page: an address field and the bookmarks."""
    rows = [
        row(
            f"site:{site}",
            str(mark["title"]),
            tap=visit(site),
            hold=go("browser", "bookmark", site=site),
            icon=f"site:{site}",
        )
        for site, mark in ui.table(BOOKMARKS).items()
    ]
    body = (_address(ui), heading("bookmarks", ui.pick("Bookmarks", "Favourites")), *ui.arrange(rows))
    past = icon("history", "clock", ui.pick("History", "Visited pages"), tap=go("browser", "history"))
    return View(title=ui.pick("New tab", "Start page"), body=body, top=(past,))


@app.screen("bookmark")
def bookmark(ui: Ui) -> View:
    """What can be done with a bookmark: open or delete it."""
    site = ui.args["site"]
    body = (
        button("open", ui.pick("Open", "Visit"), tap=do(back(), visit(site)), icon="globe"),
        button(
            "delete",
            ui.pick("Delete bookmark", "Remove"),
            tap=do(erase(BOOKMARKS, site), back()),
            look="danger",
            icon="bin",
        ),
    )
    return View(title=SITES[site][0], body=ui.arrange(body), shape="dialog", style="menu")


@app.screen("history")
def history(ui: Ui) -> View:
    """The visited sites, and a button that clears them."""
    rows = [
        row(f"past:{site}", str(page["title"]), tap=visit(site), icon=f"site:{site}")
        for site, page in ui.table(HISTORY).items()
    ]
    clear = button("clear", ui.pick("Clear history", "Forget everything"), tap=_forget, look="danger", icon="bin")
    return View(title=ui.pick("History", "Visited pages"), body=(clear, *ui.arrange(rows)))


def _forget(state: PhoneState) -> PhoneState:
    for site in state.tables[HISTORY]:
        state = erase(HISTORY, site)(state)
    return state


@app.screen("search")
def search(ui: Ui) -> View:
    """Sites, guides and goods that a web search finds."""
    words = ui.args["query"].casefold().split()
    found = [*_found_sites(words), *_found_guides(ui, words), *_found_goods(ui, words)]
    return View(
        title=ui.pick("Search", "Web search"), body=(_address(ui), *(found or [label("none", "Nothing found")]))
    )


def _found_sites(words: list[str]) -> list[Widget]:
    return [
        row(f"result:{site}", name, domain, tap=visit(site), icon=f"site:{site}")
        for site, (name, domain) in SITES.items()
        if any(word in f"{name} {domain}".casefold() for word in words)
    ]


def _found_guides(ui: Ui, words: list[str]) -> list[Widget]:
    guides = ui.table(GUIDES)
    found = [id for id in guides if all(word in id or word in "the best this year guide" for word in words)]
    return [_guide_row(id, str(guides[id]["title"])) for id in found]


def _guide_row(id: str, title: str) -> Widget:
    return row(
        f"guide:{id}",
        title,
        "Daily Lantern",
        tap=go("browser", "guide", id=id),
        icon=f"product:{id.replace('-', ' ')}:guide",
    )


def _found_goods(ui: Ui, words: list[str]) -> list[Widget]:
    found = []
    for shop in SHOPS:
        goods = ui.table(shop.table("product"))
        for id in shop_catalogue.having_all(goods, words)[:NUM_FOUND]:
            shown = arrive(shop, "product", id=id)
            found.append(
                row(
                    f"result:{shop.key}:{id}",
                    str(goods[id]["name"]),
                    f"on {shop.name}",
                    tap=shown,
                    icon=shop_catalogue.picture_of(goods[id]),
                )
            )
    return found


@app.screen("lantern")
def lantern(ui: Ui) -> View:
    """The Daily Lantern's first page: its guides."""
    rows = [_guide_row(id, str(guide["title"])) for id, guide in ui.table(GUIDES).items()]
    return View(title="Daily Lantern", body=ui.arrange(rows))


@app.screen("guide")
def guide(ui: Ui) -> View:
    """One guide: what it recommends, its author, and where to buy."""
    guide = ui.record(GUIDES, ui.args["id"])
    told = facts(
        ("pick", ui.pick("Our choice", "We recommend"), str(guide["pick"])),
        ("author", ui.pick("Written by", "Author"), str(guide["author"])),
        ("minutes", ui.pick("Reading time", "Length"), str(guide["minutes"])),
    )
    offers = [
        row(
            f"offer:{shop.key}",
            f"Find it on {shop.name}",
            tap=arrive(shop, "results", query=str(guide["pick"])),
            icon=f"site:{shop.key}",
        )
        for shop in SHOPS
    ]
    return View(title=str(guide["title"]), body=(*told, *ui.arrange(offers)), picture=f"product:{guide['kind']}:guide")


@app.screen("parcel")
def parcel(ui: Ui) -> View:
    """Parcel Post: prices and opening hours."""
    told = [(name, title, str(ui.record(PARCEL, name)["value"])) for name, title in PARCEL_FACTS.items()]
    return View(title="Parcel Post", body=facts(*told), style="group")


app.screen("choose")(choose)
for _shop in SHOPS:
    for _page, _show in (shop_catalogue.PAGES | shop_checkout.PAGES).items():
        app.screens[_shop.screen(_page)] = partial(_show, _shop)
