"""`distrl config`: the resolved settings and where each came from, and the reference of all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from distrl.cli.main import console, print_json
from distrl.cli.train import check_settings
from distrl.config.load import Loaded, config_hash, load
from distrl.config.reference import flatten, reference, settings
from distrl.errors import UsageError
from distrl.types import SettingValue

TAKES_CONFIG = True


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One value, as `--json` gives it."""

    value: SettingValue
    source: str
    meaning: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `show` and `reference`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|reference")
    show = actions.add_parser("show", help="every value and where it came from", allow_abbrev=False)
    show.add_argument("file", nargs="?", type=Path, metavar="CONFIG.toml", help="a file over the defaults")
    show.add_argument("--json", action="store_true", help="one JSON object on the last line")
    actions.add_parser("reference", help="all settings as Markdown: docs/configuration.md", allow_abbrev=False)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; settings that `distrl train` would refuse are refused here too."""
    if args.action == "reference":
        if args.overrides:
            raise UsageError("`distrl config reference` takes no settings", fix="distrl config show")
        print(reference(), end="")
        return 0
    loaded = load(args.file, args.overrides)
    if args.file is None or not (args.file.parent / "FORMAT").exists():
        check_settings(loaded.config)  # which imports plug-ins: those that a run folder names may be a stranger's
    _print_json(loaded) if args.json else _print_table(loaded)
    return 0


def _print_json(loaded: Loaded) -> None:
    values = flatten(loaded.config)
    shown = {
        key: Shown(value=values[key], source=loaded.sources[key], meaning=setting.meaning)
        for key, setting in settings().items()
    }
    print_json({"config_hash": config_hash(loaded.config), "settings": shown})


def _print_table(loaded: Loaded) -> None:
    from rich.table import Table

    table = Table("setting", "value", "from", "meaning", box=None, pad_edge=False)
    for key, value in flatten(loaded.config).items():
        source = loaded.sources[key]
        style = "" if source == "default" else "bold"
        table.add_row(
            key, _plain(value), source, settings()[key].meaning if key in settings() else "of a plug-in", style=style
        )
    console().print(table)
    print(f"config_hash {config_hash(loaded.config)}")


def _plain(value: SettingValue) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_plain, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
