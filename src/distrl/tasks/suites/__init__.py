"""The suites of tasks, by name. Adding a module of templates: write it, name it here."""

from __future__ import annotations

from distrl.tasks.base import Suite, find_suite
from distrl.tasks.suites import (
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
from distrl.types import Split

SIZES: dict[Split, int] = {"train": 6000, "tune": 400, "test": 600}

SUITES: dict[str, Suite] = {
    "sim-general": Suite(
        "sim-general",
        [
            *settings.templates,
            *calendar.templates,
            *clock.templates,
            *contacts.templates,
            *mail.templates,
            *messages.templates,
            *notes.templates,
            *files.templates,
            *maps.templates,
            *music.templates,
            *photos.templates,
            *store.templates,
        ],
        sizes=SIZES,
    ),
    "sim-shopping": Suite(
        "sim-shopping",
        [
            *shopping_cart.templates,
            *shopping_lists.templates,
            *shopping_orders.templates,
            *shopping_questions.templates,
            *shopping_impossible.templates,
            *shopping_pages.templates,
        ],
        sizes=SIZES,
    ),
}


def suite(name: str) -> Suite:
    """The suite with this name."""
    return find_suite(name, SUITES)
