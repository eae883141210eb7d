"""Finds devices, suites, judges, policies and algorithms by name, so that nobody edits this package to add one.

A name is, in this order: built in (`BUILT_IN`), an entry point of the group `distrl.<kind>`, or an import path
`package.module:attribute`. What it stands for is a callable that takes its settings first:

    devices      (settings, fleet: Fleet) -> Sequence[Device]
    suites       (settings) -> Suite
    judges       (settings) -> Judge
    policies     (settings, context: PolicyContext) -> Policy
    algorithms   (settings, context: AlgorithmContext) -> Algorithm

The settings of a plug-in of your own come from the `options` table of its section. Where the callable has an attribute
`Settings`, a msgspec struct, they are checked against it; without one it takes no options and gets None.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar

import msgspec

from distrl.errors import ConfigError, closest

Kind = Literal["devices", "suites", "judges", "policies", "algorithms"]
T = TypeVar("T")

BUILT_IN: dict[Kind, dict[str, str]] = {
    "devices": {"sim": "distrl.devices.sim.device:make_devices"},
    "suites": {
        "sim-start": "distrl.tasks.sim.suites:sim_start",
        "sim-touch": "distrl.tasks.sim.suites:sim_touch",
        "sim-general": "distrl.tasks.sim.suites:sim_general",
        "sim-shopping": "distrl.tasks.sim.suites:sim_shopping",
    },
    "judges": {
        "auto": "distrl.tasks.judges:AutoJudge",
        "reward": "distrl.tasks.judges:RewardJudge",
        "sim": "distrl.tasks.sim.judge:SimJudge",
    },
    "policies": {
        "pointer": "distrl.policies.pointer.policy:PointerPolicy",
        "pixel": "distrl.policies.pixel.policy:PixelPolicy",
        "vlm": "distrl.policies.vlm.policy:VlmPolicy",
    },
    "algorithms": {
        "aride": "distrl.algorithms.aride:ARide",
        "digirl": "distrl.algorithms.digirl:DigiRL",
        "filtered_bc": "distrl.algorithms.filtered_bc:FilteredBC",
        "grpo": "distrl.algorithms.grpo:GRPO",
        "ppo": "distrl.algorithms.ppo:PPO",
    },
}
"""Import paths, so that what one kind needs is not loaded for another."""
SETTING: dict[Kind, str] = {
    "devices": "devices.kind",
    "suites": "tasks.suite",
    "judges": "judge.kind",
    "policies": "policy.kind",
    "algorithms": "algorithm.kind",
}
"""The setting that names it."""
LISTED: dict[Kind, str] = {"suites": " (`distrl tasks list`)"}
"""Where the names are listed, for people."""


def names(kind: Kind) -> list[str]:
    """Every name of this kind, built in and from entry points."""
    return [*BUILT_IN[kind], *(name for name in _entry_points(kind) if name not in BUILT_IN[kind])]


def load(kind: Kind, name: str) -> Callable[..., Any]:
    """The callable that `name` stands for; `ConfigError` with the fix where there is none."""
    path = BUILT_IN[kind].get(name) or _entry_points(kind).get(name)
    if path is None and ":" not in name:
        raise ConfigError(
            f"{SETTING[kind]} = {name!r} is not known",
            expected=f"{closest(name, names(kind))}, or package.module:attribute",
            fix=f"check the name{LISTED.get(kind, '')}; a plug-in is found by an entry point of the group distrl.{kind} "
            "or by its import path",
        )
    found = _attribute(f"{SETTING[kind]} = {name!r}", path or name)
    if not callable(found):
        raise wrong_type(kind, name, f"a {type(found).__name__}", "a callable that takes its settings first")
    return found


def make(kind: Kind, name: str, tables: Mapping[str, object], options: Mapping[str, Any], *context: object) -> Any:
    """What the callable called `name` makes of its settings: its own table where it is built in, else the options."""
    found = load(kind, name)
    if name not in BUILT_IN[kind]:
        settings = read_options(kind, name, found, options)
        _check_signature(kind, name, found, (settings, *context))
        return found(settings, *context)
    if options:
        raise _built_in(kind, name, sorted(options)[0])
    return found(tables.get(name), *context)


def read_options(kind: Kind, name: str, found: Callable[..., Any], options: Mapping[str, Any]) -> object:
    """The options of a plug-in as its own `Settings`; None where it has none."""
    table = _options_table(kind)
    schema = getattr(found, "Settings", None)
    known = tuple(getattr(schema, "__struct_fields__", ()))
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ConfigError(
            f"{table}.{unknown[0]} is no setting of {name}",
            expected=closest(unknown[0], known) if known else "no options: it has no attribute `Settings`",
            fix=f"leave it out, or declare it in the Settings of {name}",
        )
    if schema is None:
        return None
    try:
        return msgspec.convert(dict(options), schema)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{table} does not fit {name}: {error}", fix=f"mend the values under [{table}]") from None


def _check_signature(kind: Kind, name: str, found: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    try:
        inspect.signature(found).bind(*arguments)
    except (TypeError, ValueError) as error:
        wanted = "its settings" if len(arguments) == 1 else f"its settings and a {type(arguments[1]).__name__}"
        raise wrong_type(
            kind, name, f"a callable that cannot be called so: {error}", f"one that takes {wanted}"
        ) from None


def _options_table(kind: Kind) -> str:
    return f"{SETTING[kind].rpartition('.')[0]}.options"


def _built_in(kind: Kind, name: str, option: str) -> ConfigError:
    key = f"{_options_table(kind)}.{option}"
    return ConfigError(
        f"{key} is for plug-ins, and {SETTING[kind]} = {name} is built in",
        expected="options beside a plug-in of your own",
        fix=f"leave {key} out, or name your own {SETTING[kind]} as package.module:attribute",
    )


def check_type(kind: Kind, name: str, made: object, protocol: type[T]) -> T:
    """`made`, where it is what such a plug-in has to make; `ConfigError` that names what is missing where it is not."""
    if isinstance(made, protocol):
        return made
    parts = {*vars(protocol), *getattr(protocol, "__annotations__", {})}
    missing = sorted(part for part in parts if not part.startswith("_") and not hasattr(made, part))
    without = f" without {', '.join(missing)}" if missing else ""
    raise wrong_type(kind, name, f"a {type(made).__name__}{without}", f"a {protocol.__name__}")


def wrong_type(kind: Kind, name: str, seen: str, expected: str) -> ConfigError:
    """The refusal of a plug-in that is or makes something else."""
    return ConfigError(
        f"{SETTING[kind]} = {name!r} gives {seen}",
        expected=expected,
        fix=f"docs/extending.md shows what a plug-in of the kind {kind} looks like",
    )


def _entry_points(kind: Kind) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=f"distrl.{kind}")}


def _attribute(setting: str, path: str) -> object:
    module_name, _, attribute = path.partition(":")
    if "" not in sys.path:  # a console script does not look into the folder that it was started in; `python -m` does
        sys.path.append("")  # last: nothing that lies there by chance takes the place of an installed package
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise _no_module(setting, module_name, error) from None
    except Exception as error:  # whatever a stranger's module raises on import, its owner has to hear of it
        raise ConfigError(
            f"{setting}: importing {module_name} raised {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            expected="a module that can be imported",
            fix=f"python -c 'import {module_name}' shows the whole traceback",
        ) from error
    for part in attribute.split("."):
        if not hasattr(module, part):
            known = [name for name in vars(module) if not name.startswith("_")] if hasattr(module, "__dict__") else []
            raise ConfigError(
                f"{setting}: {module_name} has no {attribute!r}",
                expected=closest(part, known),
                fix="check the name after the colon",
            )
        module = getattr(module, part)
    return module


def _no_module(setting: str, name: str, error: ModuleNotFoundError) -> ConfigError:
    if error.name and not (name == error.name or name.startswith(f"{error.name}.")):
        return ConfigError(
            f"{setting}: {name} needs the module {error.name!r}, which is not installed",
            fix=f"pip install the package that has {error.name}",
        )
    return ConfigError(
        f"{setting}: there is no module {error.name or name!r}",
        expected="an installed package, or a module in the folder that distrl is started in",
        fix="pip install -e YOUR_PACKAGE, or start distrl in the folder that holds it",
    )
