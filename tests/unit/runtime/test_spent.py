"""What a run has used, and who may ask."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distrl.errors import StoreError
from distrl.runtime.spent import LOOK_EVERY_S, Collected, Spent
from support.faketime import FakeTime


def test_the_time_that_a_run_has_collected_is_what_its_supervisor_wrote_down_a_moment_ago(tmp_path: Path) -> None:
    path, time = tmp_path / "progress.json", FakeTime()
    collected = Collected(path, clock=time.clock)
    assert collected() == 0.0
    path.write_bytes(msgspec.json.encode(Spent(wall_s=9.0, collect_s=5.0)))
    assert collected() == 0.0
    time.now_s += LOOK_EVERY_S
    assert collected() == 5.0
    assert Collected(path, clock=time.clock)() == 5.0


def test_a_damaged_record_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="remove"):
        Collected(tmp_path / "progress.json")()
