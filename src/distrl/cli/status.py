"""`distrl status`: one screen about a live or finished run, read from its folder alone."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.errors import DistrlError, StoreError

if TYPE_CHECKING:
    from distrl.evaluation.report import Rate
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.summary import RunStatus

ON_THE_WAY = 5
"""How many of the evaluations on the way are shown, the last ones."""
REFRESH_S = 2.0
"""Between two screens of `--watch`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, help="a run folder; without it, the newest in --root")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="folder that holds the runs (default: runs)")
    parser.add_argument("--watch", action="store_true", help="show it again every two seconds, until Ctrl-C or its end")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.runtime.run_folder import open_run

    folder = _newest(args.root) if args.run is None else open_run(args.run)
    status = _show(folder, as_json=args.json)
    while args.watch and status.phase == "live":
        time.sleep(REFRESH_S)
        if sys.stdout.isatty() and not args.json:
            print("\033[2J\033[H", end="")  # an empty screen, from its top
        status = _show(folder, as_json=args.json)
    return 0


def _newest(root: Path) -> RunFolder:
    """The newest run; where it cannot be read, the error names the one before it."""
    from distrl.runtime.run_folder import open_run
    from distrl.runtime.run_sizes import newest_run, runs_in

    try:
        return open_run(newest_run(root))
    except DistrlError as error:
        others = runs_in(root)[1:]
        if not others:
            raise
        fix = f"distrl status {others[0]}" + (f", or {error.fix}" if error.fix else "")
        raise StoreError(error.seen, expected=error.expected, fix=fix) from error


def _show(folder: RunFolder, *, as_json: bool) -> RunStatus:
    from distrl.cli.main import print_json
    from distrl.runtime.summary import read_status

    status = _with_pruned(folder, read_status(folder, now_s=time.time()))
    if as_json:
        print_json(status)
    else:
        _print(folder, status)
    sys.stdout.flush()
    return status


def _with_pruned(folder: RunFolder, status: RunStatus) -> RunStatus:
    """With a notice where parts were deleted: what is counted is what is left."""
    from distrl.runtime.run_sizes import pruned_parts

    gone = pruned_parts(folder)
    if not gone:
        return status
    counts = "; the episodes and steps above are those that are left" if "episodes" in gone else ""
    notice = f"pruned of its {' and '.join(gone)}: it cannot be resumed{counts}"
    return msgspec.structs.replace(status, notices=[*status.notices, notice])


def _print(folder: RunFolder, status: RunStatus) -> None:
    from distrl.cli.main import console, printable
    from distrl.cli.progress import role_table

    out = console()
    out.print(
        f"{folder.name}: {status.phase}; {status.episodes} episodes, {status.steps} steps, {status.budget.wall_s:.0f} s; "
        f"phones busy {status.device_utilisation:.1%} of the time"
    )
    if status.cause:
        out.print(f"ended by: {printable(status.cause)}")
    out.print(role_table(status.roles))
    for line in (
        *evaluations(status.evaluations, _of_before(folder)),
        *status.notices,
        *status.troubles,
    ):
        out.print(printable(line))
    for line in _next(folder, status):
        out.print(printable(line), soft_wrap=True)  # a command to copy


def _next(folder: RunFolder, status: RunStatus) -> list[str]:
    """How a run goes on that has not come to its end, where it can."""
    from distrl.cli.trust import trust_for
    from distrl.runtime.run_sizes import pruned_parts

    if status.phase == "stopped" and status.roles and not pruned_parts(folder):
        with suppress(DistrlError, OSError):
            return [f"next: distrl train --resume {shlex.quote(str(folder.path))}{trust_for(folder.config())}"]
    return []


def _of_before(folder: RunFolder) -> str:
    """What the policy had learnt from when it was evaluated first; empty also where the settings are damaged."""
    from distrl.cli.progress import after_demonstrations

    with suppress(DistrlError, OSError):
        return after_demonstrations(folder.config())
    return ""


def evaluations(found: dict[str, Rate], of_before: str = "") -> list[str]:
    """Success before, on the way and after, in this order; `of_before` is what to add to the first."""
    from distrl.cli.progress import share

    on_the_way = [name for name in found if name not in ("before", "after")][-ON_THE_WAY:]
    names = [name for name in found if name in ("before", "after", *on_the_way)]
    wide = max((len(_label(name)) for name in names), default=0)
    added = {"before": of_before}
    return [f"success {_label(name) + ':':{wide + 1}} {share(found[name])}{added.get(name, '')}" for name in names]


def _label(name: str) -> str:
    version = name.removeprefix("v")
    return f"at version {int(version)}" if version.isdecimal() else name
