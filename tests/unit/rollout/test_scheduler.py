"""The order of tasks, and who may start an episode."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.errors import TaskError
from distrl.rollout.scheduler import Admission, AdmissionRequest, Portion, TaskFeed, VersionRate
from distrl.tasks.base import split_of, tasks_of
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import SimSuite
from distrl.types import SimSetup, Split, Task
from support.rollouts import SUITE

SMALL = SimSuite("small", suite(SUITE).templates, sizes={"train": 12, "tune": 3, "test": 3})


def names_of(task: Task) -> int:
    assert isinstance(task.setup, SimSetup)
    return task.setup.names


def request(*, held: int = 5, latest: int = 5) -> AdmissionRequest:
    return AdmissionRequest(held=held, latest=latest)


def strict(max_staleness: int, *, mode: str = "async") -> Admission:
    """Where nothing beyond the bound is of any use."""
    given = {"replay.max_staleness": max_staleness, "replay.keep_successes": False, "learner.mode": mode}
    return Admission(load_config(None, given))


def test_every_task_comes_once_before_any_comes_twice() -> None:
    feed = TaskFeed(SMALL, "train", seed="a")
    rounds = [[feed.next().id for _ in range(12)] for _ in range(2)]
    assert [len(set(ids)) for ids in rounds] == [12, 12]
    assert rounds[0] != rounds[1]


def test_a_task_comes_as_often_in_a_row_as_its_group_is_large_and_the_order_stays_the_same() -> None:
    one_by_one, portion = TaskFeed(SMALL, "train", seed="a"), Portion(group_size=3)
    in_groups = TaskFeed(SMALL, "train", seed="a", portion=portion)
    expected = [task.id for task in (one_by_one.next() for _ in range(14)) for _ in range(3)]
    assert [in_groups.next().id for _ in range(14 * 3)] == expected


def test_the_seed_decides_the_order() -> None:
    orders = [[feed.next().id for _ in range(12)] for feed in (TaskFeed(SMALL, "train", seed=s) for s in "aab")]
    assert orders[0] == orders[1] != orders[2]


def test_longer_tasks_are_left_out() -> None:
    feed = TaskFeed(SMALL, "train", seed="a", portion=Portion(max_oracle_steps=4))
    assert all(feed.next().oracle_steps <= 4 for _ in range(30))


def test_a_limit_that_no_task_meets_is_refused_and_does_not_hang() -> None:
    with pytest.raises(TaskError, match="max_oracle_steps"):
        TaskFeed(SMALL, "train", seed="a", portion=Portion(max_oracle_steps=1)).next()


def test_a_share_of_the_tasks_comes_under_made_up_names_and_the_order_is_each_seeds_own() -> None:
    def share(rename_share: float, split: Split = "train") -> float:
        feed = TaskFeed(SMALL, split, seed="a", portion=Portion(rename_share=rename_share))
        tasks = [feed.next() for _ in range(36)]
        assert all(task.split == split == split_of(task.instruction) for task in tasks)
        return sum(names_of(task) > 0 for task in tasks) / 36

    assert share(0.0) == 0.0
    assert 0.2 < share(0.5) < 0.8
    assert share(1.0) > 0.9
    assert share(1.0, "test") == 0.0


def test_a_task_that_comes_again_has_other_names_and_its_group_has_the_same() -> None:
    feed = TaskFeed(SMALL, "train", seed="a", portion=Portion(rename_share=1.0, group_size=2))
    tasks = [feed.next() for _ in range(48)]
    assert tasks[::2] == tasks[1::2]
    assert len({task.id for task in tasks}) == 24
    assert {task.id.partition("+")[0] for task in tasks} == {task.id for task in tasks_of(SMALL, "train")}


def test_nobody_starts_before_the_first_weights() -> None:
    assert "first weights" in Admission(load_config()).refusal(request(held=-1, latest=-1))


@pytest.mark.parametrize(("behind", "admitted"), [(0, True), (8, True), (9, False)])
def test_nobody_starts_with_weights_whose_data_could_only_come_too_old(behind: int, admitted: bool) -> None:
    admission = Admission(load_config(None, {"replay.max_staleness": 8}))
    assert (admission.refusal(request(latest=5 + behind)) == "") is admitted


@pytest.mark.parametrize(
    ("behind", "versions_per_s", "usual_s", "admitted"),
    [
        (0, 0.25, 10.0, True),  # 2 versions during an episode
        (0, 0.25, 35.9, True),  # 8.975: the bound is met by the whole versions
        (0, 0.25, 36.0, False),  # 9
        (6, 0.25, 10.0, True),  # 6 behind, and 2 to come
        (7, 0.25, 10.0, False),
        (8, 0.25, 3.0, True),
        (0, 0.0, 1e9, True),  # nobody publishes
        (0, 100.0, 0.0, True),  # nothing is known of episodes yet
    ],
)
def test_an_episode_starts_only_where_its_data_is_expected_in_time(
    behind: int, versions_per_s: float, usual_s: float, admitted: bool
) -> None:
    admission = strict(8)
    asked = AdmissionRequest(
        held=5, latest=5 + behind, running=3, versions_per_s=versions_per_s, usual_s=usual_s
    )  # fmt: skip
    said = admission.refusal(asked)
    assert (said == "") is admitted
    assert admitted or "slower versions" in said


def test_where_nothing_runs_one_episode_starts_with_fresh_weights_however_fast_versions_come() -> None:
    admission = strict(8)
    asked = AdmissionRequest(held=5, latest=5, running=0, versions_per_s=50.0, usual_s=10.0)
    assert admission.refusal(asked) == ""
    assert admission.refusal(replace(asked, running=1)) != ""
    assert admission.refusal(replace(asked, latest=6)) != ""  # fresh weights first: they are there to be loaded


def test_a_bound_of_0_does_not_hold_back_episodes_that_usually_end_before_the_next_version() -> None:
    admission = strict(0)
    asked = AdmissionRequest(held=5, latest=5, running=3, versions_per_s=0.1, usual_s=9.0)
    assert admission.refusal(asked) == ""
    assert admission.refusal(replace(asked, usual_s=11.0)) != ""


def test_in_sync_mode_the_barrier_decides_and_not_the_pace() -> None:
    asked = AdmissionRequest(held=5, latest=5, running=3, versions_per_s=1.0, usual_s=90.0)
    assert strict(0, mode="sync").refusal(asked) == ""
    assert strict(0).refusal(asked) != ""


def test_nobody_waits_for_slower_versions_where_a_success_is_kept_however_stale() -> None:
    asked = AdmissionRequest(held=5, latest=5, running=3, versions_per_s=1.0, usual_s=90.0)
    keeping = Admission(load_config(None, {"replay.max_staleness": 8, "replay.keep_successes": True}))
    assert keeping.refusal(asked) == ""
    assert "too stale" in keeping.refusal(replace(asked, latest=14)), "newer weights are there to be loaded"


def test_the_pace_is_that_of_the_last_versions_and_falls_while_none_comes() -> None:
    pace = VersionRate()
    assert pace.per_s(0.0) == 0.0
    pace.note(-1, 1.0)
    pace.note(0, 5.0)
    assert pace.per_s(9.0) == 0.0
    for number in range(1, 30):
        pace.note(number, 100.0 + 2.0 * number)
        pace.note(number, 101.0 + 2.0 * number)  # seen again
    assert pace.per_s(158.0) == pytest.approx(0.5)
    assert pace.per_s(158.0 + 16.0) == pytest.approx(0.25)
    assert pace.per_s(1e9) < 1e-6
