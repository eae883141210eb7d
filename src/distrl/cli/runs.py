"""`distrl runs`: what runs there are, what one weighs by part, and what of it can go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.main import console, print_json
from distrl.errors import DistrlError, StoreError, UsageError

if TYPE_CHECKING:
    from distrl.evaluation.report import Rate
    from distrl.runtime.run_sizes import Part, Pruned, PrunePlan, RunFacts

ROOT = Path("runs")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `show`, `prune` and `fetch`."""
    from distrl.runtime.run_sizes import HARMLESS, PARTS

    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|prune|fetch")
    listing = actions.add_parser("list", help="every run: state, success, episodes, size", allow_abbrev=False)
    listing.add_argument("--root", type=Path, default=ROOT, help="folder that holds the runs (default: runs)")
    showing = actions.add_parser("show", help="what one run weighs, by part", allow_abbrev=False)
    showing.add_argument("run", nargs="?", type=Path, help="a run folder; without it, the newest in --root")
    showing.add_argument("--root", type=Path, default=ROOT, help="folder that holds the runs (default: runs)")
    lines = "\n".join(f"  {part:12} {what}" for part, what in PARTS.items())
    pruning = actions.add_parser(
        "prune",
        help="what can go; --yes deletes it",
        description=f"What can go from a run:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    pruning.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders; or --all")
    pruning.add_argument("--all", action="store_true", help="every finished or stopped run in --root")
    pruning.add_argument("--root", type=Path, default=ROOT, help="folder that holds the runs (default: runs)")
    pruning.add_argument(
        "--part", choices=tuple(PARTS), action="append", help=f"may be repeated (default: {', '.join(HARMLESS)})"
    )
    sure = pruning.add_mutually_exclusive_group()
    sure.add_argument("--dry-run", action="store_true", help="only say what would go (the default)")
    sure.add_argument("--yes", action="store_true", help="delete it")
    fetching = actions.add_parser("fetch", help="bring back episodes and pictures from run.storage", allow_abbrev=False)
    fetching.add_argument("run", type=Path, help="a run folder with its config.toml, which no training uses at present")
    for action in (listing, showing, pruning, fetching):
        action.add_argument("--json", action="store_true", help="one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    """List, show, prune or fetch."""
    if args.action == "list":
        return _list(args)
    if args.action == "fetch":
        return _fetch(args)
    return _show(args) if args.action == "show" else _prune(args)


# --- fetch ------------------------------------------------------------------------------------------------------------


def _fetch(args: argparse.Namespace) -> int:
    """Bring what is at the run's storage and not in its folder; the index is made anew from the episodes."""
    from distrl.experience.target import Target, check_target
    from distrl.runtime.run_folder import RunFolder, take
    from distrl.transport.stored_elsewhere import StoredElsewhere

    run = RunFolder(args.run)
    url = run.config().run.storage
    if not url:
        raise UsageError(
            f"{run.path} has no run.storage",
            expected="a run whose episodes are stored elsewhere too",
            fix="distrl runs show",
        )
    check_target(url)
    lock = take(run.lock("supervisor"), wait_s=0.0, what=f"{run.path}")
    try:
        episodes, pictures = StoredElsewhere(Target(url).below(run.path.resolve().name)).fetch(run.experience)
    finally:
        lock.release()
    if args.json:
        print_json({"episodes": episodes, "pictures": pictures})
    else:
        console().print(f"brought {episodes} episodes and {pictures} pictures from {url}")
    return 0


# --- list -------------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    from distrl.runtime.run_sizes import describe, newest_run, runs_in

    newest_run(args.root)  # which says where there is none
    found = [describe(path) for path in runs_in(args.root)]
    if args.json:
        print_json({"runs": found})
    else:
        _print_list(found)
    return 0


def _print_list(found: list[RunFacts]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("run", "state", "before", "after", "episodes", "size"):
        table.add_column(name, justify="left" if name in ("run", "state") else "right", no_wrap=name == "run")
    for one in found:
        rates = (_share(one.success_before), _share(one.success_after))
        table.add_row(one.name, one.state, *rates, f"{one.episodes:,}", human(one.size_bytes))
    console().print(table)
    for one in found:
        if one.why:
            print(f"{one.name}: {one.why}")
        if one.pruned:
            print(f"{one.name}: pruned of its {' and '.join(one.pruned)}")
    print(f"{len(found)} run{'s' * (len(found) != 1)}, {human(sum(one.size_bytes for one in found))}")


def _share(rate: Rate | None) -> str:
    return "-" if rate is None else f"{rate.value:.1%}"


def human(size_bytes: int) -> str:
    """A size for people: 1.5 MB."""
    size, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


# --- show -------------------------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    from distrl.runtime.run_folder import open_run
    from distrl.runtime.run_sizes import describe, newest_run, sizes

    path = args.run or newest_run(args.root)
    folder = open_run(path)
    facts, parts = describe(path), sizes(folder)
    if args.json:
        print_json({"run": facts, "parts": parts})
        return 0
    print(f"{facts.name}: {facts.state}, {facts.episodes:,} episodes, {human(facts.size_bytes)}")
    if facts.why:
        print(facts.why)
    if facts.pruned:
        print(f"pruned of its {' and '.join(facts.pruned)}: what was counted is of before")
    print(f"success {_share(facts.success_before)} before, {_share(facts.success_after)} last")
    for part, size in parts.items():
        print(f"  {part:12} {human(size):>9}")
    print(f"next: distrl runs prune {path}")
    return 0


# --- prune ------------------------------------------------------------------------------------------------------------


def _prune(args: argparse.Namespace) -> int:
    from distrl.runtime.run_sizes import HARMLESS, newest_run, plan_prune, prune, runs_in

    if bool(args.runs) == args.all:
        raise UsageError(
            "say which runs", expected="RUN … or --all", fix="distrl runs list, then distrl runs prune RUN"
        )
    parts = tuple(dict.fromkeys(args.part or HARMLESS))
    if args.all:
        newest_run(args.root)  # which says where there is none
        plans, skipped = _plan_all(runs_in(args.root), parts)
    else:  # all are looked at before the first is touched: one that cannot be pruned leaves the others as they are
        plans, skipped = [plan_prune(path, parts) for path in dict.fromkeys(args.runs)], []
    found = [prune(plan) if args.yes else plan.pruned for plan in plans]
    _print_pruned([*found, *skipped], deleted=args.yes, as_json=args.json)
    failed = [one for one in found if one.failed]
    if failed:
        seen = f"{failed[0].run}: {failed[0].failed}"
        raise StoreError(seen, expected="all of it to go", fix="the same command again, once that is mended")
    return 0


def _plan_all(paths: list[Path], parts: tuple[Part, ...]) -> tuple[list[PrunePlan], list[Pruned]]:
    """What is to go from each run, and those that cannot be pruned with the reason."""
    from distrl.runtime.run_sizes import Pruned, describe, plan_prune, reason

    plans, skipped = [], []
    for path in paths:
        try:
            if why := describe(path).why:
                skipped.append(Pruned(run=str(path), parts={}, kept=f"it cannot be read: {why}"))
            else:
                plans.append(plan_prune(path, parts))
        except (DistrlError, OSError) as error:
            skipped.append(Pruned(run=str(path), parts={}, kept=reason(error)))
    return plans, skipped


def _print_pruned(found: list[Pruned], *, deleted: bool, as_json: bool) -> None:
    from distrl.runtime.run_sizes import PARTS

    total = sum(one.size_bytes for one in found)
    if as_json:
        print_json({"deleted": deleted, "size_bytes": total, "runs": found})
        return
    for one in found:
        print(f"skipped {one.run}: {one.kept}" if one.kept else f"{one.run}:")
        for part, size in one.parts.items():
            what = next(what for name, what in PARTS.items() if name == part)
            print(f"  {part:12} {human(size):>9}  {what}")
        if one.failed:
            print(f"  not all of it went: {one.failed}")
    said = f"{human(total)} would go; the same command with --yes deletes it" if total else "there is nothing to delete"
    print(f"deleted {human(total)}" if deleted else said)
