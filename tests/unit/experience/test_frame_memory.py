from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.experience.frame_memory import IllustratedStore, RecentFrames, UnwrittenFrames
from distrl.experience.frames import FrameStore, reference_of
from distrl.experience.store import ExperienceStore
from distrl.types import Ending, Observation
from support.trajectories import make_trajectory


def files(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in (folder / "frames").rglob("*") if path.is_file())


def test_the_newest_pictures_are_at_hand_and_older_ones_are_gone() -> None:
    frames = RecentFrames(3)
    references = [frames.put(b"picture %d" % number) for number in range(5)]
    assert frames.num_held == 3
    assert [frames.get(reference) for reference in references[2:]] == [b"picture 2", b"picture 3", b"picture 4"]
    with pytest.raises(StoreError, match=references[0]) as caught:
        frames.get(references[0])
    assert caught.value.fix


def test_a_picture_that_comes_again_is_held_once_and_counts_as_new() -> None:
    frames = RecentFrames(2)
    first = frames.put(b"first")
    frames.put(b"second")
    assert frames.put(b"first") == first
    frames.put(b"third")
    assert frames.num_held == 2
    assert frames.get(first) == b"first"


def test_what_is_no_longer_in_memory_comes_from_the_store_behind(tmp_path: Path) -> None:
    store = FrameStore(tmp_path)
    reference = store.put(b"on disk")
    frames = RecentFrames(1, store)
    held = frames.put(b"in memory")
    assert (frames.get(reference), frames.get(held)) == (b"on disk", b"in memory")
    with pytest.raises(StoreError, match="cannot be used"):
        frames.get(reference_of(b"nowhere"))


def test_memory_and_store_give_a_picture_the_same_name(tmp_path: Path) -> None:
    assert RecentFrames(1).put(b"x") == FrameStore(tmp_path).put(b"x") == reference_of(b"x")


def test_a_picture_is_on_disk_once_it_was_written_and_readable_all_the_time(tmp_path: Path) -> None:
    frames = UnwrittenFrames(FrameStore(tmp_path), capacity=10)
    first, second = frames.put(b"first"), frames.put(b"second")
    assert files(tmp_path) == []
    assert frames.get(first) == b"first"
    frames.write([first, first, reference_of(b"written long ago")])
    assert files(tmp_path) == [b"first"]
    assert (frames.get(first), frames.get(second)) == (b"first", b"second")
    assert frames.num_held == 1


def test_memory_is_bounded_and_what_does_not_fit_is_written_at_once(tmp_path: Path) -> None:
    frames = UnwrittenFrames(FrameStore(tmp_path), capacity=2)
    references = [frames.put(b"%d" % number) for number in range(5)]
    assert frames.num_held == 2
    assert files(tmp_path) == [b"0", b"1", b"2"]
    assert [frames.get(reference) for reference in references] == [b"0", b"1", b"2", b"3", b"4"]


def test_the_pictures_of_a_trajectory_are_on_disk_when_it_is_acknowledged(tmp_path: Path) -> None:
    frames = UnwrittenFrames(FrameStore(tmp_path), capacity=10)
    shots = [frames.put(b"step %d" % number) for number in range(2)]
    after, other = frames.put(b"after the cut"), frames.put(b"of another episode")
    plain = make_trajectory(num_steps=3)
    seen = [*shots, shots[0]]
    steps = tuple(
        replace(step, observation=replace(step.observation, screenshot=shot))
        for step, shot in zip(plain.steps, seen, strict=True)
    )
    cut = replace(plain, steps=steps, ending=Ending.STEP_LIMIT, last=Observation(instruction="Go", screenshot=after))
    with ExperienceStore(tmp_path) as episodes:
        assert IllustratedStore(episodes, frames).add(cut).status == "added"
        assert episodes.read(cut.id) == cut
    assert files(tmp_path) == [b"after the cut", b"step 0", b"step 1"]
    assert frames.num_held == 1
    assert frames.get(other) == b"of another episode"
