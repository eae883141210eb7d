"""The pages of a web shop on which goods are found: home, results, product, wishlist, and the banners in between."""

from __future__ import annotations

from collections.abc import Callable

from distrl.devices.sim.app import Ui, back, do, erase, swap, write
from distrl.devices.sim.apps.shop import (
    MOST,
    Choice,
    PageFn,
    Shop,
    add_to_cart,
    cart_icon,
    dialog,
    link,
    selector,
    stepper,
    tabs,
    word,
)
from distrl.devices.sim.patterns import facts, fill
from distrl.devices.sim.products import COLOURS, SIZES
from distrl.devices.sim.state import Record, Table
from distrl.devices.sim.widgets import View, Widget, button, card, choice, heading, icon, label, row

SORTS = {
    "match": ("Best match", "Relevance"),
    "price": ("Price: low to high", "Cheapest first"),
    "rating": ("Best rated", "Customer favourites"),
    "days": ("Fastest delivery", "Arrives soonest"),
}
FILTERS = {
    "all": ("Everything", "No filter"),
    "top": ("4 stars and up", "Well reviewed"),
    "fast": ("Within 3 days", "Quick delivery"),
    "cheap": ("Under 40", "Low budget"),
}
PASSES: dict[str, Callable[[Record], bool]] = {
    "all": bool,
    "top": lambda product: float(product["rating"]) >= 4,
    "fast": lambda product: int(product["days"]) <= 3,
    "cheap": lambda product: int(product["price"]) < 4000,
}
CATEGORY_SIGNS = {
    "Clothing": "badge:tag", "Electronics": "badge:phone", "Home": "badge:home", "Kitchen": "badge:utensils",
    "Sports": "badge:run", "Toys": "badge:gift",
}  # fmt: skip
GREETINGS = {
    "newsletter": ("Our newsletter", ("Subscribe", "Send me offers"), ("No thanks", "Maybe later")),
    "cookies": ("We use cookies", ("Accept all", "Allow cookies"), ("Only necessary", "Decline")),
}


# --- looking up -------------------------------------------------------------------------------------------------------


def matching(goods: Table, query: str) -> list[str]:
    """Ids of what has all words of the query in its name or category; failing that, of what has any of them."""
    words = query.casefold().split()
    anything = (id for word in words for id in _having(goods, list(goods), word))
    return having_all(goods, words) or list(dict.fromkeys(anything))


def having_all(goods: Table, words: list[str]) -> list[str]:
    """Ids of what has all of these lower-case words in its name or category."""
    found = list(goods)
    for part in words:
        found = _having(goods, found, part)
    return found


def _having(goods: Table, ids: list[str], word: str) -> list[str]:
    # a product's id is its name in lower case
    return [id for id in ids if word in id or word in str(goods[id]["category"]).casefold()]


def listed(goods: Table, args: dict[str, str]) -> list[str]:
    """Ids of the goods on a results page, in its order."""
    if category := args.get("category"):
        found = [id for id, product in goods.items() if product["category"] == category]
    else:
        found = matching(goods, args.get("query", ""))
    found = [id for id in found if PASSES[args.get("only", "all")](goods[id])]
    by = args.get("sort", "match")
    if by == "match":
        return found
    return sorted(found, key=lambda found_id: float(goods[found_id][by]), reverse=by == "rating")


# --- pages ------------------------------------------------------------------------------------------------------------


def home(shop: Shop, ui: Ui) -> View:
    """The shop's first page: a search field and the categories."""
    goods = ui.table(shop.table("product"))
    categories = sorted({str(product["category"]) for product in goods.values()})
    rows = (
        row(f"category:{name}", name, tap=link(shop, "results", category=name), icon=CATEGORY_SIGNS.get(name, "list"))
        for name in categories
    )
    body = (_search_field(shop, ui), heading("categories", ui.pick("Categories", "Departments")), *ui.arrange(rows))
    return View(
        title=shop.name,
        body=body,
        top=(_star(shop, ui), cart_icon(shop, ui)),
        bottom=tabs(shop, ui, "home"),
        style=shop.style,
    )


def _star(shop: Shop, ui: Ui) -> Widget:
    if ui.record("browser.bookmark", shop.key):
        return icon("star", "star", "Remove bookmark", tap=erase("browser.bookmark", shop.key))
    return icon("star", "star", "Bookmark this site", tap=write("browser.bookmark", shop.key, title=shop.name))


def _search_field(shop: Shop, ui: Ui) -> Widget:
    query = ui.draft("search")
    submit = link(shop, "results", query=query) if query else None
    return ui.field("search", word(shop, ui, "search"), ui.args.get("query", ""), submit=submit)


def results(shop: Shop, ui: Ui) -> View:
    """The goods of a search or a category, with rows that sort and filter them."""
    goods, args = ui.table(shop.table("product")), ui.args
    found = listed(goods, args)
    tools = [
        row("sort", ui.pick("Sort by", "Order"), ui.pick(*SORTS[args.get("sort", "match")]), tap=link(shop, "sort", **args)),
        row("filter", ui.pick("Filter", "Refine"), ui.pick(*FILTERS[args.get("only", "all")]), tap=link(shop, "filter", **args)),
    ]  # fmt: skip
    count = label("count", f"{len(found)} results" if found else "Nothing found")
    cards = [_card(shop, id, goods[id]) for id in found]
    body = (_search_field(shop, ui), *ui.arrange(tools), count, *cards)
    title = args.get("category") or ui.pick("Results", "Search results")
    return View(title=title, body=body, top=(cart_icon(shop, ui),), bottom=tabs(shop, ui, "home"), style=shop.style)


def _card(shop: Shop, id: str, product: Record) -> Widget:
    detail = f"{shop.money(int(product['price']))} · {product['rating']} ★ · {product['days']} days"
    return card(
        f"product:{id}", str(product["name"]), detail, tap=link(shop, "product", id=id), icon=picture_of(product)
    )


def picture_of(product: Record, option: str = "") -> str:
    """The picture of a product, in the chosen colour where it has one."""
    return f"product:{product['kind']}:{option if product['options'] == COLOURS else product['brand']}"


def sort(shop: Shop, ui: Ui) -> View:
    """The orders of a results page to choose from."""
    return _refine(shop, ui, "sort", SORTS)


def filter_(shop: Shop, ui: Ui) -> View:
    """The filters of a results page to choose from."""
    return _refine(shop, ui, "only", FILTERS)


def _refine(shop: Shop, ui: Ui, field: str, options: dict[str, tuple[str, str]]) -> View:
    """A dialog that shows the results below it again, with one argument changed."""
    now = ui.args.get(field, next(iter(options)))
    again = {name: do(back(), swap("browser", shop.screen("results"), **{**ui.args, field: name})) for name in options}
    body = (choice(f"{field}:{name}", ui.pick(*words), name == now, tap=again[name]) for name, words in options.items())
    return dialog("Sort by" if field == "sort" else "Filter", *body)


def product(shop: Shop, ui: Ui) -> View:
    """One product: what the shop tells about it, its options, and buttons for cart and wishlist."""
    id = ui.args["id"]
    product = ui.record(shop.table("product"), id)
    values = {
        "price": shop.money(int(product["price"])),
        "rating": f"{product['rating']} of 5",
        "delivery": f"{product['days']} days",
        "brand": str(product["brand"]),
        "stock": "In stock" if product["stock"] else "Sold out",
    }
    told = facts(*((name, word(shop, ui, name), values[name]) for name in shop.facts))
    buttons = _buttons(shop, ui, product)
    body = [heading("name", str(product["name"])), *told, *_choices(shop, ui, product)]
    top = (cart_icon(shop, ui),)
    fixed, bottom = ((), buttons) if shop.inline else (buttons, tabs(shop, ui, "product"))
    return View(
        title=shop.name,
        body=(*body, *fixed),
        top=top,
        bottom=bottom,
        style=shop.style,
        picture=picture_of(product, _option(ui, product)),
        picture_at="aside",
    )


def _choices(shop: Shop, ui: Ui, product: Record) -> list[Widget]:
    chosen: list[Widget] = []
    if product["options"]:
        options = tuple(str(product["options"]).split(","))
        title = ui.pick("Size", "Fit") if product["options"] == SIZES else ui.pick("Colour", "Shade")
        chosen += selector(shop, Choice(field="option", title=title, options=options, now=_option(ui, product)))
    count, title = ui.draft("quantity", "1"), ui.pick("Quantity", "How many")
    if shop.inline:
        pieces = [heading("quantity", f"{title}: {count}"), *stepper(int(count), lambda n: fill("quantity", str(n)))]
        return [*chosen, *pieces]
    numbers = tuple(str(number) for number in range(1, MOST + 1))
    return [*chosen, *selector(shop, Choice(field="quantity", title=title, options=numbers, now=count))]


def _option(ui: Ui, product: Record) -> str:
    return ui.draft("option", str(product["options"]).split(",")[0])


def _buttons(shop: Shop, ui: Ui, product: Record) -> tuple[Widget, ...]:
    id, wishes = ui.args["id"], shop.table("wishlist")
    add = add_to_cart(shop, id, _option(ui, product), int(ui.draft("quantity", "1")))
    done = fill("added", "yes") if shop.inline else link(shop, "added")
    text = ui.pick("Added ✓", "In your basket ✓") if ui.draft("added") else word(shop, ui, "add")
    into = button("add", text, tap=do(add, done), enabled=bool(product["stock"]))
    if id in ui.table(wishes):
        return ui.arrange(
            (into, button("wish", word(shop, ui, "unwish"), tap=erase(wishes, id), look="quiet", icon="heart"))
        )
    wish = write(wishes, id, name=str(product["name"]))
    return ui.arrange((into, button("wish", word(shop, ui, "wish"), tap=wish, look="quiet", icon="heart")))


def added(shop: Shop, ui: Ui) -> View:
    """The dialog after something was put into the cart."""
    stay = button("stay", ui.pick("Continue shopping", "Keep looking"), tap=back(), look="quiet")
    on = button("to-cart", ui.pick("View bag", "See trolley"), tap=do(back(), link(shop, "cart")))
    return dialog(ui.pick("Added to your bag", "It is in your trolley"), *ui.arrange((stay, on)))


def wishlist(shop: Shop, ui: Ui) -> View:
    """The goods on the wishlist."""
    goods = ui.table(shop.table("product"))
    ids = list(ui.table(shop.table("wishlist")))
    rows = [
        row(f"wish:{id}", str(goods[id]["name"]), tap=link(shop, "wished", id=id), icon=picture_of(goods[id]))
        for id in ids
    ]
    body = ui.arrange(rows) or (label("none", "Nothing here yet"),)
    return View(title=word(shop, ui, "wishlist"), body=body, bottom=tabs(shop, ui, "wishlist"), style=shop.style)


def wished(shop: Shop, ui: Ui) -> View:
    """What can be done with one of them: open it, move it to the cart or remove it."""
    id = ui.args["id"]
    product = ui.record(shop.table("product"), id)
    forget = do(erase(shop.table("wishlist"), id), back())
    add = add_to_cart(shop, id, _option(ui, product), 1)
    return dialog(
        str(product["name"]),
        button(
            "wish-open", ui.pick("View item", "Details"), tap=do(back(), link(shop, "product", id=id)), look="quiet"
        ),
        button("wish-to-cart", ui.pick("Move to cart", "Buy this"), tap=do(add, forget)),
        button("wish-remove", ui.pick("Remove", "Delete"), tap=forget, look="danger"),
    )


def greeting(shop: Shop, ui: Ui) -> View:
    """A banner over the shop: newsletter or cookies."""
    title, yes, no = GREETINGS[ui.args["kind"]]
    accept, close = (
        do(write(shop.table("greeting"), ui.args["kind"], due=False, accepted=yes), back()) for yes in (True, False)
    )
    buttons = (
        button("greeting:accept", ui.pick(*yes), tap=accept),
        button("popup:close", ui.pick(*no), tap=close, look="quiet"),
    )
    return dialog(title, *ui.arrange(buttons))


PAGES: dict[str, PageFn] = {
    "home": home,
    "results": results,
    "sort": sort,
    "filter": filter_,
    "product": product,
    "added": added,
    "wishlist": wishlist,
    "wished": wished,
    "greeting": greeting,
}
