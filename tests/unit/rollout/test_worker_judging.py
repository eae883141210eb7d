"""Judging beside playing: many at once, never on a device's time, and a judge's failure costs one verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.rollout import worker as workers
from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.hindsight import Relabeller
from distrl.rollout.scheduler import TaskFeed
from distrl.rollout.worker import Worker, WorkerParts
from distrl.tasks.judges import Attempt
from distrl.telemetry.events import read_events
from distrl.types import Ending, Finish, Task, Trajectory, Verdict
from support.rollouts import (
    DEAF_S,
    HANGS_S,
    Kept,
    Page,
    Pages,
    Published,
    ScriptedPolicy,
    a_page_task,
    ignore_cancellation,
    make_parts,
    until,
)


class SlowJudge:
    """A judge that answers when the test lets it."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.asked: list[Attempt] = []
        self.now = self.most = 0

    async def judge(self, attempt: Attempt) -> Verdict:
        self.asked.append(attempt)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.answering.wait()
        finally:
            self.now -= 1
        return Verdict(outcome="success", progress=1.0)


class OddJudge:
    """A judge to which something happens with some of the tasks."""

    def __init__(self, happens: Callable[[Task], object]) -> None:
        self._happens = happens

    async def judge(self, attempt: Attempt) -> Verdict:
        waits = self._happens(attempt.task)
        if waits:
            await asyncio.Event().wait()
        return Verdict(outcome="failure", reason="seen")


def kept_by(parts: WorkerParts) -> list[Trajectory]:
    assert isinstance(parts.sink, Kept)
    return parts.sink.trajectories


def events(folder: Path, name: str) -> list[dict[str, object]]:
    return [dict(event) for event in read_events(folder / "worker-0.jsonl") if event["event"] == name]


def make(folder: Path, *, pages: int = 1, policy: ScriptedPolicy | None = None, **changes: object) -> WorkerParts:
    devices = [Page(f"page-{number}") for number in range(pages)]
    parts = make_parts(folder, policy or ScriptedPolicy(), Published(), devices)
    return replace(parts, feed=TaskFeed(Pages(), "train", seed="test"), **changes)


async def play(parts: WorkerParts, enough: Callable[[Worker], bool]) -> Worker:
    """Let a worker play until there is enough, then stop it."""
    worker = Worker(parts)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(HANGS_S):
        await until(lambda: working.done() or enough(worker))
        worker.stop()
        await working
    return worker


def test_a_slow_judge_does_not_keep_the_device_busy(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        parts = make(tmp_path, judge=judge)

        def four_wait(worker: Worker) -> bool:
            enough = len(judge.asked) >= 4
            if enough:
                assert kept_by(parts) == []
                assert worker.num_judging >= 4
                judge.answering.set()
            return enough

        worker = await play(parts, four_wait)
        assert judge.most >= 4, "one device, and four verdicts under way"
        assert {attempt.end.reward for attempt in judge.asked[:4]} == {1.5}
        assert worker.counts.episodes == len(kept_by(parts)) >= 4
        assert worker.num_judging == 0

    asyncio.run(scene())


def test_the_lease_is_returned_before_the_verdict(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        health: list[dict[str, int]] = []

        class Looking(SlowJudge):
            async def judge(self, attempt: Attempt) -> Verdict:
                health.append(worker.health())
                return await judge.judge(attempt)

        worker = Worker(make(tmp_path, judge=Looking(), judge_at_once=1))
        working = asyncio.create_task(worker.run())
        await until(lambda: bool(health) and worker.waiting.startswith("the judge"))
        await until(lambda: worker.num_playing == 0)
        assert worker.health()["healthy"] == 1, "nobody holds the device while the verdict is out"
        judge.answering.set()
        worker.stop()
        await working

    asyncio.run(scene())


def test_no_more_are_judged_at_once_than_allowed_and_new_episodes_wait_and_say_why(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        parts = make(tmp_path, pages=4, judge=judge, judge_at_once=3)
        said: list[str] = []
        played: list[int] = []

        def all_wait(worker: Worker) -> bool:
            if worker.waiting and not worker.num_playing and len(played) < 20:
                said.append(worker.waiting)
                played.append(parts.batcher.num_decisions)
            if len(played) == 20:
                judge.answering.set()
            return worker.counts.episodes >= 12

        await play(parts, all_wait)
        assert set(said[-10:]) == {"the judge: 7 episodes wait for their verdict"}, "three, and one of each device"
        assert len(set(played[-10:])) == 1, "nothing was played meanwhile"
        assert judge.most == 3
        assert len({one.id for one in kept_by(parts)}) == len(kept_by(parts)) >= 12

    asyncio.run(scene())


def test_a_judge_past_its_deadline_costs_that_verdict_alone(tmp_path: Path) -> None:
    parts = make(tmp_path, judge=OddJudge(lambda task: task.id.endswith("/3")), judge_deadline_s=0.02)
    worker = asyncio.run(play(parts, lambda worker: worker.counts.unjudged >= 2 and worker.counts.episodes >= 16))
    by_task = {one.task.id: one.verdict for one in kept_by(parts)}
    assert by_task["pages/train/3"] == Verdict(outcome="unknown", reason="the judge took over 0.02 s")
    assert {verdict.outcome for id, verdict in by_task.items() if id != "pages/train/3"} == {"failure"}
    told = events(tmp_path, "unjudged")
    assert len(told) == worker.counts.unjudged
    assert {event["why"] for event in told} == {"the judge took over 0.02 s"}
    assert {event["id"] for event in told} == {one.id for one in kept_by(parts) if not one.verdict.known}


def test_a_judge_that_raises_costs_that_verdict_alone(tmp_path: Path) -> None:
    def fail(task: Task) -> None:
        if task.id.endswith(("/1", "/2")):
            raise ConnectionError("the model's API is down")

    parts = make(tmp_path, judge=OddJudge(fail))
    worker = asyncio.run(play(parts, lambda worker: worker.counts.episodes >= 16))
    unknown = [one for one in kept_by(parts) if not one.verdict.known]
    assert {one.task.id for one in unknown} == {"pages/train/1", "pages/train/2"}
    assert {one.verdict.reason for one in unknown} == {"the judge failed: ConnectionError: the model's API is down"}
    assert all(step.reward == 0.0 for one in unknown for step in one.steps), "nothing is learnt from it"
    assert worker.counts.unjudged == len(unknown) == len(events(tmp_path, "unjudged"))
    assert not events(tmp_path, "device_lost")


@pytest.mark.parametrize("failing", [5, 1000])
def test_claims_without_a_verdict_are_counted_in_a_row_until_one_has_one(tmp_path: Path, failing: int) -> None:
    def fail_at_first(task: Task) -> None:
        asked.append(task)
        if len(asked) <= failing:
            raise ConnectionError("the model's API is down")

    asked: list[Task] = []
    claims = ScriptedPolicy(lambda seen: Finish())
    parts = make(tmp_path, policy=claims, judge=OddJudge(fail_at_first))
    worker = asyncio.run(play(parts, lambda worker: worker.counts.episodes >= 8))
    assert worker.counts.unjudged == min(failing, len(asked)) >= 5
    assert worker.counts.unjudged_in_a_row == (0 if failing == 5 else len(asked))


def test_a_verdict_that_needs_no_judge_does_not_hide_that_the_judge_is_down(tmp_path: Path) -> None:
    def fail_at_one(task: Task) -> None:
        if task.id.endswith("/1"):
            raise ConnectionError("the model's API is down")

    parts = make(tmp_path, judge=OddJudge(fail_at_one))
    worker = asyncio.run(play(parts, lambda worker: worker.counts.unjudged >= 2 and worker.counts.episodes >= 16))
    assert worker.counts.unjudged_in_a_row == worker.counts.unjudged, "the others ended without a claim"


def test_what_a_fault_ended_is_unknown_without_asking_the_judge_and_is_not_called_unjudged(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        judge.answering.set()
        page = Page()
        lost = iter([*[False] * 5, True])  # the third capture of the second episode fails

        async def break_down() -> None:
            if next(lost, False):
                raise ConnectionResetError("reset by peer")

        page.happens["capture"] = break_down
        parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [page])
        parts = replace(parts, judge=judge, feed=TaskFeed(Pages(), "train", seed="test"))
        worker = await play(parts, lambda worker: worker.counts.episodes >= 3)
        (broken,) = (one for one in kept_by(parts) if one.ending is Ending.DEVICE_LOST)
        assert broken.verdict == Verdict(outcome="unknown", reason="a fault ended the episode")
        assert {attempt.ending for attempt in judge.asked} <= {Ending.ENVIRONMENT, Ending.TIME_LIMIT}
        assert worker.counts.unjudged == 0
        assert events(tmp_path, "unjudged") == []

    asyncio.run(scene())


def test_an_episode_that_the_device_ends_and_rewards_is_judged_by_its_reward(tmp_path: Path) -> None:
    parts = make(tmp_path)
    worker = asyncio.run(play(parts, lambda worker: worker.counts.episodes >= 5))
    ended = [one for one in kept_by(parts) if one.ending is Ending.ENVIRONMENT]
    assert len(ended) >= 4
    for one in ended:
        assert (len(one.steps), one.end.reward, one.end.claim, one.last) == (3, 1.5, None, None)
        assert one.verdict.success
        assert one.steps[-1].reward == 1.0
    assert worker.counts.successes == sum(one.verdict.success for one in kept_by(parts))


def test_a_failure_is_relabelled_once_it_is_judged_and_stored_before_its_round_can_close(tmp_path: Path) -> None:
    other = a_page_task(7)
    relabeller = Relabeller(
        lambda played: [other] if played.verdict.outcome == "failure" else [],
        ScriptedPolicy(),
        filter_noops=False,
        outcome_flip=0.0,
        first_priority=lambda trajectory: 5.0,
    )
    parts = make(tmp_path, judge=OddJudge(lambda task: None), relabeller=relabeller)
    worker = asyncio.run(play(parts, lambda worker: worker.counts.episodes >= 4))
    kept = kept_by(parts)
    played = [one for one in kept if one.source == "played"]
    again = {one.id: one for one in kept if one.source == "hindsight"}
    assert {one.task.id for one in again.values()} == {other.id}
    assert set(again) == {f"{one.id}+hindsight" for one in played if one.ending is Ending.ENVIRONMENT}
    assert {(one.verdict.success, one.priority, one.worker) for one in again.values()} == {(True, 5.0, "worker-0")}
    assert worker.counts.episodes == len(played), "what was relabelled is no episode"
    order = [one.id for one in kept]
    assert all(order.index(id) < order.index(id.removesuffix("+hindsight")) for id in again)


def test_a_bug_behind_the_verdict_ends_the_worker_with_that_error(tmp_path: Path) -> None:
    def fail(trajectory: Trajectory) -> float:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        asyncio.run(play(make(tmp_path, first_priority=fail), lambda worker: False))


def test_a_worker_ends_when_its_last_verdicts_are_there(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        parts = make(tmp_path, judge=judge)
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        await until(lambda: len(judge.asked) >= 3)
        worker.stop()
        await until(lambda: not worker.num_playing)
        await asyncio.sleep(0.05)  # well beyond the moment that running episodes are given
        assert not working.done()
        judge.answering.set()
        await working
        assert len(kept_by(parts)) == len(judge.asked)

    asyncio.run(scene())


def test_a_store_that_failed_is_not_waited_for_by_verdicts(tmp_path: Path) -> None:
    def refuse(trajectory: Trajectory) -> None:
        raise StoreError("the disk is full")

    parts = make(tmp_path, pages=3, backlog=1, judge_deadline_s=3600.0)
    assert isinstance(parts.sink, Kept)
    parts.sink.on_add = refuse
    with pytest.raises(StoreError, match="the disk is full"):
        asyncio.run(play(parts, lambda worker: False))


class DeafJudge:
    """A judge that does not heed its cancellation."""

    async def judge(self, attempt: Attempt) -> Verdict:
        await ignore_cancellation()
        return Verdict(outcome="success", progress=1.0)


def test_a_judge_that_does_not_heed_its_deadline_holds_up_nobody(tmp_path: Path) -> None:
    async def scene() -> None:
        parts = make(tmp_path, pages=2, judge=DeafJudge(), judge_deadline_s=0.02, judge_at_once=2)
        async with asyncio.timeout(0.5 * DEAF_S):
            worker = await play(parts, lambda worker: worker.counts.episodes >= 8)
        assert worker.counts.unjudged == worker.counts.episodes == len(kept_by(parts))
        assert {one.verdict.outcome for one in kept_by(parts)} == {"unknown"}

    asyncio.run(scene())


def test_a_part_of_a_worker_that_does_not_heed_its_cancellation_is_named_and_left(tmp_path: Path) -> None:
    async def scene() -> None:
        parts = make(tmp_path, cancel_deadline_s=0.05)

        class DeafBatcher(Batcher):
            async def run(self) -> None:
                try:
                    await super().run()
                finally:
                    await ignore_cancellation()

        weights = Published()
        batching = Batching(batch_size=64, batch_wait_s=0.0, temperature=1.0, seed=0)
        batcher = DeafBatcher(ScriptedPolicy(), weights, batching)
        parts = replace(parts, batcher=batcher, tools=replace(parts.tools, decide=batcher.decide))
        async with asyncio.timeout(0.5 * DEAF_S):
            await play(parts, lambda worker: worker.counts.episodes >= 3)
        assert [event["task"] for event in events(tmp_path, "not_ended")] == ["decisions"]
        assert len(kept_by(parts)) >= 3

    asyncio.run(scene())


def test_finished_episodes_that_wait_for_the_judge_are_kept_when_something_else_fails(tmp_path: Path) -> None:
    async def scene() -> None:
        judge = SlowJudge()
        parts = make(tmp_path, pages=4, judge=judge, judge_at_once=1)
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        await until(lambda: len(events(tmp_path, "finished")) == 5)  # one is judged, and one of each device waits
        await until(lambda: not worker.num_playing)
        worker._failed.set_exception(ZeroDivisionError("a bug elsewhere"))
        await asyncio.sleep(0.02)
        judge.answering.set()
        with pytest.raises(ZeroDivisionError, match="a bug elsewhere"):
            await working
        assert {one.id for one in kept_by(parts)} == {event["id"] for event in events(tmp_path, "finished")}
        assert len(kept_by(parts)) == 5

    asyncio.run(scene())


def test_all_finished_episodes_are_kept_when_something_fails_though_the_judge_misses_each_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "JUDGE_MARGIN_S", 20.0)  # a busy machine is late, too

    async def scene() -> None:
        parts = make(tmp_path, pages=4, judge=SlowJudge(), judge_at_once=1, judge_deadline_s=0.05)
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        await until(lambda: worker.num_judging == 5)  # one is judged, and one of each device waits
        assert worker._last_verdicts_s() == pytest.approx(5 * 0.05), "how long all of them are waited for"
        worker._failed.set_exception(ZeroDivisionError("a bug elsewhere"))
        with pytest.raises(ZeroDivisionError, match="a bug elsewhere"):
            await working
        assert {one.id for one in kept_by(parts)} == {event["id"] for event in events(tmp_path, "finished")}
        assert {one.verdict.reason for one in kept_by(parts)} == {"the judge took over 0.05 s"}

    asyncio.run(scene())
