"""`distrl tasks check`: every template of a suite set up, claimed at once and judged, on the devices of a configuration.

Where a task has a solution, the oracle plays it too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from distrl import plugins
from distrl.cli.main import console, print_json, real_number, whole_number
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.devices.base import Fleet, find_devices
from distrl.errors import TaskError, UsageError, closest
from distrl.evaluation.task_check import CheckedTask, CheckLimits, TaskCheck, check_tasks, first_of_each
from distrl.tasks.base import SPLITS, Suite, find_suite, refuse_unposable
from distrl.tasks.judges import find_judge
from distrl.tasks.sim.oracle import solve
from distrl.transport.lease_files import phone_leases
from distrl.types import Split, Task

HELP = "set each template of a suite up on a device, judge it at its start, play its solution, and name those that cannot be used"
KINDS = {"miniwob": "web", "mobilegym": "web", "android_world": "android"}
"""Devices of built-in suites, where no configuration names others."""
TASK_S = 90.0
SHOWN = 400


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare its arguments."""
    parser.add_argument("suite", metavar="SUITE", help="such as mobilegym")
    parser.add_argument(
        "--config", type=Path, metavar="CONFIG.toml", help="take tasks, devices and judge from this file"
    )
    parser.add_argument("--split", choices=SPLITS, help="templates of this split alone")
    parser.add_argument(
        "--devices",
        type=whole_number("--devices", 1, 64, 2),
        default=2,
        metavar="N",
        help="devices that check at once (2)",
    )
    task_s = real_number("--task-s", 1.0, 3600.0, TASK_S)
    parser.add_argument(
        "--task-s", type=task_s, default=TASK_S, metavar="S", help=f"longest set-up and judgement of one ({TASK_S:g})"
    )
    parser.add_argument(
        "--limit", type=whole_number("--limit", 1, 1_000_000, 20), metavar="N", help="the first N templates alone"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write what cannot be used as TOML, to be pasted into a configuration",
    )


def run(args: argparse.Namespace) -> int:
    """Check, and exit with 1 where some task cannot be used."""
    config = _config_of(args)
    suite = find_suite(config.tasks)
    refuse_unposable(suite)
    found = _check(args, config, suite)
    if args.write is not None:
        args.write.write_text(_as_toml(found), encoding="utf-8")
    if args.json:
        print_json(found)
    else:
        _print(found)
    return 1 if found.left_out else 0


def _config_of(args: argparse.Namespace) -> Config:
    if args.suite not in plugins.names("suites") and ":" not in args.suite:
        raise TaskError(
            f"no suite is called {args.suite!r}",
            expected=closest(args.suite, plugins.names("suites")),
            fix="distrl tasks list",
        )
    own: dict[str, str] = {"tasks.suite": args.suite}
    if args.config is None and args.suite in KINDS:
        own |= {"devices.kind": KINDS[args.suite], "warm_start.demonstrations": "0"}
    return load_config(args.config, {**own, **args.overrides})


def _check(args: argparse.Namespace, config: Config, suite: Suite) -> TaskCheck:
    splits: tuple[Split, ...] = SPLITS if args.split is None else (args.split,)
    tasks = list(first_of_each(suite, splits))[: args.limit]
    if not tasks:
        raise UsageError(f"{suite.name} has no tasks to check", fix=f"distrl tasks list --suite {args.suite}")
    fleet = Fleet(
        owner=f"check-{os.getpid()}", count=min(args.devices, len(tasks)), seed=config.run.seed, purpose="evaluation"
    )
    limits = CheckLimits(task_s=args.task_s, judge_s=config.judge.deadline_s)
    began_s = time.monotonic()
    devices, leases = find_devices(config.devices, fleet), phone_leases(config.devices, fleet.owner)
    judge = find_judge(config.judge)
    checked = asyncio.run(check_tasks(tasks, devices, judge, limits, _teller(len(tasks)), leases))
    order = {task.template: number for number, task in enumerate(tasks)}
    level_of: Callable[[str], str] = getattr(suite, "level_of", lambda template: "")
    checked = [_tried_by_the_oracle(row, tasks[order[row.template]], args.suite) for row in checked]
    rows = [msgspec.structs.replace(row, level=level_of(row.template)) for row in checked]
    unloaded: dict[str, str] = getattr(suite, "left_out", {}) if args.limit is None else {}
    rows = sorted(rows, key=lambda row: order[row.template])
    rows += [CheckedTask(template=name, split="", found="cannot be loaded", why=why) for name, why in unloaded.items()]
    return _summary(suite, rows, time.monotonic() - began_s)


def _tried_by_the_oracle(row: CheckedTask, task: Task, found_as: str) -> CheckedTask:
    """What the check found, or that the known solution of this task does not lead to success."""
    if row.found != "usable" or task.solution is None:
        return row
    try:
        solve(task, found_as)
    except TaskError as error:
        return msgspec.structs.replace(row, found="fails", why=" ".join(str(error).split())[:SHOWN])
    return row


def _summary(suite: Suite, rows: list[CheckedTask], wall_s: float) -> TaskCheck:
    usable = [row for row in rows if row.found == "usable"]
    return TaskCheck(
        suite=suite.name,
        version=str(getattr(suite, "version", "")),
        usable=len(usable),
        counts=dict(Counter(row.found for row in rows)),
        levels=dict(sorted(Counter(row.level for row in usable if row.level).items())),
        left_out={row.template: _said(row) for row in rows if row.found != "usable"},
        tasks=tuple(rows),
        wall_s=round(wall_s, 1),
    )


def _said(row: CheckedTask) -> str:
    return f"{row.found}: {row.why}" if row.why else row.found


def _teller(total: int) -> Callable[[CheckedTask], None]:
    """Says on stderr how far it is, and each task that cannot be used as it is found."""
    done = 0

    def tell(row: CheckedTask) -> None:
        nonlocal done
        done += 1
        if row.found != "usable" or done % 20 == 0 or done == total:
            what = "" if row.found == "usable" else f"  {row.template}: {_said(row)[:SHOWN]}"
            print(f"{done}/{total}{what}", file=sys.stderr, flush=True)

    return tell


def _print(found: TaskCheck) -> None:
    from rich.table import Table

    counts = ", ".join(f"{count} {what}" for what, count in sorted(found.counts.items()))
    levels = "".join(f", {count} of {level}" for level, count in found.levels.items())
    print(f"{found.suite} {found.version}".rstrip() + f": {counts}{levels}; {found.wall_s:.0f} s")
    if not found.left_out:
        return
    table = Table("template", "cannot be used", box=None, pad_edge=False)
    for name, why in found.left_out.items():
        table.add_row(name, why[:SHOWN])
    console().print(table)


def _as_toml(found: TaskCheck) -> str:
    names = "".join(f'  "{name}",\n' for name in found.left_out)
    return f"[tasks.{found.suite}]\nleave_out = [\n{names}]\n"
