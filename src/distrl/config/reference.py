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
from distrl.types import Value

HEAD = """# Configuration

Made from the sections in `src/distrl/config/` by `make docs`; edit the text there.

A run takes its values from three places, each over the one before: the defaults below, a TOML file
(`distrl train my.toml`) and flags (`--devices.latency.profile instant`). `--seed 3` is short for `--run.seed 3`.
Unknown keys, wrong types and values out of range are refused before anything starts.
`distrl config show [my.toml] [flags]` prints every value and where it came from.
"""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a run can be given."""

    key: str
    annotation: Any
    """The field's type with its limits, as `msgspec.convert` takes it."""
    default: Value
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


def flatten(config: msgspec.Struct, prefix: str = "") -> dict[str, Value]:
    """The values of a configuration by dotted key."""
    found: dict[str, Value] = {}
    for name in config.__struct_fields__:
        value = getattr(config, name)
        inner = flatten(value, f"{prefix}{name}.") if isinstance(value, msgspec.Struct) else {f"{prefix}{name}": value}
        found |= inner
    return found


def _walk(section: msgspec.Struct, prefix: str) -> list[Setting]:
    hints, meanings = get_type_hints(type(section), include_extras=True), _meanings(type(section).__module__)
    found, nested = [], []
    for name in section.__struct_fields__:
        key, value = f"{prefix}{name}", getattr(section, name)
        if isinstance(value, msgspec.Struct):
            nested += _walk(value, f"{key}.")
        else:
            meaning = meanings.get((type(section).__name__, name), "")
            info = types.type_info(hints[name])
            found.append(
                Setting(
                    key=key,
                    annotation=hints[name],
                    default=value,
                    meaning=meaning,
                    expected=_in_words(info),
                    choices=tuple(map(str, info.values)) if isinstance(info, types.LiteralType) else (),
                )
            )
    return found + nested


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
        case types.StrType():
            return "text"
        case types.IntType() | types.FloatType():
            kind = "a whole number" if isinstance(info, types.IntType) else "a number"
            return kind + _limits(info)
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def _limits(info: types.IntType | types.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        span = f" from {info.ge:g} to {info.le:g}"
    else:
        bounds = (("above", info.gt), ("of at least", info.ge), ("below", info.lt), ("of at most", info.le))
        span = " and".join(f" {word} {limit:g}" for word, limit in bounds if limit is not None)
    return span + (f" that {info.multiple_of:g} divides" if info.multiple_of else "")


def _table(section: str) -> str:
    rows = [setting for setting in settings().values() if setting.section == section]
    lines = [f"## `{section}`", "", "| key | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows:
        default = str(row.default).lower() if isinstance(row.default, bool) else str(row.default)
        shown = f"`{default}`" if default else "(empty)"
        allowed = row.expected.replace("|", "\\|")
        lines.append(f"| `{row.key}` | {shown} | {allowed} | {row.meaning} |")
    return "\n".join([*lines, ""])
