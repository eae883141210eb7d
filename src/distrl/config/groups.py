"""Kinds of worker in one run: groups of workers, each with the settings in which it differs from the run.

A group is a line of `rollout.groups`: how many workers, then settings by their dotted keys. What differs may be what hangs
on a machine, such as its devices, their number and where decisions are computed; what is learnt is one and the same.
"""

from __future__ import annotations

import shlex

import msgspec

from distrl.config.schema import Config
from distrl.errors import ConfigError

MAY_DIFFER = (
    "devices.", "judge.", "policy.device", "runtime.device_resource", "runtime.worker_cpus", "runtime.worker_gpus", "rollout.decide",
    "rollout.batch_size", "rollout.batch_wait_s", "rollout.episode_budget_s", "rollout.step_deadline_s", "rollout.drain_s", "rollout.spool_episodes",
)  # fmt: skip
"""Settings that a group may have of its own, and beginnings of such."""
MOST_WORKERS = 1024


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Some workers of a run."""

    workers: int
    settings: dict[str, str]
    """By dotted key, as text."""


def groups_of(config: Config) -> tuple[Group, ...]:
    """The groups of a run; one of all workers, that differ in nothing, where it names none."""
    if not config.rollout.groups:
        return (Group(workers=config.rollout.workers, settings={}),)
    return tuple(map(_parse, config.rollout.groups))


def num_workers(config: Config) -> int:
    """The workers of all groups."""
    return sum(group.workers for group in groups_of(config))


def group_number(config: Config, worker: int) -> int:
    """Which group the worker of this number is in."""
    for number, group in enumerate(groups_of(config)):
        if worker < group.workers:
            return number
        worker -= group.workers
    raise ConfigError(f"there is no worker-{worker}", expected=f"one of {num_workers(config)} workers")


def _parse(line: str) -> Group:
    try:
        count, *words = shlex.split(line)
    except ValueError:
        raise _refusal(line, "it is empty, or a quotation mark is missing") from None
    if not count.isdecimal() or not 1 <= int(count) <= MOST_WORKERS:
        raise _refusal(line, f"{count[:40]!r} is no number of workers from 1 to {MOST_WORKERS}")
    pairs = [word.partition("=") for word in words]
    for key, equals, _ in pairs:
        if not equals:
            raise _refusal(line, f"{key[:80]!r} is no key=value")
        if not key.startswith(MAY_DIFFER):
            raise _refusal(line, f"{key[:80]} is one and the same for all workers of a run")
    return Group(workers=int(count), settings={key: value for key, _, value in pairs})


def _refusal(line: str, why: str) -> ConfigError:
    return ConfigError(
        f"rollout.groups has {line[:200]!r}: {why}",
        expected=f"a number of workers, then key=value for what differs: {', '.join(MAY_DIFFER)}",
        fix='rollout.groups = ["2 devices.per_worker=64", "4 devices.kind=android devices.per_worker=8 runtime.device_resource=phone"]',
    )
