"""A worker on real simulated phones: it plays, stops in good order, and dies of bugs rather than hanging."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import FaultConfig
from distrl.errors import StoreError
from distrl.rollout import outbox
from distrl.rollout.outbox import Spool
from distrl.rollout.rounds import EqualShares, LockStep, SharedRound
from distrl.rollout.worker import Worker, WorkerParts
from distrl.telemetry.events import read_events
from distrl.transport.files import FileClaims
from distrl.transport.memory import MemoryEpisodes
from distrl.types import Action, Ending, Finish, Observation, Press, Trajectory, Verdict
from support.gone import Gone
from support.rollouts import HANGS_S, LIMITS, Kept, OddPhone, Published, ScriptedPolicy, a_phone, make_parts, until
from support.trajectories import make_trajectory

FROZEN = FaultConfig(freeze_rate=1.0)


def give_up_after_three(seen: Observation) -> Action:
    return Finish(status="impossible") if len(seen.recent) == 3 else Press("back")


def kept_by(parts: WorkerParts) -> Kept:
    assert isinstance(parts.sink, Kept)
    return parts.sink


def logged(folder: Path, event: str) -> list[object]:
    """The ids that the worker wrote down with this event, in order."""
    return [found["id"] for found in read_events(folder / "worker-0.jsonl") if found["event"] == event]


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


def make(folder: Path, *, phones: int = 4, policy: Any = None, weights: Published | None = None) -> WorkerParts:
    devices = [a_phone(f"worker-0/phone-{number}") for number in range(phones)]
    return make_parts(folder, policy or ScriptedPolicy(give_up_after_three), weights or Published(), devices)


def test_every_episode_is_kept_once_acknowledged_and_counted(tmp_path: Path) -> None:
    parts = make(tmp_path)
    worker = run(parts, lambda worker: worker.counts.episodes >= 20)
    kept = kept_by(parts).trajectories
    assert len({trajectory.id for trajectory in kept}) == len(kept) == worker.counts.episodes >= 20
    assert {trajectory.worker for trajectory in kept} == {"worker-0"}
    assert len({trajectory.device for trajectory in kept}) == 4
    acknowledged = logged(tmp_path, "acknowledged")
    assert acknowledged == [trajectory.id for trajectory in kept]
    assert logged(tmp_path, "finished") == acknowledged
    assert worker.counts.steps == sum(len(trajectory.steps) for trajectory in kept)
    assert worker.num_playing == 0


def test_new_weights_are_taken_while_episodes_run_and_none_is_dropped(tmp_path: Path) -> None:
    weights = Published(0)

    def act(seen: Observation) -> Action:
        weights.newest += 1
        return give_up_after_three(seen)

    parts = make(tmp_path, policy=ScriptedPolicy(act), weights=weights)
    sink = kept_by(parts)
    run(parts, lambda worker: worker.counts.episodes >= 30)
    steps = [[step.version for step in trajectory.steps] for trajectory in sink.trajectories]
    assert all(versions == sorted(versions) for versions in steps)
    assert all(
        len(versions) == 4
        for versions, one in zip(steps, sink.trajectories, strict=True)
        if one.ending is Ending.FINISHED
    )
    assert all(len(set(versions)) == len(versions) for versions in steps)


def test_a_worker_waits_for_the_first_weights_and_says_so(tmp_path: Path) -> None:
    weights = Published(-1)
    parts = make(tmp_path, weights=weights)
    worker = run(parts, lambda worker: bool(worker.waiting))
    assert worker.waiting == "the first weights from the learner"
    assert kept_by(parts).trajectories == []


def test_what_still_runs_at_the_end_is_truncated_and_kept(tmp_path: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [OddPhone("perform", 4, hang)])
    worker = run(parts, lambda worker: parts.batcher.num_decisions == 4)
    (found,) = kept_by(parts).trajectories
    assert (found.ending, len(found.steps), worker.counts.truncated) == (Ending.TIME_LIMIT, 3, 1)
    assert found.last is not None
    assert not [event for event in read_events(tmp_path / "worker-0.jsonl") if event["event"] == "device_lost"]


def test_a_device_that_is_stuck_does_not_hold_up_the_end(tmp_path: Path) -> None:
    phone = a_phone("p0", faults=FROZEN)
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [phone])
    worker = run(replace(parts, limits=replace(LIMITS, step_deadline_s=3600.0)), lambda worker: worker.num_playing == 1)
    assert worker.num_playing == 0
    assert kept_by(parts).trajectories == []  # not one step had been taken


def test_a_frozen_device_is_given_back_as_lost_and_the_others_play_on(tmp_path: Path) -> None:
    devices = [a_phone("bad", faults=FROZEN), a_phone("good")]
    parts = make_parts(tmp_path, ScriptedPolicy(give_up_after_three), Published(), devices)
    parts = replace(parts, limits=replace(LIMITS, step_deadline_s=0.02))
    worker = run(parts, lambda worker: worker.counts.losses >= 2 and worker.counts.episodes >= 20)
    assert {trajectory.device for trajectory in kept_by(parts).trajectories} == {"good"}
    lost = [event for event in read_events(tmp_path / "worker-0.jsonl") if event["event"] == "device_lost"]
    assert {event["device"] for event in lost} == {"bad"}
    assert worker.health()["restarting"] + worker.health()["quarantined"] <= 1


def test_a_worker_whose_devices_are_all_gone_says_that_it_waits_for_one_and_how_they_are(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [Gone("p0"), Gone("p1")])
    said: list[tuple[int, str]] = []

    def gone_for_a_while(worker: Worker) -> bool:
        if worker.health()["quarantined"] == 2:
            said.append((worker.num_playing, worker.waiting))
        return len(said) >= 50

    run(parts, gone_for_a_while)
    (count, waits_for), *others = set(said)
    assert (count, others) == (0, [])
    assert waits_for.startswith("a device: 2 quarantined (p")


def test_lanes_that_wait_for_a_device_say_so_while_the_others_play(tmp_path: Path) -> None:
    devices = [a_phone("bad", faults=FROZEN), a_phone("good")]
    parts = make_parts(tmp_path, ScriptedPolicy(give_up_after_three), Published(), devices)
    parts = replace(parts, limits=replace(LIMITS, step_deadline_s=0.02))
    seen: set[str] = set()

    def waits_for_the_bad_one(worker: Worker) -> bool:
        seen.add(worker.waiting.partition(" (bad waits for its")[0])
        return {"", "a device: 1 leased, 1 restarting"} <= seen

    run(parts, waits_for_the_bad_one)


def test_what_the_end_of_the_worker_cut_is_unknown_and_no_failure_of_the_judge(tmp_path: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [OddPhone("perform", 4, hang)])
    worker = run(parts, lambda worker: parts.batcher.num_decisions == 4)
    (found,) = kept_by(parts).trajectories
    assert found.verdict == Verdict(outcome="unknown", reason="the end of the worker cut it off")
    assert (worker.counts.unjudged, logged(tmp_path, "unjudged")) == (0, [])


def test_a_phone_that_fails_on_purpose_is_seen_recovering(tmp_path: Path) -> None:
    faults = FaultConfig(fail_device="p0", fail_after_steps=6)
    parts = make_parts(tmp_path, ScriptedPolicy(give_up_after_three), Published(), [a_phone("p0", faults=faults)])
    run(parts, lambda worker: worker.counts.episodes >= 5)
    kept = kept_by(parts).trajectories
    assert [trajectory.ending for trajectory in kept[:4]] == [
        Ending.FINISHED,
        Ending.DEVICE_LOST,
        Ending.FINISHED,
        Ending.FINISHED,
    ]


def test_an_error_in_the_policy_ends_the_worker_with_that_error(tmp_path: Path) -> None:
    def fail(seen: Observation) -> Action:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(make(tmp_path, policy=ScriptedPolicy(fail)), lambda worker: False)


def test_a_store_that_cannot_take_an_episode_ends_the_worker(tmp_path: Path) -> None:
    parts = make(tmp_path)

    def full(trajectory: Trajectory) -> None:
        raise StoreError("the disk is full")

    kept_by(parts).on_add = full
    with pytest.raises(StoreError, match="full"):
        run(parts, lambda worker: False)


# --- storing beside playing


class Gate:
    """A store that takes nothing until it is opened."""

    def __init__(self, parts: WorkerParts) -> None:
        self._open = threading.Event()
        kept_by(parts).on_add = self._hold

    def open(self) -> None:
        self._open.set()

    def _hold(self, trajectory: Trajectory) -> None:
        assert self._open.wait(HANGS_S)


def test_a_phone_plays_on_while_the_store_is_still_writing(tmp_path: Path) -> None:
    parts = make(tmp_path, phones=1)
    gate = Gate(parts)

    def three_more_are_finished(worker: Worker) -> bool:
        enough = worker.num_storing >= 4
        if enough:
            assert kept_by(parts).trajectories == []
            gate.open()
        return enough

    worker = run(parts, three_more_are_finished)
    assert worker.counts.episodes >= 4
    assert logged(tmp_path, "acknowledged") == [trajectory.id for trajectory in kept_by(parts).trajectories]


def test_where_too_many_wait_to_be_stored_the_lanes_wait_too_and_say_so(tmp_path: Path) -> None:
    parts = replace(make(tmp_path, phones=3), backlog=2, judge_at_once=3)
    gate = Gate(parts)
    seen: list[int] = []

    def all_lanes_wait(worker: Worker) -> bool:
        held_up = worker.waiting.startswith("the store: ") and not worker.num_playing
        if held_up and len(seen) < 20:
            seen.append(worker.num_storing)
        elif held_up:
            gate.open()
        return worker.counts.episodes >= 10

    run(parts, all_lanes_wait)
    assert set(seen) == {2 + 3}  # two that may wait, and those three that were judged since


def test_a_worker_ends_when_all_that_it_finished_is_stored(tmp_path: Path) -> None:
    parts = make(tmp_path)
    gate = Gate(parts)

    async def scene() -> None:
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        await until(lambda: worker.num_storing >= 6)
        worker.stop()
        await until(lambda: not worker.num_playing)
        await asyncio.sleep(0.05)  # well beyond the moment that running episodes are given
        assert not working.done()
        gate.open()
        await working

    asyncio.run(scene())
    assert len(kept_by(parts).trajectories) >= 6
    assert logged(tmp_path, "finished") == logged(tmp_path, "acknowledged")


def test_what_was_finished_before_a_bug_is_stored_before_the_worker_ends_with_it(tmp_path: Path) -> None:
    left = iter(range(14))

    def fail_later(seen: Observation) -> Action:
        if next(left, None) is None:
            gate.open()
            raise ZeroDivisionError("a bug")
        return give_up_after_three(seen)

    parts = make(tmp_path, phones=1, policy=ScriptedPolicy(fail_later))
    gate = Gate(parts)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(parts, lambda worker: False)
    assert len(kept_by(parts).trajectories) == 3
    assert logged(tmp_path, "finished") == logged(tmp_path, "acknowledged")


def test_a_store_that_fails_ends_the_worker_also_where_its_lanes_wait_for_room(tmp_path: Path) -> None:
    parts = replace(make(tmp_path, phones=3), backlog=1)
    ready = threading.Event()

    def fail(trajectory: Trajectory) -> None:
        assert ready.wait(HANGS_S)
        raise StoreError("the disk is full")

    def lanes_wait(worker: Worker) -> bool:
        if worker.waiting.startswith("the store: ") and not worker.num_playing:
            ready.set()
        return False

    kept_by(parts).on_add = fail
    with pytest.raises(StoreError, match="full"):
        run(parts, lanes_wait)
    assert logged(tmp_path, "acknowledged") == []


def with_large_spool(parts: WorkerParts, folder: Path) -> WorkerParts:
    return replace(parts, store_deadline_s=0.05, spool=Spool(folder / "spool", capacity=10_000))


def test_a_store_that_hangs_is_named_and_the_worker_plays_on_with_its_spool(tmp_path: Path) -> None:
    parts = with_large_spool(make(tmp_path, phones=1), tmp_path)
    kept, answering = kept_by(parts), threading.Event()

    def hang(trajectory: Trajectory) -> None:
        if len(kept.trajectories) == 2:
            assert answering.wait(HANGS_S)

    kept.on_add = hang
    said: list[str] = []

    def spooled_and_taken(worker: Worker) -> bool:
        if worker.num_spooled >= 4 and not said:
            said.append(worker.waiting)
            answering.set()
        return bool(said) and not worker.num_spooled

    worker = run(parts, spooled_and_taken)
    assert re.fullmatch(r"the store, which does not answer: \d+ episodes are in the spool", said[0])
    once = list(dict.fromkeys(trajectory.id for trajectory in kept.trajectories))
    assert once == logged(tmp_path, "finished") == logged(tmp_path, "acknowledged"), "in order, and none is lost"
    assert worker.counts.episodes == len(once)


def test_what_a_hanging_store_did_not_take_is_handed_over_by_the_next_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "END_DEADLINE_S", 0.01)
    parts = with_large_spool(make(tmp_path, phones=1), tmp_path)
    gate = Gate(parts)
    worker = run(parts, lambda worker: worker.num_spooled >= 3)
    assert kept_by(parts).trajectories == []
    left = worker.num_spooled
    assert logged(tmp_path, "finished")[:left] == [one.id for _, one, _ in parts.spool.items()]
    again = make(tmp_path, phones=1, weights=Published(-1))
    second = run(again, lambda worker: worker.counts.episodes == left)
    assert [one.id for one in kept_by(again).trajectories] == logged(tmp_path, "finished")[:left]
    assert (second.num_spooled, list(parts.spool.folder.iterdir())) == (0, [])
    gate.open()


def test_a_full_spool_makes_the_lanes_wait(tmp_path: Path) -> None:
    parts = replace(
        make(tmp_path, phones=2),
        store_deadline_s=0.01,
        backlog=1,
        judge_at_once=1,
        spool=Spool(tmp_path / "small", capacity=2),
    )
    gate = Gate(parts)
    decided: list[int] = []

    def stands_still(worker: Worker) -> bool:
        if worker.num_spooled == 2 and not worker.num_playing:
            decided.append(parts.batcher.num_decisions)
        if len(set(decided[-20:])) == 1 and len(decided) >= 20:
            gate.open()  # nothing new was played for long
        return worker.counts.episodes >= 10

    run(parts, stands_still)
    assert len(parts.spool) == 0
    assert len(kept_by(parts).trajectories) >= 10


# --- admission


class Ticking:
    """A clock that goes on by a second whenever someone looks at it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize(("max_staleness", "several"), [(1, False), (10_000, True)])
def test_where_versions_come_too_fast_a_worker_plays_one_episode_at_a_time_and_never_none(
    max_staleness: int, several: bool, tmp_path: Path
) -> None:
    weights, most = Published(0), 0

    def act(seen: Observation) -> Action:
        weights.newest += 20
        return give_up_after_three(seen)

    config = load_config(None, {"replay.max_staleness": max_staleness, "replay.keep_successes": False})
    devices = [a_phone(f"p{number}") for number in range(4)]
    parts = make_parts(tmp_path, ScriptedPolicy(act), weights, devices, config)
    parts = replace(parts, tools=replace(parts.tools, clock=Ticking()))

    def enough(worker: Worker) -> bool:
        nonlocal most
        if worker.counts.episodes >= 8:  # the first ones start before anything is known
            most = max(most, worker.num_playing)
        return worker.counts.episodes >= 12

    run(parts, enough)
    assert (most > 1) is several


# --- rounds

ROUND = 6


@pytest.fixture(params=["equal shares", "one queue"])
def in_rounds(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[WorkerParts], WorkerParts]:
    """Makes a worker play rounds, as the only one of its run; what its sink holds counts as delivered."""

    def rounds(parts: WorkerParts) -> WorkerParts:
        kept = kept_by(parts)

        def delivered(version: int) -> int:
            return sum(trajectory.version == version for trajectory in kept.trajectories)

        if request.param == "equal shares":
            return replace(parts, rounds=EqualShares(ROUND, delivered))
        claims = FileClaims(tmp_path / "round", "w", KeptEpisodes(kept), lifetime_s=60.0)
        return replace(parts, rounds=SharedRound(ROUND, claims))

    return rounds


class KeptEpisodes(MemoryEpisodes):
    """What a sink holds, as a store that is asked how much a version began."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        rows = self._kept.trajectories[after:]
        return sum(trajectory.version == version for trajectory in rows), after + len(rows)


def is_held_back(worker: Worker) -> bool:
    return worker.waiting.startswith("version") and not worker.num_playing and not worker.num_storing


InRounds = Callable[[WorkerParts], WorkerParts]


def test_in_sync_mode_a_worker_plays_a_round_of_each_version_exactly(tmp_path: Path, in_rounds: InRounds) -> None:
    weights = Published(0)
    parts = in_rounds(make(tmp_path, weights=weights))
    kept = kept_by(parts)

    def learn(trajectory: Trajectory) -> None:
        if len(kept.trajectories) + 1 == ROUND * (weights.newest + 1):
            weights.newest += 1

    kept.on_add = learn
    run(parts, lambda worker: weights.newest == 3)
    by_version = Counter(trajectory.version for trajectory in kept.trajectories)
    assert [by_version[version] for version in range(3)] == [ROUND] * 3


def test_in_sync_mode_what_an_earlier_incarnation_delivered_counts(tmp_path: Path, in_rounds: InRounds) -> None:
    parts = in_rounds(make(tmp_path, phones=1))
    kept = kept_by(parts)
    kept.trajectories += [make_trajectory(f"before-{number}", version=0) for number in range(4)]
    worker = run(parts, is_held_back)
    assert (worker.counts.episodes, len(kept.trajectories)) == (2, ROUND)


def test_in_sync_mode_an_episode_that_came_to_nothing_is_played_again(tmp_path: Path, in_rounds: InRounds) -> None:
    # The very first action fails, so nothing is recorded; without a second try the round would never be full.
    faults = FaultConfig(fail_device="p0", fail_after_steps=1)
    devices = [a_phone("p0", faults=faults)]
    parts = in_rounds(make_parts(tmp_path, ScriptedPolicy(give_up_after_three), Published(), devices))
    worker = run(parts, lambda worker: is_held_back(worker) and len(kept_by(parts).trajectories) >= ROUND)
    assert worker.counts.losses == 1
    assert len(kept_by(parts).trajectories) == ROUND


# --- in lock-step ---------------------------------------------------------------------------------------------------


def in_lockstep(parts: WorkerParts, *, patience_s: float = HANGS_S) -> WorkerParts:
    return replace(parts, lockstep=LockStep(parts.batcher.decide, patience_s=patience_s))


class Uneven(ScriptedPolicy):
    """Gives up after as many steps as the number in the name of the task says, and notes who was asked together."""

    def __init__(self) -> None:
        super().__init__(
            lambda seen: Finish(status="impossible") if len(seen.recent) == self.length(seen) else Press("back")
        )
        self.together: list[list[int]] = []

    def length(self, seen: Observation) -> int:
        return 1 + len(seen.instruction) % 4

    def decide(self, observations: Any, **how: Any) -> Any:
        self.together.append([len(seen.recent) for seen in observations])
        return super().decide(observations, **how)


def test_in_lockstep_all_episodes_of_a_batch_are_at_the_same_step_and_the_next_batch_waits_for_the_last(
    tmp_path: Path,
) -> None:
    policy = Uneven()
    worker = run(in_lockstep(make(tmp_path, policy=policy)), lambda worker: worker.counts.episodes >= 24)
    # What drains after the stop is no longer held back.
    held = policy.together[: -(4 * 4)]
    assert worker.counts.episodes >= 24
    assert len(held) > 8
    assert all(len(set(steps)) == 1 for steps in held), "nobody is ahead"
    batches = [index for index, steps in enumerate(held) if steps[0] == 0]
    assert all(len(held[start]) == 4 for start in batches), "every batch begins on all devices"
    for start, end in pairwise(batches):
        assert [steps[0] for steps in held[start:end]] == list(range(end - start)), "step by step, to its last episode"
        assert [len(steps) for steps in held[start:end]] == sorted(map(len, held[start:end]), reverse=True)


def test_in_lockstep_a_frozen_device_is_lost_and_the_others_play_on(tmp_path: Path) -> None:
    devices = [a_phone("bad", faults=FROZEN), a_phone("good-0"), a_phone("good-1")]
    parts = make_parts(tmp_path, ScriptedPolicy(give_up_after_three), Published(), devices)
    parts = in_lockstep(replace(parts, limits=replace(LIMITS, step_deadline_s=0.02)))
    worker = run(parts, lambda worker: worker.counts.losses >= 2 and worker.counts.episodes >= 10)
    assert {trajectory.device for trajectory in kept_by(parts).trajectories} == {"good-0", "good-1"}
    assert worker.num_playing == 0


def test_in_lockstep_a_worker_whose_devices_are_all_stuck_comes_to_its_end(tmp_path: Path) -> None:
    devices = [a_phone("moves"), a_phone("stuck", faults=FROZEN)]
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), devices)
    parts = in_lockstep(replace(parts, limits=replace(LIMITS, step_deadline_s=3600.0)), patience_s=3600.0)
    worker = run(
        parts,
        lambda worker: bool(parts.lockstep and parts.lockstep.waiting.endswith("1 of 2 have shown their screens")),
    )
    assert worker.num_playing == 0


def test_in_lockstep_an_error_in_the_policy_ends_the_worker_with_that_error(tmp_path: Path) -> None:
    def fail(seen: Observation) -> Action:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(in_lockstep(make(tmp_path, policy=ScriptedPolicy(fail))), lambda worker: False)


def test_in_lockstep_and_sync_mode_a_round_is_played_in_batches_and_no_further(tmp_path: Path) -> None:
    parts = in_lockstep(make(tmp_path))
    kept = kept_by(parts)
    run(replace(parts, rounds=EqualShares(ROUND, lambda version: 0)), is_held_back)
    assert len(kept.trajectories) == ROUND, "a batch of four, and what is left"
