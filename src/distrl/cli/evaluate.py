"""`distrl evaluate`: success of a run or checkpoint on held-out tasks, with an interval and a row per template."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.errors import UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.evaluation.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder, or one of its checkpoints")
    parser.add_argument("--suite", help="which tasks; without it, those that the run was trained on")
    parser.add_argument("--episodes", type=int, default=300, help="how many held-out tasks (default: 300)")
    parser.add_argument("--split", choices=("test", "tune", "train"), default="test", help="default: test")
    parser.add_argument(
        "--max-oracle-steps", type=int, help="leave out longer tasks; 0: none (default: as the run did)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json

    if args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes} does not fit", expected="1 or more", fix="--episodes 300")
    if args.max_oracle_steps is not None and args.max_oracle_steps < 0:
        seen = f"--max-oracle-steps {args.max_oracle_steps} does not fit"
        raise UsageError(seen, expected="0 (no limit) or more", fix="--max-oracle-steps 0")
    report = _evaluate(args)
    if args.json:
        print_json(report)
    else:
        _print(report)
    return 0


def _evaluate(args: argparse.Namespace) -> Report:
    from msgspec.structs import replace

    from distrl.evaluation.evaluate import evaluate, held_out
    from distrl.evaluation.report import make_report
    from distrl.policies.base import notices_of
    from distrl.runtime.factory import make_evaluation, make_frame_cache, make_policy, prepare_torch
    from distrl.runtime.trained import load_weights, locate

    folder, checkpoint = locate(args.run)
    config = _on_this_machine(with_tasks(folder.config(), args))
    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    frames = make_frame_cache(config)
    policy = make_policy(config, frames)
    for notice in notices_of(policy):
        print(notice, file=sys.stderr)
    version = load_weights(policy, folder, checkpoint)
    tasks = held_out(config, args.episodes, args.split)
    how = replace(make_evaluation(config, seed=config.run.seed, frames=frames), beat=_counter(len(tasks)))
    found = evaluate(policy, tasks, how)
    return make_report(found, suite=config.tasks.suite, version=version)


def with_tasks(config: Config, args: argparse.Namespace) -> Config:
    """The run's settings with the tasks that are asked for."""
    from msgspec.structs import replace

    from distrl.tasks.base import find_suite

    name = args.suite or config.tasks.suite
    # Limit and options of another suite would mean something else.
    own, options = (config.tasks.max_oracle_steps, config.tasks.options) if name == config.tasks.suite else (0, {})
    limit = own if args.max_oracle_steps is None else args.max_oracle_steps
    chosen = replace(config, tasks=replace(config.tasks, suite=name, max_oracle_steps=limit, options=options))
    find_suite(chosen.tasks)
    return chosen


def _on_this_machine(config: Config) -> Config:
    """A run that had a GPU is evaluated on one where there is one, and else on the CPU."""
    from msgspec.structs import replace

    device = "cpu" if config.policy.device == "cpu" else "auto"
    return replace(config, policy=replace(config.policy, device=device))


def _counter(total: int) -> Callable[[int], None]:
    told = 0

    def beat(done: int) -> None:
        nonlocal told
        if done > told and (done % 50 == 0 or done == total):
            told = done
            print(f"{done} of {total} episodes", file=sys.stderr, flush=True)

    return beat


def _print(report: Report) -> None:
    from rich.table import Table

    from distrl.cli.main import console

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("template", "n", "success", "progress", "steps"):
        table.add_column(name, justify="left" if name == "template" else "right")
    for row in report.per_task:
        table.add_row(row.template, str(row.n), f"{row.success:.0%}", f"{row.progress:.0%}", f"{row.steps:.1f}")
    out = console()
    out.print(table)
    out.print(
        f"success {report.success:.1%}  [{report.low:.1%}, {report.high:.1%}]  on {report.n} tasks of {report.suite}"
    )
    out.print(
        f"progress {report.progress:.1%}, false completion {report.false_completion:.1%}, "
        f"side effects {report.side_effects:.1%}, invalid steps {report.invalid_steps:.1%}; version {report.policy_version}"
    )
    if report.unknown:
        out.print(f"{report.unknown} attempts have no outcome (a fault, or the judge failed) and count as no success")
