"""`distrl status`: one screen about a live or finished run, read from its folder alone."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.runtime.base import RoleStatus
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.status import RunStatus

SILENT_S = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.runtime.run_folder import open_run
    from distrl.runtime.status import read_status

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
        f"{folder.name}: {status.phase}; {status.episodes} episodes, {status.steps} steps, {status.spent.wall_s:.0f} s"
    )
    roles: list[RoleStatus] = status.roles
    out.print(role_table(roles))
    for name, rate in status.evaluations.items():
        out.print(f"held-out success {name}: {rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}] on {rate.n}")
    for line in status.troubles:
        out.print(line, markup=False)
