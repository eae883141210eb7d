"""The way to the store: in order and durable, over a spool while the store does not answer, and to an end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.rollout.outbox import END_DEADLINE_S, SPOOL_BYTES, STORE_DEADLINE_S, Frames, Outbox, Spool
from distrl.types import Trajectory
from support.rollouts import HANGS_S, Kept, until
from support.trajectories import make_trajectory

HANGING = """
import asyncio, sys, threading
from pathlib import Path
from distrl.rollout import outbox
from support.trajectories import make_trajectory

class Hung:
    def add(self, trajectory, frames):
        threading.Event().wait()

async def scene():
    spool = outbox.Spool(Path(sys.argv[1]), capacity=9)
    box = outbox.Outbox(Hung(), lambda *_: None, capacity=9, spool=spool, deadline_s=0.01)
    await box.put(make_trajectory("e0"))
    box.finish()
    await box.run()
    print(box.num_spooled)

asyncio.run(scene())
"""


def test_a_process_ends_although_its_store_hangs_and_leaves_the_episode_in_the_spool(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGING, str(tmp_path)]
    where = {"cwd": Path(__file__).parents[2], "capture_output": True, "text": True}
    ended = subprocess.run(command, timeout=HANGS_S, check=True, **where)  # type: ignore[call-overload]
    assert ended.stdout == "1\n"
    assert [found.id for _, found, _ in Spool(tmp_path, capacity=9).items()] == ["e0"]


class Sink(Kept):
    """A store that stops answering when the test closes it, and answers again when it is opened; once by id."""

    def __init__(self) -> None:
        super().__init__()
        self._open = threading.Event()
        self._open.set()
        self.asked = 0
        self.on_add = self._wait

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def _wait(self, trajectory: Trajectory) -> None:
        self.asked += 1
        assert self._open.wait(HANGS_S)

    @property
    def ids(self) -> list[str]:
        """What it has, in the order in which it came first."""
        return list(dict.fromkeys(trajectory.id for trajectory in self.trajectories))


class Scene:
    """An outbox that gives a store little time, and what it was told."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = 99,
        spool: int = 99,
        spool_bytes: int = SPOOL_BYTES,
        deadline_s: float = 0.01,
    ) -> None:
        self.sink, self.told, self.damaged = Sink(), list[str](), list[tuple[Path, str]]()
        self.spool = Spool(
            folder,
            capacity=spool,
            capacity_bytes=spool_bytes,
            damaged=lambda path, why: self.damaged.append((path, why)),
        )
        self.outbox = Outbox(
            self.sink,
            lambda trajectory, waited_s: self.told.append(trajectory.id),
            capacity=capacity,
            spool=self.spool,
            deadline_s=deadline_s,
        )

    async def put(self, *ids: str) -> None:
        for id in ids:
            await self.outbox.put(make_trajectory(id), partial(dict, {f"frame of {id}": id.encode()}))

    def spooled(self) -> list[str]:
        return [trajectory.id for _, trajectory, _ in self.spool.items()]


def test_what_is_handed_over_is_stored_in_order_with_its_pictures(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path, deadline_s=HANGS_S)
        await made.put("a", "b", "c")
        made.outbox.finish()
        await made.outbox.run()
        assert made.sink.ids == made.told == ["a", "b", "c"]
        assert made.sink.frames == {f"frame of {id}": id.encode() for id in "abc"}
        assert (made.outbox.num_waiting, made.outbox.num_spooled, list(tmp_path.iterdir())) == (0, 0, [])

    asyncio.run(scene())


def test_what_comes_while_the_store_hangs_is_spooled_with_its_pictures_and_handed_over_in_order(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path)
        running = asyncio.create_task(made.outbox.run())
        made.sink.close()
        await made.put("a", "b", "c")
        await until(lambda: made.outbox.num_spooled == 3)
        assert made.outbox.hangs
        assert made.outbox.num_waiting == 0, "whoever handed them over goes on"
        assert made.sink.asked == 1, "a store that hangs is asked for nothing more"
        assert made.spooled() == ["a", "b", "c"]
        assert made.told == []
        made.sink.open()
        await until(lambda: not made.outbox.hangs)
        await made.put("d")
        made.outbox.finish()
        await running
        assert made.told == ["a", "b", "c", "d"]
        assert made.sink.ids == ["a", "b", "c", "d"]
        assert made.sink.frames == {f"frame of {id}": id.encode() for id in "abcd"}
        assert list(tmp_path.iterdir()) == [], "nothing is left behind"

    asyncio.run(scene())


def test_the_spool_is_handed_over_at_the_end_also_where_nothing_more_comes(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path)
        running = asyncio.create_task(made.outbox.run())
        made.sink.close()
        await made.put("a")
        await until(lambda: made.outbox.num_spooled == 1)
        made.sink.open()
        await until(lambda: not made.outbox.hangs)
        made.outbox.finish()
        await running
        assert (made.told, made.outbox.num_spooled) == (["a"], 0)

    asyncio.run(scene())


def test_the_spool_is_handed_over_as_soon_as_the_store_answers_though_nothing_more_comes(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path)
        running = asyncio.create_task(made.outbox.run())
        made.sink.close()
        await made.put("a")
        await until(lambda: made.outbox.num_spooled == 1)
        made.sink.open()
        await until(lambda: made.told == ["a"])
        assert made.outbox.num_spooled == 0
        made.outbox.finish()
        await running

    asyncio.run(scene())


def test_what_one_process_left_in_its_spool_the_next_one_hands_over_first(tmp_path: Path) -> None:
    left = Spool(tmp_path, capacity=9)
    left.put(make_trajectory("a"), {"frame of a": b"a"})
    left.put(make_trajectory("b"), {})

    async def scene() -> None:
        made = Scene(tmp_path, deadline_s=HANGS_S)
        assert made.outbox.num_spooled == 2
        await made.put("c")
        made.outbox.finish()
        await made.outbox.run()
        assert made.sink.ids == made.told == ["a", "b", "c"]
        assert made.sink.frames["frame of a"] == b"a"

    asyncio.run(scene())


def test_a_store_that_hangs_again_on_the_way_keeps_the_order(tmp_path: Path) -> None:
    left = Spool(tmp_path, capacity=9)
    for id in "abc":
        left.put(make_trajectory(id), {})

    async def scene() -> None:
        made = Scene(tmp_path)
        made.sink.on_add = lambda trajectory: made.sink._wait(trajectory) if trajectory.id == "b" else None
        made.sink.close()
        running = asyncio.create_task(made.outbox.run())
        await until(lambda: made.outbox.hangs and made.told == ["a"])
        await made.put("d")
        await until(lambda: made.outbox.num_spooled == 3)
        assert made.spooled() == ["b", "c", "d"]
        made.sink.open()
        await until(lambda: not made.outbox.hangs)
        made.outbox.finish()
        await running
        assert made.told == made.sink.ids == ["a", "b", "c", "d"]

    asyncio.run(scene())


def test_a_full_spool_holds_up_whoever_hands_over_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path, capacity=1, spool=2)
        running = asyncio.create_task(made.outbox.run())
        made.sink.close()
        putting = asyncio.create_task(made.put("a", "b", "c", "d", "e", "f"))
        await until(lambda: made.outbox.num_spooled == 2 and made.outbox.is_full)
        assert not putting.done()
        assert len(made.spool) == 2, "the spool is bounded"
        made.sink.open()
        await putting
        made.outbox.finish()
        await running
        assert made.told == made.sink.ids == ["a", "b", "c", "d", "e", "f"]

    asyncio.run(scene())


def test_a_store_that_does_not_answer_until_the_end_with_a_full_spool_is_an_error_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.rollout.outbox.END_DEADLINE_S", 0.02)

    async def scene() -> None:
        made = Scene(tmp_path, spool=1)
        made.sink.close()
        await made.put("a", "b")
        made.outbox.finish()
        with pytest.raises(StoreError, match="the spool holds 1 episodes already") as caught:
            await made.outbox.run()
        assert "rollout.spool_episodes" in caught.value.fix
        made.sink.open()

    asyncio.run(scene())


@pytest.mark.parametrize("spooled", [False, True])
def test_a_store_that_refuses_ends_it_with_its_error(tmp_path: Path, spooled: bool) -> None:
    def refuse(trajectory: Trajectory) -> None:
        raise StoreError("the disk is full")

    async def scene() -> None:
        if spooled:
            Spool(tmp_path, capacity=9).put(make_trajectory("before"), {})
        made = Scene(tmp_path, deadline_s=HANGS_S)
        made.sink.on_add = refuse
        await made.put("a")
        with pytest.raises(StoreError, match="the disk is full"):
            await made.outbox.run()
        assert made.told == []
        assert made.spooled() == ["before"] * spooled, "what was in the spool stays there"

    asyncio.run(scene())


def test_a_store_that_hangs_and_refuses_in_the_end_is_heard(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path)
        refusing = threading.Event()

        def refuse_later(trajectory: Trajectory) -> None:
            assert refusing.wait(HANGS_S)
            raise StoreError("the disk is full")

        made.sink.on_add = refuse_later
        running = asyncio.create_task(made.outbox.run())
        await made.put("a")
        await until(lambda: made.outbox.num_spooled == 1)
        refusing.set()
        await until(lambda: not made.outbox.hangs)
        await made.put("b")
        with pytest.raises(StoreError, match="the disk is full"):
            await running
        assert "a" in made.spooled()

    asyncio.run(scene())


@pytest.mark.parametrize("damage", ["episode", "pictures"])
def test_a_damaged_file_of_the_spool_is_moved_aside_and_stops_nobody(tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path, capacity=9)
    for id in "abc":
        spool.put(make_trajectory(id), {})
    second = sorted(tmp_path.glob("*.ep"))[1]
    (second if damage == "episode" else second.with_suffix(".frames")).write_bytes(b"\xc1 rubbish")

    async def scene() -> None:
        made = Scene(tmp_path, deadline_s=HANGS_S)
        made.outbox.finish()
        await made.outbox.run()
        assert made.told == ["a", "c"]
        assert made.outbox.num_spooled == 0
        ((path, why),) = made.damaged
        assert (path, path.exists()) == (second.with_suffix(".damaged"), True)
        assert why

    asyncio.run(scene())
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{second.stem}{end}" for end in (".damaged", ".frames.damaged")
    }
    fresh = Spool(tmp_path, capacity=9)
    fresh.put(make_trajectory("d"), {})
    assert [path.stem for path, _, _ in fresh.items()] == ["0000000002"], "its number is not given out again"


def test_a_file_of_the_spool_that_somebody_has_removed_stops_nobody_either(tmp_path: Path) -> None:
    told, spool = list[str](), Spool(tmp_path, capacity=9)
    for id in "ab":
        spool.put(make_trajectory(id), {})
    again = Spool(tmp_path, capacity=9, damaged=lambda path, why: told.append(why))
    for file in tmp_path.glob("0000000000.*"):
        file.unlink()
    assert [trajectory.id for _, trajectory, _ in again.items()] == ["b"]
    assert "No such file" in told[0]
    assert len(again) == 1


def test_a_spool_is_full_with_so_many_bytes_however_few_episodes_they_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path, capacity=99, capacity_bytes=5_000)
    spool.put(make_trajectory("a"), {"x": bytes(100)})
    assert not spool.is_full
    spool.put(make_trajectory("b"), {"x": bytes(5_000)})
    assert spool.is_full
    assert spool.size_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    again = Spool(tmp_path, capacity=99, capacity_bytes=5_000)
    assert (again.is_full, again.size_bytes) == (True, spool.size_bytes), "what an earlier process left counts too"
    for path, trajectory, _ in again.items():
        if trajectory.id == "b":
            again.remove(path)
    assert not again.is_full


def test_a_spool_full_of_bytes_holds_up_whoever_hands_over_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path, capacity=1, spool_bytes=1)
        running = asyncio.create_task(made.outbox.run())
        made.sink.close()
        putting = asyncio.create_task(made.put("a", "b", "c", "d"))
        await until(lambda: made.outbox.num_spooled == 1 and made.outbox.is_full)
        await asyncio.sleep(0.05)
        assert (putting.done(), len(made.spool)) == (False, 1)
        made.sink.open()
        await putting
        made.outbox.finish()
        await running
        assert made.told == made.sink.ids == ["a", "b", "c", "d"]

    asyncio.run(scene())


class SlowSpool(Spool):
    """A spool on a disk that answers when the test lets it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, capacity=9)
        self.answering, self.threads = threading.Event(), set[str]()

    def put(self, trajectory: Trajectory, frames: Frames) -> None:
        self.threads.add(threading.current_thread().name)
        assert self.answering.wait(HANGS_S)
        super().put(trajectory, frames)

    def items(self) -> Iterator[tuple[Path, Trajectory, Frames]]:
        for item in super().items():
            self.threads.add(threading.current_thread().name)
            yield item

    def remove(self, path: Path) -> None:
        self.threads.add(threading.current_thread().name)
        super().remove(path)


def test_the_event_loop_turns_while_the_workers_own_disk_takes_its_time(tmp_path: Path) -> None:
    async def scene() -> None:
        spool, sink = SlowSpool(tmp_path), Sink()
        outbox = Outbox(sink, lambda *_: None, capacity=9, spool=spool, deadline_s=0.01)
        running = asyncio.create_task(outbox.run())
        sink.close()
        await outbox.put(make_trajectory("a"))
        await until(lambda: bool(spool.threads))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert outbox.num_spooled == 0, "it is being written all the while"
        spool.answering.set()
        await until(lambda: outbox.num_spooled == 1)
        sink.open()
        await until(lambda: outbox.num_spooled == 0)
        outbox.finish()
        await running
        assert spool.threads == {"spool"}, "all work on that disk is done beside the event loop"

    asyncio.run(scene())


def test_a_disk_of_the_worker_that_does_not_answer_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def scene() -> None:
        spool, sink = SlowSpool(tmp_path), Sink()
        outbox = Outbox(sink, lambda *_: None, capacity=9, spool=spool, deadline_s=0.01, spool_deadline_s=0.05)
        sink.close()
        await outbox.put(make_trajectory("a"))
        with pytest.raises(StoreError, match=rf"the spool in {tmp_path} did not answer within 0\.05 s") as caught:
            await outbox.run()
        assert "TMPDIR" in caught.value.fix
        spool.answering.set()
        sink.open()

    asyncio.run(scene())


def test_pictures_are_collected_when_their_trajectory_is_stored_and_not_before(tmp_path: Path) -> None:
    async def scene() -> None:
        made, collected = Scene(tmp_path, deadline_s=HANGS_S), list[str]()

        def collect(id: str) -> dict[str, bytes]:
            collected.append(id)
            return {id: b"picture"}

        made.sink.close()
        running = asyncio.create_task(made.outbox.run())
        for id in "abc":
            await made.outbox.put(make_trajectory(id), partial(collect, id))
        await until(lambda: made.sink.asked == 1)
        assert collected == ["a"], "what waits for the store holds no pictures of its own"
        made.sink.open()
        made.outbox.finish()
        await running
        assert made.sink.frames == dict.fromkeys("abc", b"picture")

    asyncio.run(scene())


def test_a_spool_goes_on_counting_where_the_last_process_stopped(tmp_path: Path) -> None:
    first = Spool(tmp_path, capacity=2)
    first.put(make_trajectory("a"), {})
    first.put(make_trajectory("b"), {})
    assert first.is_full
    oldest = next(path for path, trajectory, _ in first.items() if trajectory.id == "a")
    second = Spool(tmp_path, capacity=2)
    second.remove(oldest)
    assert not second.is_full
    second.put(make_trajectory("c"), {})
    assert [trajectory.id for _, trajectory, _ in second.items()] == ["b", "c"]


def test_a_trajectory_comes_back_from_the_spool_as_it_was(tmp_path: Path) -> None:
    spool, played = Spool(tmp_path, capacity=2), replace(make_trajectory("a"), worker="worker-3")
    spool.put(played, {"x": b"\x00\xff"})
    ((_, trajectory, frames),) = spool.items()
    assert (trajectory, frames) == (played, {"x": b"\x00\xff"})


class SlowDisk:
    """An outbox over a sink that takes a while for each trajectory, by a clock of its own."""

    def __init__(self, folder: Path, each_s: float) -> None:
        self.now_s, self._each_s, self.sink = 0.0, each_s, Sink()
        spool = Spool(folder, capacity=99)
        self.outbox = Outbox(self.sink, self._took, capacity=99, spool=spool, clock=lambda: self.now_s)

    def _took(self, trajectory: Trajectory, waited_s: float) -> None:
        self.now_s += self._each_s
        if self.now_s > END_DEADLINE_S:
            self.sink.close()  # the next one is not done when the time is up

    async def end(self, count: int) -> None:
        """Hand over so many, and let the worker end."""
        for number in range(count):
            await self.outbox.put(make_trajectory(f"e{number}"))
        self.outbox.finish()
        async with asyncio.timeout(HANGS_S):
            await self.outbox.run()


def test_all_that_is_left_at_the_end_has_one_deadline_together_and_the_rest_is_spooled(tmp_path: Path) -> None:
    slow = SlowDisk(tmp_path, 0.9 * STORE_DEADLINE_S)  # each in time by itself
    asyncio.run(slow.end(5))
    assert slow.sink.ids == ["e0", "e1"]
    assert [trajectory.id for _, trajectory, _ in Spool(tmp_path, capacity=9).items()] == ["e2", "e3", "e4"]
    slow.sink.open()


def test_what_is_stored_in_time_lets_the_worker_end_in_peace(tmp_path: Path) -> None:
    quick = SlowDisk(tmp_path, END_DEADLINE_S / 6)
    asyncio.run(quick.end(5))
    assert (quick.sink.ids, quick.outbox.num_waiting, quick.outbox.num_spooled) == ([f"e{n}" for n in range(5)], 0, 0)
