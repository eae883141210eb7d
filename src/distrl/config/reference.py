"""Every setting by its dotted key: type, limits, default and meaning, all read from the schema.

`docs/configuration.md` is what `reference()` returns; a test holds the two together.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect as types

from distrl.config import schema
from distrl.types import SettingValue

HEAD = """# Configuration

Made from the sections in `src/distrl/config/` by `make docs`; edit the text there.

A run takes its values from three places, each over the one before: the defaults below, a TOML file
(`distrl train my.toml`) and flags (`--devices.sim.latency.profile instant`). `--seed 3` is short for `--run.seed 3`.
Unknown keys, wrong types and values out of range are refused before anything starts.
`distrl config show [my.toml] [flags]` prints every value and where it came from.

Where a section has a `kind`, each kind has a table of its own, such as `[algorithm.ppo]`, and a setting in the table of
another kind is refused. Devices, suites, judges, policies and algorithms of your own take their settings from the table
`options` of their section: see [extending](extending.md). Lists are written as `["a", "b"]`, as a flag also as `a,b`.
"""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a run can be given."""

    key: str
    annotation: Any
    """The field's type with its limits, as `msgspec.convert` takes it."""
    default: SettingValue
    meaning: str
    expected: str
    """The values that are allowed, in words."""
    choices: tuple[str, ...] = ()
    """The same one by one, where they can be counted."""

    @property
    def section(self) -> str:
        """Its key without the last part."""
        return self.key.rpartition(".")[0]


@cache
def settings() -> dict[str, Setting]:
    """Every setting, by dotted key, in the order of the schema."""
    return {setting.key: setting for setting in _walk(schema.Config(), "")}


def sections() -> list[str]:
    """Every section, by dotted name, in the order of the schema."""
    return list(dict.fromkeys(setting.section for setting in settings().values()))


def reference() -> str:
    """The settings as a page of Markdown, a table for each section."""
    return "\n".join([HEAD, *(_table(section) for section in sections())])


def flatten(config: msgspec.Struct, prefix: str = "") -> dict[str, SettingValue]:
    """The values of a configuration by dotted key; those of a plug-in are under `<section>.options`."""
    found: dict[str, SettingValue] = {}
    for name, value in _fields(config):
        if isinstance(value, msgspec.Struct):
            found |= flatten(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            found |= {f"{prefix}{name}.{key}": as_setting(inner) for key, inner in value.items()}
        else:
            found[f"{prefix}{name}"] = value
    return found


def as_setting(value: Any) -> Any:
    """Lists as tuples, which is what settings hold."""
    return tuple(value) if isinstance(value, list) else value


def _fields(section: msgspec.Struct) -> list[tuple[str, Any]]:
    """Name and value of every field, by the name that it has in a file."""
    pairs = zip(section.__struct_encode_fields__, section.__struct_fields__, strict=True)
    return [(name, getattr(section, attribute)) for name, attribute in pairs]


@cache
def kind_tables() -> dict[str, tuple[str, ...]]:
    """For every section that chooses a kind, the tables that belong to one kind each."""
    found = {}
    for name, section in _fields(schema.Config()):
        if "kind" in section.__struct_fields__:
            found[name] = tuple(table for table, value in _fields(section) if isinstance(value, msgspec.Struct))
    return found


def options_tables() -> tuple[str, ...]:
    """The tables that belong to plug-ins: `devices.options` and so on."""
    sections = _fields(schema.Config())
    return tuple(f"{name}.options" for name, section in sections if "options" in section.__struct_fields__)


def _walk(section: msgspec.Struct, prefix: str) -> list[Setting]:
    hints = get_type_hints(type(section), include_extras=True)
    found, nested = [], []
    for attribute, (name, value) in zip(section.__struct_fields__, _fields(section), strict=True):
        key = f"{prefix}{name}"
        if isinstance(value, msgspec.Struct):
            nested += _walk(value, f"{key}.")
        elif not isinstance(value, dict):
            meaning = _meaning(type(section), attribute)
            info = types.type_info(hints[attribute])
            found.append(
                Setting(
                    key=key,
                    annotation=hints[attribute],
                    default=value,
                    meaning=meaning,
                    expected=_in_words(info),
                    choices=tuple(map(str, info.values)) if isinstance(info, types.LiteralType) else (),
                )
            )
    return found + nested


def _meaning(section: type, attribute: str) -> str:
    """The text under a field, in the section or in one that it inherits from."""
    found = (
        _meanings(base.__module__).get((base.__name__, attribute))
        for base in section.__mro__[:-1]
        if base.__module__.startswith("distrl.")
    )
    return next((text for text in found if text), "")


@cache
def _meanings(module: str) -> dict[tuple[str, str], str]:
    """The text under each field of a module's sections, by class and field name."""
    found: dict[tuple[str, str], str] = {}
    for section in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(section, ast.ClassDef):
            continue
        for field, text in zip(section.body, section.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[section.name, field.target.id] = _text(text)
    return found


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def _in_words(info: types.Type) -> str:
    match info:
        case types.Metadata(extra_json_schema={"description": words}):
            return str(words)
        case types.BoolType():
            return "true or false"
        case types.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case types.VarTupleType(item_type=item):
            return f"a list, each {_in_words(item)}"
        case types.StrType():
            return "text"
        case types.IntType() | types.FloatType():
            kind = "a whole number" if isinstance(info, types.IntType) else "a number"
            return kind + _limits(info)
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def _limits(info: types.IntType | types.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        span = f" from {_plain(info.ge)} to {_plain(info.le)}"
    else:
        bounds = (("above", info.gt), ("of at least", info.ge), ("below", info.lt), ("of at most", info.le))
        span = " and".join(f" {word} {_plain(limit)}" for word, limit in bounds if limit is not None)
    return span + (f" that {_plain(info.multiple_of)} divides" if info.multiple_of else "")


def _plain(limit: float) -> str:
    """A limit as people write it: 1000000, and not 1e+06."""
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


def _table(section: str) -> str:
    rows = [setting for setting in settings().values() if setting.section == section]
    lines = [f"## `{section}`", "", "| key | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows:
        default = str(row.default).lower() if isinstance(row.default, bool) else str(row.default)
        if isinstance(row.default, tuple):
            default = ", ".join(map(str, row.default))
        shown = f"`{default}`" if default else "(empty)"
        allowed = row.expected.replace("|", "\\|")
        lines.append(f"| `{row.key}` | {shown} | {allowed} | {row.meaning} |")
    return "\n".join([*lines, ""])
