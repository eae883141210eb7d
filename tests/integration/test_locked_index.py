"""An index that another process keeps locked: a store that does not answer, and no end of anything."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from threading import Thread

import pytest

from distrl.errors import StoreBusy
from distrl.experience import index
from distrl.experience.store import ExperienceStore
from distrl.rollout.outbox import Outbox, Spool
from distrl.transport.files import FileEpisodes
from distrl.types import Trajectory
from support.trajectories import make_trajectory

BUSY_S = 0.1
HANGS_S = 30.0


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BUSY_S", BUSY_S)


class Stranger:
    """Someone else who keeps the index locked, such as a viewer of databases."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "index.sqlite", isolation_level=None, check_same_thread=False)
        self._connection.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def test_a_lock_that_does_not_open_in_time_is_told_apart_from_a_store_that_refuses(tmp_path: Path) -> None:
    with ExperienceStore(tmp_path) as store:
        stranger = Stranger(tmp_path)
        with pytest.raises(StoreBusy, match="end the process that holds the index"):
            store.add(make_trajectory("a"))
        stranger.let_go()
        assert store.add(make_trajectory("a")).seq == 1
        assert store.audit().healthy


def test_a_worker_spools_while_the_index_is_locked_and_hands_over_afterwards(tmp_path: Path) -> None:
    kept: list[str] = []

    def acknowledged(trajectory: Trajectory, waited_s: float) -> None:
        kept.append(trajectory.id)

    async def scene() -> None:
        episodes, spool = FileEpisodes(tmp_path / "run"), Spool(tmp_path / "spool", capacity=10)
        episodes.add(make_trajectory("before"), {})
        outbox = Outbox(episodes, acknowledged, capacity=1, spool=spool, deadline_s=3 * BUSY_S)
        stranger = Stranger(tmp_path / "run")
        running = asyncio.create_task(outbox.run())
        for number in range(4):
            await outbox.put(make_trajectory(f"e{number}"))
        while outbox.num_spooled < 4:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.01)
        assert outbox.hangs
        assert kept == []
        stranger.let_go()
        while len(kept) < 4:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.01)
        outbox.finish()
        await running
        assert [row.id for row in episodes.after(0, 10)] == ["before", "e0", "e1", "e2", "e3"]
        assert episodes.audit().healthy

    asyncio.run(asyncio.wait_for(scene(), HANGS_S))


def test_whoever_reads_waits_for_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BUSY_S", HANGS_S)
    with ExperienceStore(tmp_path) as store:
        store.add(make_trajectory("a"))
        stranger = Stranger(tmp_path)
        adding = Thread(target=store.add, args=(make_trajectory("b"),))
        adding.start()
        time.sleep(0.1)
        started_s = time.monotonic()
        assert (store.stats().episodes, store.count_of(0)[1], len(store.after(0, 9))) == (1, 1, 1)
        assert time.monotonic() - started_s < 5.0
        stranger.let_go()
        adding.join(HANGS_S)
        assert store.count() == 2
