"""The order of tasks, and who may start an episode."""

from __future__ import annotations

import pytest

from distrl.config.load import load_config
from distrl.errors import TaskError
from distrl.rollout.scheduler import Admission, Standing, TaskFeed
from distrl.tasks.base import Suite
from distrl.tasks.suites import suite
from support.rollouts import SUITE

SMALL = Suite("small", suite(SUITE).templates, sizes={"train": 12, "tune": 3, "test": 3})


def standing(*, held: int = 5, latest: int = 5) -> Standing:
    return Standing(held=held, latest=latest)


def test_every_task_comes_once_before_any_comes_twice() -> None:
    feed = TaskFeed(SMALL, "train", seed="a")
    rounds = [[feed.next().id for _ in range(12)] for _ in range(2)]
    assert [len(set(ids)) for ids in rounds] == [12, 12]
    assert rounds[0] != rounds[1]


def test_the_seed_decides_the_order() -> None:
    orders = [[feed.next().id for _ in range(12)] for feed in (TaskFeed(SMALL, "train", seed=s) for s in "aab")]
    assert orders[0] == orders[1] != orders[2]


def test_longer_tasks_are_left_out() -> None:
    feed = TaskFeed(SMALL, "train", seed="a", max_oracle_steps=4)
    assert all(len(feed.next().route) <= 4 for _ in range(30))


def test_a_limit_that_no_task_meets_is_refused_and_does_not_hang() -> None:
    with pytest.raises(TaskError, match="max_oracle_steps"):
        TaskFeed(SMALL, "train", seed="a", max_oracle_steps=1).next()


def test_nobody_starts_before_the_first_weights() -> None:
    assert "first weights" in Admission(load_config()).refusal(standing(held=-1, latest=-1))


@pytest.mark.parametrize(("behind", "admitted"), [(0, True), (8, True), (9, False)])
def test_nobody_starts_with_weights_whose_data_could_only_come_too_old(behind: int, admitted: bool) -> None:
    admission = Admission(load_config(None, {"replay.max_staleness": 8}))
    assert (admission.refusal(standing(latest=5 + behind)) == "") is admitted
