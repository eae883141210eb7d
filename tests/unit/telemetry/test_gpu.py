from __future__ import annotations

import threading

import pytest

from distrl.telemetry import gpu
from distrl.telemetry.gpu import GpuMeter, GpuReading, ask_driver, parse

HANGS_S = 20.0


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        ("97, 20480\n", GpuReading(utilisation=0.97, memory_mb=20480)),
        ("0, 0", GpuReading(utilisation=0.0, memory_mb=0)),
        ("[N/A], 12", None),
        ("", None),
        ("Failed to initialize NVML", None),
        ("1, 2, 3", None),
    ],
)
def test_a_line_of_the_driver_is_read_or_passed_over(line: str, reading: GpuReading | None) -> None:
    assert parse(line) == reading


def test_readings_are_told_and_their_mean_is_kept_since_the_last_reset() -> None:
    answers = iter([[], [GpuReading(utilisation=0.2, memory_mb=1), GpuReading(utilisation=0.6, memory_mb=2)]])
    told: list[float] = []
    over = threading.Event()

    def ask() -> list[GpuReading]:
        answer = next(answers, None)
        if answer is None:
            over.set()
        return answer or []

    meter = GpuMeter(lambda reading: told.append(reading.memory_mb), ask=ask, period_s=0.001)
    try:
        assert over.wait(HANGS_S)
        assert told == [1, 2]
        assert meter.mean() == pytest.approx(0.4)
        meter.reset()
        assert meter.mean() is None
    finally:
        meter.close()


def test_without_the_tool_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "TOOL", "no-such-tool-anywhere")
    assert ask_driver("name") == []


def test_a_tool_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "TOOL", "false")
    assert ask_driver("name") == []
