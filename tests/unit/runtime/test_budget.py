"""What a run has used, and who may ask."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distrl.errors import StoreError
from distrl.transport.base import BudgetUsed
from distrl.transport.files import LOOK_EVERY_S, FileBudget, FileLayout, FileTransport, _CollectedTime
from support.faketime import FakeTime


def test_the_time_that_a_run_has_collected_is_what_its_supervisor_wrote_down_a_moment_ago(tmp_path: Path) -> None:
    path, time = tmp_path / "budget.json", FakeTime()
    collected = _CollectedTime(FileBudget(path), clock=time.clock)
    assert collected.read() == 0.0
    path.write_bytes(msgspec.json.encode(BudgetUsed(wall_s=9.0, collect_s=5.0)))
    assert collected.read() == 0.0
    time.now_s += LOOK_EVERY_S
    assert collected.read() == 5.0
    assert _CollectedTime(FileBudget(path), clock=time.clock).read() == 5.0


def test_a_damaged_record_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="remove"):
        _CollectedTime(FileBudget(tmp_path / "budget.json")).read()


def test_every_role_reads_the_same_budget_through_its_transport(tmp_path: Path) -> None:
    transport = FileTransport(FileLayout(tmp_path))
    assert transport.collected_s() == 0.0
    (tmp_path / "budget.json").write_bytes(msgspec.json.encode(BudgetUsed(collect_s=7.0)))
    assert FileTransport(FileLayout(tmp_path)).collected_s() == 7.0


def test_utilisation_is_the_share_of_the_devices_time(tmp_path: Path) -> None:
    assert BudgetUsed().device_utilisation == 0.0
    assert BudgetUsed(busy_s=30.0, device_s=40.0).device_utilisation == 0.75
