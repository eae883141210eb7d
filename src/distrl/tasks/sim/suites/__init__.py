"""The suites of tasks, by name. Adding a module of templates: write it, name it here."""

from __future__ import annotations

from distrl.errors import TaskError, closest
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
    shopping_lists,
    shopping_orders,
    shopping_pages,
    shopping_questions,
    store,
)
from distrl.tasks.sim.templates import SimSuite
from distrl.types import Split

SIZES: dict[Split, int] = {"train": 6000, "tune": 400, "test": 600}

GENERAL = [
    *settings.templates, *calendar.templates, *clock.templates, *contacts.templates, *mail.templates,
    *messages.templates, *notes.templates, *files.templates, *maps.templates, *music.templates,
    *photos.templates, *store.templates,
]  # fmt: skip
SHOPPING = [
    *shopping_cart.templates, *shopping_lists.templates, *shopping_orders.templates,
    *shopping_questions.templates, *shopping_pages.templates,
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

SUITES: dict[str, SimSuite] = {
    "sim-start": SimSuite("sim-start", [template for template in GENERAL if template.name in START], sizes=SIZES),
    "sim-touch": SimSuite("sim-touch", [template for template in GENERAL if template.name in TOUCH], sizes=SIZES),
    "sim-general": SimSuite("sim-general", GENERAL, sizes=SIZES),
    "sim-shopping": SimSuite("sim-shopping", SHOPPING, sizes=SIZES),
}


def sim_start(_settings: object = None) -> SimSuite:
    """A dozen short everyday templates, learnt in minutes on a laptop."""
    return SUITES["sim-start"]


def sim_touch(_settings: object = None) -> SimSuite:
    """A dozen short templates without typing and answers."""
    return SUITES["sim-touch"]


def sim_general(_settings: object = None) -> SimSuite:
    """Everyday tasks in twelve apps."""
    return SUITES["sim-general"]


def sim_shopping(_settings: object = None) -> SimSuite:
    """Tasks in a shop: search, compare, cart, checkout, orders."""
    return SUITES["sim-shopping"]


def suite(name: str) -> SimSuite:
    """The simulated suite with this name."""
    if name not in SUITES:
        raise TaskError(f"unknown suite {name!r}", expected=closest(name, SUITES), fix="distrl tasks list")
    return SUITES[name]
