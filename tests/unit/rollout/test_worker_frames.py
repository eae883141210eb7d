"""A worker with pictures: memory is bounded, disks are worked on beside the event loop, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.devices.base import Capture
from distrl.errors import StoreError
from distrl.experience.frames import FrameBuffer, FrameStore
from distrl.rollout.scheduler import TaskFeed
from distrl.rollout.worker import Worker, WorkerParts
from distrl.runtime.factory import make_spool
from distrl.telemetry.events import read_events
from distrl.types import Ending
from support.roles import a_context
from support.rollouts import HANGS_S, Kept, Page, Pages, Published, ScriptedPolicy, make_parts, until
from support.trajectories import make_trajectory


def kept_by(parts: WorkerParts) -> Kept:
    assert isinstance(parts.sink, Kept)
    return parts.sink


def run(parts: WorkerParts, enough: Callable[[Worker], bool]) -> Worker:
    """Let a worker play until there is enough, then stop it."""

    async def scene() -> Worker:
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(HANGS_S):
            await until(lambda: working.done() or enough(worker))
            worker.stop()
            await working
        return worker

    return asyncio.run(scene())


class FullSize(Page):
    """A device whose every picture is large and another one."""

    SIZE = 200_000

    def __init__(self) -> None:
        super().__init__(ends_after=20)
        self._taken = 0

    async def capture(self, *, screenshot: bool) -> Capture:
        await self._call("capture")
        self._taken += 1
        filling = self._taken.to_bytes(4, "big") + bytes(self.SIZE)
        return Capture(screenshot=b"\xff\xd8" + filling + b"\xff\xd9", width_px=100, height_px=200)


class SlowFrames(FrameStore):
    """A store of pictures that takes them when the test lets it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answering, self.threads, self.num_stored = threading.Event(), set[str](), 0

    def put(self, picture: bytes) -> str:
        self.threads.add(threading.current_thread().name)
        assert self.answering.wait(HANGS_S)
        self.num_stored += 1
        return super().put(picture)


def with_frames(folder: Path, device: Page, frames: FrameBuffer) -> WorkerParts:
    parts = make_parts(folder, ScriptedPolicy(), Published(), [device])
    feed = TaskFeed(Pages(), "train", seed="test")
    return replace(parts, frames=frames, feed=feed, tools=replace(parts.tools, keep_frame=frames.put))


def test_devices_wait_while_memory_is_full_of_pictures_and_the_loop_goes_on(tmp_path: Path) -> None:
    device, store = FullSize(), SlowFrames(tmp_path)
    frames = FrameBuffer(store, capacity=999, capacity_bytes=5 * FullSize.SIZE)
    parts, said = with_frames(tmp_path, device, frames), list[str]()

    def enough(worker: Worker) -> bool:
        if len(said) < 20 and worker.waiting.endswith("of pictures in memory wait to be kept"):
            said.append(f"{worker.waiting}, {device.calls.count('capture')} taken")
        if len(said) == 20:
            store.answering.set()
        assert frames.held_bytes <= 6 * FullSize.SIZE
        return worker.counts.episodes >= 2

    run(parts, enough)
    assert set(said) == {"the store: 1 MB of pictures in memory wait to be kept, 5 taken"}
    assert store.threads == {"frames"}, "the disk is worked on beside the event loop"
    assert store.num_stored > 10
    whole = [one for one in kept_by(parts).trajectories if one.ending is Ending.ENVIRONMENT]
    assert whole
    kept = kept_by(parts).frames
    for reference in (step.observation.screenshot for one in whole for step in one.steps):
        assert kept.get(reference) or store.get(reference), "a picture is stored by itself or with its episode"


def test_a_worker_whose_memory_is_full_of_pictures_ends_when_it_is_told_to(tmp_path: Path) -> None:
    device, store = FullSize(), SlowFrames(tmp_path)
    frames = FrameBuffer(store, capacity=3)
    parts = with_frames(tmp_path, device, frames)
    run(parts, lambda worker: "pictures in memory" in worker.waiting)
    store.answering.set()
    (cut,) = kept_by(parts).trajectories
    assert (cut.ending, frames.num_held) == (Ending.TIME_LIMIT, 0)


def test_pictures_that_cannot_be_stored_end_the_worker_with_that_error(tmp_path: Path) -> None:
    class Refusing(FrameStore):
        def put(self, picture: bytes) -> str:
            raise StoreError("the disk is full")

    parts = with_frames(tmp_path, FullSize(), FrameBuffer(Refusing(tmp_path), capacity=3))
    with pytest.raises(StoreError, match="the disk is full"):
        run(parts, lambda worker: False)


def test_a_damaged_file_in_the_spool_of_a_worker_is_told_in_its_log(tmp_path: Path) -> None:
    context = a_context("worker-0", tmp_path, Config())
    make_spool(context).put(make_trajectory("a"), {})
    (file,) = context.spool.glob("*.ep")
    file.write_bytes(b"rubbish")
    assert list(make_spool(context).items()) == []
    (event,) = (
        event for event in read_events(tmp_path / "logs" / "worker-0.jsonl") if event["event"] == "spool_damaged"
    )
    assert event["file"] == str(file.with_suffix(".damaged"))
    assert "does not begin like an episode" in str(event["why"])


def test_a_store_that_hangs_leaves_memory_free_until_the_spool_is_full(tmp_path: Path) -> None:
    answering = threading.Event()
    device, store = FullSize(), SlowFrames(tmp_path)
    frames = FrameBuffer(store, capacity=45)  # two episodes of 20 pictures, and a bit
    parts = with_frames(tmp_path, device, frames)
    parts = replace(parts, store_deadline_s=0.02, backlog=1)
    kept_by(parts).on_add = lambda trajectory: (answering.wait(HANGS_S), None)[1]

    def enough(worker: Worker) -> bool:
        full = worker.num_spooled >= 8
        if full and not answering.is_set():
            assert (kept_by(parts).trajectories, store.num_stored) == ([], 0), "the store has taken nothing so far"
            answering.set()
            store.answering.set()
        return full

    run(parts, enough)
    kept = kept_by(parts)
    assert len(kept.trajectories) >= 8
    for reference in (step.observation.screenshot for one in kept.trajectories for step in one.steps):
        assert kept.frames.get(reference) or store.get(reference), "no picture is lost"
