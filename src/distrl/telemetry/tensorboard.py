"""Metrics as TensorBoard event files in `<run>/tensorboard/`, a folder for each role: `tensorboard --logdir runs`.

The horizontal axis (step) is whole seconds since the run's first metrics, the same for all roles and across sessions.
Needs the extra `distrl[tensorboard]`; neither TensorFlow nor torch is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from distrl.errors import UsageError
from distrl.installing import install
from distrl.telemetry.sinks import SinkContext

FLUSH_S = 10


class TensorBoardSink:
    """`distrl.telemetry.sinks.MetricSink`."""

    def __init__(self, settings: object, context: SinkContext) -> None:
        self.check()
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder = context.run / "tensorboard"
        self._event, self._summary, self._open = event_pb2.Event, summary_pb2.Summary, EventFileWriter
        self._writers: dict[str, Any] = {}

    @staticmethod
    def check() -> None:
        """`UsageError` where the package is not installed."""
        if find_spec("tensorboard") is None:
            raise UsageError(
                "telemetry.sinks = tensorboard needs the package tensorboard, which is not installed",
                expected="distrl with its extra [tensorboard]",
                fix=install("tensorboard"),
            )

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        """One event with a scalar for each metric."""
        if role not in self._writers:
            self._writers[role] = self._open(str(self._folder / role), flush_secs=FLUSH_S)
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = self._event(wall_time=time_s, step=int(elapsed_s), summary=self._summary(value=values))
        self._writers[role].add_event(event)

    def close(self) -> None:
        """Flush and let go of the files."""
        for writer in self._writers.values():
            writer.close()
