"""Suites of simulated phones with tasks missing."""

from __future__ import annotations

import pytest

from distrl.errors import TaskError
from distrl.rollout.scheduler import TaskFeed
from distrl.tasks.sim.suites import GENERAL
from distrl.tasks.sim.templates import SimSuite


def test_a_suite_without_all_splits_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="the sizes of mine lack tune, test"):
        SimSuite("mine", GENERAL[:3], sizes={"train": 5})


def test_a_split_without_tasks_is_called_that() -> None:
    suite = SimSuite("mine", GENERAL[:3], sizes={"train": 5, "tune": 1, "test": 0})
    with pytest.raises(TaskError, match="mine has no test tasks"):
        TaskFeed(suite, "test", seed="0").next()
