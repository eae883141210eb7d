"""Screenshots by the hash of their bytes: on disk, in a cache, and in a buffer before they are stored."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.errors import StoreError
from distrl.experience.frames import FrameBuffer, FrameCache, FrameStore, reference_of


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def contents(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in files(folder))


def test_a_picture_comes_back_by_the_hash_of_its_bytes(tmp_path: Path) -> None:
    frames = FrameStore(tmp_path)
    reference = frames.put(b"picture")
    assert reference == f"sha256:{sha256(b'picture').hexdigest()}"
    assert FrameStore(tmp_path).get(reference) == b"picture"


def test_the_same_picture_is_kept_once(tmp_path: Path) -> None:
    frames = FrameStore(tmp_path)
    assert frames.put(b"picture") == frames.put(b"picture") != frames.put(b"another")
    assert len(files(tmp_path)) == 2


def test_a_picture_that_is_put_alone_as_when_a_buffer_spills_is_synced_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, synced, sync = FrameStore(tmp_path), list[int](), os.fsync

    def note(handle: int) -> None:
        sync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    buffer = FrameBuffer(frames, capacity=1)
    buffer.put(b"picture")
    buffer.spill()
    (file,) = files(tmp_path)
    assert synced == [file.stat().st_ino, file.parent.stat().st_ino]


def test_pictures_that_are_put_together_come_back_each_by_its_own_reference(tmp_path: Path) -> None:
    frames = FrameStore(tmp_path)
    pictures = [b"one", b"two", b"one"]
    assert frames.put_all(pictures) == [reference_of(b"one"), reference_of(b"two")]
    assert frames.put_all([]) == []
    assert contents(tmp_path) == [b"one", b"two"]


def test_a_damaged_picture_is_refused_by_name(tmp_path: Path) -> None:
    frames = FrameStore(tmp_path)
    reference = frames.put(b"picture")
    (file,) = files(tmp_path)
    file.write_bytes(b"pictura")
    with pytest.raises(StoreError, match=file.name):
        frames.get(reference)


def test_an_unknown_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        FrameStore(tmp_path).get(f"sha256:{'0' * 64}")


JPEG, PNG = b"\xff\xd8 picture \xff\xd9", b"\x89PNG picture"


@pytest.mark.parametrize(("picture", "suffix"), [(JPEG, ".jpg"), (PNG, ".png"), (b"neither", ".bin")])
def test_a_file_is_named_after_what_it_holds(tmp_path: Path, picture: bytes, suffix: str) -> None:
    reference = FrameStore(tmp_path).put(picture)
    (file,) = files(tmp_path)
    assert file.name == f"{reference[7:]}{suffix}"
    assert FrameStore(tmp_path).get(reference) == picture


def test_a_picture_under_another_suffix_is_found_and_not_written_again(tmp_path: Path) -> None:
    store = FrameStore(tmp_path)
    reference = store.put(PNG)
    (file,) = files(tmp_path)
    file.rename(file.with_suffix(".jpg"))
    assert store.get(reference) == PNG
    assert store.put(PNG) == reference
    assert [found.suffix for found in files(tmp_path)] == [".jpg"]


HEX = "a" * 64


@pytest.mark.parametrize(
    "reference",
    ["", "sha256:", HEX, f"sha256:{HEX}\n", f"sha256:{HEX.upper()}", f"md5:{HEX}", "sha256:../../../../etc/passwd"],
)
def test_a_malformed_reference_is_refused_before_any_file_is_looked_for(tmp_path: Path, reference: str) -> None:
    with pytest.raises(StoreError, match="no reference to a frame"):
        FrameStore(tmp_path).get(reference)


@settings(deadline=None)
@given(text=st.text(max_size=80))
def test_no_text_reaches_outside_the_store(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    frames = FrameStore(tmp_path_factory.getbasetemp() / "frames")  # made once, opened again by every example
    with pytest.raises(StoreError):
        frames.get(f"sha256:{text}")


# --- in memory ------------------------------------------------------------------------------------------------------


def test_the_newest_pictures_are_at_hand_and_older_ones_are_gone() -> None:
    frames = FrameCache(3)
    references = [frames.put(b"picture %d" % number) for number in range(5)]
    assert frames.num_held == 3
    assert [frames.get(reference) for reference in references[2:]] == [b"picture 2", b"picture 3", b"picture 4"]
    with pytest.raises(StoreError, match=references[0]) as caught:
        frames.get(references[0])
    assert caught.value.fix


def test_a_picture_that_comes_again_is_held_once_and_counts_as_new() -> None:
    frames = FrameCache(2)
    first = frames.put(b"first")
    frames.put(b"second")
    assert frames.put(b"first") == first
    frames.put(b"third")
    assert frames.num_held == 2
    assert frames.get(first) == b"first"


def test_what_is_no_longer_in_memory_comes_from_the_store_behind(tmp_path: Path) -> None:
    store = FrameStore(tmp_path)
    reference = store.put(b"on disk")
    frames = FrameCache(1, store)
    held = frames.put(b"in memory")
    assert (frames.get(reference), frames.get(held)) == (b"on disk", b"in memory")
    with pytest.raises(StoreError, match="cannot be used"):
        frames.get(reference_of(b"nowhere"))


def test_memory_and_store_give_a_picture_the_same_name(tmp_path: Path) -> None:
    assert FrameCache(1).put(b"x") == FrameStore(tmp_path).put(b"x") == reference_of(b"x")


def test_a_buffered_picture_can_be_read_before_and_after_it_is_stored(tmp_path: Path) -> None:
    frames = FrameBuffer(FrameStore(tmp_path), capacity=10)
    first, second = frames.put(b"first"), frames.put(b"second")
    assert contents(tmp_path) == []
    assert frames.get(first) == b"first"
    collected = frames.collect([first, first, reference_of(b"stored long ago")])
    assert collected == {first: b"first"}
    for picture in collected.values():
        FrameStore(tmp_path).put(picture)
    frames.forget(collected)
    assert contents(tmp_path) == [b"first"]
    assert (frames.get(first), frames.get(second)) == (b"first", b"second")
    assert frames.num_held == 1


@pytest.mark.parametrize("bound", [{"capacity": 3}, {"capacity": 99, "capacity_bytes": 30}])
def test_a_full_buffer_says_so_and_has_the_oldest_stored_until_there_is_room(
    tmp_path: Path, bound: dict[str, int]
) -> None:
    frames = FrameBuffer(FrameStore(tmp_path), **bound)
    pictures = [b"picture %02d" % number for number in range(5)]  # ten bytes each
    full = []
    for picture in [pictures[0], *pictures]:  # the same one again takes no more room
        frames.put(picture)
        full.append(frames.is_full)
    assert full == [False, False, False, True, True, True]
    assert (contents(tmp_path), frames.held_bytes) == ([], 50), "taking a picture works on no disk"
    frames.spill()
    assert contents(tmp_path) == pictures[:3]
    assert (frames.is_full, frames.num_held, frames.held_bytes) == (False, 2, 20)
    assert [frames.get(reference_of(picture)) for picture in pictures] == pictures
    frames.forget(map(reference_of, pictures))
    assert frames.held_bytes == 0


def test_a_picture_that_another_episode_shows_too_stays_when_one_is_kept_elsewhere(tmp_path: Path) -> None:
    frames = FrameBuffer(FrameStore(tmp_path), capacity=10)
    home, own = frames.put(b"home screen"), frames.put(b"of the first episode")
    frames.put(b"home screen")  # a second episode
    frames.release([home, own])
    assert (frames.get(home), frames.num_held, frames.held_bytes) == (b"home screen", 1, len(b"home screen"))
    frames.release([home])
    assert (frames.num_held, frames.held_bytes) == (0, 0)
    frames.put(b"home screen")
    frames.put(b"home screen")
    frames.forget([home])
    frames.release([home, home])
    assert (frames.num_held, frames.held_bytes) == (0, 0)
