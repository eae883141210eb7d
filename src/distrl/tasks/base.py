"""The task seam: a suite is a named set of tasks in three splits that share no instruction.

What a suite can do besides (tell which other tasks an episode fulfilled, or give a task other names) it says by having
the method. Who plays tasks and who judges them is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from random import Random
from typing import Protocol, runtime_checkable

from distrl import plugins
from distrl.config.schema import TasksConfig
from distrl.errors import TaskError, closest
from distrl.types import Split, Task, Trajectory

SPLITS: tuple[Split, ...] = ("train", "tune", "test")

Fitting = Callable[[Trajectory], Iterable[Task]]
"""The training tasks that the end of a failed episode fulfils, best first.

It may take its time, such as to ask a model, and may raise: a worker calls it in a thread beside its devices, several at
a time, and gives it `judge.deadline_s` for an episode."""


@runtime_checkable
class Suite(Protocol):
    """Tasks by split and number; the same number always gives the same task."""

    name: str

    def size(self, split: Split) -> int:
        """How many tasks a split has."""

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split, from 0; `TaskError` beyond its size."""


@runtime_checkable
class RelabelsEpisodes(Protocol):
    """A suite that can be asked in hindsight which of its tasks an episode fulfilled."""

    def hindsight(self, *, max_oracle_steps: int, flip: float) -> Fitting:
        """Finds training tasks; `flip` is the share of its verdicts that are wrong on purpose."""


@runtime_checkable
class RenamesTasks(Protocol):
    """A suite whose tasks can come under other names of people and things."""

    def rename(self, task: Task, random: Random, pool: int) -> Task:
        """The task under other names; itself where there are none that fit."""


@runtime_checkable
class HoldsOutTemplates(Protocol):
    """A suite with templates that the test split alone has."""

    def held_out_templates(self) -> frozenset[str]:
        """Their names."""


def held_out_templates(suite: Suite) -> frozenset[str]:
    """The templates that training never has; none where the suite does not say."""
    return suite.held_out_templates() if isinstance(suite, HoldsOutTemplates) else frozenset()


@runtime_checkable
class ChecksTemplates(Protocol):
    """A suite that can tell beforehand of templates without a task."""

    def refuse_unposable(self) -> None:
        """`TaskError` that names a template which no device can pose."""


def refuse_unposable(suite: Suite) -> None:
    """`TaskError` where the suite can tell that one of its templates has no task; before a listing, a check or a training."""
    if isinstance(suite, ChecksTemplates):
        suite.refuse_unposable()


def find_suite(tasks: TasksConfig) -> Suite:
    """The suite that the configuration names; `ConfigError` or `TaskError` with the fix where there is none."""
    own = ("list", "android_world", "miniwob", "mobilegym", "webapps")
    tables = {name: getattr(tasks, name) for name in own}
    made = plugins.make("suites", tasks.suite, tables, tasks.options)
    return plugins.check_type("suites", tasks.suite, made, Suite)  # type: ignore[type-abstract]


def suite(name: str) -> Suite:
    """The suite with this name, without settings of its own."""
    return find_suite(TasksConfig(suite=name))


def tasks_of(suite: Suite, split: Split, count: int | None = None) -> Iterator[Task]:
    """The first `count` tasks of a split; None: all of them."""
    size = suite.size(split)
    return (suite.task(split, index) for index in range(size if count is None else min(count, size)))


def held_out(tasks: TasksConfig, count: int, split: Split = "test") -> list[Task]:
    """The first `count` held-out tasks of a run's suite that are within its limits; `TaskError` without any."""
    chosen: list[Task] = []
    suite, limit = find_suite(tasks), tasks.max_oracle_steps
    for task in tasks_of(suite, split):
        if not limit or task.oracle_steps <= limit:
            chosen.append(task)
        if len(chosen) == count:
            break
    if not suite.size(split):
        raise no_tasks(suite, split)
    if not chosen:
        raise TaskError(
            f"no {split} task of {suite.name} is done in {limit} step(s)",
            expected="tasks.max_oracle_steps of 0 (no limit), or large enough for some task",
            fix="--max-oracle-steps 0",
        )
    return chosen


def find_task(suite: Suite, id: str, found_as: str = "") -> Task:
    """The task with this id, `suite/split/number`; the suite by its own name or by the one that it was found as."""
    name = found_as or suite.name
    prefix = next((prefix for prefix in (f"{name}/", f"{suite.name}/") if id.startswith(prefix)), "")
    split, _, number = id.removeprefix(prefix).partition("/")
    if split not in SPLITS or not number.isdecimal():
        raise TaskError(
            f"no task is called {id!r}",
            expected=f"{name}/test/0 and the like",
            fix=f"distrl tasks list --suite {name}",
        )
    check_index(suite, split, int(number), name)
    return suite.task(split, int(number))


def id_under(task: Task, found_as: str) -> str:
    """The task's id as every verb takes it: with the name that its suite was found as, such as an import path."""
    return f"{found_as}/{task.id.removeprefix(f'{task.suite}/')}"


def shown_id(id: str, found_as: str) -> str:
    """The id of a stored task as every verb takes it: a suite of one's own is found by its name in the settings, such as an import path.

    The suite itself is not made, since what a run names may be code. Other ids, such as those of demonstrations of one's own, stay.
    """
    own = found_as not in plugins.BUILT_IN["suites"] and "/" in id
    return f"{found_as}/{id.partition('/')[2]}" if own else id


def check_index(suite: Suite, split: Split, index: int, found_as: str = "") -> None:
    """`TaskError` where a split has no task of this number."""
    size = suite.size(split)
    if not 0 <= index < size:
        fix = f"distrl tasks show {found_as or suite.name}/{split}/{size - 1:05d}" if size else "another split"
        raise TaskError(f"{suite.name} has no {split} task {index}", expected=f"0 to {size - 1}", fix=fix)


def no_tasks(suite: Suite, split: Split) -> TaskError:
    """The error of a split without tasks."""
    return TaskError(
        f"{suite.name} has no {split} tasks",
        expected="tasks in all of train, tune and test",
        fix="give the suite some: evaluations before and after a run play test tasks, those on the way tune tasks; "
        "with --evaluation.every_s 0 there are none on the way",
    )


def split_of(instruction: str) -> Split:
    """Where an instruction belongs: a function of its text alone, so that no text is in two splits."""
    digest = blake2b(instruction.casefold().encode(), digest_size=4).digest()
    share = int.from_bytes(digest, "big") / 2**32
    return "train" if share < 0.7 else "tune" if share < 0.8 else "test"


def refuse_overlap(tasks: Iterable[Task]) -> None:
    """Raise if an instruction stands in more than one split."""
    seen: dict[str, Split] = {}
    for task in tasks:
        first = seen.setdefault(task.instruction.casefold(), task.split)
        if first != task.split:
            raise TaskError(
                f"{task.instruction!r} is in the {first} split and in the {task.split} split",
                expected="splits that share no instance",
                fix="let `split_of` choose the split by the instruction's text",
            )


def unknown_split(split: str) -> TaskError:
    """The refusal of a split that no suite has."""
    return TaskError(f"unknown split {split!r}", expected=closest(split, SPLITS), fix='"train", "tune" or "test"')
