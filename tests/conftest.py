"""For all tests: examples may take as long as a busy machine needs, because tests do not time; the longest files come first."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support.transport_contract")
# The same examples each time, so that a change fails for what it changes. `pytest --hypothesis-profile search` draws new ones.
settings.register_profile("distrl", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("search", settings.get_profile("distrl"), derandomize=False)
settings.load_profile("distrl")
# Some virtual machines advertise AMX and end the process that uses it (SIGILL); `distrl doctor` tells. Read when torch is loaded.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

DEADLINE_S = 600
LONGEST = (
    "test_train_faults.py",
    "test_vlm_run.py",
    "test_fault_matrix.py",
    "test_train_time.py",
    "test_examples.py",
    "test_own_package.py",
    "test_ray_runs.py",
)
"""Files of minutes: begun last, one of them would run alone at the end while the other processes have nothing left."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; all others stay in order."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """A test that hangs fails instead; ten minutes are more than any needs, on whatever machine."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"the test has not ended within {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def denormals() -> Iterator[None]:
    """Give denormal numbers back after each test: roles flush them to zero, and hypothesis draws them."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(False)
