"""A judge that fails shows in the status of a run: it would otherwise look like a policy that learns nothing."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from distrl.config.load import load_config
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.summary import read_status
from distrl.telemetry.events import EventLog


def a_run(tmp_path: Path) -> RunFolder:
    return create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))


def test_episodes_without_a_verdict_are_counted_with_the_last_reason(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    for worker, why in (("worker-0", "the judge took over 60 s"), ("worker-1", "the judge failed: KeyError: 'drink'")):
        EventLog(run.log(worker)).write("unjudged", id=worker, why=why)
    EventLog(run.log("learner")).write("notice", text="it computes on the CPU")
    assert read_status(run, now_s=0.0).notices == [
        "it computes on the CPU",
        "2 episode(s) without a verdict, the last: the judge failed: KeyError: 'drink'",
    ]


def test_a_run_whose_episodes_were_all_judged_has_no_such_notice(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    EventLog(run.log("worker-0")).write("finished", id="one")
    assert read_status(run, now_s=0.0).notices == []
