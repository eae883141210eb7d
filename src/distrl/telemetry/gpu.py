"""How busy the GPUs of this machine are, as their driver's own tool says. Without the tool there is nothing to say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from threading import Event, Lock, Thread

import msgspec

TOOL = "nvidia-smi"
PERIOD_S = 2.0
ANSWER_S = 10.0
"""Longest wait for an answer of the tool."""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment."""

    utilisation: float
    """Share of the last moments in which something was computed."""
    memory_mb: float
    """In use."""


def ask_driver(*fields: str) -> list[str]:
    """A line for each GPU with these fields, separated by commas; none where the driver does not answer."""
    if shutil.which(TOOL) is None:
        return []
    command = [TOOL, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def read_gpus() -> list[GpuReading]:
    """Every GPU now."""
    return [reading for line in ask_driver("utilization.gpu", "memory.used") if (reading := parse(line))]


def parse(line: str) -> GpuReading | None:
    """One line of the driver's answer; None where it is none."""
    try:
        busy, memory = (float(part) for part in line.split(","))
    except ValueError:
        return None
    return GpuReading(utilisation=busy / 100, memory_mb=memory)


class GpuMeter:
    """Asks every two seconds, beside whatever else goes on, and tells each reading."""

    def __init__(
        self,
        tell: Callable[[GpuReading], None],
        *,
        ask: Callable[[], list[GpuReading]] = read_gpus,
        period_s: float = PERIOD_S,
    ) -> None:
        self._tell, self._ask, self._period_s = tell, ask, period_s
        self._lock, self._closed = Lock(), Event()
        self._sum, self._num = 0.0, 0
        self._thread = Thread(target=self._run, name="gpu meter", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Forget what was read so far."""
        with self._lock:
            self._sum, self._num = 0.0, 0

    def mean(self) -> float | None:
        """Mean utilisation since the last `reset`, over all GPUs; None where nothing was read."""
        with self._lock:
            return self._sum / self._num if self._num else None

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        self._thread.join(timeout=ANSWER_S)

    def _run(self) -> None:
        while not self._closed.wait(self._period_s):
            for reading in self._ask():
                with self._lock:
                    self._sum, self._num = self._sum + reading.utilisation, self._num + 1
                self._tell(reading)
