"""Hindsight beside playing: never on the event loop, never two threads in one policy, and a suite's failure costs one relabelling."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.hindsight import HindsightFailed, HindsightStage, Relabeller
from distrl.rollout.scheduler import TaskFeed
from distrl.rollout.worker import Worker, WorkerParts
from distrl.tasks.base import Fitting
from distrl.tasks.judges import Attempt
from distrl.telemetry.events import read_events
from distrl.types import Action, Decision, Observation, Task, Trajectory, Verdict
from support.rollouts import HANGS_S, Kept, Page, Pages, Published, ScriptedPolicy, a_page_task, make_parts, until
from support.trajectories import make_trajectory

OTHER = a_page_task(7)


class Failure:
    """A judge to whom nothing is good enough."""

    async def judge(self, attempt: Attempt) -> Verdict:
        return Verdict(outcome="failure", reason="seen")


def relabeller(fitting: Fitting, policy: ScriptedPolicy | None = None) -> Relabeller:
    return Relabeller(
        fitting, policy or ScriptedPolicy(), filter_noops=False, outcome_flip=0.0, first_priority=lambda made: 5.0
    )


def make(folder: Path, fitting: Fitting, *, policy: ScriptedPolicy | None = None, **changes: object) -> WorkerParts:
    policy = policy or ScriptedPolicy()
    parts = make_parts(folder, policy, Published(), [Page()])
    found = {"judge": Failure(), "relabeller": relabeller(fitting, policy), **changes}
    return replace(parts, feed=TaskFeed(Pages(), "train", seed="test"), **found)


async def play(parts: WorkerParts, enough: Callable[[Worker], bool]) -> Worker:
    worker = Worker(parts)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(HANGS_S):
        await until(lambda: working.done() or enough(worker))
        worker.stop()
        await working
    return worker


def kept_by(parts: WorkerParts) -> list[Trajectory]:
    assert isinstance(parts.sink, Kept)
    return parts.sink.trajectories


def told(folder: Path) -> list[dict[str, object]]:
    return [dict(event) for event in read_events(folder / "worker-0.jsonl") if event["event"] == "unrelabelled"]


# --- a suite that takes its time or fails


def test_devices_play_on_while_hindsight_takes_its_time(tmp_path: Path) -> None:
    answering = threading.Event()

    def think(played: Trajectory) -> Iterable[Task]:
        assert answering.wait(HANGS_S)
        return [OTHER]

    async def scene() -> None:
        parts = make(tmp_path, think)
        said: list[str] = []

        def enough(worker: Worker) -> bool:
            if parts.batcher.num_decisions >= 12 and worker.num_judging >= 3:
                said.append(worker.waiting)
                answering.set()
            return worker.counts.episodes >= 4

        await play(parts, enough)
        assert said, "episodes are played while earlier ones wait for hindsight"
        order = [one.id for one in kept_by(parts)]
        again = [id for id in order if id.endswith("+hindsight")]
        assert len(again) >= 3
        assert all(order.index(id) < order.index(id.removesuffix("+hindsight")) for id in again)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionError("the model is down"), "hindsight failed: ConnectionError: the model is down"),
        (TimeoutError("no answer"), "hindsight failed: TimeoutError: no answer"),
        (SystemExit(3), "hindsight failed: SystemExit: 3"),
    ],
)
def test_a_suite_whose_hindsight_raises_costs_that_relabelling_alone(
    tmp_path: Path, error: BaseException, why: str
) -> None:
    def fail(played: Trajectory) -> Iterable[Task]:
        if played.task.id.endswith(("/1", "/2")):
            raise error
        yield OTHER

    parts = make(tmp_path, fail)
    worker = asyncio.run(play(parts, lambda worker: worker.counts.episodes >= 16))
    played = [one for one in kept_by(parts) if one.source == "played" and one.verdict.known]
    again = {one.id.removesuffix("+hindsight") for one in kept_by(parts) if one.source == "hindsight"}
    assert again == {one.id for one in played if not one.task.id.endswith(("/1", "/2"))}
    assert worker.counts.unrelabelled == len(told(tmp_path)) == len(played) - len(again) > 0
    assert {event["why"] for event in told(tmp_path)} == {why}
    assert {event["id"] for event in told(tmp_path)} == {one.id for one in played} - again


def test_a_suite_whose_hindsight_hangs_costs_that_relabelling_alone(tmp_path: Path) -> None:
    leaving, hung = threading.Event(), list[str]()

    def hang(played: Trajectory) -> Iterable[Task]:
        if played.task.id.endswith("/3") and len(hung) < 2:  # fewer than there are places, or nobody is relabelled
            hung.append(played.id)
            assert leaving.wait(HANGS_S)
        return [OTHER]

    parts = make(tmp_path, hang, judge_deadline_s=0.2)
    relabelled = lambda: any(one.source == "hindsight" for one in kept_by(parts))  # noqa: E731
    worker = asyncio.run(
        play(parts, lambda worker: worker.counts.episodes >= 10 and worker.counts.unrelabelled > 0 and relabelled())
    )
    leaving.set()
    assert {event["why"] for event in told(tmp_path)} == {"hindsight took over 0.2 s"}
    late = {event["id"] for event in told(tmp_path)}  # on a busy machine more than those that hang
    assert worker.counts.unrelabelled == len(late) >= len(hung) >= 1
    assert set(hung) <= late <= {one.id for one in kept_by(parts)}, "it is stored"
    assert relabelled(), "and others are"


def test_something_that_is_no_task_is_refused_by_name() -> None:
    async def scene() -> None:
        stage = HindsightStage(relabeller(lambda played: ["call Ann"]), inline, deadline_s=9.0, at_once=1)  # type: ignore[list-item]
        with pytest.raises(HindsightFailed, match="has to give tasks, and this one gave 'call Ann'"):
            await stage.relabel(make_trajectory("a", success=False))

    asyncio.run(scene())


async def inline(work: Callable[[], object]) -> object:
    return work()


def test_a_suite_that_hangs_for_ever_has_so_many_threads_and_no_more() -> None:
    leaving, asked = threading.Event(), list[str]()

    def hang(played: Trajectory) -> Iterable[Task]:
        asked.append(played.id)
        assert leaving.wait(HANGS_S)
        return [OTHER]

    async def scene() -> None:
        stage = HindsightStage(relabeller(hang), inline, deadline_s=0.05, at_once=2)  # type: ignore[arg-type]
        for number in range(5):
            with pytest.raises(HindsightFailed, match=r"took over 0\.05 s"):
                await stage.relabel(make_trajectory(f"e{number}", success=False))
        await until(lambda: len(asked) == 2)
        assert set(asked) == {"e0", "e1"}, "the others waited for a place, and had their deadline too"
        leaving.set()
        async with asyncio.timeout(HANGS_S):
            while True:
                await until(lambda: not stage._places.locked())
                with suppress(HindsightFailed):  # on a busy machine the deadline is short
                    assert await stage.relabel(make_trajectory("e9", success=False)) is not None
                    break

    asyncio.run(scene())


# --- a policy that is used by one thread at a time


class Single(ScriptedPolicy):
    """A policy that notices two threads in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.most, self.imitated = 0, 0, 0
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def _use(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.threads.add(threading.current_thread().name)
        time.sleep(0.002)
        with self._lock:
            self.inside -= 1

    def decide(self, observations, **how) -> list[Decision]:  # type: ignore[no-untyped-def]
        self._use()
        return super().decide(observations, **how)

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        self.imitated += 1
        self._use()
        return super().imitate(observation, action)

    def restore(self, data: bytes, *, source: str) -> None:
        self._use()
        super().restore(data, source=source)


@pytest.mark.parametrize("aside", [False, True])
def test_a_policy_is_never_used_by_two_threads_at_once(tmp_path: Path, aside: bool) -> None:
    policy, weights = Single(), Published()
    weights.newest = 0

    def fitting(played: Trajectory) -> Iterable[Task]:
        weights.newest += 1  # new weights to swap in, all the time
        return [OTHER]

    async def scene() -> None:
        how = Batching(batch_size=64, batch_wait_s=0.0, temperature=1.0, seed=0, aside=aside)
        batcher = Batcher(policy, weights, how)
        parts = make_parts(tmp_path, policy, weights, [Page(f"page-{number}") for number in range(4)])
        parts = replace(
            parts,
            batcher=batcher,
            tools=replace(parts.tools, decide=batcher.decide),
            feed=TaskFeed(Pages(), "train", seed="test"),
            judge=Failure(),
            relabeller=relabeller(fitting, policy),
        )
        await play(parts, lambda worker: worker.counts.episodes >= 12)

    asyncio.run(scene())
    assert policy.imitated > 12
    assert policy.most == 1
    assert any("decisions" in name for name in policy.threads) is aside


def test_weights_are_not_swapped_while_the_policy_is_in_use_beside_the_loop() -> None:
    policy, weights, leaving = ScriptedPolicy(), Published(3), threading.Event()

    async def scene() -> None:
        how = Batching(batch_size=4, batch_wait_s=0.0, temperature=1.0, seed=0, aside=True)
        batcher = Batcher(policy, weights, how)
        using = asyncio.create_task(batcher.between_batches(lambda: leaving.wait(HANGS_S)))
        await asyncio.sleep(0.01)
        using.cancel()  # whoever asked has lost patience: the thread is in the policy all the same
        await asyncio.gather(using, return_exceptions=True)
        batcher.swap()
        assert batcher.version == -1
        leaving.set()
        await until(lambda: not batcher._num_aside)
        batcher.swap()
        assert batcher.version == 3

    asyncio.run(scene())


def test_a_bug_of_the_policy_in_hindsight_ends_the_worker_with_that_error(tmp_path: Path) -> None:
    class Broken(ScriptedPolicy):
        def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        asyncio.run(play(make(tmp_path, lambda played: [OTHER], policy=Broken()), lambda worker: False))
