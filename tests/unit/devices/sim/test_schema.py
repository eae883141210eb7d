"""The tables of a simulated phone: what the page says, and what its apps write."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.devices.sim.schema import PHONES, check_fields, reference, schema
from distrl.devices.sim.state import diff
from distrl.devices.sim.world import content
from distrl.tasks.base import tasks_of
from distrl.tasks.sim.oracle import solve
from distrl.tasks.sim.suites import suite

PAGE = Path(__file__).parents[4] / "docs" / "phone-tables.md"


def test_the_page_of_tables_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "make docs writes it anew"


def test_other_phones_have_the_same_tables_and_fields() -> None:
    for phone in range(PHONES, PHONES + 40):
        for table, records in content(phone, held_out=True).items():
            for record in records.values():
                check_fields(table, record)


@pytest.mark.parametrize("name", ["sim-general", "sim-shopping"])
def test_what_apps_write_while_they_are_used_is_known(name: str) -> None:
    changed = set()
    for task in tasks_of(suite(name), "test", 160):
        played = solve(task)
        for change in diff(played.states[0], played.states[-1]):
            changed.add(change.table)
            check_fields(change.table, change.after or {})
    assert len(changed) > 5
    assert changed <= schema().keys()
