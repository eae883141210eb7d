from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.errors import StoreError
from distrl.experience.frames import FrameStore


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


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
