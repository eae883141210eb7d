"""A run as it goes: a live table on a terminal, one line every ten seconds elsewhere, and at once where a role is in trouble.

Where nobody reads it any more, since a pipe or the terminal was closed, it goes quiet, and the training goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.table import Table
from rich.text import Text

from distrl.config.schema import Config
from distrl.evaluation.report import Gain, Rate, Report, gains_by_seen, gains_by_template
from distrl.runtime.base import RoleStatus
from distrl.runtime.session import RunSnapshot
from distrl.telemetry.heartbeat import Heartbeat

LINE_EVERY_S = 10.0
PAINT_EVERY_S = 0.25
MOST_TEMPLATES, LONGEST_NAME = 12, 40
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 48
BESIDE_BARS = 60
"""Columns that the words in the line of bars need."""
COLOURS = {"doing": "green", "waiting": "yellow", "starting": "cyan", "stopped": "dim"}


class _Console(Console):
    """One that says that its pipe is closed, where rich would end the program and silence its results too."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Progress:
    """Shows snapshots of a run; use as a context manager."""

    def __init__(
        self, console: Console | None = None, *, address: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._console = console or _Console(stderr=True, highlight=False)
        # Painted by `show` alone: a thread beside it would paint over a terminal that has just changed its size.
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._clock, self._shown_s = clock, float("-inf")
        self._size = self._console.size
        self._curve: list[tuple[float, float]] = []
        self._in_trouble: set[str] = set()
        self._quiet = False

    def __enter__(self) -> Progress:
        if self._live:
            with self._readers():
                self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live and not self._quiet:
            with self._readers():
                self._clear_if_resized()
                self._live.stop()

    def show(self, snapshot: RunSnapshot) -> None:
        """Show one snapshot, if it is time and anyone reads."""
        self._note(snapshot)
        if not self._quiet:
            with self._readers():
                self._show(snapshot)

    @contextmanager
    def _readers(self) -> Iterator[None]:
        """Go quiet where what is written reaches nobody."""
        try:
            yield
        except (OSError, SystemExit):  # the second is what rich makes of a closed pipe
            self._quiet = True

    def _show(self, snapshot: RunSnapshot) -> None:
        in_trouble = {status.role for status in snapshot.roles if trouble_of(status)}
        if in_trouble - self._in_trouble:
            self._shown_s = float("-inf")
        self._in_trouble = in_trouble
        resized = self._live is not None and self._clear_if_resized()
        if not resized and self._clock() - self._shown_s < (PAINT_EVERY_S if self._live else LINE_EVERY_S):
            return
        self._shown_s = self._clock()
        if self._live:
            shown = Group(_headline(snapshot), self._success(snapshot), role_table(snapshot.roles), *self._place())
            self._live.update(shown, refresh=True)
        else:
            print(line(snapshot), file=sys.stderr, flush=True)

    def _place(self) -> list[Text]:
        """Where the dashboard is."""
        return [Text(f"dashboard {self._address}", style="dim")] if self._address else []

    def _clear_if_resized(self) -> bool:
        """Wipe the screen of a terminal that has changed its size.

        Most terminals wrap what they show anew, so nobody knows any more how many lines the table above takes up.
        """
        if self._console.size == self._size:
            return False
        self._size = self._console.size
        self._console.control(Control.clear(), Control.home())
        return True

    def _note(self, snapshot: RunSnapshot) -> None:
        rate = recent_success(snapshot.roles)
        if rate is not None and (not self._curve or snapshot.budget.collect_s - self._curve[-1][0] >= 5.0):
            self._curve.append((snapshot.budget.collect_s, rate))

    def _success(self, snapshot: RunSnapshot) -> Text:
        room = max(8, min(MOST_BARS, self._size.width - BESIDE_BARS))
        bars = "".join(BARS[min(7, int(8 * rate))] for _, rate in self._curve[-room:])
        now, evaluated = recent_success(snapshot.roles), held_out(snapshot.roles)
        text = Text("success in training ", style="bold")
        text.append(bars, style="green")
        text.append(f" {now:.0%}" if now is not None else " …", style="bold green")
        if evaluated:
            text.append(f"   {evaluated} ({_version(_heartbeat(snapshot.roles, 'evaluator'))})", style="cyan")
        return text


def _headline(snapshot: RunSnapshot) -> Text:
    spent, stats = snapshot.budget, snapshot.stats
    budget = snapshot.config.run.minutes
    clock = f"{_clock(spent.collect_s)}" + (f" of {_clock(60 * budget)}" if budget else "")
    text = Text(f"{snapshot.run.name}  ", style="bold")
    text.append(f"{snapshot.phase}  {clock}  ·  {stats.episodes} episodes, {stats.steps} steps", style="default")
    return text


def role_table(roles: list[RoleStatus]) -> Table:
    """Every role: what it is doing or waiting for, and its figures."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim", expand=False)
    for name in ("role", "now", "figures"):
        table.add_column(name, overflow="fold", no_wrap=name == "role")
    for status in roles:
        table.add_row(status.role, _now(status), figures(status.heartbeat))
    return table


def trouble_of(status: RoleStatus) -> str:
    """What is wrong with a role: why it is gone, or how long it has been silent; empty: nothing."""
    return "" if status.note == "finished" else status.note


def _now(status: RoleStatus) -> Text:
    heartbeat = status.heartbeat
    if trouble := trouble_of(status):
        doing = f" while {heartbeat.what} · logs/{status.role}.jsonl" if heartbeat and status.alive else ""
        return Text(f"{trouble}{doing}", style="red")
    if heartbeat is None:
        return Text("starting", style="cyan")
    prefix = "waits for " if heartbeat.phase == "waiting" else ""
    restarts = f"  (restarted {status.restarts}×)" if status.restarts else ""
    return Text(f"{prefix}{heartbeat.what}{restarts}", style=COLOURS[heartbeat.phase])


def figures(heartbeat: Heartbeat | None) -> str:
    """A role's counters in a few words."""
    if heartbeat is None or "progress" not in heartbeat.figures:
        return ""
    get = heartbeat.figures.get
    if heartbeat.role == "learner":
        skipped = f" ({get('skipped_updates', 0):.0f} skipped)" if get("skipped_updates", 0) else ""
        updates = f"{get('updates', 0):.0f} updates{skipped}"
        return (
            f"{_version(heartbeat)} · {updates} · staleness {get('staleness/mean', 0):.1f} · idle {get('idle', 0):.0%}"
        )
    if heartbeat.role == "evaluator":
        return f"{_version(heartbeat)}: {_rate(heartbeat)}" if "success" in heartbeat.figures else ""
    if heartbeat.role.startswith("inference-"):
        return f"{_version(heartbeat)} · {get('decisions', 0):.0f} decisions · {get('batch/mean', 0):.1f} in a batch"
    down = get("restarting", 0)
    trouble = (
        f" · {down:.0f} recovering" if down else f" · {get('losses', 0):.0f} recovered" if get("losses", 0) else ""
    )
    return f"{_version(heartbeat)} · {get('episodes', 0):.0f} episodes · {get('healthy', 0):.0f} phones up{trouble}"


def line(snapshot: RunSnapshot) -> str:
    """One snapshot in one line."""
    rate = recent_success(snapshot.roles)
    shown = [
        f"[{_clock(snapshot.budget.wall_s)}] {snapshot.phase}",
        f"{snapshot.stats.episodes} episodes",
        f"success {rate:.0%}" if rate is not None else "",
        held_out(snapshot.roles),
        _newest(snapshot),
    ]
    waiting = [
        f"{r.role} waits for {r.heartbeat.what}"
        for r in snapshot.roles
        if r.heartbeat and r.heartbeat.phase == "waiting"
    ]
    dead = [f"{r.role}: {trouble}" for r in snapshot.roles if (trouble := trouble_of(r))]
    recovering = sum((r.heartbeat.figures.get("restarting", 0) for r in snapshot.roles if r.heartbeat), 0.0)
    warming = [
        r.heartbeat.what
        for r in snapshot.roles
        if r.role == "learner" and r.heartbeat and r.heartbeat.phase != "waiting" and not snapshot.stats.episodes
    ]
    phones = [f"{recovering:.0f} phone(s) recovering"] if recovering else []
    return " · ".join([part for part in shown if part] + warming + phones + dead + waiting[:2])


def recent_success(roles: list[RoleStatus]) -> float | None:
    """Success among the workers' recent episodes; None before there are enough."""
    beats = [r.heartbeat.figures for r in roles if r.heartbeat and r.role.startswith("worker")]
    count = sum(f.get("recent", 0.0) for f in beats)
    if count < 20:
        return None
    return sum(f.get("success/recent", 0.0) * f.get("recent", 0.0) for f in beats) / count


def held_out(roles: list[RoleStatus]) -> str:
    """The last evaluation in words, with how many tasks it is on; empty before there is one."""
    heartbeat = _heartbeat(roles, "evaluator")
    return f"held-out {_rate(heartbeat)}" if heartbeat and "success" in heartbeat.figures else ""


def share(rate: Rate) -> str:
    """A success with its interval in words."""
    return f"{rate.value:.1%}  [{rate.low:.1%}, {rate.high:.1%}] on {rate.n} held-out tasks"


def success_by_template(before: Report | None, after: Report, rest: str) -> list[str]:
    """Lines of at most 80 columns: the templates with the least success first; `rest` says where the others are."""
    rows = gains_by_template(before, after)
    shown, all_of = rows[:MOST_TEMPLATES], gains_by_seen(before, after)
    title = f"success by template, least first{'' if before is None else ' (before → after)'}:"
    wide = min(LONGEST_NAME, max((len(row.name) for row in (*shown, *all_of)), default=0))
    more = [f"  … and {len(rows) - len(shown)} more: {rest}"] if len(rows) > len(shown) else []
    return [title, *(_gain(row, wide) for row in shown), *more, *(_gain(row, wide) for row in all_of)]


def _gain(row: Gain, wide: int) -> str:
    name = row.name if len(row.name) <= wide else f"{row.name[: wide - 1]}…"
    before = "" if row.before is None else f"{row.before:5.0%} →"
    return f"  {name:{wide}}  {row.n:5} {'task ' if row.n == 1 else 'tasks'}  {before}{row.after:5.0%}"


def after_demonstrations(config: Config) -> str:
    """What the policy had learnt from when it was evaluated first; empty: nothing."""
    count = config.warm_start.demonstrations
    return f", after {count} demonstrations" if count else ""


def _rate(heartbeat: Heartbeat) -> str:
    found = heartbeat.figures
    unknown = f", {found['unknown']:.0f} without an outcome" if found.get("unknown") else ""
    return f"{found['success']:.0%} of {found.get('n', 0):.0f}{unknown}"


def _version(heartbeat: Heartbeat | None) -> str:
    version = heartbeat.figures.get("version", -1) if heartbeat else -1
    return f"version {version:.0f}" if version >= 0 else "no version yet"


def _newest(snapshot: RunSnapshot) -> str:
    """The learner's version; while it starts again or a run is resumed, the one that is published."""
    heartbeat = _heartbeat(snapshot.roles, "learner")
    if heartbeat is not None and heartbeat.figures.get("version", -1) >= 0:
        return _version(heartbeat)
    try:  # by itself: what reads weights loads torch, which the supervisor does without
        published = msgspec.json.decode((snapshot.run.weights / "latest.json").read_bytes(), type=_Published)
    except (OSError, ValueError):
        return "no version yet"
    return f"version {published.version}"


class _Published(msgspec.Struct, frozen=True):
    """What is read of the pointer to the newest weights."""

    version: int


def _heartbeat(roles: list[RoleStatus], role: str) -> Heartbeat | None:
    return next((status.heartbeat for status in roles if status.role == role), None)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
