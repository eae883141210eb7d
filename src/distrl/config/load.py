"""From defaults, a TOML file and flags to one `Config`, strictly, remembering where each value came from.

Whatever does not fit the schema is refused with a `ConfigError` that names the key, the value, what was expected and
the fix. Values go through `msgspec` one field at a time, so that the error can name the field. A setting of a kind that is not
chosen is refused too: nothing that is given is silently ignored.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from distrl.config.groups import Group, group_number, groups_of
from distrl.config.reference import Setting, as_setting, flatten, kind_tables, options_tables, sections, settings
from distrl.config.rules import check, check_deciding
from distrl.config.schema import Config
from distrl.errors import ConfigError, closest
from distrl.types import SettingValue

Source = Literal["default", "file", "flag"]
NOT_HASHED = ("run.root", "run.name", "run.storage", "telemetry.sinks")
"""Where a run lives, what it is called and who reads its metrics change nothing about it."""

READ_ALSO_BY = {"judge.model": ("auto", "ensemble")}
"""Tables of one kind that other kinds read too, because they make use of it."""

LARGEST_FILE = 2**20
"""Bytes of a file of settings, at most."""
READY = Path("configs")
"""Where ready runs lie, seen from the folder of this project or of the installed package."""


class UnreadableFile(ConfigError):
    """A file of settings that cannot be read as TOML at all."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and the origin of each of its values."""

    config: Config
    sources: dict[str, Source]
    """By dotted key."""


def load_config(path: Path | None = None, overrides: Mapping[str, SettingValue] | None = None) -> Config:
    """The resolved configuration: defaults, then the file, then `overrides` by dotted key."""
    return load(path, overrides).config


def load(path: Path | None = None, overrides: Mapping[str, SettingValue] | None = None) -> Loaded:
    """The resolved configuration with the origin of each value."""
    values: dict[str, SettingValue] = {key: setting.default for key, setting in settings().items()}
    sources: dict[str, Source] = dict.fromkeys(values, "default")
    for key, value in _from_file(path):
        values[key], sources[key] = value, "file"
    for key, raw in (overrides or {}).items():
        values[key], sources[key] = _from_flag(key, raw), "flag"
    _refuse_other_kinds(values, sources)
    _tell_devices(values)
    config = check(msgspec.convert(_nest(values), Config))
    check_deciding(config)
    for group in groups_of(config):
        _with(config, group)
    return Loaded(config=config, sources=sources)


def worker_configs(config: Config) -> tuple[Config, ...]:
    """The settings of each group of workers; those of the run itself where it names no groups."""
    return tuple(_with(config, group) for group in groups_of(config))


def config_of(config: Config, role: str) -> Config:
    """The settings of a role: those of its group for a worker, else those of the run."""
    kind, _, number = role.rpartition("-")
    if kind != "worker" or not config.rollout.groups:
        return config
    return worker_configs(config)[group_number(config, int(number))]


def _with(config: Config, group: Group) -> Config:
    """The settings of a group; `ConfigError` where one does not fit, or they do not go together."""
    if not group.settings:
        return config
    values, sources = flatten(config), dict[str, Source]()
    for key, text in group.settings.items():
        values[key], sources[key] = _from_flag(key, text), "flag"
    _refuse_other_kinds(values, sources)
    return check(msgspec.convert(_nest(values), Config))


def dump_toml(config: Config) -> str:
    """The whole configuration as TOML that `load_config` reads back to the same values."""
    values = flatten(config)
    blocks = []
    for section in (*sections(), *options_tables()):
        if _of_another_kind(section, values):
            continue
        own = {key.rpartition(".")[2]: value for key, value in values.items() if key.rpartition(".")[0] == section}
        if own:
            lines = (f"{_toml_key(name)} = {_toml(value)}" for name, value in own.items())
            blocks.append("\n".join([f"[{section}]", *lines, ""]))
    return "\n".join(blocks)


def config_hash(config: Config) -> str:
    """Twelve characters that are the same for two configurations that train alike."""
    values = {key: value for key, value in flatten(config).items() if key not in NOT_HASHED}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _of_another_kind(key: str, values: Mapping[str, SettingValue]) -> str:
    """The kind whose table a key or section is in, where that is not the chosen one; empty: it may be set."""
    section, _, rest = key.partition(".")
    table = rest.partition(".")[0]
    if table not in _tables(section):
        return ""
    chosen = values[_chooser(section)]
    return "" if chosen == table or chosen in READ_ALSO_BY.get(f"{section}.{table}", ()) else table


def _tables(section: str) -> tuple[str, ...]:
    """The tables of a section that belong to one kind each."""
    return ("list", "android_world", "mobilegym") if section == "tasks" else kind_tables().get(section, ())


def _chooser(section: str) -> str:
    """The setting that chooses among them."""
    return "tasks.suite" if section == "tasks" else f"{section}.kind"


def _refuse_other_kinds(values: Mapping[str, SettingValue], sources: Mapping[str, Source]) -> None:
    """Raise where a setting was given that the chosen kind never reads."""
    for key, source in sources.items():
        table = "" if source == "default" else _of_another_kind(key, values)
        section = key.partition(".")[0]
        if section == "tasks" and table and values[key] == settings()[key].default:
            continue  # nothing is ignored by not reading it
        if table:
            chooser = _chooser(section)
            raise ConfigError(
                f"{key} is read by {table} alone, and {chooser} is {values[chooser]}",
                expected=f"settings of [{section}], and of the kind that is chosen",
                fix=f"leave {key} out, or --{chooser} {table}",
            )
        built_in = section in kind_tables() and values[f"{section}.kind"] in kind_tables()[section]
        if built_in and key.startswith(f"{section}.options."):
            kind = values[f"{section}.kind"]
            raise ConfigError(
                f"{key} is for plug-ins, and {section}.kind = {kind} is built in",
                expected=f"its settings under [{section}.{kind}]",
                fix=f"leave {key} out, or name your own {section}.kind as package.module:attribute",
            )


def _tell_devices(values: dict[str, SettingValue]) -> None:
    """Where MobileGym is, is said once, with its tasks: its phones may go there, and its code sets them up."""
    if values["tasks.suite"] != "mobilegym" or values["devices.kind"] != "web":
        return
    for name in ("folder", "python"):
        values[f"devices.web.gym_{name}"] = values[f"devices.web.gym_{name}"] or values[f"tasks.mobilegym.{name}"]
    origin, allowed = "/".join(str(values["tasks.mobilegym.url"]).split("/")[:3]), values["devices.web.allow"]
    if origin and isinstance(allowed, Sequence) and origin not in allowed:
        values["devices.web.allow"] = (*allowed, origin)


def _from_file(path: Path | None) -> Iterator[tuple[str, SettingValue]]:
    if path is None:
        return
    for key, value in _leaves(_read(path), ""):
        where = f"{path}: "
        if _is_option(key):
            yield key, _option(key, value, f"{where}{key}")
            continue
        setting = _find(key, where)
        yield key, _fit(setting, value, f"{where}{key} = {_quoted(value)}")


def _quoted(value: object) -> str:
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        return "tables within tables"


def _is_option(key: str) -> bool:
    return key.rpartition(".")[0] in options_tables()


def _option(key: str, value: object, seen: str) -> SettingValue:
    """A setting of a plug-in, as it is: the plug-in's own `Settings` check it."""
    plain = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str | int | float | bool) for one in plain):
        raise ConfigError(
            f"{seen} is neither a plain value nor a list of them", fix=f'{key} = "text", 1, 0.5, true or [1, 2]'
        )
    return as_setting(value)  # type: ignore[no-any-return]


def _parse_option(text: str) -> object:
    """The text of a flag as TOML would read it; text where it does not."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _from_flag(key: str, raw: SettingValue) -> SettingValue:
    if _is_option(key):
        return _option(key, _parse_option(raw) if isinstance(raw, str) else raw, f"--{key} {raw}")
    setting = _find(key, "--")
    return _fit(setting, _parse(setting, raw) if isinstance(raw, str) else raw, f"--{key} {raw}")


def _read(path: Path) -> dict[str, object]:
    try:
        file = find_ready(path)
        if file.exists() and not file.is_file() and not file.is_dir():
            raise UnreadableFile(
                f"{path} is no regular file",
                expected="a TOML file",
                fix="name a TOML file, or leave it out for the defaults",
            )
        if file.is_file() and file.stat().st_size > LARGEST_FILE:
            raise UnreadableFile(
                f"{path} has {file.stat().st_size} bytes",
                expected=f"settings, at most {LARGEST_FILE} bytes",
                fix="name a TOML file",
            )
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors put a mark before the text
    except FileNotFoundError:
        raise no_such_file(path, otherwise="leave it out for the defaults") from None
    except OSError as error:
        fix = "name a TOML file that you may read"
        if (path / "FORMAT").is_file():
            fix = f"distrl train --resume {path}, or for another run like it: distrl train {path / 'config.toml'}"
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", fix=fix) from None
    except UnicodeDecodeError:
        fix = "name a TOML file, or leave it out for the defaults"
        raise UnreadableFile(f"{path} is not text", expected="a TOML file in UTF-8", fix=fix) from None
    except RecursionError:
        fix = "write settings as plain values and lists of them"
        raise UnreadableFile(f"{path} is nested too deeply", expected="sections of plain values", fix=fix) from None
    except ValueError as error:  # TOMLDecodeError, and what Python says of a number with thousands of digits
        fix = 'write sections as [run] and values as key = 1, key = 0.5, key = true or key = "text"'
        raise UnreadableFile(f"{path} is not TOML: {str(error)[:300]}", fix=fix) from None


def find_ready(path: Path) -> Path:
    """`path`, or the ready run of that name where there is no such file: `first-run` works in any folder."""
    if path.exists() or path.parent not in (Path(), READY) or path.suffix not in ("", ".toml"):
        return path
    return ready_runs().get(path.stem, path)


def ready_runs() -> dict[str, Path]:
    """The ready runs by name: those of a clone, or of a wheel."""
    package = Path(__file__).parents[1]
    return {file.stem: file for folder in (package.parents[1], package) for file in (folder / READY).glob("*.toml")}


def no_such_file(path: Path, *, otherwise: str) -> ConfigError:
    """The error for a file that is not there, with the one that was probably meant, there or among the ready ones."""
    folders = dict.fromkeys((path.parent, READY))
    near = [file for folder in folders for file in folder.glob("*.toml") if file.name != "pyproject.toml"]
    meant = next((file for file in near if file.stem == path.stem), None)
    known = {*ready_runs(), *(str(file) for file in near if file.stem not in ready_runs())}
    return ConfigError(
        f"no file {path}",
        expected=closest(str(path), known),
        fix=f"{f'name {meant}' if meant else 'check the path, or name a ready run of these'}, or {otherwise}",
    )


def _leaves(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Every value with its dotted key; a table that is no section is given whole, to be refused."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and (_is_section(key) or key in options_tables()):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _is_section(key: str) -> bool:
    return any(section == key or section.startswith(f"{key}.") for section in sections())


def _find(key: str, where: str) -> Setting:
    if key in settings():
        return settings()[key]
    if _is_section(key):
        inside = [name for name in settings() if name.startswith(f"{key}.")]
        name, value = inside[0].removeprefix(f"{key}."), _toml(settings()[inside[0]].default)
        fix = f"--{inside[0]} {value}, for one" if where == "--" else f"[{key}], and under it {name} = {value}, for one"
        raise ConfigError(f"{where}{key} is a section, not a value", expected=closest(key, inside), fix=fix)
    raise ConfigError(f"{where}{key} is no setting", expected=_likely(key), fix="`distrl config show` lists them all")


def _likely(key: str) -> str:
    """The keys that were probably meant: a similar name in the same section or else anywhere, or what is there."""
    parent, _, last = key.rpartition(".")
    inside = {name for name in settings() if parent and name.startswith(f"{parent}.")}
    if _similar(last, inside):
        return closest(key, inside)
    return closest(key, _similar(last, settings()) or inside or sections())


def _similar(name: str, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if difflib.get_close_matches(name, [key.rpartition(".")[2]], cutoff=0.7)]


def _parse(setting: Setting, text: str) -> object:
    """The text of a flag as the setting's own kind of value; what cannot be read stays text, to be refused."""
    if isinstance(setting.default, tuple):
        listed = _parse_option(text)
        return listed if isinstance(listed, list) else [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(setting.default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(setting.default, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _fit(setting: Setting, value: object, seen: str) -> SettingValue:
    """`value` as the schema has it, or an error that says what the schema wants."""
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError
        fitted: SettingValue = msgspec.convert(value, setting.annotation)
    except msgspec.ValidationError:
        raise ConfigError(
            f"{seen[:200]} does not fit", expected=setting.expected, fix=_instead(setting, value)
        ) from None
    return fitted


def _instead(setting: Setting, value: object) -> str:
    """The choice that was probably meant; the default where none comes near."""
    near = difflib.get_close_matches(str(value).lower(), setting.choices, n=1, cutoff=0.5)
    example = _toml(near[0] if near else setting.default)
    return f"{setting.key} = {example} in a file or --{setting.key} {example} as a flag" + (
        "" if near else ", which is the default"
    )


def _nest(values: Mapping[str, SettingValue]) -> dict[str, object]:
    root: dict[str, object] = {}
    for key, value in values.items():
        *parents, name = key.split(".")
        table: dict[str, object] = root
        for parent in parents:
            table = table.setdefault(parent, {})  # type: ignore[assignment]
        table[name] = value
    return root


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _toml(value: SettingValue) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
