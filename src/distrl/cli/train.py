"""`distrl train`: the main job, with no config on simulated phones."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from distrl.errors import ConfigError, UsageError

if TYPE_CHECKING:  # the verb's own imports are made only when it runs
    from distrl.config.schema import Config, RunConfig
    from distrl.evaluation.report import Rate
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.session import Session
    from distrl.runtime.summary import Summary
    from distrl.transport.files import BudgetUsed
    from distrl.types import Split

TAKES_CONFIG = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", type=Path, help="a TOML file; without one, the defaults")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with this run folder where it stopped, with its own settings; flags may change some of them",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.cli.progress import Progress
    from distrl.runtime.local import LocalRuntime
    from distrl.runtime.placement import placement_notices
    from distrl.runtime.session import Session

    folder, config = _open(args)
    for text in (f"run folder {folder.path}", *placement_notices(config)):
        print(text, file=sys.stderr)
    with Progress() as progress:
        session = Session(folder, config, LocalRuntime(folder, config.runtime), progress.show)
        _stop_politely(session)
        summary = session.train()
    if args.json:
        print_json(summary)
    else:
        print(_closing(summary, folder, interrupted=session.interrupted))
    return 0


def _open(args: argparse.Namespace) -> tuple[RunFolder, Config]:
    from distrl.config.load import load_config
    from distrl.runtime.placement import check_devices
    from distrl.runtime.resume import settings_to_resume
    from distrl.runtime.run_folder import create_run, open_run

    if args.resume is None:
        config = load_config(args.config, args.overrides)
        check_settings(config)
        check_model(config)
        check_devices(config)
        return create_run(config, now=datetime.now()), config
    if args.config is not None:
        raise UsageError(
            "a resumed run keeps its own settings",
            expected="--resume RUN, with --section.key value for what should change",
            fix=f"distrl train --resume {args.resume}",
        )
    folder = open_run(args.resume)
    config = settings_to_resume(folder, args.overrides)
    check_settings(config)
    check_model(config)
    check_devices(config)
    _refuse_finished(folder, config)
    return folder, config


def check_settings(config: Config) -> None:
    """Raise now where a new run with these settings would come to nothing on any machine, with any model."""
    _check_plugins(config)
    _check_tasks(config)


def _check_plugins(config: Config) -> None:
    """Raise now, in this process, where something that is plugged in cannot be found or takes other settings."""
    from distrl import plugins
    from distrl.tasks.judges import find_judge

    find_judge(config.judge)
    kinds: tuple[tuple[plugins.Kind, str, dict[str, object]], ...] = (
        ("devices", config.devices.kind, config.devices.options),
        ("policies", config.policy.kind, config.policy.options),
        ("algorithms", config.algorithm.kind, config.algorithm.options),
    )
    for kind, name, options in kinds:
        if name not in plugins.BUILT_IN[kind]:  # built-in ones load torch, and are there
            plugins.read_options(kind, name, plugins.load(kind, name), options)


def _check_tasks(config: Config) -> None:
    """Raise now, before anything is written, where there is nothing to play."""
    from distrl.rollout.scheduler import Portion, TaskFeed
    from distrl.tasks.base import RenamesTasks, find_suite

    suite = find_suite(config.tasks)
    if config.tasks.rename_share and not isinstance(suite, RenamesTasks):
        raise ConfigError(
            f"tasks.rename_share = {config.tasks.rename_share:g}, and {suite.name} cannot rename its tasks",
            expected="0, or a suite of simulated phones",
            fix="--tasks.rename_share 0",
        )
    splits: tuple[Split, ...] = ("train", "test")
    portion = Portion(max_oracle_steps=config.tasks.max_oracle_steps)
    for split in splits:
        task = TaskFeed(suite, split, seed="check", portion=portion).next()
        if config.warm_start.demonstrations and task.solution is None:
            raise ConfigError(
                f"warm_start.demonstrations = {config.warm_start.demonstrations}, and {suite.name} knows no solutions",
                expected="a suite whose tasks have a solution, or no demonstrations",
                fix="--warm_start.demonstrations 0",
            )


def check_model(config: Config) -> None:
    """Raise now, before anything is written, where the folder of a language model is not one."""
    from distrl.policies.vlm.folder import check_folder

    if config.policy.kind == "vlm":
        check_folder(config.policy.vlm.path)


def _refuse_finished(folder: RunFolder, config: Config) -> None:
    from distrl.runtime.session import is_over
    from distrl.runtime.summary import read_summary
    from distrl.transport.files import read_budget

    summary, spent = read_summary(folder), read_budget(folder.budget)
    if summary is not None and not summary.interrupted and is_over(config.run, spent, summary.episodes):
        raise UsageError(
            f"{folder.path} is finished: {summary.episodes} episodes",
            expected="a run that was stopped, or a larger budget",
            fix=f"`distrl train --resume {folder.path} {_more(config.run, spent, summary.episodes)}`, "
            f"or `distrl evaluate {folder.path}`",
        )


def _more(limits: RunConfig, spent: BudgetUsed, episodes: int) -> str:
    """The flags that double whatever budget is spent."""
    minutes = [f"--run.minutes {2 * limits.minutes:g}"] if 0 < 60 * limits.minutes <= spent.collect_s else []
    return " ".join(minutes + ([f"--run.episodes {2 * episodes}"] if 0 < limits.episodes <= episodes else []))


def _stop_politely(session: Session) -> None:
    """Ctrl-C once finishes and saves; twice stops now."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        session.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("\nfinishing and saving; press Ctrl-C again to stop now", file=sys.stderr)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def _closing(summary: Summary, folder: RunFolder, *, interrupted: bool) -> str:
    command, path = _own_command(), shlex.quote(str(folder.path))
    after = [f"  {command} train --resume {path}"] if interrupted else []
    look = "try" if folder.config().devices.kind == "sim" else "show"
    gpu = "" if summary.gpu_utilisation is None else f", GPU busy {summary.gpu_utilisation:.1%}"
    lines = [
        _success("before", summary.success_before_rate),
        _success("after ", summary.success_after_rate),
        f"{summary.episodes} episodes, {summary.steps} steps in {summary.wall_s:.0f} s; version {summary.policy_version}",
        f"phones busy {summary.device_utilisation:.1%} of the time, learner idle {summary.learner_idle_ratio:.1%}{gpu}",
        f"lost episodes {summary.lost_episodes}, doubled {summary.duplicate_episodes}, restarts {summary.restarts}, "
        f"phones lost and recovered {summary.device_losses}",
        *_unstored(summary),
        "",
        f"run folder: {folder.path}",
        "next:",
        *after,
        f"  {command} status {path}",
        f"  {command} evaluate {path} --suite {summary.suite} --episodes 300",
        f"  {command} tasks {look} {summary.suite}/test/0",
    ]
    return "\n".join(lines)


def _unstored(summary: Summary) -> list[str]:
    count = summary.unacknowledged_episodes
    return [f"finished, but not yet stored when a worker was killed: {count} episodes"] if count else []


def _own_command() -> str:
    """How this program was called, for the next commands to be typed the same way."""
    called = sys.argv[0]
    return "python -m distrl" if called.endswith("__main__.py") else shlex.quote(called)


def _success(when: str, rate: Rate | None) -> str:
    if rate is None:
        return f"success {when}: not evaluated"
    from distrl.cli.progress import share

    return f"success {when}: {share(rate)}"
