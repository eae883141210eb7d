"""The transport over a hub, on a real Ray: what every transport promises, and what becomes of it when the hub is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Barrier, Thread
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.errors import StoreError  # noqa: E402
from distrl.runtime.ray import inference as inference_module  # noqa: E402
from distrl.runtime.ray.hub_watch import HubWatch  # noqa: E402
from distrl.runtime.ray.inference import RayInference, actor_name  # noqa: E402
from distrl.runtime.ray.role_actor import Place  # noqa: E402
from distrl.runtime.ray.runtime import _Role  # noqa: E402
from distrl.telemetry.events import EventLog, events_of, read_events  # noqa: E402
from distrl.telemetry.heartbeat import Heartbeat  # noqa: E402
from distrl.threads import in_thread  # noqa: E402
from distrl.transport.base import ActorLost, Claims, EpisodeSource, Transport  # noqa: E402
from distrl.transport.files import FileLayout, FileTransport  # noqa: E402
from distrl.transport.ray import connection  # noqa: E402
from distrl.transport.ray.client import HubClaims, HubTransport  # noqa: E402
from distrl.transport.ray.connection import HubConnection  # noqa: E402
from distrl.transport.ray.hub import Hub  # noqa: E402
from distrl.transport.ray.wire import Caller, Superseded  # noqa: E402
from support.batches import tiny_policy  # noqa: E402
from support.clusters import a_cluster  # noqa: E402
from support.hubs import MovableHub  # noqa: E402
from support.learners import make_version  # noqa: E402
from support.ray_actors import DecidingActor, UnsteadyActor  # noqa: E402
from support.trajectories import make_trajectory  # noqa: E402
from support.transport_contract import *  # noqa: E402, F403
from support.transport_contract import KEEP, LIFETIME_S, Setting  # noqa: E402

PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with a_cluster({"num_cpus": 2}) as made:
        yield made


def start_hub(kind: type, folder: Path) -> Any:
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}
    return ray.remote(kind).options(**options).remote(str(folder), str(folder / "metrics.jsonl"), KEEP)


@pytest.fixture(scope="module")
def movable(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return start_hub(MovableHub, tmp_path_factory.mktemp("first"))


class OverAHub:
    def __init__(self, folder: Path, hub: Any) -> None:
        self._folder, self._hub, self._now_s = folder, hub, 1000.0
        ray.get(hub.move.remote(str(folder / "run")))

    @property
    def now_s(self) -> float:
        return self._now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self._now_s = now_s
        ray.get(self._hub.set_clock.remote(now_s))

    def line(self) -> HubConnection:
        return HubConnection(self._hub, Caller(role="tester", incarnation=1))

    def open(self) -> Transport:
        return HubTransport(self.line(), node=self._folder, at_once=True)

    def break_frames(self) -> None:
        for folder in (self._folder / "run" / "experience" / "frames").iterdir():
            rmtree(folder)
            folder.write_text("a file where the folder should be")

    def claims(self, owner: str, episodes: EpisodeSource | None = None) -> Claims:
        if episodes is not None:
            pytest.skip("the hub counts in its own store")
        return HubClaims(self.line(), owner, LIFETIME_S)


@pytest.fixture
def setting(movable: Any, tmp_path: Path) -> Setting:
    return OverAHub(tmp_path, movable)


# --- what only a hub can do -------------------------------------------------------------------------------------------


def wait_for(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def a_line(hub: Any, role: str = "tester", incarnation: int = 1) -> HubConnection:
    return HubConnection(hub, Caller(role=role, incarnation=incarnation))


@pytest.fixture
def folder(movable: Any, tmp_path: Path) -> Path:
    ray.get(movable.move.remote(str(tmp_path / "run")))
    return tmp_path / "run"


def test_a_call_that_was_under_way_when_the_hub_was_killed_is_carried_out_once(cluster: Any, tmp_path: Path) -> None:
    hub = start_hub(Hub, tmp_path)
    transport = HubTransport(a_line(hub), node=tmp_path)
    transport.episodes.add(make_trajectory("before"), {})
    claims = transport.claims("worker-0", lifetime_s=LIFETIME_S)
    assert len(claims.take(0, 4, 10)) == 4
    pid = ray.get(hub.ready.remote())
    os.kill(pid, signal.SIGKILL)
    adding = Thread(target=lambda: [transport.episodes.add(make_trajectory(f"e{n}"), {}) for n in range(5)])
    adding.start()
    adding.join(PATIENCE_S)
    assert not adding.is_alive()
    assert ray.get(hub.ready.remote()) != pid
    assert [row.id for row in transport.episodes.after(0, 10)] == ["before", *(f"e{n}" for n in range(5))]
    assert transport.episodes.audit().healthy
    other = transport.claims("worker-1", lifetime_s=LIFETIME_S)
    assert len(other.take(0, 10, 10)) == 6, "claims outlive the hub"
    transport.close()
    ray.kill(hub)


def test_a_call_that_is_repeated_because_the_hub_is_slow_is_carried_out_once(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TRY_S", 0.2)
    hub = start_hub(Hub, tmp_path)
    pid = ray.get(hub.ready.remote())
    line, told = a_line(hub, "worker-0"), list[str]()
    transport = HubTransport(line, node=tmp_path, at_once=True)
    claims = transport.claims("worker-0", lifetime_s=LIFETIME_S)
    line.held_up = told.append
    os.kill(pid, signal.SIGSTOP)
    taken: list[list[int]] = []
    taking = Thread(target=lambda: taken.append(claims.take(0, 4, 10)))
    taking.start()
    wait_for(lambda: len(told) >= 3)  # as many tries, at least
    os.kill(pid, signal.SIGCONT)
    taking.join(PATIENCE_S)
    assert [len(numbers) for numbers in taken] == [4]
    assert set(told) == {"take_claims"}
    other = transport.claims("worker-1", lifetime_s=LIFETIME_S)
    assert len(other.take(0, 10, 10)) == 6, "tries that came late have claimed nothing more"
    transport.close()
    ray.kill(hub)


def test_a_hub_that_answers_nothing_is_killed_and_started_again_and_its_roles_are_not_called_silent(
    cluster: Any, tmp_path: Path
) -> None:
    hub, log = start_hub(Hub, tmp_path / "run"), tmp_path / "supervisor.jsonl"
    watch = HubWatch(hub, EventLog(log), silent_after_s=3.0)

    def looked() -> bool:
        watch.look()
        return True

    wait_for(lambda: looked() and len(pids_of(log)) == 1)
    (first,) = pids_of(log)
    os.kill(first, signal.SIGSTOP)
    wait_for(lambda: looked() and watch.away_s > 0)
    wait_for(lambda: looked() and watch.away_s == 0)
    assert len(pids_of(log)) == 2
    assert [event["pid"] for event in read_events(log) if event["event"] == "hub_silent"] == [first]
    ray.kill(hub)


def pids_of(log: Path) -> list[int]:
    return [int(event["pid"]) for event in events_of(log, "hub", "pid")]


def test_news_of_a_version_comes_with_its_weights_and_without_being_asked_for(movable: Any, folder: Path) -> None:
    files = FileTransport(FileLayout(folder), keep_versions=KEEP)
    files.weights.publish(tiny_policy(0, spread=0.1), make_version(0))
    transport, reader = HubTransport(a_line(movable), node=folder), tiny_policy(9)
    first = transport.weights.latest()
    assert first is not None
    transport.weights.load(reader, first)
    assert reader.dump() == tiny_policy(0, spread=0.1).dump()
    files.weights.publish(tiny_policy(1, spread=0.1), make_version(1))  # by the learner, into the folder
    wait_for(lambda: (found := transport.weights.latest()) is not None and found.version == 1)
    newest = transport.weights.latest()
    assert newest is not None
    transport.weights.load(reader, newest)
    assert reader.dump() == tiny_policy(1, spread=0.1).dump()
    transport.close()


def test_weights_are_in_the_object_store_once_though_all_roles_ask_for_them_at_the_same_moment(
    movable: Any, folder: Path
) -> None:
    files = FileTransport(FileLayout(folder), keep_versions=KEEP)
    version = files.weights.publish_packed([memoryview(bytes(20_000_000))], make_version(0))
    together = Barrier(8)

    def ask(number: int) -> str:
        line = a_line(movable, f"worker-{number}")
        together.wait(PATIENCE_S)
        return line.weights(version)[0]

    asking = [in_thread(partial(ask, number), name="asking") for number in range(8)]
    assert len({one.result(timeout=PATIENCE_S) for one in asking}) == 1


def test_a_disk_of_the_run_folder_that_refuses_is_told_with_the_fix(movable: Any, folder: Path) -> None:
    transport = HubTransport(a_line(movable), node=folder, at_once=True)
    (folder / "heartbeats").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot use") as told:
        transport.heartbeats.beat(
            Heartbeat(role="tester", pid=1, phase="doing", what="playing", since_s=0.0, beat_s=0.0)
        )
    assert "move the file away" in str(told.value)


class CountedHeartbeats:
    def __init__(self) -> None:
        self.incarnation = self.num_asked = 0

    def beat(self, heartbeat: Heartbeat) -> None:
        raise NotImplementedError

    def last(self, role: str) -> Heartbeat | None:
        self.num_asked += 1
        number = self.incarnation
        beat = Heartbeat(role=role, pid=1, phase="doing", what="deciding", since_s=0.0, beat_s=0.0, incarnation=number)
        return beat if number else None


def test_an_actor_that_answers_is_looked_for_no_more_and_its_successor_is_found(cluster: Any) -> None:
    def start(incarnation: int) -> Any:
        options = {"num_cpus": 0, "max_concurrency": 4, "name": actor_name("session", "inference-0", incarnation)}
        actor = ray.remote(DecidingActor).options(**options).remote()
        assert ray.get(actor.decide.remote(b"x")) == b"x"
        beats.incarnation = incarnation
        return actor

    beats = CountedHeartbeats()
    inference = RayInference("session", ("inference-0",), beats)
    wait_for(lambda: beats.num_asked > 1)
    assert inference.actors() == ()
    first = start(1)
    wait_for(lambda: inference.actors() == ("inference-0",))
    known = beats.num_asked
    assert asyncio.run(inference.ask("inference-0", b"a")) == b"a"
    time.sleep(4 * inference_module.LOOK_S)
    assert beats.num_asked == known, "each look is a call to the hub"

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inference.ask("inference-0", b"hang"), 0.1)

    asyncio.run(give_up())
    wait_for(lambda: beats.num_asked > known)
    ray.kill(first)
    with pytest.raises(ActorLost):  # a kill takes a moment to arrive
        wait_for(lambda: asyncio.run(inference.ask("inference-0", b"b")) != b"b")
    second = start(2)
    wait_for(lambda: inference.actors() == ("inference-0",))
    assert asyncio.run(inference.ask("inference-0", b"c")) == b"c"
    inference.close()
    ray.kill(second)


def test_a_role_whose_place_is_not_heard_of_is_asked_again_and_is_told_what_to_do_once_it_has_one(cluster: Any) -> None:
    role, actor = _Role("worker-0", "1 CPU"), ray.remote(UnsteadyActor).options(num_cpus=0).remote()
    begun: list[Place] = []

    def begin(place: Place) -> Any:
        begun.append(place)
        return actor.run.remote(b"the order")

    role.launched(actor, 1, now_s=0.0, begin=begin)
    assert role.waits_for == "starts once a node has 1 CPU to spare"
    wait_for(lambda: role.exit_code() is not None)
    assert (role.exit_code(), role.exit_reason(), [place.host for place in begun]) == (3, "the order", ["lab"])
    ray.kill(actor)


def test_what_a_role_says_arrives_in_order_and_is_handed_over_at_its_end(movable: Any, folder: Path) -> None:
    transport = HubTransport(a_line(movable), node=folder)
    log = transport.events.log("worker-0")
    for number in range(200):
        log.write("finished", id=f"e{number}", nan=float("nan"))
        transport.metrics.write("worker", steps=number)
    transport.close()
    files = FileTransport(FileLayout(folder))
    events = files.events.read("worker-0")
    assert [event["id"] for event in events] == [f"e{number}" for number in range(200)]
    assert all("nan" not in event and abs(float(event["time_s"]) - time.time()) < PATIENCE_S for event in events)
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 200


def test_an_incarnation_whose_successor_has_begun_may_bring_episodes_and_nothing_else(
    movable: Any, folder: Path
) -> None:
    old, new = a_line(movable, "learner", 1), a_line(movable, "learner", 2)
    old.tell("begin", "learner", 1)
    back = HubTransport(old, node=folder, at_once=True)
    back.checkpoints.write({"state.json": b"{}"})
    new.tell("begin", "learner", 2)
    for call in (
        lambda: back.checkpoints.write({"state.json": b"old"}),
        lambda: back.weights.publish(tiny_policy(), make_version(3)),
        lambda: back.reports.remove("before"),
        lambda: back.events.log("learner").write("notice", text="I am back"),
        lambda: old.tell("begin", "learner", 1),
    ):
        with pytest.raises(Superseded, match="incarnation 1, and 2 has begun"):
            call()
    back.episodes.add(make_trajectory("late"), {})
    assert HubTransport(new, node=folder, at_once=True).episodes.stats().episodes == 1
    started = [event["incarnation"] for event in FileTransport(FileLayout(folder)).events.read("learner")]
    assert started == [1, 2]


@pytest.mark.parametrize("name", ["../../etc/cron", "a/b", "", "x" * 81, "é"])
def test_no_name_from_elsewhere_becomes_a_path(movable: Any, folder: Path, name: str) -> None:
    line = a_line(movable)
    for call in (("write_report", name, b"{}"), ("open_log", name), ("read_log", name), ("has_report", name)):
        if call == ("open_log", ""):
            continue  # the metrics
        with pytest.raises(StoreError, match="no name of a role or a report"):
            line.tell(*call)
    with pytest.raises(StoreError, match="no name"):
        line.tell("write_checkpoint", {name: b"x"})


@pytest.mark.parametrize(
    "call", [("drop_everything",), ("answer", b"", "x", b""), ("read",), ("read", 5), ("add", {"id": "a"}, {})], ids=str
)
def test_what_does_not_fit_is_refused_before_anything_is_done(
    movable: Any, folder: Path, call: tuple[Any, ...]
) -> None:
    with pytest.raises(StoreError, match="does not understand this role"):
        a_line(movable).tell(*call)
