"""`distrl evaluate`: success of a run, checkpoint or export on held-out tasks, with an interval and a row per template."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.extras import need_model_packages, need_training_packages
from distrl.cli.main import print_json, printable, whole_number
from distrl.cli.trust import add_trust_flag
from distrl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from distrl.evaluation.report import Report
    from distrl.runtime.run_folder import RunFolder


def configure(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--suite", help="which tasks; without it, those that the run was trained on")
    parser.add_argument(
        "--episodes",
        type=whole_number("--episodes", 1, 1_000_000_000, 300),
        default=300,
        metavar="N",
        help="how many held-out tasks (default: 300)",
    )
    parser.add_argument("--split", choices=("test", "tune", "train"), default="test", help="default: test")
    parser.add_argument(
        "--max-oracle-steps",
        type=whole_number("--max-oracle-steps", 0, 10_000, 0),
        metavar="N",
        help="leave out longer tasks; 0: none (default: as the run did)",
    )
    add_model_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object on the last line")


def add_source(parser: argparse.ArgumentParser) -> None:
    """The argument that says what plays."""
    told = "a run folder, one of its checkpoints, or an export; without it, the newest run in --root"
    parser.add_argument("run", nargs="?", type=Path, help=told)
    parser.add_argument("--root", type=Path, help="folder that holds the runs (default: runs)")


def source_of(args: argparse.Namespace) -> Path:
    """What was named, or the newest run, of which it is said which that is."""
    from distrl.runtime.run_sizes import newest_run

    if args.run is not None:
        if args.root is not None:
            seen = f"{str(args.run)[:200]} is named, and --root is where the newest run is looked for"
            raise UsageError(seen, expected="one of the two", fix="leave --root out")
        return Path(args.run)
    newest = newest_run(Path("runs") if args.root is None else args.root)
    _notice(printable(f"newest run: {newest}"))
    return newest


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say where a language model lies and what code may run."""
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="the model that exported adapters belong to")
    add_trust_flag(parser)


def run(args: argparse.Namespace) -> int:
    need_training_packages()
    report, before = _evaluate(args)
    if args.json:
        print_json(report)
    else:
        _print(report, before)
    return 0


def _evaluate(args: argparse.Namespace) -> tuple[Report, Report | None]:
    """What is found now, and what the run found of the same tasks before its training."""
    from distrl.runtime.source import TaskChoice, find_source

    choice = TaskChoice(suite=args.suite, split=args.split, max_oracle_steps=args.max_oracle_steps)
    source = find_source(source_of(args), choice, model=args.model, trust_code=args.trust_code)
    need_model_packages(source.config)
    from distrl.runtime.factory import prepare_torch
    from distrl.runtime.playing import evaluate_source

    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    report = evaluate_source(source, args.episodes, done=_counter(), notice=_notice)
    return report, None if source.run is None or args.split != "test" else _before(source.run, report)


def _before(run: RunFolder, now: Report) -> Report | None:
    """The run's evaluation before its training, where that was on as many tasks of each template: on the same ones."""
    from distrl.evaluation.report import read_report

    with suppress(StoreError):
        before = read_report(run.evaluations / "before.json")
        counts = [{row.template: row.n for row in report.per_task} for report in (before, now)]
        return before if before.suite == now.suite and counts[0] == counts[1] else None
    return None


def _notice(text: str) -> None:
    print(text, file=sys.stderr)


def _counter() -> Callable[[int, int], None]:
    told = 0

    def count(done: int, total: int) -> None:
        nonlocal told
        if done > told and (done % 50 == 0 or done == total):
            told = done
            print(f"{done} of {total} episodes", file=sys.stderr, flush=True)

    return count


def _print(report: Report, before: Report | None) -> None:
    from rich.table import Table

    from distrl.cli.main import console
    from distrl.evaluation.report import gains_by_seen

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("template", "n", *(["before"] if before else []), "success", "progress", "steps"):
        table.add_column(name, justify="left" if name == "template" else "right")
    was = {row.template: f"{row.success:.0%}" for row in before.per_task} if before else {}
    for row in sorted(report.per_task, key=lambda row: (row.success, -row.n, row.template)):
        shares = [*([was[row.template]] if before else []), f"{row.success:.0%}", f"{row.progress:.0%}"]
        table.add_row(row.template, str(row.n), *shares, f"{row.steps:.1f}")
    out = console()
    out.print(table)
    for part in gains_by_seen(before, report):
        first = "" if part.before is None else f"{part.before:.1%} → "
        out.print(f"{part.name}: {first}{part.after:.1%} of {part.n} tasks")
    out.print(
        f"success {report.success:.1%}  [{report.low:.1%}, {report.high:.1%}]  on {report.n} tasks of {report.suite}"
    )
    out.print(
        f"progress {report.progress:.1%}, false completion {report.false_completion:.1%}, "
        f"side effects {report.side_effects:.1%}, invalid steps {report.invalid_steps:.1%}; version {report.policy_version}"
    )
    if report.unknown:
        reason, count = max(report.unknown_because.items(), key=lambda item: item[1], default=("", 0))
        often = f", {count} of them because: {printable(reason)}" if count else ""
        out.print(f"{report.unknown} attempts have no outcome and count as no success{often}", markup=False)
