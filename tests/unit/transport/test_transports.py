"""What every transport promises, asked of the two that need no cluster: files and memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from distrl.errors import StoreError
from distrl.experience.frames import reference_of
from distrl.transport.base import Claims, Delivered, EpisodeSource, Transport
from distrl.transport.files import FileClaims, FileHeartbeats, FileLayout, FileTransport
from distrl.transport.memory import ClaimTable, MemoryClaims, MemoryEpisodes, MemoryFrames, MemoryTransport
from support.trajectories import make_trajectory
from support.transport_contract import *  # noqa: F403
from support.transport_contract import KEEP, LIFETIME_S, Setting


class OnFiles:
    def __init__(self, folder: Path) -> None:
        self._layout, self.now_s = FileLayout(folder / "run"), 1000.0

    def open(self) -> Transport:
        return FileTransport(self._layout, keep_versions=KEEP)

    def break_frames(self) -> None:
        for folder in (self._layout.experience / "frames").iterdir():
            rmtree(folder)
            folder.write_text("a file where the folder should be")

    def claims(self, owner: str, episodes: EpisodeSource | None = None) -> Claims:
        found = episodes or self.open().episodes
        return FileClaims(self._layout.claims, owner, found, lifetime_s=LIFETIME_S, clock=lambda: self.now_s)


class FragileFrames(MemoryFrames):
    broken = False

    def put(self, picture: bytes) -> str:
        if self.broken:
            raise StoreError("no memory is left")
        return super().put(picture)


class InMemory:
    def __init__(self, _folder: Path) -> None:
        self._transport, self._table, self.now_s = MemoryTransport(keep_versions=KEEP), ClaimTable(), 1000.0
        self._transport.frames = self._frames = FragileFrames()
        self._transport.episodes = MemoryEpisodes(self._frames)

    def open(self) -> Transport:
        return self._transport

    def break_frames(self) -> None:
        self._frames.broken = True

    def claims(self, owner: str, episodes: EpisodeSource | None = None) -> Claims:
        found = episodes or self._transport.episodes
        return MemoryClaims(self._table, owner, found, lifetime_s=LIFETIME_S, clock=lambda: self.now_s)


@pytest.fixture(params=[OnFiles, InMemory], ids=["files", "memory"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    make: Callable[[Path], Setting] = request.param
    return make(tmp_path)


def test_pictures_and_their_folders_are_synced_before_their_episode_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, synced, sync = FileTransport(FileLayout(tmp_path)), list[int](), os.fsync
    known = [b"of an earlier episode"]
    transport.episodes.add(make_trajectory("before"), {reference_of(picture): picture for picture in known})

    def note(handle: int) -> None:
        sync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    pictures = {reference_of(data): data for data in (*known, *(bytes([number]) * 9 for number in range(8)))}
    transport.episodes.add(make_trajectory("a"), pictures)
    frames = [
        path for path in (tmp_path / "experience" / "frames").glob("*/*") if path.read_bytes() in pictures.values()
    ]
    (episode,) = (tmp_path / "experience" / "episodes").glob("*/a.ep")
    before = synced[: synced.index(episode.stat().st_ino)]
    assert len(frames) == 9
    fresh = [frame for frame in frames if frame.read_bytes() not in known]
    assert {frame.stat().st_ino for frame in fresh} <= set(before)
    folders = [frame.parent.stat().st_ino for frame in frames]
    assert set(folders) <= set(before), "that of a picture which another process has just linked, too"
    assert len(before) == len(fresh) + len(set(folders)), "each once"


@pytest.mark.parametrize("content", [b"", b"{", b'{"songs": 1}', b"\x89\xff", None], ids=str)
def test_a_damaged_heartbeat_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "learner.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert FileHeartbeats(tmp_path).last("learner") is None


class Counted(MemoryEpisodes):
    """Notes how many rows it was asked to look at."""

    looked: list[int]

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        self.looked.append(len(self.after(after, 1000)))
        return super().count_of(version, worker=worker, after=after)


def test_what_is_delivered_is_counted_by_looking_at_each_row_once() -> None:
    episodes = Counted()
    episodes.looked, delivered = [], Delivered(episodes)
    for number, version in enumerate((0, 0, 1, 0)):
        episodes.add(make_trajectory(f"e{number}", version=version))
    assert delivered(0) == 3
    for number, version in enumerate((1, 0)):
        episodes.add(make_trajectory(f"late{number}", version=version))
    assert (delivered(0), delivered(1), delivered(1)) == (4, 2, 2)
    assert episodes.looked == [4, 2, 6, 0]
