"""`distrl tasks`: the suites in figures, one task or template in detail, and one episode to watch or play."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import median

import msgspec

from distrl.cli.main import console, print_json
from distrl.config.schema import WildConfig
from distrl.devices.sim.world import TAME
from distrl.errors import TaskError, closest
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES, suite
from distrl.tasks.sim.templates import SPLITS, Suite
from distrl.types import Move, Split, Task

EXAMPLES = 3


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


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `show` and `try`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|try")
    listing = actions.add_parser("list", help="the suites, their templates and figures", allow_abbrev=False)
    listing.add_argument("--suite", metavar="S", help="this suite alone")
    showing = actions.add_parser("show", help="one task, or a template with examples", allow_abbrev=False)
    showing.add_argument("name", metavar="ID|TEMPLATE", help="such as sim-general/test/00000 or settings-ringtone")
    playing = actions.add_parser("try", help="play one task, every screen drawn to a PNG", allow_abbrev=False)
    playing.add_argument("id", metavar="ID", help="such as sim-general/test/00000")
    playing.add_argument("--agent", choices=("oracle", "hand", "random"), default="oracle", help="who plays (oracle)")
    playing.add_argument("--out", type=Path, metavar="FOLDER", help="where the pictures go (runs/try/ID)")
    playing.add_argument("--wild", action="store_true", help="with pop-ups, slow loads, variants and updates")
    playing.add_argument("--agent-seed", type=int, default=0, metavar="N", help="of the random agent")
    for action in (listing, showing, playing):
        action.add_argument("--json", action="store_true", help="one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    """List, show or play."""
    if args.action == "list":
        return _list(args)
    return _show(args) if args.action == "show" else _try(args)


# --- list -----------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    chosen = [suite(args.suite)] if args.suite else list(SUITES.values())
    facts: dict[str, SuiteFacts] = {}
    overlap = 0
    for each in chosen:
        tasks = {split: list(each.tasks(split)) for split in SPLITS}
        steps = {task.id: len(play_oracle(task).actions) for task in tasks["test"]}
        facts[each.name] = _facts(each, tasks, steps)
        overlap += count_overlap(task for split in SPLITS for task in tasks[split])
        if not args.json:
            _print_suite(each, facts[each.name], tasks["test"], steps)
    if args.json:
        print_json(Listing(suites=facts, overlap=overlap))
    else:
        print(f"\ninstances in more than one split: {overlap}")
    return 0 if overlap == 0 else 1


def _facts(each: Suite, tasks: dict[Split, list[Task]], steps: dict[str, int]) -> SuiteFacts:
    return SuiteFacts(
        templates=len(each.templates),
        train=len(tasks["train"]),
        tune=len(tasks["tune"]),
        test=len(tasks["test"]),
        test_only_templates=sum(template.test_only for template in each.templates),
        oracle_steps_median=median(steps.values()),
    )


def count_overlap(tasks: Iterable[Task]) -> int:
    """How many instructions are in more than one split."""
    splits: dict[str, set[Split]] = defaultdict(set)
    for task in tasks:
        splits[task.instruction.casefold()].add(task.split)
    return sum(len(found) > 1 for found in splits.values())


def _print_suite(each: Suite, facts: SuiteFacts, tests: list[Task], steps: dict[str, int]) -> None:
    from rich.table import Table

    title = f"{each.name}: {facts.train} train, {facts.tune} tune, {facts.test} test tasks; oracle median {facts.oracle_steps_median:g} steps"
    table = Table("template", "splits", "steps", "example", box=None, pad_edge=False)
    for template in each.templates:
        found = [task for task in tests if task.template == template.name]
        length = f"{median(steps[task.id] for task in found):g}" if found else "-"
        example = f"{found[0].instruction}" if found else ""
        table.add_row(template.name, "test" if template.test_only else "all", length, example)
    print(f"\n{title}")
    console().print(table)


# --- show -----------------------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    tasks = [find_task(args.name)] if "/" in args.name else _examples(args.name)
    if args.json:
        print_json({"tasks": tasks})
        return 0
    for task in tasks:
        _print_task(task)
    return 0


def find_task(id: str) -> Task:
    """The task with this id, in whichever suite."""
    if id in _template_names():
        raise TaskError(
            f"{id!r} is a template, not a task",
            expected="a task of it, SUITE/SPLIT/NUMBER",
            fix=f"`distrl tasks show {id}` names some",
        )
    return suite(id.partition("/")[0]).find(id)


def _examples(name: str) -> list[Task]:
    """Some test tasks of a template."""
    for each in SUITES.values():
        names = [template.name for template in each.templates]
        if name in names:
            # Suites take their templates in turn, so every n-th task is likely to be one: look at those first.
            numbers = sorted(
                range(each.sizes["test"]), key=lambda number: (number - names.index(name)) % len(names) != 0
            )
            found = (task for task in (each.task("test", number) for number in numbers) if task.template == name)
            return list(islice(found, EXAMPLES))
    if name in SUITES:
        seen, expected = (
            f"{name!r} is a suite, not a template or task",
            f"a template of it, or {name}/test/0 and the like",
        )
        raise TaskError(seen, expected=expected, fix=f"distrl tasks list --suite {name}")
    known = closest(name, _template_names())
    raise TaskError(f"no template or task is called {name!r}", expected=known, fix="distrl tasks list")


def _template_names() -> set[str]:
    return {template.name for each in SUITES.values() for template in each.templates}


def _print_task(task: Task) -> None:
    goal = task.goal
    wants = [f"{want.table}/{want.id or 'new'} {'gone' if want.absent else want.fields}" for want in goal.wants]
    showing = [f"showing {goal.showing.app}/{goal.showing.screen} {goal.showing.args or ''}"] if goal.showing else []
    answer = [f"answer {goal.answer!r}"] if goal.answer else []
    lines = {
        "template": task.template,
        "says": task.instruction,
        "given": ", ".join(
            f"{put.table}/{put.id} {'gone' if put.fields is None else put.fields}" for put in task.setup
        ),
        "starts on": f"{task.start.app}/{task.start.screen}" if task.start else "the home screen",
        "wants": "; ".join([*wants, *showing, *answer]) or "to be called impossible",
        "oracle": " → ".join(_leg(move) for move in task.route),
        "step limit": str(task.max_steps),
    }
    print(task.id)
    for name, text in lines.items():
        if text:
            print(f"  {name:10} {text}")


def _leg(move: Move) -> str:
    return " ".join(part for part in (move.verb, move.target, move.text) if part)


# --- try ------------------------------------------------------------------------------------------------------------


def _try(args: argparse.Namespace) -> int:
    from distrl.cli.episode import choose_agent, play_aloud

    task = find_task(args.id)
    out = args.out or Path("runs/try") / task.id.replace("/", "-")
    agent = choose_agent(args.agent, task, args.agent_seed)
    aloud = play_aloud(task, agent, WildConfig() if args.wild else TAME, out)
    if args.json:
        print_json(aloud)
    return 1 if args.agent == "oracle" and not aloud.verdict.success else 0
