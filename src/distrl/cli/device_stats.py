"""`distrl devices stats RUN`: what each device of a run went through, the worst first."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "what each device of a run went through: episodes, losses by cause, time away"
MOST_ROWS = 40
"""Devices that are shown; --json has all of them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, live or finished")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    """Show them."""
    from rich.table import Table

    from distrl.cli.main import console, print_json, printable
    from distrl.runtime.device_history import read_histories
    from distrl.runtime.run_folder import open_run

    found = read_histories(open_run(args.run))
    names = ("device", "episodes", "losses", "per 100", "causes", "restarts failed", "away", "longest", "last")
    table = Table(*names, box=None, pad_edge=False)
    for one in found[:MOST_ROWS]:
        causes = ", ".join(f"{count} {cause}" for cause, count in one.causes.items())
        counts = (str(one.episodes), str(one.losses), f"{one.losses_per_100:g}", causes, str(one.failed_restarts))
        away = f"{one.down_s:g} s{' and still' if one.is_down else ''}"
        table.add_row(printable(one.device), *counts, away, f"{one.longest_down_s:g} s", printable(one.last[:60]))
    if found:
        console().print(table)
    else:
        print("the workers of this run have not told of any device yet")
    if len(found) > MOST_ROWS:
        print(f"and {len(found) - MOST_ROWS} more, with fewer losses: --json has all of them")
    if args.json:
        print_json({"devices": found})
    return 0
