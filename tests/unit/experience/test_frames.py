"""Screenshots by the hash of their bytes: on disk, in a cache, and in a buffer before they are stored."""

from __future__ import annotations

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


def test_memory_is_bounded_and_what_does_not_fit_is_written_at_once(tmp_path: Path) -> None:
    frames = FrameBuffer(FrameStore(tmp_path), capacity=2)
    references = [frames.put(b"%d" % number) for number in range(5)]
    assert frames.num_held == 2
    assert contents(tmp_path) == [b"0", b"1", b"2"]
    assert [frames.get(reference) for reference in references] == [b"0", b"1", b"2", b"3", b"4"]
