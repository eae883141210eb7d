"""Decisions that actors elsewhere make: which version, whose turn, and what becomes of them when an actor is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest
import torch

from distrl.experience.frames import FrameCache
from distrl.rollout.batching import Batcher
from distrl.rollout.remote import LATE_S, Ask, Pinned, RemoteDecider, Router, pictures_of
from distrl.rollout.serving import DecisionServer
from distrl.transport.base import VersionGone
from distrl.transport.memory import MemoryTransport
from distrl.types import Decision, Observation, Past, Press
from support.batches import screens, tiny_policy
from support.deciders import BATCHING, SETTINGS, Actors, Log, a_decider
from support.learners import make_version
from support.rollouts import HANGS_S, until
from support.vlms import picture, seen, shake, tiny_vlm

T = TypeVar("T")
TOLERANCE = 2e-5


def play(scene: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        async with asyncio.timeout(HANGS_S):
            return await scene()

    return asyncio.run(within())


def published(*versions: int) -> MemoryTransport:
    transport = MemoryTransport()
    for version in versions:
        publish(transport, version)
    return transport


def publish(transport: MemoryTransport, version: int) -> None:
    transport.weights.publish(tiny_policy(version, spread=0.3), make_version(version))


async def decided(decider: RemoteDecider, seen: list[Observation]) -> list[tuple[Decision, int]]:
    deciding = asyncio.create_task(decider.run())
    asking = asyncio.gather(*map(decider.decide, seen))
    await asyncio.wait({deciding, asking}, return_when=asyncio.FIRST_COMPLETED)
    deciding.cancel()
    if deciding.done() and not deciding.cancelled():
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        deciding.result()
    return list(await asking)


def test_what_an_actor_records_is_what_the_policy_of_that_version_says_when_it_scores_the_choice() -> None:
    transport = published(0)
    seen = screens(12)

    async def scene() -> list[tuple[Decision, int]]:
        actors = Actors()
        for name in ("a", "b"):
            actors.add(name, tiny_policy(9), transport.weights)
        decider = a_decider(actors, transport.weights)
        decider.swap()
        first = await decided(decider, seen)
        publish(transport, 1)
        decider.swap()
        later = await decided(decider, seen)
        actors.close()
        return [*first, *later]

    found = play(scene)
    assert [version for _, version in found] == [0] * 12 + [1] * 12
    for version, part in ((0, found[:12]), (1, found[12:])):
        policy = tiny_policy(version, spread=0.3)
        scores = policy.score([policy.encode(one) for one in seen], [decision.choice for decision, _ in part])
        recorded = torch.tensor([decision.logp for decision, _ in part])
        values = torch.tensor([decision.value for decision, _ in part])
        assert torch.allclose(recorded, scores.logp_N.detach(), atol=TOLERANCE)
        assert torch.allclose(values, scores.value_logit_N.detach().sigmoid(), atol=TOLERANCE)


def test_no_version_older_than_the_worker_has_seen_decides() -> None:
    transport, behind = published(0), published(0)

    async def scene() -> list[int]:
        actors = Actors()
        actors.add("a", tiny_policy(9), behind.weights)
        decider = a_decider(actors, transport.weights, deadline_s=HANGS_S)
        publish(transport, 1)
        decider.swap()
        asking = asyncio.create_task(decided(decider, screens(3)))
        await asyncio.sleep(0.1)
        assert not asking.done(), "the actor has version 0 alone"
        publish(behind, 1)
        found = [version for _, version in await asking]
        actors.close()
        return found

    assert play(scene) == [1, 1, 1]


@pytest.mark.parametrize(("how", "deadline_s"), [("gone", HANGS_S), ("deaf", 1.0)])
def test_an_actor_that_is_lost_in_the_middle_costs_a_worker_no_decision(how: str, deadline_s: float) -> None:
    transport, log = published(0), Log()

    async def scene() -> tuple[list[Any], RemoteDecider]:
        actors = Actors()
        for name in ("a", "b"):
            actors.add(name, tiny_policy(9), transport.weights)
        decider = a_decider(actors, transport.weights, log=log, batch_size=1, deadline_s=deadline_s)
        deciding = asyncio.create_task(decider.run())
        asking = [asyncio.create_task(decider.decide(one)) for one in screens(20)]
        while len(actors.asked) < 10:
            await asyncio.sleep(0)
        getattr(actors, how).add("a")
        asking += [asyncio.create_task(decider.decide(one)) for one in screens(20)]
        found = await asyncio.gather(*asking)
        deciding.cancel()
        actors.close()
        return found, decider

    found, decider = play(scene)
    assert len(found) == 40
    assert decider.num_repeated == len(log.events) > 0
    named = {values["actor"] for event, values in log.events if event == "decision_repeated"}
    assert named == {"a"} if how == "gone" else "a" in named  # on a busy machine the other may be late, too
    assert decider.num_decisions == 40
    assert decider.skipped_counters["decisions_repeated"] > 0


def test_while_no_actor_is_there_decisions_wait_and_the_worker_can_say_so() -> None:
    transport, now_s = published(0), [0.0]

    async def scene() -> str:
        actors = Actors()
        decider = RemoteDecider(actors, transport.weights, SETTINGS, frames=None, log=Log(), clock=lambda: now_s[0])
        asking = asyncio.create_task(decided(decider, screens(2)))
        await until(lambda: bool(decider._since))
        assert decider.waiting == ""
        now_s[0] = LATE_S + 5
        said = decider.waiting
        actors.add("late", tiny_policy(9), transport.weights)
        assert len(await asking) == 2
        assert decider.waiting == ""
        actors.close()
        return said

    assert play(scene) == "an inference actor: 1 batches, the oldest for 7 s (none is known)"


def test_the_actor_with_the_least_to_do_is_asked() -> None:
    now_s = [0.0]
    router = Router(Random(1), lambda: now_s[0])
    assert router.choose(()) is None
    router.asked("a", 4)
    router.asked("b", 2)
    assert router.choose(("a", "b")) == "b"
    router.over("b", 2, queued=9)  # others wait there
    assert router.choose(("a", "b")) == "a"
    now_s[0] = 2.0  # what it told is old
    assert router.choose(("a", "b")) == "b"
    router.avoid("b")
    assert router.choose(("a", "b")) == "a"
    assert router.choose(("b",)) == "b", "there is no other"
    fresh = Counter(Router(Random(seed), lambda: 0.0).choose(("a", "b")) for seed in range(40))
    assert min(fresh["a"], fresh["b"]) > 5, "workers that know nothing do not all go to the same"


def test_requests_of_many_devices_are_spread_over_actors_and_share_batches() -> None:
    transport = published(0)

    async def scene() -> Actors:
        actors = Actors()
        for name in ("a", "b", "c"):
            actors.add(name, tiny_policy(9), transport.weights)
        await decided(a_decider(actors, transport.weights), screens(40) * 3)
        actors.close()
        return actors

    actors = play(scene)
    made = {name: batcher.num_decisions for name, batcher in actors.batchers.items()}
    assert sum(made.values()) == 120
    assert min(made.values()) >= 24
    assert all(batcher.num_decisions / batcher.num_batches > 4 for batcher in actors.batchers.values())


def test_what_nobody_waits_for_any_more_is_not_decided() -> None:
    transport = published(0)

    async def scene() -> tuple[int, int]:
        policy, frames = tiny_policy(9), FrameCache(4)
        batcher = Batcher(policy, transport.weights, BATCHING)
        server = DecisionServer(policy, batcher, frames, transport.weights)
        ask = Ask(observations=tuple(screens(3)), version=0, patience_s=0.05)
        with pytest.raises(TimeoutError):  # the batcher does not run yet
            await server.answer(msgspec.msgpack.encode(ask))
        running = asyncio.create_task(batcher.run())
        await asyncio.sleep(0.05)
        running.cancel()
        return batcher.num_decisions, server.num_queued

    assert play(scene) == (0, 0)


def test_hindsight_asks_an_actor_which_choice_stands_for_an_action() -> None:
    transport = published(0)
    own = tiny_policy(0)
    seen = screens(4)

    async def scene() -> list[Any]:
        actors = Actors()
        actors.add("a", tiny_policy(9), transport.weights)
        decider = a_decider(actors, transport.weights)
        deciding = asyncio.create_task(decider.run())
        await asyncio.sleep(0)
        found = await decider.between_batches(lambda: [decider.imitate(one, Press(key="back")) for one in seen])
        deciding.cancel()
        actors.close()
        return found

    assert play(scene) == [own.imitate(one, Press(key="back")) for one in seen]


# --- pictures ---------------------------------------------------------------------------------------------------------


def looks(frames: FrameCache, count: int) -> list[Observation]:
    references = [frames.put(picture(90, 200, seed=number)) for number in range(count)]
    return [seen(reference) for reference in references]


def test_a_vision_language_model_decides_elsewhere_as_it_would_here_and_each_picture_is_sent_once() -> None:
    pictures = FrameCache(64)
    seen = looks(pictures, 3)
    frames = FrameCache(64)

    async def scene() -> tuple[list[tuple[Decision, int]], list[Ask]]:
        actors, policy = Actors(), shake(tiny_vlm("qwen2.5-vl", frames=frames))
        batcher = Batcher(policy, None, BATCHING)
        batcher.version = 4
        actors.add_server("a", DecisionServer(policy, batcher, frames, MemoryTransport().weights), batcher)
        decider = a_decider(actors, MemoryTransport().weights, frames=pictures, pictures=1, deadline_s=HANGS_S)
        found = [*await decided(decider, seen), *await decided(decider, seen)]
        actors.close()
        return found, [ask for _, ask in actors.asked]

    found, asks = play(scene)
    assert [version for _, version in found] == [4] * 6
    assert [len(ask.pictures) for ask in asks] == [3, 0]
    here = shake(tiny_vlm("qwen2.5-vl", frames=pictures))
    encoded = [here.encode(one) for one in seen * 2]
    scores = here.score(encoded, [decision.choice for decision, _ in found])
    assert torch.allclose(torch.tensor([decision.logp for decision, _ in found]), scores.logp_N.detach(), atol=1e-3)


def test_a_picture_that_an_actor_has_forgotten_is_sent_again() -> None:
    transport, pictures = published(0), FrameCache(64)
    seen = looks(pictures, 6)

    async def scene() -> Actors:
        actors = Actors()
        actors.add("a", tiny_policy(9), transport.weights, pictures=2)
        decider = a_decider(actors, transport.weights, frames=pictures, pictures=1, batch_size=1)
        for one in (*seen, seen[0]):
            await decided(decider, [one])
        actors.close()
        return actors

    actors = play(scene)
    assert [len(ask.pictures) for _, ask in actors.asked] == [1] * 6 + [0, 1]
    assert [len(answer.missing) for _, answer in actors.answered] == [0] * 6 + [1, 0]


def test_the_pictures_that_go_along_are_those_that_the_policy_reads() -> None:
    past = tuple(Past(action=Press(key="back"), screenshot=name) for name in ("p1", "", "p3"))
    seen = (
        Observation(instruction="", screenshot="now", recent=past),
        Observation(instruction="", screenshot="now"),
    )
    assert pictures_of(seen, 0) == ()
    assert pictures_of(seen, 1) == ("now",)
    assert pictures_of(seen, 2) == ("p3", "now")
    assert pictures_of(seen, 9) == ("p1", "p3", "now")


def pinned_decider(actors: Actors, transport: MemoryTransport, version: int) -> RemoteDecider:
    found = transport.weights.find(version)
    assert found is not None
    return a_decider(actors, transport.weights, pinned=Pinned(version=found, temperature=0.5))


def test_a_pinned_version_decides_whatever_is_published_while_workers_get_the_newest() -> None:
    transport, seen = published(0), screens(12)

    async def scene() -> tuple[list[Any], list[Any], int]:
        actors = Actors()
        actors.add("a", tiny_policy(9), transport.weights)
        evaluator, worker = pinned_decider(actors, transport, 0), a_decider(actors, transport.weights)
        made = list(await decided(evaluator, seen[:6]))
        publish(transport, 1)
        worker.swap()
        both = await asyncio.gather(decided(evaluator, seen[6:]), decided(worker, seen))
        actors.close()
        return [*made, *both[0]], both[1], actors.servers["a"].pinned.num_decisions

    evaluated, worked, count = play(scene)
    assert [version for _, version in evaluated] == [0] * 12
    assert [version for _, version in worked] == [1] * 12
    assert count == 12
    for version, made, temperature in ((0, evaluated, 0.5), (1, worked, 1.0)):
        policy = tiny_policy(version, spread=0.3)
        scores = policy.score([policy.encode(one) for one in seen], [decision.choice for decision, _ in made])
        values = torch.tensor([decision.value for decision, _ in made])
        assert torch.allclose(values, scores.value_logit_N.detach().sigmoid(), atol=TOLERANCE)
        recorded = torch.tensor([decision.logp for decision, _ in made])
        assert torch.allclose(recorded, scores.logp_N.detach(), atol=TOLERANCE) == (temperature == 1.0)


def test_an_actor_keeps_a_pinned_version_that_is_removed_and_one_that_never_had_it_is_not_asked_again() -> None:
    transport, log = published(0, 1), Log()

    async def scene() -> tuple[list[Any], Counter[str]]:
        actors = Actors()
        actors.add("had", tiny_policy(9), transport.weights)
        evaluator = pinned_decider(actors, transport, 1)
        await decided(evaluator, screens(3))
        for version in range(2, 12):
            publish(transport, version)
        assert transport.weights.find(1) is None
        actors.add("never", tiny_policy(9), transport.weights)
        found = await decided(evaluator, screens(40))
        actors.close()
        return found, Counter(actor for actor, answer in actors.answered if answer.gone)

    found, gone = play(scene)
    assert [version for _, version in found] == [1] * 40
    assert gone == {"never": 1}
    assert not log.events


def test_a_pinned_version_that_no_actor_has_is_an_error_and_workers_are_answered_on() -> None:
    transport = published(0, 1)

    async def scene() -> list[Any]:
        actors = Actors()
        actors.add("a", tiny_policy(9), transport.weights)
        evaluator, worker = pinned_decider(actors, transport, 1), a_decider(actors, transport.weights)
        for version in range(2, 12):
            publish(transport, version)
        with pytest.raises(VersionGone, match="a: "):
            await decided(evaluator, screens(3))
        worker.swap()
        found = await decided(worker, screens(5))
        actors.close()
        return found

    assert [version for _, version in play(scene)] == [11] * 5


def test_weights_in_use_that_are_removed_during_a_pinned_batch_are_followed_by_the_newest() -> None:
    transport = published(0)

    async def scene() -> tuple[int, list[Any]]:
        policy = tiny_policy(9)
        batcher = Batcher(policy, transport.weights, BATCHING)
        batcher.swap()
        publish(transport, 1)
        batcher.swap()

        def load() -> None:
            for version in range(2, 12):
                publish(transport, version)

        await batcher.decide_with(load, screens(2), temperature=1.0)
        return batcher.version, list(policy.weights().values())

    version, tensors = play(scene)
    assert version == 11
    expected = tiny_policy(11, spread=0.3).weights().values()
    assert all(torch.equal(one, other) for one, other in zip(tensors, expected, strict=True))
