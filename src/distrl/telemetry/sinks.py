"""Where metrics go besides `metrics.jsonl`: TensorBoard, or a sink of your own, such as a tracker on the web.

Roles write `metrics.jsonl` and know nothing of sinks. The process that supervises them reads what was appended and forwards it,
so there is one writer, whatever the runtime. A sink that fails is left out for the rest of the session and named in the log
`distrl.telemetry`: no figure is worth a training run, and the file has them all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from distrl import plugins
from distrl.config.schema import TelemetryConfig
from distrl.types import Value

log = logging.getLogger("distrl.telemetry")


class SinkContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink is told about the run, beside its settings."""

    run: Path
    """The run folder; its name is the name of the run."""


@runtime_checkable
class MetricSink(Protocol):
    """Takes metrics as they are measured."""

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        """Take what one role measured, by name as in docs/metrics.md; `elapsed_s` is since the run's first metrics."""

    def close(self) -> None:
        """Send what is left."""


class MetricForwarder:
    """Reads what is appended to `metrics.jsonl` and hands it to sinks."""

    def __init__(self, path: Path, sinks: Mapping[str, MetricSink]) -> None:
        self._path, self._sinks = path, dict(sinks)
        self._first_s: float | None = None
        # What an earlier session wrote, it has forwarded: only when the run began is still of interest.
        self._read_bytes = path.stat().st_size if path.exists() else 0
        self._first_s = _first_time(path)

    def forward(self) -> None:
        """Hand on every whole line that is new."""
        if not self._sinks:
            return
        for line in self._new_lines():
            try:
                row = msgspec.json.decode(line, type=dict[str, Value])
            except msgspec.DecodeError:
                continue  # damaged: its owner is not the one to hear of it
            self._hand_on(row)

    def close(self) -> None:
        """Hand on the rest and close the sinks."""
        self.forward()
        for name, sink in list(self._sinks.items()):
            self._guarded(name, sink.close)

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

    def _hand_on(self, row: dict[str, Value]) -> None:
        time_s, role = row.get("time_s"), str(row.get("role") or row.get("event") or "run")
        if not isinstance(time_s, float | int):
            return
        self._first_s = float(time_s) if self._first_s is None else self._first_s
        named = {key: value for key, value in row.items() if "/" in key}
        figures = {key: float(value) for key, value in named.items() if isinstance(value, float | int)}
        elapsed_s = max(0.0, time_s - self._first_s)
        for name, sink in list(self._sinks.items()):
            self._guarded(name, lambda sink=sink: sink.write(role, figures, time_s=float(time_s), elapsed_s=elapsed_s))  # type: ignore[misc]

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a sink may raise anything (a network, a disk): it costs the sink alone
            log.warning("the metric sink %s failed and gets no more: %s: %s", name, type(error).__name__, error)
            self._sinks.pop(name, None)


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
    forwarder = MetricForwarder(metrics, find_sinks(config, SinkContext(run=metrics.parent)))
    try:
        yield forwarder.forward
    finally:
        forwarder.close()


def _first_time(path: Path) -> float | None:
    """When the run's first metrics were written; None: there are none yet."""
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.readline(), type=dict[str, Value]).get("time_s")
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return float(found) if isinstance(found, float | int) else None
