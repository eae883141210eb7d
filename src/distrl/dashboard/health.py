"""How a run is: its roles, what they wait for, its queues, restarts by cause, lost devices, and what its logs say."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import msgspec

from distrl import Run
from distrl.dashboard.fleet import Tile
from distrl.dashboard.run_list import OpenRun
from distrl.errors import UsageError
from distrl.telemetry.spans import EVENT as SPANS
from distrl.types import Value

MOST_LINES = 300
TROUBLE = "trouble"
"""The word that leaves out all other lines."""
QUEUES = ("worker/judging", "worker/storing", "worker/spooled", "learner/replay/eligible")
"""Figures of heartbeats that are lengths of queues."""
OUT_OF_USE = ("quarantined", "absent", "restarting")
"""States of a device that cannot play."""
MOST_DEVICES = 200
TROUBLES = (
    "died",
    "killed",
    "failed",
    "device_lost",
    "unjudged",
    "disagreement",
    "warning",
    "ended",
    "not_ended",
    "device_not_closed",
)

WORDS = {"why": "because"}
"""How a field of an event reads before its value, where not by its name."""


class ShownRole(msgspec.Struct, frozen=True, kw_only=True):
    """One role."""

    role: str
    alive: bool
    phase: str
    what: str
    for_s: float
    """For how long it has been at that, as of its last heartbeat."""
    heard_s: float
    """When its last heartbeat was, as a date."""
    restarts: int
    note: str
    figures: dict[str, float]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why roles were started again or devices lost, and how often."""

    who: str
    why: str
    count: int
    last_s: float


class OutOfUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device that cannot play at this moment."""

    device: str
    state: str
    """restarting, quarantined or absent."""
    waiting: str
    losses: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A run from its inside."""

    phase: str
    cause: str
    roles: list[ShownRole]
    queues: list[tuple[str, str, float]]
    """Role, figure and length."""
    restarts: list[Cause]
    losses: list[Cause]
    out_of_use: list[OutOfUse]
    """Those in quarantine first."""
    num_devices: int
    notices: list[str]
    troubles: list[str]
    logs: list[str]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a log."""

    time_s: float
    role: str
    event: str
    text: str
    trouble: bool


def out_of_use(tiles: list[Tile]) -> list[OutOfUse]:
    """The devices that are in quarantine, absent or being restarted."""
    found = [one for one in tiles if one.state in OUT_OF_USE]
    found.sort(key=lambda one: OUT_OF_USE.index(one.state))
    return [
        OutOfUse(device=one.device, state=one.state, waiting=one.waiting, losses=one.losses)
        for one in found[:MOST_DEVICES]
    ]


def health_of(opened: OpenRun) -> Health:
    """Read from what the roles wrote; the caller holds the lock."""
    status, run = opened.status(), opened.run
    roles = []
    for one in status.roles:
        beat = one.heartbeat
        roles.append(
            ShownRole(
                role=one.role,
                alive=one.alive,
                phase=beat.phase if beat else "starting",
                what=beat.what if beat else "",
                for_s=max(0.0, beat.beat_s - beat.since_s) if beat else 0.0,
                heard_s=beat.time_s if beat else 0.0,
                restarts=one.restarts,
                note=one.note,
                figures=beat.figures if beat else {},
            )
        )
    queues = [
        (role.role, name, role.figures[name.partition("/")[2]])
        for role in roles
        for name in QUEUES
        if role.role.partition("-")[0] == name.partition("/")[0] and name.partition("/")[2] in role.figures
    ]
    names = run.logs()
    _, tiles = opened.fleet.tiles()
    return Health(
        phase=status.phase,
        cause=status.cause,
        roles=roles,
        queues=queues,
        restarts=_causes(run, ["supervisor"] if "supervisor" in names else [], "died", "role"),
        out_of_use=out_of_use(tiles),
        num_devices=len(tiles),
        losses=_causes(run, [name for name in names if name.startswith("worker")], "device_lost", "device"),
        notices=status.notices,
        troubles=status.troubles,
        logs=names,
    )


def _causes(run: Run, logs: list[str], event: str, who: str) -> list[Cause]:
    counts: Counter[tuple[str, str]] = Counter()
    last_s: dict[tuple[str, str], float] = {}
    for log in logs:
        for line in run.newest_events(log, words=[f'"{event}"']):
            if line["event"] == event:
                key = (str(line.get(who, "")), without_numbers(str(line.get("why", ""))))
                counts[key] += 1
                last_s.setdefault(key, float(line["time_s"]))
    return [Cause(who=key[0], why=key[1], count=count, last_s=last_s[key]) for key, count in counts.most_common(60)]


def without_numbers(why: str) -> str:
    """A cause without what differs from one time to the next, so that equal ones are counted together."""
    return re.sub(r"\d+(\.\d+)? s\b", "… s", why)


def lines_of(run: Run, role: str, text: str) -> list[LogLine]:
    """The newest lines of one log, or of all, that hold these words, newest first; "trouble" as a word of its own: warnings alone."""
    names = run.logs()
    if role and role not in names:
        raise UsageError(f"{role[:80]!r} has no log", expected=", ".join(names) or "a run that has begun")
    words = text.split()
    troubles = TROUBLE in words
    words = [word for word in words if word != TROUBLE]
    found = []
    for name in [role] if role else names:
        inside = [word for word in words if word.isascii() and word.casefold() not in name]
        events = (event for event in run.newest_events(name, words=[*inside]) if event["event"] != SPANS)
        lines = (_line(name, event) for event in events)
        fitting = (line for line in lines if not troubles or line.trouble)
        found += list(islice(fitting, MOST_LINES))
    return sorted(found, key=lambda line: -line.time_s)[:MOST_LINES]


def _line(role: str, event: dict[str, Value]) -> LogLine:
    rest = {name: value for name, value in event.items() if name not in ("time_s", "event")}
    return LogLine(
        time_s=float(event["time_s"]),
        role=role,
        event=str(event["event"]),
        text=" · ".join(f"{WORDS.get(name, name)} {value}" for name, value in rest.items())[:2000],
        trouble=event["event"] in TROUBLES,
    )
