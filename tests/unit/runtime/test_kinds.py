"""Which runtime a run gets is decided in one place."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from distrl.config.load import load_config
from distrl.runtime.base import Runtime
from distrl.runtime.kinds import make_runtime
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import create_run


def test_the_setting_chooses_the_runtime_and_nothing_is_started_or_written_yet(tmp_path: Path) -> None:
    config = load_config(None, {"run.root": str(tmp_path)})
    run = create_run(config, now=datetime(2026, 5, 4))
    before = sorted(run.path.rglob("*"))
    made: Runtime = make_runtime(config, run)
    assert isinstance(made, LocalRuntime)
    assert made.status() == []
    assert sorted(run.path.rglob("*")) == before
