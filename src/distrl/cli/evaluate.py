"""`distrl evaluate`: success of a run or checkpoint on held-out tasks, with an interval and a row per template."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.evaluation.report import Report
    from distrl.policies.base import Policy
    from distrl.runtime.run_folder import RunFolder


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
    from distrl.evaluation.evaluate import Evaluation, evaluate, held_out
    from distrl.evaluation.report import make_report
    from distrl.policies.base import notices_of
    from distrl.runtime.assembly import make_policy, make_sight, prepare_torch

    folder, checkpoint = locate(args.run)
    config = _on_this_machine(_with_tasks(folder.config(), args))
    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    sight = make_sight(config)
    policy = make_policy(config, sight)
    for notice in notices_of(policy):
        print(notice, file=sys.stderr)
    version = load_weights(policy, folder, checkpoint)
    tasks = held_out(config, args.episodes, args.split)
    keep = None if sight is None else sight.put
    how = Evaluation(config=config, seed=config.run.seed, beat=_counter(len(tasks)), keep_frame=keep)
    found = evaluate(policy, tasks, how)
    return make_report(found, suite=config.tasks.suite, version=version)


def locate(path: Path) -> tuple[RunFolder, Path | None]:
    """The run folder, and the checkpoint where one was named."""
    from distrl.runtime.run_folder import open_run

    if (path / "state.json").exists():
        return open_run(path.resolve().parent.parent), path
    shelf = path if path.name == "checkpoints" else path.parent
    if shelf.name == "checkpoints" and (shelf.parent / "config.toml").is_file():
        raise _no_checkpoint(path, shelf)
    return open_run(path), None


def _no_checkpoint(path: Path, shelf: Path) -> StoreError:
    known = sorted(str(state.parent) for state in shelf.glob("[0-9]*/state.json"))
    return StoreError(
        f"{path} is no checkpoint",
        expected=f"one of {', '.join(known)}" if known else "a checkpoint, and this run has saved none yet",
        fix=f"name {known[-1] + ', or ' if known else ''}{shelf.parent} for the newest weights",
    )


def _with_tasks(config: Config, args: argparse.Namespace) -> Config:
    from msgspec.structs import replace

    from distrl.tasks.sim.suites import suite

    name = args.suite or config.tasks.suite
    suite(name)
    own = config.tasks.max_oracle_steps if name == config.tasks.suite else 0
    limit = own if args.max_oracle_steps is None else args.max_oracle_steps
    return replace(config, tasks=replace(config.tasks, suite=name, max_oracle_steps=limit))


def _on_this_machine(config: Config) -> Config:
    """A run that had a GPU is evaluated on one where there is one, and else on the CPU."""
    from msgspec.structs import replace

    device = "cpu" if config.policy.device == "cpu" else "auto"
    return replace(config, policy=replace(config.policy, device=device))


def load_weights(policy: Policy[Any], folder: RunFolder, checkpoint: Path | None) -> int:
    """Put the weights in and return their version."""
    from distrl.learner.checkpoint import read_checkpoint
    from distrl.learner.update import put_average
    from distrl.learner.weights import WeightsFolder

    if checkpoint is not None:
        found = read_checkpoint(checkpoint)
        policy.restore(found.policy, source=str(checkpoint))
        put_average(policy.network, found.average)
        return found.state.version
    weights = WeightsFolder(folder.weights)
    newest = weights.latest()
    if newest is None:
        raise StoreError(
            f"{folder.path} has published no weights yet",
            expected="a run that got past its warm start",
            fix=f"distrl status {folder.path}",
        )
    weights.load(policy, newest)
    return newest.version


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
