"""Decisions in batches: how many at once, by which version, and what an error does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from distrl.errors import OutOfMemory, StoreError
from distrl.rollout.batching import Batcher, Batching, all_or_first_error
from distrl.telemetry.spans import spans_in
from distrl.types import Action, Decision, Observation, Press
from support.rollouts import HANGS_S, Published, ScriptedPolicy, make_batcher

SEEN = Observation(instruction="Turn the Wi-Fi on")


def ask(batcher: Batcher, count: int) -> list[tuple[Decision, int]]:
    """What `count` devices hear that ask at once."""

    async def scene() -> list[tuple[Decision, int]]:
        deciding = asyncio.create_task(batcher.run())
        asking = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(count)]
        try:
            async with asyncio.timeout(HANGS_S):
                await asyncio.wait([deciding, *asking], return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    deciding.result()
                return list(await asyncio.gather(*asking))
        finally:
            for task in (deciding, *asking):
                task.cancel()

    return asyncio.run(scene())


def test_requests_share_a_batch_up_to_its_size() -> None:
    policy = ScriptedPolicy()
    batcher = make_batcher(policy, batch_size=8)
    assert len(ask(batcher, 20)) == 20
    assert policy.batches == [8, 8, 4]
    assert (batcher.num_decisions, batcher.num_batches) == (20, 3)


def test_each_batch_and_each_swap_is_noted_for_the_trace() -> None:
    written: list[dict[str, Any]] = []

    class Log:
        def write(self, event: str, **values: Any) -> None:
            written.append({"event": event, **values})

    batcher = make_batcher(ScriptedPolicy(), Published(3), batch_size=8)
    ask(batcher, 20)
    batcher.spans.write(Log())
    done = [(span.name, span.size) for event in written for span in spans_in(event)]
    assert done == [("takes weights", 3), ("decides", 8), ("decides", 8), ("decides", 4)]


class Narrow(ScriptedPolicy):
    """Has room for so many at once."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        decisions = super().decide(observations, temperature=temperature, generator=generator)
        if len(observations) > self._room:
            raise OutOfMemory("the GPU ran out of memory")
        return decisions


def test_where_there_is_no_room_for_a_batch_smaller_ones_are_decided_from_then_on() -> None:
    policy = Narrow(3)
    batcher = make_batcher(policy, batch_size=8)
    assert len(ask(batcher, 13)) == 13
    assert policy.batches == [8, 4, 2, 2, 2, 2, 2, 2, 1]
    assert (batcher.num_decisions, batcher.num_halved) == (13, 2)


def test_where_there_is_no_room_for_a_single_one_the_worker_hears_of_it() -> None:
    with pytest.raises(OutOfMemory):
        ask(make_batcher(Narrow(0), batch_size=8), 4)


def test_a_request_waits_for_others_to_share_its_batch() -> None:
    policy = ScriptedPolicy()
    batcher = make_batcher(policy, batch_size=8, wait_s=0.5)

    async def late() -> None:
        deciding = asyncio.create_task(batcher.run())
        first = asyncio.create_task(batcher.decide(SEEN))
        for _ in range(5):
            await asyncio.sleep(0)  # the batcher is up and holds the first one back
        await asyncio.gather(first, *(batcher.decide(SEEN) for _ in range(3)))
        deciding.cancel()

    asyncio.run(late())
    assert policy.batches == [4]


def test_a_request_that_was_given_up_takes_no_place_in_a_batch() -> None:
    policy = ScriptedPolicy()
    batcher = make_batcher(policy)

    async def scene() -> None:
        given_up = asyncio.create_task(batcher.decide(SEEN))
        await asyncio.sleep(0)
        given_up.cancel()
        wanted = asyncio.create_task(batcher.decide(SEEN))
        deciding = asyncio.create_task(batcher.run())
        await wanted
        deciding.cancel()

    asyncio.run(scene())
    assert policy.batches == [1]


def test_a_decision_names_the_version_that_made_it() -> None:
    policy, weights = ScriptedPolicy(), Published(3)
    batcher = make_batcher(policy, weights)
    assert {version for _, version in ask(batcher, 4)} == {3}
    assert policy.weights == b"3"
    weights.newest = 5
    batcher.swap()
    assert (batcher.version, policy.weights) == (5, b"5")


def test_before_anything_is_published_there_is_no_version() -> None:
    batcher = make_batcher(ScriptedPolicy(), Published(-1))
    batcher.swap()
    assert batcher.version == -1


def test_an_older_pointer_changes_nothing() -> None:
    weights = Published(4)
    batcher = make_batcher(ScriptedPolicy(), weights)
    batcher.swap()
    weights.newest = 2
    batcher.swap()
    assert batcher.version == 4


def test_a_version_that_made_room_for_a_newer_one_is_passed_over() -> None:
    weights = Published(1)
    batcher = make_batcher(ScriptedPolicy(), weights)
    batcher.swap()
    weights.newest, weights.gone = 2, {2}
    weights.on_load = lambda: setattr(weights, "newest", 7)
    batcher.swap()
    assert batcher.version == 1
    batcher.swap()
    assert batcher.version == 7


def test_weights_that_are_damaged_for_good_end_the_worker() -> None:
    weights = Published(2)
    weights.gone = {2}
    with pytest.raises(StoreError, match="gone"):
        ask(make_batcher(ScriptedPolicy(), weights), 1)


def test_an_error_in_the_policy_ends_the_batcher() -> None:
    def fail(seen: Observation) -> Action:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(make_batcher(ScriptedPolicy(fail)), 2)


def test_the_first_error_is_raised_while_others_still_wait() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def scene(of_background: bool) -> None:
        waits = asyncio.create_task(asyncio.Event().wait())
        fails = asyncio.create_task(fail())
        tasks, background = ([waits], fails) if of_background else ([fails], waits)
        async with asyncio.timeout(HANGS_S):
            await all_or_first_error(tasks, background)  # type: ignore[arg-type]

    for of_background in (True, False):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(scene(of_background))


def test_what_runs_beside_the_tasks_is_not_waited_for() -> None:
    async def scene() -> None:
        beside = asyncio.create_task(asyncio.Event().wait())
        async with asyncio.timeout(HANGS_S):
            await all_or_first_error([asyncio.create_task(asyncio.sleep(0))], beside)  # type: ignore[arg-type]
        beside.cancel()

    asyncio.run(scene())


# --- beside the event loop


def aside(policy: ScriptedPolicy, weights: Published | None = None) -> Batcher:
    return Batcher(policy, weights, Batching(batch_size=8, batch_wait_s=0.0, temperature=1.0, seed=0, aside=True))


def test_the_event_loop_goes_on_while_a_batch_is_decided_aside() -> None:
    turned = threading.Event()

    def act(seen: Observation) -> Action:
        assert turned.wait(HANGS_S), "the loop stood still"
        return Press("back")

    async def scene() -> None:
        batcher = aside(ScriptedPolicy(act))
        deciding = asyncio.create_task(batcher.run())
        asking = asyncio.create_task(batcher.decide(SEEN))
        await asyncio.sleep(0.01)
        turned.set()
        assert (await asking)[0].action == Press("back")
        deciding.cancel()

    asyncio.run(scene())


def test_weights_are_not_changed_under_a_batch_that_is_decided_aside() -> None:
    started, go_on = threading.Event(), threading.Event()

    def act(seen: Observation) -> Action:
        started.set()
        assert go_on.wait(HANGS_S)
        return Press("back")

    async def scene() -> None:
        policy, weights = ScriptedPolicy(act), Published(1)
        batcher = aside(policy, weights)
        deciding = asyncio.create_task(batcher.run())
        asking = asyncio.create_task(batcher.decide(SEEN))
        while not started.is_set():
            await asyncio.sleep(0.001)
        weights.newest = 2
        batcher.swap()
        assert policy.weights == b"1"
        go_on.set()
        assert (await asking)[1] == 1
        batcher.swap()
        assert (policy.weights, batcher.version) == (b"2", 2)
        deciding.cancel()

    asyncio.run(scene())


def test_an_error_aside_ends_the_batcher_as_any_other() -> None:
    def act(seen: Observation) -> Action:
        raise StoreError("the picture is gone")

    with pytest.raises(StoreError, match="the picture is gone"):
        ask(aside(ScriptedPolicy(act)), 2)


class Continuous(ScriptedPolicy):
    """Takes in whatever comes, and answers the oldest at every turn; keeps what it was asked and with which weights."""

    is_continuous = True

    def __init__(self, room: int = 99) -> None:
        super().__init__()
        self._room, self._open = room, dict[int, Observation]()
        self.asked: list[int] = []
        self.changed_under_way = False

    def ask(self, observations: Mapping[int, Observation], *, temperature: float, generator: torch.Generator) -> None:
        self.asked.append(len(observations))
        self._open.update(observations)

    def advance(self) -> list[tuple[int, Decision]]:
        if len(self._open) > self._room:
            self._open.clear()
            raise OutOfMemory("the GPU ran out of memory")
        ticket = next(iter(self._open))
        (decision,) = super().decide([self._open.pop(ticket)], temperature=1.0, generator=torch.Generator())
        return [(ticket, decision)]

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        self.changed_under_way |= bool(self._open)
        super().restore(data, source=source)


def test_a_policy_that_answers_continuously_gets_what_comes_while_others_are_under_way() -> None:
    policy = Continuous()
    batcher = make_batcher(policy, batch_size=8)

    async def scene() -> list[tuple[Decision, int]]:
        deciding = asyncio.create_task(batcher.run())
        first = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(8)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        second = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(9)]
        async with asyncio.timeout(HANGS_S):
            found = list(await asyncio.gather(*first, *second))
        deciding.cancel()
        return found

    assert len(asyncio.run(scene())) == 17
    assert policy.asked[0] == 8
    assert 0 < policy.asked[1] < 8  # as many as there is room for beside those under way
    assert sum(policy.asked) == batcher.num_decisions == 17


def test_new_weights_wait_for_the_answers_under_way() -> None:
    policy, weights = Continuous(), Published(3)
    batcher = make_batcher(policy, weights, batch_size=4)

    async def scene() -> list[int]:
        deciding = asyncio.create_task(batcher.run())
        first = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(4)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        weights.newest = 5
        second = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(2)]
        async with asyncio.timeout(HANGS_S):
            found = await asyncio.gather(*first, *second)
        deciding.cancel()
        return [version for _, version in found]

    assert asyncio.run(scene()) == [3, 3, 3, 3, 5, 5]
    assert not policy.changed_under_way


def test_who_needs_the_policy_waits_until_nothing_is_under_way() -> None:
    policy = Continuous()
    batcher = make_batcher(policy, batch_size=4)

    async def scene() -> int:
        deciding = asyncio.create_task(batcher.run())
        asking = [asyncio.create_task(batcher.decide(SEEN)) for _ in range(4)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(HANGS_S):
            left = await batcher.between_batches(lambda: len(policy._open))
            await asyncio.gather(*asking, batcher.decide(SEEN))
        deciding.cancel()
        return left

    assert asyncio.run(scene()) == 0


def test_where_there_is_no_room_for_all_under_way_they_are_asked_again_in_smaller_numbers() -> None:
    policy = Continuous(room=3)
    batcher = make_batcher(policy, batch_size=8)
    assert len(ask(batcher, 8)) == 8
    assert batcher.num_halved == 2
    with pytest.raises(OutOfMemory):
        ask(make_batcher(Continuous(room=0), batch_size=8), 4)


class Preparing(Continuous):
    """Wants some work done beforehand; keeps where that was done."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self._fails = fails
        self.prepared: list[Observation] = []
        self.unprepared = 0
        self.threads: dict[str, set[int]] = {"prepare": set(), "ask": set()}

    def prepare(self, observations: Sequence[Observation]) -> None:
        self.threads["prepare"].add(threading.get_ident())
        if self._fails:
            raise StoreError("the picture is gone")
        self.prepared += observations

    def ask(self, observations: Mapping[int, Observation], *, temperature: float, generator: torch.Generator) -> None:
        self.threads["ask"].add(threading.get_ident())
        if self._fails:
            raise StoreError("the picture is gone")
        self.unprepared += sum(one not in self.prepared for one in observations.values())
        super().ask(observations, temperature=temperature, generator=generator)


def test_requests_are_prepared_on_a_thread_of_its_own_before_they_are_asked() -> None:
    policy = Preparing()
    batcher = aside(policy)
    assert len(ask(batcher, 40)) == 40
    assert len(policy.prepared) == batcher.num_decisions == 40
    assert policy.unprepared == 0
    assert not policy.threads["prepare"] & policy.threads["ask"]
    assert threading.get_ident() not in policy.threads["prepare"] | policy.threads["ask"]


def test_what_cannot_be_prepared_ends_the_batcher_where_it_is_asked() -> None:
    policy = Preparing(fails=True)
    with pytest.raises(StoreError, match="the picture is gone"):
        ask(aside(policy), 3)
    assert policy.threads["ask"]


def test_without_a_thread_aside_nothing_is_prepared_beforehand() -> None:
    policy = Preparing()
    policy.prepared = [SEEN]
    assert len(ask(make_batcher(policy), 5)) == 5
    assert not policy.threads["prepare"]
