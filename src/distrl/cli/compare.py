"""`distrl compare`: two runs beside each other, their figures and the settings in which they differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.evaluation.report import Rate

if TYPE_CHECKING:
    from distrl import Run


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two, as `--json` gives it."""

    run: str
    phase: str
    success_before: Rate | None
    success_after: Rate | None
    episodes: int
    steps: int
    wall_s: float
    device_utilisation: float
    restarts: int
    learner_idle_ratio: float | None
    staleness_mean: float | None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, help="a run folder")
    parser.add_argument("second", type=Path, help="another one")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl import open_run
    from distrl.cli.main import print_json

    runs = [open_run(args.first), open_run(args.second)]
    found, settings = [facts(one) for one in runs], differences(*runs)
    if args.json:
        print_json({"runs": found, "settings": settings})
    else:
        _print(found, settings)
    return 0


def facts(run: Run) -> Compared:
    """The figures of a run, live or ended."""
    status, summary = run.status(), run.summary
    return Compared(
        run=run.name,
        phase=status.phase,
        success_before=status.evaluations.get("before"),
        success_after=status.evaluations.get("after"),
        episodes=status.episodes,
        steps=status.steps,
        wall_s=round(status.budget.wall_s, 1),
        device_utilisation=status.device_utilisation,
        restarts=status.budget.restarts,
        learner_idle_ratio=summary.learner_idle_ratio if summary else None,
        staleness_mean=summary.staleness_mean if summary else None,
    )


def differences(first: Run, second: Run) -> dict[str, tuple[str, str]]:
    """The settings that are not the same, with both values."""
    from distrl.config.reference import flatten

    left, right = flatten(first.config), flatten(second.config)
    keys = sorted({*left, *right} - {"run.name", "run.root"})
    return {key: (_text(left.get(key)), _text(right.get(key))) for key in keys if left.get(key) != right.get(key)}


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _print(found: list[Compared], settings: dict[str, tuple[str, str]]) -> None:
    from rich.table import Table

    from distrl.cli.main import console

    table = Table("", *(one.run for one in found), box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in Compared.__struct_fields__[1:]:
        table.add_row(name.replace("_", " "), *(_shown(getattr(one, name)) for one in found))
    for key, values in settings.items():
        table.add_row(key, *values, style="dim")
    console().print(table)
    if not settings:
        print("all settings are the same")


def _shown(value: object) -> str:
    if isinstance(value, Rate):
        return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}] of {value.n}"
    return f"{value:g}" if isinstance(value, float) else _text(value)
