"""`distrl status`: one screen about a live or finished run, read from its folder alone."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.evaluation.report import Rate
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.summary import RunStatus

ON_THE_WAY = 5
"""How many of the evaluations on the way are shown, the last ones."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.runtime.run_folder import open_run
    from distrl.runtime.summary import read_status

    folder = open_run(args.run)
    status = read_status(folder, now_s=time.time())
    if args.json:
        print_json(status)
    else:
        _print(folder, status)
    return 0


def _print(folder: RunFolder, status: RunStatus) -> None:
    from distrl.cli.main import console
    from distrl.cli.progress import role_table

    out = console()
    out.print(
        f"{folder.name}: {status.phase}; {status.episodes} episodes, {status.steps} steps, {status.budget.wall_s:.0f} s; "
        f"phones busy {status.device_utilisation:.1%} of the time"
    )
    out.print(role_table(status.roles))
    for line in (*evaluations(status.evaluations), *status.notices, *status.troubles):
        out.print(line)


def evaluations(found: dict[str, Rate]) -> list[str]:
    """Success before, on the way and after, in this order."""
    from distrl.cli.progress import share

    on_the_way = [name for name in found if name not in ("before", "after")][-ON_THE_WAY:]
    names = [name for name in found if name in ("before", "after", *on_the_way)]
    wide = max((len(_label(name)) for name in names), default=0)
    return [f"success {_label(name) + ':':{wide + 1}} {share(found[name])}" for name in names]


def _label(name: str) -> str:
    version = name.removeprefix("v")
    return f"at version {int(version)}" if version.isdecimal() else name
