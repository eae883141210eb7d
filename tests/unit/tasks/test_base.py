"""Suites by name, tasks by number and by id, and splits that share no instruction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.config.schema import TasksConfig
from distrl.errors import ConfigError, TaskError
from distrl.tasks.base import (
    SPLITS,
    RelabelsEpisodes,
    RenamesTasks,
    Suite,
    check_index,
    find_suite,
    find_task,
    refuse_overlap,
    split_of,
    suite,
    tasks_of,
    unknown_split,
)
from distrl.types import CustomCheck, CustomSetup, Split, Task


class Three:
    """A suite of your own with three tasks in each split, that can nothing besides."""

    name = "three"

    def size(self, split: Split) -> int:
        return 3

    def task(self, split: Split, index: int) -> Task:
        check_index(self, split, index)
        return Task(
            id=f"three/{split}/{index}",
            suite=self.name,
            template="t",
            split=split,
            instruction=f"Do {split} {index}",
            setup=CustomSetup(values={"index": index}),
            check=CustomCheck(values={"index": index}),
        )


class Empty(Three):
    """One without tasks."""

    def size(self, split: Split) -> int:
        return 0


def test_a_suite_of_your_own_needs_three_things_and_no_base_class() -> None:
    assert isinstance(Three(), Suite)
    assert not isinstance(Three(), RelabelsEpisodes | RenamesTasks)
    assert isinstance(suite("sim-general"), RelabelsEpisodes)
    assert isinstance(suite("sim-general"), RenamesTasks)


def test_a_suite_is_found_by_its_name() -> None:
    assert find_suite(TasksConfig(suite="sim-touch")).name == suite("sim-touch").name == "sim-touch"
    with pytest.raises(ConfigError, match="sim-touch"):
        suite("sim-tuch")


def test_the_tasks_of_a_split_come_in_order_and_no_more_than_there_are() -> None:
    assert [task.id for task in tasks_of(Three(), "test")] == ["three/test/0", "three/test/1", "three/test/2"]
    assert [task.id for task in tasks_of(Three(), "tune", 2)] == ["three/tune/0", "three/tune/1"]
    assert len(list(tasks_of(Three(), "train", 99))) == 3
    assert list(tasks_of(Three(), "train", 0)) == []


def test_a_task_is_found_by_its_id_with_and_without_the_suite() -> None:
    assert find_task(Three(), "three/test/1") == find_task(Three(), "test/1") == Three().task("test", 1)


@pytest.mark.parametrize("id", ["three", "three/test", "three/test/x", "three/best/1", "three/test/-1", ""])
def test_an_id_that_names_no_task_is_refused_with_where_to_look(id: str) -> None:
    with pytest.raises(TaskError, match="no task is called") as caught:
        find_task(Three(), id)
    assert caught.value.fix == "distrl tasks list --suite three"


@pytest.mark.parametrize("index", [-1, 3, 10**9])
def test_a_number_beyond_the_split_is_refused_with_the_last_one(index: int) -> None:
    with pytest.raises(TaskError, match=f"three has no test task {index}") as caught:
        check_index(Three(), "test", index)
    assert (caught.value.expected, caught.value.fix) == ("0 to 2", "distrl tasks show three/test/00002")


def test_an_empty_split_is_answered_with_another_one() -> None:
    with pytest.raises(TaskError) as caught:
        check_index(Empty(), "test", 0)
    assert caught.value.fix == "another split"


@given(st.text())
def test_the_text_alone_decides_the_split_whatever_its_case(text: str) -> None:
    assert split_of(text) in SPLITS
    assert split_of(text) == split_of(text.casefold())


def test_most_instructions_are_for_training() -> None:
    found = [split_of(f"Do number {number}") for number in range(4000)]
    shares = [found.count(split) / 4000 for split in SPLITS]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.03)


def test_an_instruction_in_two_splits_is_refused_by_name() -> None:
    task = Three().task("test", 0)
    refuse_overlap([task, task, Three().task("train", 0)])
    with pytest.raises(TaskError, match="is in the test split and in the train split") as caught:
        refuse_overlap([task, replace(task, split="train", instruction=task.instruction.upper())])
    assert "split_of" in caught.value.fix


def test_an_unknown_split_is_answered_with_the_nearest_one() -> None:
    assert "one of train" in str(unknown_split("trian"))


def test_a_task_without_a_solution_has_no_oracle_steps() -> None:
    assert Three().task("train", 0).oracle_steps == 0
    assert suite("sim-general").task("train", 0).oracle_steps > 0
