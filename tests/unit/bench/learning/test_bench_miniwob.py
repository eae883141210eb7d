"""The table of `distrl bench miniwob`: page by page, from the two reports of a run."""

from __future__ import annotations

from distrl.bench.learning import miniwob
from distrl.config.load import load_config
from distrl.evaluation.report import make_report
from distrl.types import Ending, EndState, RewardCheck, Task, Trajectory, Verdict, WebSetup
from support.summaries import a_summary


def played(page: str, *, success: bool) -> Trajectory:
    task = Task(
        id=page, suite="miniwob", template=page, split="test", instruction=page,
        setup=WebSetup(url=page, page="miniwob"), check=RewardCheck(),
    )  # fmt: skip
    verdict = Verdict(outcome="success" if success else "failure")
    return Trajectory(id="t", task=task, steps=(), ending=Ending.ENVIRONMENT, verdict=verdict, end=EndState())


def test_every_page_stands_with_its_rate_before_and_after_and_pages_weigh_alike() -> None:
    before = make_report([played("a", success=False), played("b", success=True)], suite="miniwob", version=0)
    after = make_report(
        [played("a", success=True), played("a", success=False), played("b", success=True)], suite="miniwob", version=9
    )
    config = load_config(miniwob.CONFIG, miniwob.QUICK)
    summary = a_summary()
    found = miniwob.figures(before, after, summary, phones=8, chromium="/bin/x, Chromium 1", hash="h")
    assert {page: (row.before, row.after, row.n) for page, row in found.tasks.items()} == {
        "a": (0.0, 0.5, 2),
        "b": (1.0, 1.0, 1),
    }
    assert (found.mean_before, found.mean_after, found.num_tasks) == (0.5, 0.75, 2)
    assert found.chromium == "Chromium 1"
    assert config.run.minutes == 2
