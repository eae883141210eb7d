"""The suite of MiniWoB++: which of its tasks there are, and that no seed is in two splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.config.load import load_config
from distrl.config.schema import MiniWobConfig, TasksConfig
from distrl.errors import TaskError
from distrl.tasks import miniwob
from distrl.tasks.base import SPLITS, find_suite, find_task, tasks_of
from distrl.tasks.miniwob import LEFT_OUT, LONG, MiniWobSuite, all_pages
from distrl.types import RewardCheck, WebSetup

pytest.importorskip("miniwob")


def test_no_seed_of_a_page_is_in_two_splits() -> None:
    suite = MiniWobSuite(MiniWobConfig(tasks=("click-test", "click-tab"), train_seeds=100_000, test_seeds=10_000))
    seeds = {}
    for split in SPLITS:
        ends = (suite.task(split, 0), suite.task(split, suite.size(split) - 1))
        seeds[split] = [task.setup.seed for task in ends if isinstance(task.setup, WebSetup)]
    assert seeds["train"][1] < seeds["tune"][0] <= seeds["tune"][1] < seeds["test"][0]


def test_any_stretch_of_a_split_has_all_pages_in_it() -> None:
    suite = MiniWobSuite()
    first = list(tasks_of(suite, "test", len(suite.pages)))
    assert [task.template for task in first] == list(suite.pages)
    assert all(isinstance(task.check, RewardCheck) for task in first)
    assert find_task(suite, first[3].id) == first[3]
    assert len({task.instruction for task in tasks_of(suite, "tune")}) == suite.size("tune")


def test_every_page_of_the_package_is_played_or_left_out_with_a_reason() -> None:
    known = set(all_pages())
    assert len(known) > 100
    assert set(LEFT_OUT) | set(LONG) <= known
    assert set(MiniWobSuite().pages) == known - set(LEFT_OUT)
    assert all(len(why) > 20 for why in LEFT_OUT.values())


@pytest.mark.parametrize(("name", "said"), [("click-tap", "one of click-tab"), ("drag-box", "needs a drag")])
def test_a_task_that_is_not_there_is_refused_with_what_is(name: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        find_suite(TasksConfig(suite="miniwob", miniwob=MiniWobConfig(tasks=(name,))))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miniwob, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match="not installed") as error:
        MiniWobSuite()
    assert "'.[miniwob]'" in str(error.value)


def test_the_ready_configuration_trains_on_twenty_tasks_or_more() -> None:
    config = load_config(Path(__file__).parents[3] / "configs" / "miniwob.toml", {})
    assert len(find_suite(config.tasks).pages) >= 20  # type: ignore[attr-defined]
    assert config.warm_start.demonstrations == 0
