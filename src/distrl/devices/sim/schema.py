"""The tables of a simulated phone: every field with its type. Read off what the apps put on phones, so that nobody keeps a list.

`docs/phone-tables.md` is what `reference()` returns; a test holds the two together.
"""

from __future__ import annotations

import difflib
import sys
from functools import lru_cache

from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.state import Record, Tables
from distrl.devices.sim.world import content
from distrl.errors import TaskError, closest
from distrl.types import Value

PHONES = 20
"""Phones whose content is read: together they have every field that an app ever starts with."""
BY_USE: dict[str, dict[str, type[Value]]] = {
    "contacts.call": {"who": str, "phone": str},
    "kiosko.greeting": {"accepted": bool},
    "kiosko.saved": {"product": str, "option": str, "quantity": int},
    "mail.sent": {"to": str, "address": str, "subject": str, "body": str, "reply_to": str},
    "maps.recent": {"query": str},
    "messages.sent": {"to": str, "text": str},
    "music.history": {"name": str},
    "northmart.greeting": {"accepted": bool},
    "northmart.saved": {"product": str, "option": str, "quantity": int},
    "photos.sent": {"photo": str, "to": str},
    "system.permission": {"allowed": bool},
    "system.popup": {"accepted": bool},
}
"""Fields that no new phone has: they come with the use of it."""
WHERE = "the page Tables of a phone in the documentation lists them; `distrl tasks try ID --agent hand --ids` shows those of a task"
EXAMPLES: dict[type[Value], str] = {bool: "True", int: "3", float: "2.5", str: "'some text'"}
Schema = dict[str, dict[str, type[Value]]]


@lru_cache(maxsize=1)
def schema() -> Schema:
    """Every table by name, with its fields and their types."""
    found: Schema = {}
    for phone in range(PHONES):
        _add(found, content(phone, held_out=False))
    for table, fields in BY_USE.items():
        found.setdefault(table, {}).update(fields)
    return dict(sorted(found.items()))


def _add(found: Schema, tables: Tables) -> None:
    for table, records in tables.items():
        fields = found.setdefault(table, {})
        for record in records.values():
            fields |= {field: type(value) for field, value in record.items()}


def check_table(table: str) -> None:
    """`TaskError` where no phone has this table."""
    if table not in schema():
        raise TaskError(
            f"there is no table {table!r}",
            expected=closest(table, schema()),
            fix=WHERE,
        )


def check_field(table: str, field: str) -> None:
    """`TaskError` where the table has no such field."""
    check_table(table)
    fields = schema()[table]
    if field not in fields:
        raise TaskError(
            f"{table} has no field {field!r}",
            expected=closest(field, fields),
            fix=WHERE,
        )


def no_such_field(table: str, field: str, record: Record) -> TaskError:
    """The error of a record that was asked for a field which it has not, though others of its table may have it."""
    known = ", ".join(sorted(record)) or "no fields"
    if field in schema().get(table, {}):
        return TaskError(
            f"a record of {table} has no {field!r}, which others have", expected=known, fix=f'record.get("{field}")'
        )
    near = difflib.get_close_matches(field, record, n=1)
    return TaskError(
        f"{table} has no field {field!r}",
        expected=known,
        fix=f'record["{near[0] if near else min(record, default=field)}"]',
    )


def check_fields(table: str, values: dict[str, Value]) -> None:
    """`TaskError` where the table has no such field, or where a field has another type."""
    check_table(table)
    for field, value in values.items():
        check_field(table, field)
        wanted = schema()[table][field]
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise TaskError(
                f"{table}: {field} = {value!r} is of type {type(value).__name__}",
                expected=wanted.__name__,
                fix=f"{field}={EXAMPLES[wanted]}",
            )


def check_app(app: str) -> None:
    """`TaskError` where the launcher shows no such app."""
    if app not in APPS:
        raise TaskError(f"no app is called {app!r}", expected=closest(app, APPS), fix="the app's name, not its title")


def check_screen(app: str, screen: str) -> None:
    """`TaskError` where no app has such a screen."""
    if (app, screen) in SCREENS:
        return
    apps = {name for name, _ in SCREENS}
    known = closest(app, apps) if app not in apps else closest(screen, (name for of, name in SCREENS if of == app))
    seen = f"no app is called {app!r}" if app not in apps else f"{app} has no screen {screen!r}"
    raise TaskError(seen, expected=known, fix=WHERE)


# --- the page -------------------------------------------------------------------------------------------------------


HEAD = """# Tables of a phone

What the apps of a [simulated phone](devices.md#simulated-phones) keep, by table and field: what `t.row`, `t.given` and `t.want` of
a [template](tasks.md#a-template-of-your-own) name. Written from the code by `make docs`. Ids of records are shown by
`distrl tasks try ID --agent hand --ids`.

| table | fields |
|---|---|
"""
SCREENS_HEAD = """
And their screens, which `open_app`, `t.start_on` and `t.want_showing` name:

| app | screens |
|---|---|
"""


def reference() -> str:
    """The page of all tables, and of all screens by app."""
    tables = (f"| `{table}` | {_fields(fields)} |\n" for table, fields in schema().items())
    screens = (f"| `{app}` | {', '.join(f'`{name}`' for of, name in SCREENS if of == app)} |\n" for app in APPS)
    return "".join((HEAD, *tables, SCREENS_HEAD, *screens))


def _fields(fields: dict[str, type[Value]]) -> str:
    return ", ".join(f"`{name}` ({kind.__name__})" for name, kind in fields.items())


if __name__ == "__main__":
    sys.stdout.write(reference())
