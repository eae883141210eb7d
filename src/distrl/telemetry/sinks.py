"""Where metrics go besides `metrics.jsonl`: TensorBoard, Weights & Biases, Trackio, or a sink of your own.

Roles write `metrics.jsonl` and know nothing of sinks. The process that supervises them reads what was appended and forwards it,
so there is one writer, whatever the runtime. No figure is worth a training run, and the file has them all, so a sink can neither
hold the supervisor up nor end it: each is called in a thread of its own behind a bounded queue. Where the queue is full, lines are
dropped and counted; a sink that raises gets no more of this session; one that has not ended by a deadline is left behind. Whatever
is lost that way is said once, as a warning of the logger `distrl.telemetry` and as a notice in `logs/supervisor.jsonl`, which
`distrl status` shows.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Protocol, runtime_checkable

import msgspec

from distrl import plugins
from distrl.config.schema import TelemetryConfig
from distrl.telemetry.events import EventLog
from distrl.threads import in_thread
from distrl.types import Value

log = logging.getLogger("distrl.telemetry")

QUEUE_LINES = 2000
"""Lines that may wait for a sink; further ones are dropped."""
CLOSE_S = 10.0
"""How long all sinks together may take at the end to send what is left."""
NOTICES = Path("logs") / "supervisor.jsonl"
"""Of a run folder: where what was lost is written down."""


class SinkContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink is told about the run, beside its settings."""

    run: Path
    """The run folder; its name is the name of the run."""


@runtime_checkable
class MetricSink(Protocol):
    """Takes metrics as they are measured. Both methods are called in one thread, another than the one that made the sink."""

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        """Take what one role measured, by name as in docs/metrics.md; `elapsed_s` is since the run's first metrics."""

    def close(self) -> None:
        """Send what is left."""


class _Line(msgspec.Struct, frozen=True):
    """What one role measured."""

    role: str
    metrics: dict[str, float]
    time_s: float
    elapsed_s: float


class _Delivery:
    """One sink in its thread, and the lines that wait for it. All but `_run` and `_next` is for the supervisor."""

    def __init__(self, name: str, sink: MetricSink, *, queue_lines: int) -> None:
        self.name, self._sink, self._queue_lines = name, sink, queue_lines
        self._lines: deque[_Line] = deque()
        self._changed, self._ending = Condition(), False
        self.dropped = 0
        self._done = in_thread(self._run, name=f"metric sink {name}")

    @property
    def failed(self) -> str:
        """What the sink raised; empty: nothing."""
        error = self._done.exception() if self._done.done() else None
        return f"{type(error).__name__}: {error}" if error is not None else ""

    def offer(self, line: _Line) -> None:
        """Let a line wait for the sink, or drop it where too many do; never blocks."""
        with self._changed:
            if len(self._lines) >= self._queue_lines:
                self.dropped += 1
            else:
                self._lines.append(line)
                self._changed.notify()

    def end(self) -> None:
        """Ask it to send what waits, and to close."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def await_end(self, until_s: float) -> int | None:
        """None where it has ended by `until_s`; else how many lines still wait: they are lost."""
        wait([self._done], max(0.0, until_s - time.monotonic()))
        return None if self._done.done() else len(self._lines)

    def _run(self) -> None:
        while (line := self._next()) is not None:
            self._sink.write(line.role, line.metrics, time_s=line.time_s, elapsed_s=line.elapsed_s)
        self._sink.close()

    def _next(self) -> _Line | None:
        """The next line; waits for it. None: there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ending)
            return self._lines.popleft() if self._lines else None


class MetricForwarder:
    """Reads what is appended to `metrics.jsonl` and queues it for the sinks; `tell` hears of what they lose."""

    def __init__(
        self,
        path: Path,
        sinks: Mapping[str, MetricSink],
        *,
        tell: Callable[[str], None] = log.warning,
        queue_lines: int = QUEUE_LINES,
        close_s: float = CLOSE_S,
    ) -> None:
        self._path, self._tell, self._close_s = path, tell, close_s
        # What an earlier session wrote, it has forwarded: only when the run began is still of interest.
        self._read_bytes = path.stat().st_size if path.exists() else 0
        self._first_s = _first_time(path)
        self._deliveries = [_Delivery(name, sink, queue_lines=queue_lines) for name, sink in sinks.items()]
        self._slow: set[str] = set()

    def forward(self) -> None:
        """Queue every whole line that is new, and tell of sinks that have failed or cannot keep up; waits for none of them."""
        if not self._deliveries:
            return
        lines = [line for raw in self._new_lines() if (line := self._parse(raw)) is not None]
        for delivery in self._deliveries:
            for line in lines:
                delivery.offer(line)
        self._check()

    def close(self) -> None:
        """Queue the rest, and give the sinks until the deadline to send what waits and to close."""
        self.forward()
        for delivery in self._deliveries:
            delivery.end()
        until_s = time.monotonic() + self._close_s
        for delivery in self._deliveries:
            waiting = delivery.await_end(until_s)
            if waiting is not None:
                late = f"had not closed {self._close_s:g} s after the end, with {waiting} lines not sent"
                self._tell(f"the metric sink {delivery.name} {late}: metrics.jsonl has them")
            if delivery.dropped:
                lost = f"lost {delivery.dropped} lines, which came faster than it took them"
                self._tell(f"the metric sink {delivery.name} {lost}: metrics.jsonl has them")
        self._check()

    def _check(self) -> None:
        """Tell once of each sink that has failed, which gets no more, and of each that loses lines."""
        for delivery in list(self._deliveries):
            if delivery.failed:
                self._deliveries.remove(delivery)
                self._tell(f"the metric sink {delivery.name} failed and gets no more: {delivery.failed}")
            elif delivery.dropped and delivery.name not in self._slow:
                self._slow.add(delivery.name)
                self._tell(f"the metric sink {delivery.name} is too slow and loses lines: metrics.jsonl has them")

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole = file.read()
        except FileNotFoundError:
            return []
        end = whole.rfind(b"\n") + 1
        self._read_bytes += end
        return whole[:end].splitlines()

    def _parse(self, raw: bytes) -> _Line | None:
        """The figures of a line; None where it is damaged: its owner is not the one to hear of it."""
        try:
            row = msgspec.json.decode(raw, type=dict[str, Value])
        except ValueError:  # no JSON, or no UTF-8
            return None
        time_s, role = row.get("time_s"), str(row.get("role") or row.get("event") or "run")
        if not isinstance(time_s, float | int):
            return None
        self._first_s = float(time_s) if self._first_s is None else self._first_s
        named = {key: value for key, value in row.items() if "/" in key}
        figures = {key: float(value) for key, value in named.items() if isinstance(value, float | int)}
        return _Line(role, figures, float(time_s), max(0.0, time_s - self._first_s))


def check_sinks(config: TelemetryConfig) -> None:
    """Raise what can be told before a run begins: a sink that is not there, or says by its own `check` that it cannot work."""
    for name in config.sinks:
        check = getattr(plugins.load("sinks", name), "check", None)
        if callable(check):
            check()


def find_sinks(config: TelemetryConfig, context: SinkContext) -> dict[str, MetricSink]:
    """The sinks that the configuration names; `ConfigError` with the fix where one is not there."""
    made = {name: plugins.make("sinks", name, {}, {}, context) for name in config.sinks}
    return {name: plugins.check_type("sinks", name, sink, MetricSink) for name, sink in made.items()}  # type: ignore[type-abstract]


@contextmanager
def forwarding(config: TelemetryConfig, metrics: Path) -> Iterator[Callable[[], None]]:
    """While it lasts, calling what it gives forwards new metrics to the sinks of this run."""
    run = metrics.parent
    sinks = find_sinks(config, SinkContext(run=run))
    forwarder = MetricForwarder(metrics, sinks, tell=lambda text: _tell_of(run, text))
    try:
        yield forwarder.forward
    finally:
        forwarder.close()


def _tell_of(run: Path, text: str) -> None:
    """Warn whoever is there, and write it down for those who come later, as far as that is possible."""
    log.warning("%s", text)
    with suppress(OSError):
        notices = EventLog(run / NOTICES)
        notices.write("notice", text=text)
        notices.close()


def _first_time(path: Path) -> float | None:
    """When the run's first metrics were written; None: there are none yet."""
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.readline(), type=dict[str, Value]).get("time_s")
    except (FileNotFoundError, ValueError):
        return None
    return float(found) if isinstance(found, float | int) else None
