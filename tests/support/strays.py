"""Episodes that did something else than they were asked to, played on real phones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from random import Random

from msgspec.structs import replace

from distrl.cli.episode import random_agent
from distrl.devices.sim.world import setup_of, start_state
from distrl.policies.pointer.policy import NO_CHOICE
from distrl.tasks.sim.judge import check_of
from distrl.tasks.sim.oracle import Act, Oracle
from distrl.tasks.sim.renaming import rename
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import Draft, NoInstance, Template, seed_of
from distrl.types import Decision, Observation, Task, Trajectory
from support.batches import tiny_policy
from support.rollouts import a_phone, make_tools, play

LONG = 40


def play_as(task: Task, act: Act, *, id: str = "stray") -> Trajectory:
    """`task` as `act` plays it, in the pointer's grammar."""
    policy = tiny_policy()

    async def decide(seen: Observation) -> tuple[Decision, int]:
        action = act(seen.elements)
        choice = policy.imitate(seen, action) or NO_CHOICE
        return Decision(action=action, choice=choice, logp=-1.0, entropy=1.0, value=0.5), 0

    played = asyncio.run(play(id, a_phone(), task, make_tools(decide))).trajectory
    assert played is not None
    return played


def drawn_on(asked: Task, template: Template, turn: int = 0) -> Task | None:
    """A task of some template on the phone of another task, as that one begins; None where it has none."""
    draft = Draft(setup_of(asked).phone, seed_of("stray", asked.id, template.name, turn), "train")
    draft.tables = start_state(asked).tables
    try:
        template.fill(draft)
    except NoInstance:
        return None
    return draft.finish(suite=asked.suite, template=template.name, index=0)


def stray(asked: Task, done: Task, *, id: str = "stray") -> Trajectory:
    """The episode of an agent that was asked for one task and did another one perfectly well."""
    return play_as(replace(asked, max_steps=LONG), Oracle(done).act, id=id)


@cache
def strays(name: str, count: int, *, names: int = 0) -> tuple[Trajectory, ...]:
    """Failures of the oracle, each of which did another training task of the suite on the phone of the first.

    With `names` above 0, on phones where all names are made up.
    """
    return tuple(found for found, _ in zip(_strays(name, names), range(count), strict=False))


def _strays(name: str, names: int) -> Iterator[Trajectory]:
    templates = [template for template in suite(name).templates if not template.test_only]
    for index in range(suite(name).sizes["train"]):
        asked = suite(name).task("train", index)
        asked = rename(asked, names + index) if names else asked
        done = drawn_on(asked, templates[(index + index // len(templates) + 1) % len(templates)])
        if done is None or check_of(done).impossible or setup_of(done).start is not None or not _begins_so(asked, done):
            continue
        played = stray(asked, done, id=f"{name}-{index}")
        if not played.verdict.success and played.ending.is_terminal:
            yield played


def _begins_so(asked: Task, done: Task) -> bool:
    """Whether the phone of one task is what the other one would make of it."""
    setup = setup_of(asked)
    both = replace(setup, records=(*setup.records, *setup_of(done).records))
    return start_state(asked).tables == start_state(replace(asked, setup=both)).tables


@cache
def careless(name: str, count: int) -> tuple[Trajectory, ...]:
    """What comes of touching things at random and claiming to be done."""
    tasks = [replace(suite(name).task("train", index), max_steps=12) for index in range(count)]
    return tuple(play_as(task, random_agent(Random(task.id)), id=task.id.replace("/", "-")) for task in tasks)
