"""`distrl train`: the main job, with no config on simulated phones."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from distrl.cli.extras import need_cluster_packages, need_model_packages, need_training_packages
from distrl.cli.trust import add_trust_flag, trust_for
from distrl.errors import ConfigError, DistrlError, RoleCrashed, UsageError
from distrl.installing import install

if TYPE_CHECKING:  # the verb's own imports are made only when it runs
    from distrl.config.schema import Config, RunConfig
    from distrl.evaluation.report import Rate, Report
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.session import RunSnapshot, Session
    from distrl.runtime.summary import Summary
    from distrl.transport.base import BudgetUsed
    from distrl.types import SettingValue, Split, Task

TAKES_CONFIG = True
ASKS_TO_FINISH = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
"""The end of the terminal, and what job schedulers announce a limit with."""


def configure(parser: argparse.ArgumentParser) -> None:
    from distrl.config.load import ready_runs

    names = ", ".join(sorted(ready_runs()))
    parser.add_argument(
        "config",
        nargs="?",
        type=Path,
        help=f"a TOML file, or a ready run by its name ({names}); without it, the defaults",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with this run folder where it stopped, with its own settings; flags may change some of them",
    )
    parser.add_argument("--no-view", action="store_true", help="without the dashboard beside it (`distrl view`)")
    add_trust_flag(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.cli.progress import Progress
    from distrl.runtime.kinds import make_runtime
    from distrl.runtime.placement import placement_notices
    from distrl.runtime.session import Session
    from distrl.telemetry.sinks import forwarding

    folder, config = _open(args)
    resumed = [] if args.resume is None else [_resuming(folder, config)]
    _say(f"run folder {folder.path}", *resumed, *placement_notices(config))
    with (
        _dashboard(folder, wanted=not args.no_view) as address,
        forwarding(config.telemetry, folder.metrics) as forward,
        Progress(address=address) as progress,
    ):

        def watch(snapshot: RunSnapshot) -> None:
            progress.show(snapshot)
            forward()

        session = Session(folder, config, make_runtime(config, folder), watch)
        _stop_politely(session)
        summary = session.train()
    write_report_of(folder)
    if args.json:
        print_json(summary)
    else:
        print(_closing(summary, folder))
    if summary.cut_off:
        raise incomplete(summary, folder)
    return 0


def _resuming(folder: RunFolder, config: Config) -> str:
    """In which settings this session differs from the last one."""
    from distrl.cli.main import printable
    from distrl.runtime.resume import changes

    found = [f"{one.key} = {one.now} (was {one.was})" for one in changes(folder.session_config(), config)]
    return printable(f"resuming; {', '.join(found) or 'no setting differs'}")


def write_report_of(folder: RunFolder) -> None:
    """Write `report.html`; what is wrong with that is said, and costs the run nothing."""
    from distrl.dashboard.report import write_report

    try:
        write_report(folder.path)
    except (DistrlError, OSError) as error:
        _say(f"no report: {str(error).splitlines()[0]}")


def _say(*lines: str) -> None:
    with suppress(OSError):  # a reader that has gone, as in `| head`, ends no training
        print("\n".join(lines), file=sys.stderr)


@contextmanager
def _dashboard(folder: RunFolder, *, wanted: bool) -> Iterator[str]:
    """The address of a dashboard beside the training; empty where none is wanted, or it cannot be had: that ends no training."""
    from importlib.util import find_spec

    if not wanted or find_spec("starlette") is None or find_spec("uvicorn") is None:
        if wanted:
            _say(f"no dashboard: {install('view')} brings it, --no-view leaves it out")
        yield ""
        return
    from distrl.dashboard.server import beside

    with beside(folder.path, _say) as address:
        if address:
            _say(f"dashboard  {address}")
        yield address


def _open(args: argparse.Namespace) -> tuple[RunFolder, Config]:
    from distrl.config.load import load_config
    from distrl.runtime.run_folder import open_run

    if args.resume is None:
        if args.trust_code:
            raise UsageError(
                "--trust-code is for --resume RUN", expected="your own file or flags", fix="leave --trust-code out"
            )
        config = load_config(args.config, args.overrides)
        return new_run(config), config
    if args.config is not None:
        raise UsageError(
            "a resumed run keeps its own settings",
            expected="--resume RUN, with --section.key value for what should change",
            fix=f"distrl train --resume {args.resume}",
        )
    folder = open_run(args.resume)
    return folder, resumed_settings(folder, args.overrides, trust_code=args.trust_code)


def new_run(config: Config) -> RunFolder:
    """The folder of a new run with these settings; raises before it is made where the run would come to nothing here."""
    from distrl.runtime.run_folder import create_run

    _check_run(config)
    return create_run(config, now=datetime.now())


def resumed_settings(folder: RunFolder, changes: Mapping[str, SettingValue], *, trust_code: bool) -> Config:
    """What a run goes on with; raises where it cannot, or names code that is not to be trusted."""
    from distrl.runtime.resume import settings_to_resume
    from distrl.runtime.run_folder import read_errors

    with read_errors(folder.path):
        config = settings_to_resume(folder, changes, trust_code=trust_code)
        _check_run(config)
        refuse_finished(folder, config)
    return config


def _check_run(config: Config) -> None:
    """Raise now where a run with these settings would come to nothing on this machine."""
    from distrl.runtime.kinds import check_runtime

    need_training_packages()
    need_cluster_packages(config)
    check_settings(config)
    check_model(config)
    check_runtime(config)


def check_settings(config: Config) -> None:
    """Raise now where a new run with these settings would come to nothing on any machine, with any model."""
    from distrl.telemetry.sinks import check_sinks

    _check_plugins(config)
    _check_tasks(config)
    check_sinks(config.telemetry)


def _check_plugins(config: Config) -> None:
    """Raise now, in this process, where something that is plugged in cannot be found or takes other settings."""
    from distrl import plugins
    from distrl.tasks.judges import find_judge

    find_judge(config.judge)
    plugins.check("devices", config.devices.kind, config.devices.options)
    plugins.check("policies", config.policy.kind, config.policy.options)
    plugins.check("algorithms", config.algorithm.kind, config.algorithm.options)
    if config.algorithm.kind not in plugins.BUILT_IN["algorithms"]:
        from distrl.runtime.factory import make_algorithm

        make_algorithm(config)  # devices and policies may be costly to make: where that fails, the role says so


def _check_tasks(config: Config) -> None:
    """Raise now, before anything is written, where there is nothing to play, nobody to judge it, or the oracle of own tasks fails."""
    from distrl import plugins
    from distrl.rollout.scheduler import Portion, TaskFeed
    from distrl.tasks.base import RenamesTasks, find_suite, refuse_unposable
    from distrl.tasks.judges import AutoJudge, find_judge

    suite, judge = find_suite(config.tasks), find_judge(config.judge)
    if config.tasks.suite not in plugins.BUILT_IN["suites"]:
        refuse_unposable(suite)
    if config.tasks.rename_share and not isinstance(suite, RenamesTasks):
        raise ConfigError(
            f"tasks.rename_share = {config.tasks.rename_share:g}, and {suite.name} cannot rename its tasks",
            expected="0, or a suite of simulated phones",
            fix="--tasks.rename_share 0",
        )
    splits: tuple[Split, ...] = ("train", "tune", "test") if config.evaluation.every_s else ("train", "test")
    portion = Portion(max_oracle_steps=config.tasks.max_oracle_steps)
    for split in splits:
        task = TaskFeed(suite, split, seed="check", portion=portion).next()
        if isinstance(judge, AutoJudge):
            judge.for_task(task)
        if config.warm_start.demonstrations and task.solution is None:
            raise ConfigError(
                f"warm_start.demonstrations = {config.warm_start.demonstrations}, and {suite.name} knows no solutions",
                expected="a suite whose tasks have a solution, or no demonstrations",
                fix="--warm_start.demonstrations 0",
            )
    _check_setup(task, config)
    if config.warm_start.demonstrations and config.tasks.suite not in plugins.BUILT_IN["suites"]:
        from distrl.pretraining.demonstrations import check_solutions

        check_solutions(config)


def _check_setup(task: Task, config: Config) -> None:
    """Raise where devices of a kind that comes along cannot play such a task."""
    from distrl.config.load import worker_configs
    from distrl.types import AndroidSetup, AppSetup, SimSetup, WebSetup

    setups = {"sim": (SimSetup,), "android": (SimSetup, AndroidSetup), "web": (WebSetup, AppSetup)}
    fit = [kind for kind, known in setups.items() if isinstance(task.setup, known)]
    for kind in dict.fromkeys(own.devices.kind for own in (config, *worker_configs(config))):
        if kind in setups and kind not in fit:
            wanted = f"--devices.kind {fit[0]}" if fit else "--devices.kind with the import path of yours"
            raise ConfigError(
                f"devices.kind = {kind}, and tasks of {task.suite} are set up by {type(task.setup).__name__}",
                expected="devices that such tasks are for",
                fix=f"{wanted}, or another --tasks.suite",
            )


def check_model(config: Config) -> None:
    """Raise now, before anything is written, where the folder of a language model is not one."""
    from distrl.policies.vlm.folder import check_folder, check_model_folder

    if config.policy.kind == "vlm":
        check_folder(config.policy.vlm.path)
        need_model_packages(config)
    if config.policy.kind == "autoui":
        check_model_folder(config.policy.autoui.path, "policy.autoui.path")
        check_model_folder(config.policy.autoui.vision_path, "policy.autoui.vision_path")
        need_model_packages(config)


def refuse_finished(folder: RunFolder, config: Config) -> None:
    """Raise where a run cannot go on: its budget is used up, or what it needs was pruned."""
    from distrl.runtime.run_sizes import refuse_pruned
    from distrl.runtime.session import is_over
    from distrl.runtime.summary import read_summary
    from distrl.transport.files import FileBudget

    refuse_pruned(folder)
    summary, spent = read_summary(folder), FileBudget(folder.budget).read()
    # Where the published weights are gone, another session publishes what the checkpoint holds.
    gone = not (folder.weights / "latest.json").exists() and any(folder.checkpoints.glob("[0-9]*"))
    if not gone and summary is not None and summary.is_whole and is_over(config.run, spent, summary.episodes):
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
    """Ctrl-C once finishes and saves, as do SIGTERM, the end of the terminal and a limit of the job; Ctrl-C twice stops now."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        session.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):  # nobody reads it any more
            print("\nfinishing and saving; press Ctrl-C again to stop now", file=sys.stderr)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    for name in ASKS_TO_FINISH:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, ask)


def incomplete(summary: Summary, folder: RunFolder) -> RoleCrashed:
    """The error of a run whose learner or evaluator was cut off at its end."""
    trust = trust_for(folder.config())
    return RoleCrashed(
        f"the run has not come to its end: {summary.cut_off}",
        expected="a learner that saves and a last evaluation",
        fix=f"`distrl train --resume {folder.path}{trust}` makes up for it; {folder.logs} says more",
    )


def _closing(summary: Summary, folder: RunFolder) -> str:
    from distrl.cli.progress import after_demonstrations

    command, path, config = _own_command(), shlex.quote(str(folder.path)), folder.config()
    trust = trust_for(config)
    resume = [] if summary.is_whole else [f"  {command} train --resume {path}{trust}"]
    evaluate = [
        f"  {command} watch {path}{trust}",
        f"  {command} evaluate {path} --suite {summary.suite} --episodes 300{trust}",
    ]
    look = "try" if config.devices.kind == "sim" else "show"
    version = f"version {summary.policy_version}" if summary.policy_version >= 0 else "no version yet"
    gpu = "" if summary.gpu_utilisation is None else f", GPU busy {summary.gpu_utilisation:.1%}"
    lines = [
        _success("before", summary.success_before_rate, summary.unknown_before, after_demonstrations(config)),
        _success("after ", summary.success_after_rate, summary.unknown_after),
        f"{summary.episodes} episodes, {summary.steps} steps in {summary.wall_s:.0f} s; {version}",
        f"phones busy {summary.device_utilisation:.1%} of the time, learner idle {summary.learner_idle_ratio:.1%}{gpu}",
        f"lost episodes {_count(summary.lost_episodes)}, doubled {summary.duplicate_episodes}, "
        f"restarts {summary.restarts}, phones lost and recovered {_count(summary.device_losses)}",
        *_unstored(summary),
        *_by_template(folder),
        "",
        f"run folder: {folder.path}",
        "next:",
        *resume,
        f"  {command} view {path}",
        f"  {command} status {path}",
        *(evaluate if summary.policy_version >= 0 else []),
        f"  {command} tasks {look} {summary.suite}/test/0",
    ]
    return "\n".join(lines)


def _by_template(folder: RunFolder) -> list[str]:
    """Where the last evaluation went well and where not; nothing where there is none."""
    from distrl.cli.progress import success_by_template
    from distrl.evaluation.report import read_report

    found: dict[str, Report] = {}
    for name in ("before", "after"):
        with suppress(DistrlError):  # a damaged one costs no more than its rows
            found[name] = read_report(folder.evaluations / f"{name}.json")
    if "after" not in found:
        return []
    rest = f"distrl report {shlex.quote(str(folder.path))}"
    return ["", *success_by_template(found.get("before"), found["after"], rest)]


def _unstored(summary: Summary) -> list[str]:
    count = summary.unacknowledged_episodes
    return [f"finished, but not yet stored when a worker was killed: {count} episodes"] if count else []


def _count(found: int | None) -> str:
    return "not known" if found is None else str(found)


def _own_command() -> str:
    """How this program was called, for the next commands to be typed the same way."""
    called = sys.argv[0]
    return "python -m distrl" if called.endswith("__main__.py") else shlex.quote(called)


def _success(when: str, rate: Rate | None, unknown: int, of: str = "") -> str:
    if rate is None:
        return f"success {when}: not evaluated"
    from distrl.cli.progress import share

    told = f"; {unknown} without an outcome count as no success" if unknown else ""
    return f"success {when}: {share(rate)}{of}{told}"
