"""The suites of tasks, by name. Adding a module of templates: write it, name it here."""

from __future__ import annotations

from distrl.tasks.sim.suites import (
    calendar,
    clock,
    contacts,
    files,
    mail,
    maps,
    messages,
    music,
    notes,
    photos,
    settings,
    shopping_cart,
    shopping_impossible,
    shopping_lists,
    shopping_orders,
    shopping_pages,
    shopping_questions,
    store,
)
from distrl.tasks.sim.templates import Suite, find_suite
from distrl.types import Split

SIZES: dict[Split, int] = {"train": 6000, "tune": 400, "test": 600}

GENERAL = [
    *settings.templates, *calendar.templates, *clock.templates, *contacts.templates, *mail.templates,
    *messages.templates, *notes.templates, *files.templates, *maps.templates, *music.templates,
    *photos.templates, *store.templates,
]  # fmt: skip
SHOPPING = [
    *shopping_cart.templates, *shopping_lists.templates, *shopping_orders.templates,
    *shopping_questions.templates, *shopping_impossible.templates, *shopping_pages.templates,
]  # fmt: skip
START = frozenset((
    "clock-ask-city", "contacts-ask-phone", "contacts-call", "contacts-delete", "contacts-favourite",
    "mail-archive", "mail-ask-sender", "messages-delete", "messages-mute", "notes-ask", "notes-delete",
    "notes-pin",
))  # fmt: skip
"""A dozen short everyday templates of the general suite, few enough to be learnt in minutes on a laptop."""
TOUCH = frozenset((
    "clock-alarm-switch", "clock-delete-alarm", "contacts-call", "contacts-delete", "contacts-favourite",
    "mail-archive", "messages-delete", "messages-mute", "music-like-song", "music-play-song", "notes-delete",
    "notes-pin",
))  # fmt: skip
"""A dozen short templates that want something done and nothing answered, for policies that cannot read text out."""

SUITES: dict[str, Suite] = {
    "sim-start": Suite("sim-start", [template for template in GENERAL if template.name in START], sizes=SIZES),
    "sim-touch": Suite("sim-touch", [template for template in GENERAL if template.name in TOUCH], sizes=SIZES),
    "sim-general": Suite("sim-general", GENERAL, sizes=SIZES),
    "sim-shopping": Suite("sim-shopping", SHOPPING, sizes=SIZES),
}


def suite(name: str) -> Suite:
    """The suite with this name."""
    return find_suite(name, SUITES)
