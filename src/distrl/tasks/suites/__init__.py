"""The suites of tasks, by name. Adding a module of templates: write it, name it here."""

from __future__ import annotations

from distrl.tasks.base import Suite, find_suite
from distrl.tasks.suites import settings
from distrl.types import Split

SIZES: dict[Split, int] = {"train": 2400, "tune": 400, "test": 600}

SUITES: dict[str, Suite] = {
    "sim-general": Suite("sim-general", [*settings.templates], sizes=SIZES),
}


def suite(name: str) -> Suite:
    """The suite with this name."""
    return find_suite(name, SUITES)
