"""Calls of the hub, which stays answerable and small while a disk takes its time; without a cluster."""

from __future__ import annotations

import asyncio
import sqlite3
from mmap import mmap
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.errors import StoreError
from distrl.transport.files import FileLayout
from distrl.transport.ray import hub as hub_module
from distrl.transport.ray.connection import HubConnection
from distrl.transport.ray.hub import Hub
from distrl.transport.ray.wire import AGAIN, Answer, Caller
from support.trajectories import make_trajectory

WORKER = msgspec.msgpack.encode(Caller(role="worker-0", incarnation=1))
NOTHING = msgspec.msgpack.encode(())
ADD = msgspec.msgpack.encode((make_trajectory("e0"), {}))
PATIENCE_S = 60.0


def locked_index(folder: Path) -> sqlite3.Connection:
    held = sqlite3.connect(
        FileLayout(folder).experience / "index.sqlite", isolation_level=None, check_same_thread=False
    )
    held.execute("BEGIN IMMEDIATE")
    return held


def test_a_call_that_is_made_again_and_again_holds_one_place_and_its_last_try_is_answered(tmp_path: Path) -> None:
    async def scene() -> None:
        hub = Hub(str(tmp_path), str(tmp_path / "metrics.jsonl"), 3)
        await hub.call(WORKER, "first", "stats", msgspec.msgpack.encode((0,)))  # the index is made
        held = locked_index(tmp_path)
        tries = []
        for _ in range(50):
            tries.append(asyncio.create_task(hub.call(WORKER, "one", "add", ADD)))
            await asyncio.sleep(0)
        *earlier, last = tries
        async with asyncio.timeout(PATIENCE_S):
            assert set(await asyncio.gather(*earlier)) == {AGAIN}
            assert not last.done(), "the disk has not answered"
            held.execute("ROLLBACK")
            assert (await last)[0] == ""
            assert await hub.call(WORKER, "one", "add", ADD) == await last, "remembered"
            kind, rows = await hub.call(WORKER, "rows", "after", msgspec.msgpack.encode((0, 10)))
        assert (kind, len(msgspec.msgpack.decode(rows))) == ("", 1)
        held.close()

    asyncio.run(scene())


def test_answers_are_forgotten_in_time_though_an_older_call_is_not_answered_for_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MOST_KEPT", 10)

    async def scene() -> None:
        hub = Hub(str(tmp_path), str(tmp_path / "metrics.jsonl"), 3)
        await hub.call(WORKER, "first", "stats", msgspec.msgpack.encode((0,)))
        held = locked_index(tmp_path)
        hanging: asyncio.Task[Answer] = asyncio.create_task(hub.call(WORKER, "one", "add", ADD))
        for number in range(100):
            assert (await hub.call(WORKER, f"clock-{number}", "clock", NOTHING))[0] == ""
        assert not hanging.done()
        assert (len(hub._answers), len(hub._calls), len(hub._tries)) == (10, 1, 1)
        held.execute("ROLLBACK")
        async with asyncio.timeout(PATIENCE_S):
            await hanging
        assert (len(hub._calls), len(hub._tries)) == (0, 0)
        held.close()

    asyncio.run(scene())


def test_weights_that_are_too_large_for_one_call_are_refused_with_what_to_do() -> None:
    line = HubConnection(None, Caller(role="learner", incarnation=1))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="publish is too much for one call") as told:
        line.tell("publish", memoryview(mmap(-1, 2**32)))
    assert "the machine with the learner's GPU" in str(told.value)
