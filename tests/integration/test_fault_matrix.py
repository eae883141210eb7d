"""The fault matrix on real runs: a sample of it, with every file and every damage."""

from __future__ import annotations

from distrl.bench.base import BenchOptions
from distrl.bench.system.faults import run

NAMED_S = 3.0
BUSY_S = 20.0
"""What a machine that does other things besides may add."""


def test_every_case_of_the_sample_is_fine() -> None:
    found = run(BenchOptions(quick=True))
    assert found.failed == []
    assert found.fine == found.cases > 100
    assert (found.tracebacks, found.silent, found.lost, found.doubled) == (0, 0, 0, 0)
    assert set(found.by_group) == {"files", "signals", "surroundings"}
    assert 0 < found.stall_named_slowest_s < NAMED_S + BUSY_S
