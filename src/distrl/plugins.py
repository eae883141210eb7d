"""Finds devices, suites, judges, policies, algorithms and metric sinks by name, so that nobody edits this package to add one.

A name is, in this order: built in (`BUILT_IN`), an entry point of the group `distrl.<kind>`, or an import path
`package.module:attribute`. What it stands for is a callable that takes its settings first:

    devices      (settings, fleet: Fleet) -> Sequence[Device]
    suites       (settings) -> Suite
    judges       (settings) -> Judge
    policies     (settings, context: PolicyContext) -> Policy
    algorithms   (settings, context: AlgorithmContext) -> Algorithm
    sinks        (settings, context: SinkContext) -> MetricSink

The settings of a plug-in of your own come from the `options` table of its section. They are checked against a msgspec
struct: the callable's attribute `Settings`, or the annotation of its first parameter. Without one it takes no options and
gets None. Whatever a plug-in raises while it is made becomes a `ConfigError`, so that it ends a run at once.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from distrl.errors import ConfigError, closest, raised_as

Kind = Literal["devices", "suites", "judges", "policies", "algorithms", "sinks"]
T = TypeVar("T")

BUILT_IN: dict[Kind, dict[str, str]] = {
    "devices": {
        "android": "distrl.devices.android.device:make_devices",
        "sim": "distrl.devices.sim.device:make_devices",
        "web": "distrl.devices.web.fleet:make_devices",
    },
    "suites": {
        "sim-start": "distrl.tasks.sim.suites:sim_start",
        "sim-touch": "distrl.tasks.sim.suites:sim_touch",
        "sim-general": "distrl.tasks.sim.suites:sim_general",
        "sim-shopping": "distrl.tasks.sim.suites:sim_shopping",
        "android_world": "distrl.tasks.android_world:AndroidWorldSuite",
        "list": "distrl.tasks.lists:ListSuite",
        "miniwob": "distrl.tasks.miniwob:MiniWobSuite",
        "mobilegym": "distrl.tasks.mobilegym:MobileGymSuite",
        "webapps": "distrl.tasks.webapps.suite:WebAppsSuite",
    },
    "judges": {
        "android": "distrl.tasks.android:AndroidJudge",
        "app": "distrl.tasks.webapps.judge:AppJudge",
        "auto": "distrl.tasks.judges:AutoJudge",
        "ensemble": "distrl.tasks.ensemble:EnsembleJudge",
        "model": "distrl.tasks.model_judge:ModelJudge",
        "reward": "distrl.tasks.judges:RewardJudge",
        "sim": "distrl.tasks.sim.judge:SimJudge",
    },
    "policies": {
        "pointer": "distrl.policies.pointer.policy:PointerPolicy",
        "pixel": "distrl.policies.pixel.policy:PixelPolicy",
        "vlm": "distrl.policies.vlm.policy:VlmPolicy",
        "autoui": "distrl.policies.autoui.policy:AutoUIPolicy",
    },
    "algorithms": {
        "aride": "distrl.algorithms.aride:ARide",
        "digirl": "distrl.algorithms.digirl:DigiRL",
        "filtered_bc": "distrl.algorithms.filtered_bc:FilteredBC",
        "grpo": "distrl.algorithms.grpo:GRPO",
        "ppo": "distrl.algorithms.ppo:PPO",
    },
    "sinks": {
        "tensorboard": "distrl.telemetry.tensorboard:TensorBoardSink",
        "wandb": "distrl.telemetry.trackers:WandbSink",
        "trackio": "distrl.telemetry.trackers:TrackioSink",
    },
}
"""Import paths, so that what one kind needs is not loaded for another."""
SETTING: dict[Kind, str] = {
    "devices": "devices.kind",
    "suites": "tasks.suite",
    "judges": "judge.kind",
    "policies": "policy.kind",
    "algorithms": "algorithm.kind",
    "sinks": "telemetry.sinks",
}
"""The setting that names it."""
CONTEXT: dict[Kind, str] = {
    "devices": "Fleet",
    "policies": "PolicyContext",
    "algorithms": "AlgorithmContext",
    "sinks": "SinkContext",
}
"""What the callable takes after its settings, where it takes more."""
LISTED: dict[Kind, str] = {"suites": " (`distrl tasks list`)"}
"""Where the names are listed, for people."""


def names(kind: Kind) -> list[str]:
    """Every name of this kind, built in and from entry points."""
    return [*BUILT_IN[kind], *(name for name in _entry_points(kind) if name not in BUILT_IN[kind])]


def load(kind: Kind, name: str) -> Callable[..., Any]:
    """The callable that `name` stands for; `ConfigError` with the fix where there is none."""
    path = BUILT_IN[kind].get(name) or _entry_points(kind).get(name)
    if path is None and ":" not in name:
        if name.isidentifier() and Path(f"{name}.py").is_file():
            raise ConfigError(
                f"{SETTING[kind]} = {name!r} is a file, {name}.py",
                expected="what in it is meant, as module:attribute",
                fix=f"{name}:NAME, where NAME is the function or the class in it",
            )
        raise ConfigError(
            f"{SETTING[kind]} = {name!r} is not known",
            expected=f"{closest(name, names(kind))}, or package.module:attribute",
            fix=f"check the name{LISTED.get(kind, '')}; a plug-in is found by an entry point of the group distrl.{kind} "
            "or by its import path",
        )
    found = _attribute(f"{SETTING[kind]} = {name!r}", path or name)
    if not callable(found):
        raise wrong_type(kind, name, f"a {type(found).__name__}", "a function or a class that takes its settings first")
    return found


def make(kind: Kind, name: str, tables: Mapping[str, object], options: Mapping[str, Any], *context: object) -> Any:
    """What the callable called `name` makes of its settings: its own table where it is built in, else the options."""
    found = load(kind, name)
    if name not in BUILT_IN[kind]:
        settings = read_options(kind, name, found, options)
        _check_signature(kind, name, found)
        return _call(kind, name, found, settings, *context)
    if options:
        raise _built_in(kind, name, sorted(options)[0])
    return found(tables.get(name), *context)


def check(kind: Kind, name: str, options: Mapping[str, Any]) -> None:
    """Raise what can be told of a plug-in before it is made: it is not there, or takes other options or arguments."""
    if name not in BUILT_IN[kind]:  # built-in ones load torch, and are there
        found = load(kind, name)
        read_options(kind, name, found, options)
        _check_signature(kind, name, found)


def _call(kind: Kind, name: str, found: Callable[..., Any], *arguments: object) -> Any:
    def refusal(error: BaseException) -> ConfigError:
        return ConfigError(
            f"{SETTING[kind]} = {name!r} raised {in_short(error)} in {line_of(found, error)}",
            expected=f"a plug-in of the kind {kind} that can be made with these settings",
            fix=f"mend that line, or the values under [{_options_table(kind)}]",
        )

    with raised_as(refusal):  # starting it again would not help
        return found(*arguments)


def line_of(found: Callable[..., Any], error: BaseException) -> str:
    """The line that raised: the last one in the plug-in's own file, else wherever it was."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(sys.modules.get(found.__module__), "__file__", None)
    last = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
    return f"{last.filename}:{last.lineno}"


def in_short(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")


def settings_type(found: Callable[..., Any]) -> type[msgspec.Struct] | None:
    """The struct that a plug-in's options are checked against: its `Settings`, or what its first parameter is declared as."""
    declared = getattr(found, "Settings", None) or _first_annotation(found)
    return declared if isinstance(declared, type) and issubclass(declared, msgspec.Struct) else None


def _first_annotation(found: Callable[..., Any]) -> object:
    try:
        first = next(iter(inspect.signature(found).parameters.values()), None)
    except (TypeError, ValueError):  # some callables have none that Python can see
        return None
    if first is None or not isinstance(first.annotation, str):
        return getattr(first, "annotation", None)
    # The name alone, in its own module: other annotations may name what is imported for type checkers only.
    return getattr(sys.modules.get(found.__module__), first.annotation, None)


def read_options(kind: Kind, name: str, found: Callable[..., Any], options: Mapping[str, Any]) -> object:
    """The options of a plug-in as its own settings; None where it has none."""
    table = _options_table(kind)
    schema = settings_type(found)
    known = tuple(getattr(schema, "__struct_fields__", ()))
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ConfigError(
            f"{table}.{unknown[0]} is no setting of {name}",
            expected=closest(unknown[0], known) if known else "no options: it declares no settings",
            fix=f"leave it out, or declare it in the settings of {name}",
        )
    if schema is None:
        return None

    def refusal(error: BaseException) -> ConfigError:
        return ConfigError(f"{table} does not fit {name}: {error}", fix=f"mend the values under [{table}]")

    with raised_as(refusal):  # by msgspec, or by the struct's own checks
        return msgspec.convert(dict(options), schema)


def _check_signature(kind: Kind, name: str, found: Callable[..., Any]) -> None:
    arguments = ("its settings", f"a {CONTEXT[kind]}") if kind in CONTEXT else ("its settings",)
    try:
        inspect.signature(found).bind(*arguments)
    except (TypeError, ValueError) as error:
        wanted = " and ".join(arguments)
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
        _check_coroutines(kind, name, made, protocol)
        return made
    parts = {*vars(protocol), *getattr(protocol, "__annotations__", {})}
    if made is None:
        raise wrong_type(kind, name, "None: it returns nothing", f"a {protocol.__name__}; `return` what it makes")
    missing = sorted(part for part in parts if not part.startswith("_") and not hasattr(made, part))
    without = f" without {', '.join(missing)}" if missing else ""
    raise wrong_type(kind, name, f"a {type(made).__name__}{without}", f"a {protocol.__name__}")


def _check_coroutines(kind: Kind, name: str, made: object, protocol: type[object]) -> None:
    """`isinstance` looks at names alone: a plain `def` would pass, and fail at the first call of every episode."""
    for method, wanted in vars(protocol).items():
        if inspect.iscoroutinefunction(wanted) and not inspect.iscoroutinefunction(getattr(made, method)):
            raise ConfigError(
                f"{SETTING[kind]} = {name!r} gives a {type(made).__name__} whose {method} is no coroutine function",
                expected=f"async def {method}, as in {protocol.__name__}",
                fix=f"write `async def {method}`, and never block in it: await, or asyncio.to_thread",
            )


def wrong_type(kind: Kind, name: str, seen: str, expected: str) -> ConfigError:
    """The refusal of a plug-in that is or makes something else."""
    return ConfigError(
        f"{SETTING[kind]} = {name!r} gives {seen}",
        expected=expected,
        fix=f"the page Extending of the documentation shows what a plug-in of the kind {kind} looks like",
    )


def _entry_points(kind: Kind) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=f"distrl.{kind}")}


def _attribute(setting: str, path: str) -> object:
    module_name, _, attribute = path.partition(":")
    if "" not in sys.path:  # a console script does not look into the folder that it was started in; `python -m` does
        sys.path.append("")  # last: nothing that lies there by chance takes the place of an installed package
    with raised_as(lambda error: _not_imported(setting, module_name, error)):
        module = import_module(module_name)
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


def _not_imported(setting: str, name: str, error: BaseException) -> ConfigError:
    if isinstance(error, ModuleNotFoundError):
        return _no_module(setting, name, error)
    return ConfigError(
        f"{setting}: importing {name} raised {in_short(error)}",
        expected="a module that can be imported",
        fix=f"python -c 'import {name}' shows the whole traceback",
    )


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
