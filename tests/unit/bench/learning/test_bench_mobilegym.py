"""The table of `distrl bench mobilegym`: level by level, from the two reports of a run on a clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.bench.base import BenchOptions
from distrl.bench.learning import mobilegym
from distrl.config.judging import MobileGymConfig
from distrl.errors import UsageError
from distrl.evaluation.report import make_report
from distrl.tasks.base import held_out_templates
from distrl.tasks.mobilegym import MobileGymSuite
from distrl.types import Ending, EndState, RewardCheck, Task, Trajectory, Verdict, WebSetup
from support.summaries import a_summary

FAKE = Path(__file__).parents[3] / "support" / "fake_mobilegym"


def played(name: str, *, success: bool) -> Trajectory:
    task = Task(
        id=name, suite="mobilegym", template=name, split="test", instruction=name,
        setup=WebSetup(url="http://127.0.0.1:1/", page="mobilegym", task=name), check=RewardCheck(),
    )  # fmt: skip
    verdict = Verdict(outcome="success" if success else "failure")
    return Trajectory(id="t", task=task, steps=(), ending=Ending.FINISHED, verdict=verdict, end=EndState())


def test_every_level_stands_with_its_tasks_and_an_interval_of_its_rise() -> None:
    suite = MobileGymSuite(MobileGymConfig(url="http://127.0.0.1:1/", folder=str(FAKE)))
    easy, hard = ("demo.Counts", "demo.Raises"), "demo.Solved"
    before = make_report([played(name, success=False) for name in (*easy, hard)] * 10, suite="mobilegym", version=0)
    after = make_report(
        [played(name, success=name == easy[0]) for name in (*easy, hard)] * 10, suite="mobilegym", version=9
    )
    found = mobilegym.figures(before, after, a_summary(), suite)
    one, two = found.levels["L1"], found.levels["L2"]
    assert (one.before, one.after, one.n, one.tasks) == (0.0, 0.5, 20, 2)
    assert 0.0 < one.low < 0.5 < one.high < 1.0
    assert 0.1 < one.rise_low < 0.5 < one.rise_high
    assert (two.after, two.n, two.tasks) == (0.0, 10, 1)
    assert two.rise_low < 0.0 < two.rise_high
    assert (found.usable_tasks, found.train_tasks, found.version) == (8, 5, "0.1.0")
    assert held_out_templates(suite) == {*easy, hard}


def test_reasons_do_not_say_where_the_clone_lies() -> None:
    settings = MobileGymConfig(url="http://127.0.0.1:1/", folder=str(FAKE), leave_out=("demo.Raises",))
    found = mobilegym.exclusion_reasons(MobileGymSuite(settings).left_out, settings)
    assert set(found) == {"demo.Raises", "empty.NeedsData"}
    assert "data-that-is-not-there.json" in found["empty.NeedsData"]
    assert not any(str(FAKE) in why for why in found.values())


def test_without_a_file_of_yours_it_says_which_one_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mobilegym.VARIABLE, "/no/such/file.toml")
    with pytest.raises(UsageError, match="names no file") as caught:
        mobilegym.run(BenchOptions())
    assert "DISTRL_MOBILEGYM=my-mobilegym.toml" in caught.value.fix
