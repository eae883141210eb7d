"""`distrl tasks`: the suites in figures, one task or template in detail, one episode to watch or play, and a check of all of them."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import median

import msgspec

from distrl import plugins
from distrl.cli import task_check
from distrl.cli.main import console, print_json, whole_number
from distrl.config.schema import NO_PERTURBATIONS, PerturbationConfig
from distrl.errors import DistrlError, TaskError, UsageError, closest, raised_as
from distrl.tasks.base import SPLITS, Suite, id_under, refuse_unposable, suite, tasks_of
from distrl.tasks.base import find_task as find_in_suite
from distrl.tasks.sim.oracle import solve, solved_at_start
from distrl.tasks.sim.templates import SimSuite
from distrl.types import (
    AndroidCheck,
    AppCheck,
    CustomCheck,
    ModelCheck,
    Move,
    RewardCheck,
    SimCheck,
    SimSetup,
    Split,
    Task,
)

TAKES_CONFIG = True
EXAMPLES = 3
RUNS = Path("runs")
"""Where what a person keeps goes."""
WITHOUT_TASKS = ("list",)
"""Built-in suites that have tasks only where a configuration gives them some."""
OF_PACKAGES = ("android_world", "miniwob", "mobilegym")
"""Built-in suites whose tasks another package brings, which may not be installed."""


class SuiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A suite in figures."""

    templates: int
    train: int
    tune: int
    test: int
    test_only_templates: int
    oracle_steps_median: float
    """Steps that the oracle takes over a test task, its claim included."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What `tasks list --json` gives."""

    suites: dict[str, SuiteFacts]
    overlap: int
    """Instances that stand in more than one split, counted over all tasks of the suites above."""
    solved_at_start: dict[str, str] = {}
    """Templates with test tasks that have nothing to be done, with one of them."""
    broken: dict[str, str] = {}
    """Suites of installed packages that cannot be used, with the error."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `show`, `try` and `check`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|try|check")
    listing = actions.add_parser("list", help="the suites, their templates and figures", allow_abbrev=False)
    listing.add_argument("--suite", metavar="S", help="this suite alone")
    listing.add_argument("stray", nargs="?", help=argparse.SUPPRESS)
    showing = actions.add_parser("show", help="one task, or a template with examples", allow_abbrev=False)
    showing.add_argument("name", metavar="ID|TEMPLATE", help="such as sim-general/test/00000 or settings-ringtone")
    showing.add_argument("--suite", metavar="S", help="a template of this suite, such as my_tasks:suite")
    playing = actions.add_parser("try", help="play one task, every screen drawn to a PNG", allow_abbrev=False)
    playing.add_argument("id", metavar="ID", help="such as sim-general/test/00000 or my_tasks:suite/test/00000")
    playing.add_argument("--agent", choices=("oracle", "hand", "random"), default="oracle", help="who plays (oracle)")
    playing.add_argument("--out", type=Path, metavar="FOLDER", help="where the pictures go (runs/try/ID)")
    playing.add_argument("--perturbed", action="store_true", help="with pop-ups, slow loads, variants and updates")
    playing.add_argument(
        "--ids", action="store_true", help="with element ids and changed records, to write templates by"
    )
    playing.add_argument(
        "--agent-seed",
        type=whole_number("--agent-seed", 0, 2**32 - 1, 0),
        default=0,
        metavar="N",
        help="of the random agent",
    )
    playing.add_argument(
        "--browser", action="store_true", help="play it yourself in a browser, with mouse and keyboard"
    )
    port = whole_number("--port", 0, 65535, 8642)
    playing.add_argument("--port", type=port, metavar="N", help="with --browser: the first port to try (8642)")
    checking = actions.add_parser("check", help=task_check.HELP, allow_abbrev=False)
    task_check.configure(checking)
    for action in (listing, showing, playing, checking):
        action.add_argument("--json", action="store_true", help="one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    """List, show, play or check."""
    if args.action == "check":
        return task_check.run(args)
    if "tasks.suite" in args.overrides and args.action != "list":
        raise UsageError(
            f"--tasks.suite says nothing to `distrl tasks {args.action}`",
            expected="the suite as the beginning of the ID, also of one of your own",
            fix=f"distrl tasks {args.action} {args.overrides['tasks.suite']}/test/00000",
        )
    if args.overrides:
        raise UsageError(
            f"--{next(iter(args.overrides))} says nothing to `distrl tasks {args.action}`",
            expected="settings with `distrl tasks check` alone",
            fix=f"leave it out, or distrl tasks check {getattr(args, 'suite', None) or 'SUITE'}",
        )
    if args.action == "list":
        if args.stray is not None:
            raise UsageError(
                f"`distrl tasks list` takes no {args.stray!r}",
                expected="the suite by --suite",
                fix=f"distrl tasks list --suite {args.stray}",
            )
        return _list(args)
    return _show(args) if args.action == "show" else _try(args)


# --- list -----------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    chosen, broken = ({args.suite: suite(args.suite)}, {}) if args.suite is not None else _usable_suites()
    facts: dict[str, SuiteFacts] = {}
    overlap, solved = 0, dict[str, str]()
    for name, each in chosen.items():
        refuse_unposable(each)
        tasks = {split: list(tasks_of(each, split)) for split in SPLITS}
        steps = {task.id: _oracle_steps(task, name) for task in tasks["test"]}
        facts[each.name] = _facts(tasks, steps)
        overlap += count_overlap(task for split in SPLITS for task in tasks[split])
        solved |= _solved_at_start(tasks["test"], name)
        if not args.json:
            _print_suite(each, facts[each.name], tasks, steps)
    if args.json:
        print_json(Listing(suites=facts, overlap=overlap, solved_at_start=solved, broken=broken))
    else:
        for name, why in broken.items():
            print(f"\n{name}: cannot be used: {why}")
        for template, id in solved.items():
            print(f"\n{template} is solved at the start, such as {id}: make it not so by t.given(...)")
        print(f"\ninstances in more than one split: {overlap}")
    return 1 if overlap or solved else 0


def _usable_suites() -> tuple[dict[str, Suite], dict[str, str]]:
    """Every suite by its name, built in or of an installed package, and those whose package is missing or fails, with the error in one line."""
    found: dict[str, Suite] = {}
    broken: dict[str, str] = {}
    for name in plugins.names("suites"):
        if name in WITHOUT_TASKS:
            continue
        try:
            made = suite(name)
            if name not in plugins.BUILT_IN["suites"]:
                with raised_as(lambda error: TaskError(str(error) or type(error).__name__)):
                    refuse_unposable(made)
                    deque((_oracle_steps(task, name) for split in SPLITS for task in tasks_of(made, split)), maxlen=0)
        except DistrlError as error:  # it costs its own suite alone
            if name in plugins.BUILT_IN["suites"] and name not in OF_PACKAGES:
                raise
            broken[name] = " ".join(str(error).split())[:300]
        else:
            found[name] = made
    return found, broken


def _oracle_steps(task: Task, found_as: str) -> int:
    """Steps that the oracle takes over a task, its claim included; 0 where nobody knows a solution."""
    return len(solve(task, found_as).actions) if task.solution else 0


def _solved_at_start(tasks: list[Task], found_as: str) -> dict[str, str]:
    """Templates of simulated phones with tasks that a claim at once solves, with the first of these."""
    found: dict[str, str] = {}
    for task in tasks:
        simulated = isinstance(task.setup, SimSetup) and isinstance(task.check, SimCheck)
        if simulated and task.template not in found and solved_at_start(task):
            found[task.template] = id_under(task, found_as)
    return found


def _facts(tasks: dict[Split, list[Task]], steps: dict[str, int]) -> SuiteFacts:
    templates = _templates(tasks)
    return SuiteFacts(
        templates=len(templates),
        train=len(tasks["train"]),
        tune=len(tasks["tune"]),
        test=len(tasks["test"]),
        test_only_templates=sum(test_only for test_only in templates.values()),
        oracle_steps_median=median(steps.values()) if steps else 0.0,
    )


def _templates(tasks: dict[Split, list[Task]]) -> dict[str, bool]:
    """Every template by name, and whether only test tasks are made of it."""
    trained = {task.template for split in ("train", "tune") for task in tasks[split]}
    names = dict.fromkeys(task.template for split in SPLITS for task in tasks[split])
    return {name: name not in trained for name in names}


def count_overlap(tasks: Iterable[Task]) -> int:
    """How many instructions are in more than one split."""
    splits: dict[str, set[Split]] = defaultdict(set)
    for task in tasks:
        splits[task.instruction.casefold()].add(task.split)
    return sum(len(found) > 1 for found in splits.values())


def _print_suite(each: Suite, facts: SuiteFacts, tasks: dict[Split, list[Task]], steps: dict[str, int]) -> None:
    from rich.table import Table

    title = f"{each.name}: {facts.train} train, {facts.tune} tune, {facts.test} test tasks"
    if facts.oracle_steps_median:
        title += f"; oracle median {facts.oracle_steps_median:g} steps"
    table = Table("template", "splits", "steps", "example", box=None, pad_edge=False)
    for name, test_only in _templates(tasks).items():
        found = [task for task in tasks["test"] if task.template == name]
        length = f"{median(steps[task.id] for task in found):g}" if any(task.solution for task in found) else "-"
        table.add_row(name, "test" if test_only else "all", length, found[0].instruction if found else "")
    print(f"\n{title}")
    console().print(table)


# --- show -----------------------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    named = _suite_name(args.name) if "/" in args.name else ""
    if named and args.suite not in (None, named):
        seen = f"{args.name!r} names a suite itself"
        raise UsageError(seen, expected=f"a template of {args.suite}", fix="leave --suite out")
    tasks = [(named, find_task(args.name))] if named else _examples(args.name, args.suite)
    if args.json:
        print_json({"tasks": [task for _, task in tasks]})
        return 0
    for name, task in tasks:
        print(id_under(task, name))
        _print_task(task)
    return 0


def _suite_name(id: str) -> str:
    """The suite that an id begins with, as plug-ins are named."""
    return next((name for name in plugins.names("suites") if id.startswith(f"{name}/")), id.partition("/")[0])


def find_task(id: str) -> Task:
    """The task with this id, in whichever suite."""
    name = _suite_name(id)
    if "/" not in id and id not in plugins.names("suites") and id in _template_names(_usable_suites()[0]):
        raise TaskError(
            f"{id!r} is a template, not a task",
            expected="a task of it, SUITE/SPLIT/NUMBER",
            fix=f"`distrl tasks show {id}` names some",
        )
    return find_in_suite(suite(name), id, name)


def _examples(name: str, of: str | None) -> list[tuple[str, Task]]:
    """Some test tasks of a template, of one suite or whichever has it, each after the name of its suite."""
    if name in plugins.names("suites") or ":" in name:
        raise TaskError(
            f"{name!r} is a suite, not a template or task",
            expected=f"a template of it, or {name}/test/0 and the like",
            fix=f"distrl tasks list --suite {name}",
        )
    suites = _usable_suites()[0] if of is None else {of: suite(of)}
    for suite_name, each in suites.items():
        if name in _names_in(each):
            of_it = (task for task in tasks_of(each, "test") if task.template == name)
            return [(suite_name, task) for task in islice(of_it, EXAMPLES)]
    known = closest(name, _template_names(suites))
    raise TaskError(
        f"no template or task is called {name!r}",
        expected=known,
        fix="distrl tasks list" if of is None else f"distrl tasks list --suite {of}",
    )


def _template_names(suites: dict[str, Suite]) -> set[str]:
    return {name for each in suites.values() for name in _names_in(each)}


def _names_in(suite: Suite) -> set[str]:
    """The templates of a suite that its test split has; one of the simulator's knows them without drawing a task."""
    if isinstance(suite, SimSuite):
        return {template.name for template in suite.templates}
    return {task.template for task in tasks_of(suite, "test")}


def _print_task(task: Task) -> None:
    setup = task.setup
    given, start = "", "as the device is"
    if isinstance(setup, SimSetup):
        given = ", ".join(
            f"{put.table}/{put.id} {'gone' if put.fields is None else put.fields}" for put in setup.records
        )
        start = f"{setup.start.app}/{setup.start.screen}" if setup.start else "the home screen"
    lines = {
        "template": task.template,
        "says": task.instruction,
        "given": given,
        "starts on": start,
        "wants": _wants(task),
        "oracle": " → ".join(_leg(move) for move in task.solution.moves) if task.solution else "",
        "step limit": str(task.max_steps),
    }
    for name, text in lines.items():
        if text:
            print(f"  {name:10} {text}")


def _wants(task: Task) -> str:
    match task.check:
        case SimCheck() as check:
            wants = [
                f"{want.table}/{want.id or 'new'} {'gone' if want.absent else want.fields}" for want in check.wants
            ]
            shown = check.showing
            showing = [f"showing {shown.app}/{shown.screen} {shown.args or ''}"] if shown else []
            answer = [f"answer {check.answer!r}"] if check.answer else []
            return "; ".join([*wants, *showing, *answer]) or "to be called impossible"
        case AppCheck() as check:
            made = [f"{want.table}/{want.id or 'new'} {'gone' if want.absent else want.fields}" for want in check.wants]
            return "; ".join([*made, *([f"answer {check.answer!r}"] if check.answer else [])])
        case RewardCheck(at_least=at_least):
            return f"a reward of {at_least:g} from the device"
        case AndroidCheck() as check:
            return ", ".join(f"{name} {value}" for name, value in msgspec.to_builtins(check).items() if name != "type")
        case ModelCheck(criterion=criterion):
            return f"a model's verdict: {criterion or 'the instruction was carried out'}"
        case CustomCheck(values=values):
            return ", ".join(f"{name} {value}" for name, value in values.items())


def _leg(move: Move) -> str:
    return " ".join(part for part in (move.verb, move.target, move.text) if part)


# --- try ------------------------------------------------------------------------------------------------------------


def _try(args: argparse.Namespace) -> int:
    from distrl.cli.episode import choose_agent, play_verbosely

    task, id = find_task(args.id), id_under(find_task(args.id), _suite_name(args.id))
    if not isinstance(task.setup, SimSetup):
        raise TaskError(
            f"{id} is no task of simulated phones, which `tasks try` plays on",
            expected="a task of a suite of simulated phones",
            fix=f"distrl tasks show {args.id}",
        )
    if args.browser:
        return _try_in_browser(task, id, args)
    out = args.out or Path("runs/try") / task.id.replace("/", "-")
    agent = choose_agent(args.agent, task, args.agent_seed)
    perturbations = PerturbationConfig() if args.perturbed else NO_PERTURBATIONS
    named = msgspec.structs.replace(task, id=id)  # as this verb takes it
    tried = play_verbosely(named, agent, perturbations, out, with_ids=args.ids)
    if args.json:
        print_json(tried)
    return 1 if args.agent == "oracle" and not tried.verdict.success else 0


def _try_in_browser(task: Task, id: str, args: argparse.Namespace) -> int:
    """A page on which a person plays the task; kept demonstrations become a run in `runs`."""
    from distrl.cli.extras import need_view_packages

    need_view_packages()
    from distrl.cli.view import open_browser
    from distrl.config.load import load_config
    from distrl.dashboard.server import USUAL_PORT, Address, access_for, listen, serve
    from distrl.dashboard.teleoperation import Attempts

    config = load_config(None, {})
    perturbations = PerturbationConfig() if args.perturbed else NO_PERTURBATIONS
    sim = msgspec.structs.replace(config.devices.sim, perturbations=perturbations)
    devices = msgspec.structs.replace(config.devices, sim=sim)
    access = access_for("127.0.0.1")
    listening, moved = listen(access.host, USUAL_PORT if args.port is None else args.port)
    if moved:
        print(f"distrl: {moved}", file=sys.stderr)
    attempts = Attempts(RUNS)
    attempt = attempts.take(msgspec.structs.replace(task, id=id), msgspec.structs.replace(config, devices=devices))

    def ready(address: Address) -> None:
        url = f"{address.url}try/{attempt.id}"
        if args.json:
            print_json({"url": url, "port": address.port})
        else:
            print(f"{id} ({task.template}): {task.instruction}\nplay it at {url}   (Ctrl-C ends it)", flush=True)
            open_browser(url)

    serve(RUNS, access, listening, ready=ready, attempts=attempts)
    return 0
