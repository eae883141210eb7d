"""`distrl bench stalls`: processes of a running training are stopped, and how soon `distrl status` calls them silent is measured.

A real `distrl train` runs with the heartbeat of the defaults. Its learner, worker and evaluator get SIGSTOP in turn while they train
and while they finish, and SIGCONT once they are named; the run goes on through all of them, and is audited as in `bench kills`. While a
role starts it is named later, on purpose: it loads its libraries. Those stops are counted apart.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.fault_cases import PHASES, Phase, Role, signal_case
from distrl.bench.system.fault_signals import ROLES, SLOW, Sessions, close, hit
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError
from distrl.types import Value

SETTINGS: dict[str, Value] = {**SLOW, "runtime.heartbeat_s": 0.5}
"""The heartbeat of the defaults, unlike in the fault matrix."""
STOPS: dict[Phase, int] = {"training": 30, "finishing": 7, "starting": 1}
"""Of each role."""
QUICK_STOPS: dict[Phase, int] = {"training": 2, "finishing": 1, "starting": 0}
BOUND_S = 3.0
"""Within which a role has to be named, but for one that starts."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A role that was stopped, and how soon it was named."""

    role: Role
    phase: Phase
    named_s: float


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """How soon stopped roles were named."""

    stops: int
    p50_s: float
    p99_s: float
    slowest_s: float


class StallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """From the stop of a role until `distrl status` calls it silent."""

    stops: int
    """While training and finishing."""
    named_p50_s: float
    named_p99_s: float
    named_slowest_s: float
    within_bound: float
    """Share of them that were named within 3 seconds."""
    by_role: dict[str, Named]
    """Of the same stops."""
    by_phase: dict[str, Named]
    """With those while a role starts."""
    died: int
    """Roles that died, of being stopped or otherwise."""
    lost_episodes: int
    duplicate_episodes: int
    wall_s: float
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> StallFigures:
    """Stop every role in every phase, many times."""
    stops = QUICK_STOPS if options.quick else STOPS
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="distrl-stalls-") as folder:
        sessions = Sessions(Path(folder), SETTINGS)
        try:
            found = [stop for phase in PHASES for stop in _stop_roles(sessions, phase, stops[phase])]
            died = sessions.deaths()
            left = close(sessions, time.monotonic() - started_s)
        finally:
            sessions.stop()
    if not left.finished:
        raise DistrlError("the run did not come to its end", expected="a summary with all evaluations")
    return summarise(found, died, (left.lost_episodes, left.duplicate_episodes), time.monotonic() - started_s)


def _stop_roles(sessions: Sessions, phase: Phase, times: int) -> list[Stop]:
    """Stop each role so often in this phase; one that has just ended by itself is tried again."""
    found = list[Stop]()
    for role in list(ROLES) * times:
        done = hit(sessions, signal_case("STOP", role, phase), until_named=True)
        if done.seen != "goes on":
            raise DistrlError(f"a stopped {role}, {phase}: {done.seen}", expected="a role that goes on after CONT")
        if done.named_s is not None:
            found.append(Stop(role=role, phase=phase, named_s=done.named_s))
            log_progress(f"stalls: {role} while {phase}: named after {done.named_s:.2f} s")
    return found


def summarise(found: Sequence[Stop], died: int, audited: tuple[int, int], wall_s: float) -> StallFigures:
    """The stops in figures; `audited`: episodes that were lost and doubled."""
    bound = [stop for stop in found if stop.phase != "starting"]
    whole = _named(bound)
    return StallFigures(
        stops=whole.stops,
        named_p50_s=whole.p50_s,
        named_p99_s=whole.p99_s,
        named_slowest_s=whole.slowest_s,
        within_bound=round(sum(stop.named_s <= BOUND_S for stop in bound) / max(1, len(bound)), 4),
        by_role={role: _named([stop for stop in bound if stop.role == role]) for role in ROLES},
        by_phase={phase: _named([stop for stop in found if stop.phase == phase]) for phase in PHASES},
        died=died,
        lost_episodes=audited[0],
        duplicate_episodes=audited[1],
        wall_s=round(wall_s, 1),
        seeds=1,
        config_hash=config_hash(load_config(None, SETTINGS)),
    )


def _named(stops: Sequence[Stop]) -> Named:
    times_s = [stop.named_s for stop in stops] or [0.0]
    p50_s, p99_s = (round(float(np.quantile(times_s, share)), 2) for share in (0.5, 0.99))
    return Named(stops=len(stops), p50_s=p50_s, p99_s=p99_s, slowest_s=round(max(times_s), 2))
