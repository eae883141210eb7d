"""Roles know their transport alone: a worker, the learner and the evaluator work together without a run folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.evaluation.report import Report, make_report
from distrl.rollout.outbox import Spool
from distrl.runtime import evaluator_role, factory, inference_role
from distrl.runtime.base import RoleContext
from distrl.runtime.evaluator_role import Evaluator, keep_evaluating
from distrl.runtime.factory import make_policy
from distrl.runtime.learner_role import learn
from distrl.runtime.role import run_role
from distrl.runtime.worker_role import collect
from distrl.tasks.base import held_out_templates, suite
from distrl.telemetry.heartbeat import Heartbeat, HeartbeatWriter
from distrl.transport.base import Transport
from distrl.transport.files import FileLayout, FileTransport
from distrl.transport.memory import MemoryTransport
from distrl.types import Action, Observation
from support import shared
from support.deciders import Actors
from support.learners import make_version, small_config
from support.roles import a_context
from support.rollouts import HANGS_S, ScriptedPolicy
from support.runs import wait_until
from support.trajectories import make_trajectory

FAST: dict[str, Any] = {
    "tasks": {"suite": "sim-start", "max_oracle_steps": 4},
    "devices": {"per_worker": 2, "sim": {"latency": {"profile": "instant"}}},
    "rollout": {"workers": 1, "drain_s": 0.01},
    "evaluation": {"devices": 2, "episodes": 3},
}


@pytest.fixture(autouse=True)
def _denormals() -> object:
    """Roles flush denormal numbers, which other tests in this process need."""
    yield
    torch.set_flush_denormal(False)


def config(**sections: dict[str, object]) -> Config:
    return small_config(**{**FAST, **sections})


def role(name: str, folder: Path, settings: Config, transport: Transport, until: Callable[[], bool]) -> RoleContext:
    """A role that comes to its end once something holds."""
    return replace(a_context(name, folder, settings, transport=transport), stopping=until)


def test_a_worker_stores_episodes_in_memory_with_the_weights_that_it_found_there(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(), config()
    transport.weights.publish(make_policy(settings), make_version(4))
    context = role("worker-0", tmp_path, settings, transport, lambda: transport.episodes.stats().episodes >= 5)
    collect(context)
    rows = transport.episodes.after(0, 1000)
    assert len(rows) >= 5
    assert {(row.version, row.worker) for row in rows} == {(4, "worker-0")}
    assert all(transport.episodes.read(row.id).steps for row in rows)
    last = transport.heartbeats.last("worker-0")
    assert last is not None
    assert last.figures["episodes"] == transport.episodes.stats().episodes
    assert not (tmp_path / "experience").exists()


def test_a_runtime_runs_a_worker_by_its_name_and_it_takes_over_what_others_have_left(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(), config()
    transport.weights.publish(make_policy(settings), make_version(4))
    left = tmp_path / "spools" / "worker-9"
    Spool(left, capacity=9).put(make_trajectory("left"), {})
    context = role("worker-0", tmp_path, settings, transport, lambda: transport.episodes.stats().episodes >= 2)
    run_role(replace(context, left_spools=lambda: iter([left]), log=transport.events.log("worker-0")))
    assert transport.episodes.read("left") == make_trajectory("left")
    assert {row.worker for row in transport.episodes.after(0, 1000)} == {"w0", "worker-0"}
    assert not left.exists()
    taken = [event for event in transport.events.read("worker-0") if event["event"] == "spools_taken_over"]
    assert [event["episodes"] for event in taken] == [1]


def test_spools_that_cannot_be_taken_over_stop_no_worker(tmp_path: Path) -> None:
    def look() -> Iterator[Path]:
        raise OSError("the disk does not answer")

    transport, settings = MemoryTransport(), config()
    transport.weights.publish(make_policy(settings), make_version(4))
    context = role("worker-0", tmp_path, settings, transport, lambda: transport.episodes.stats().episodes >= 2)
    collect(replace(context, left_spools=look, log=transport.events.log("worker-0")))
    assert [event["why"] for event in transport.events.read("worker-0") if event["event"] == "spools_left"] == [
        "the disk does not answer"
    ]


def test_a_worker_without_a_policy_plays_with_what_an_inference_actor_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, settings = MemoryTransport(), config(rollout={**FAST["rollout"], "decide": "actors"})
    transport.weights.publish(make_policy(settings), make_version(4))
    actors, over = Actors(), threading.Event()
    serving = replace(
        role("inference-0", tmp_path, settings, transport, over.is_set), requests=actors.taken_by("inference-0")
    )
    thread = threading.Thread(target=run_role, args=[serving], daemon=True)
    thread.start()
    assert inference_role.make_policy is factory.make_policy  # imported here, and not by the thread, which may be late
    monkeypatch.setattr(factory, "make_policy", None)  # a worker that makes one fails
    enough = lambda: transport.episodes.stats().episodes >= 5  # noqa: E731
    collect(replace(role("worker-0", tmp_path, settings, transport, enough), inference=actors))
    over.set()
    thread.join(HANGS_S)
    rows = transport.episodes.after(0, 1000)
    assert {(row.version, row.worker) for row in rows} == {(4, "worker-0")}
    last, actor = transport.heartbeats.last("worker-0"), transport.heartbeats.last("inference-0")
    assert last is not None
    assert actor is not None
    assert actor.figures["decisions"] >= last.figures["steps"] > 0
    assert last.figures["version"] == 4


def test_a_worker_beats_and_plays_on_while_the_store_blocks_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, settings, answering = MemoryTransport(), config(), threading.Event()
    transport.weights.publish(make_policy(settings), make_version(4))
    add, said = transport.episodes.add, list[str]()

    def block(*given: Any) -> None:
        assert answering.wait(HANGS_S)
        add(*given)

    monkeypatch.setattr(transport.episodes, "add", block)

    def over() -> bool:
        beat = transport.heartbeats.last("worker-0")
        if beat is not None and beat.figures.get("spooled", 0) >= 3 and len(said) < 3:
            said.append(beat.what)
        if len(said) == 3:
            answering.set()
        return answering.is_set() and transport.episodes.stats().episodes >= 5

    log = transport.events.log("worker-0")
    collect(replace(role("worker-0", tmp_path, settings, transport, over), log=log, store_deadline_s=0.05))
    assert all("the store, which does not answer" in what for what in said)
    told = {name: {event["id"] for event in transport.events.read("worker-0") if event["event"] == name}
            for name in ("finished", "acknowledged")}  # fmt: skip
    stored = {row.id for row in transport.episodes.after(0, 100_000) if row.source == "played"}
    assert told["finished"] == told["acknowledged"] == stored


def test_a_worker_whose_devices_are_gone_beats_that_it_waits_for_one(tmp_path: Path) -> None:
    settings = config(devices={"kind": "support.gone:make_gone", "per_worker": 2})
    transport, seen = MemoryTransport(), list[tuple[str, str, float]]()
    transport.weights.publish(make_policy(settings), make_version(4))

    def gone_for_a_while() -> bool:
        beat = transport.heartbeats.last("worker-0")
        if beat is not None and not beat.figures.get("healthy", 1.0):
            seen.append((beat.phase, beat.what.partition(":")[0], beat.figures["restarting"]))
        return len(seen) >= 3

    collect(role("worker-0", tmp_path, settings, transport, gone_for_a_while))
    assert set(seen) == {("waiting", "a device", 2.0)}


def test_a_worker_says_how_long_its_devices_worked_and_how_long_they_could_have(tmp_path: Path) -> None:
    transport, settings, beats = MemoryTransport(), config(), iter(range(1000))
    transport.weights.publish(make_policy(settings), make_version(4))
    collect(role("worker-0", tmp_path, settings, transport, lambda: next(beats) >= 3))
    last = transport.heartbeats.last("worker-0")
    assert last is not None
    assert 0.0 < last.figures["busy_s"] <= last.figures["device_s"]
    assert last.figures["device_s"] <= settings.devices.per_worker * 60.0


def test_the_learner_learns_from_memory_and_publishes_and_saves_there(tmp_path: Path) -> None:
    transport = MemoryTransport()
    settings = config(
        warm_start={"demonstrations": 4, "epochs": 1, "keep": True}, learner={**SMALL_LEARNER, "publish_every_s": 0.001}
    )
    first = a_context("learner", tmp_path, settings, transport=transport, turns=20)
    learn(first)
    newest = transport.weights.latest()
    assert newest is not None
    assert transport.checkpoints.newest() is not None
    assert [row.source for row in transport.episodes.after(0, 9)] == ["demonstration"] * 4
    assert transport.episodes.stats().episodes == 0, "demonstrations are no episodes"
    learn(a_context("learner", tmp_path, settings, transport=transport, turns=3))
    again = transport.weights.latest()
    assert again is not None
    assert again.version >= newest.version, "the next incarnation goes on from the checkpoint in memory"


SMALL_LEARNER = {
    "batch_trajectories": 3,
    "first_update_episodes": 2,
    "updates_per_episode": 1.0,
    "checkpoint_every_s": 1000.0,
}


def test_a_worker_and_the_learner_exchange_episodes_and_weights_without_a_run_folder(tmp_path: Path) -> None:
    transport = MemoryTransport(keep_versions=1000)
    settings = config(warm_start={"demonstrations": 0}, learner={**SMALL_LEARNER, "publish_every_s": 0.05})
    over, errors = threading.Event(), list[BaseException]()

    def enough() -> bool:
        versions = {row.version for row in transport.episodes.after(0, 100_000)}
        return over.is_set() or len(versions) >= 3

    def run(work: Callable[[RoleContext], None], name: str) -> None:
        try:
            work(role(name, tmp_path / name, settings, transport, enough))
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    roles = [threading.Thread(target=run, args=pair) for pair in ((learn, "learner"), (collect, "worker-0"))]
    for thread in roles:
        thread.start()
    for thread in roles:
        thread.join(HANGS_S)
    over.set()
    assert errors == []
    assert not any(thread.is_alive() for thread in roles)
    rows = transport.episodes.after(0, 100_000)
    assert len({row.version for row in rows}) >= 3, "the worker took up new weights while it played"
    learner, newest = transport.heartbeats.last("learner"), transport.weights.latest()
    assert learner is not None
    assert newest is not None
    assert learner.figures["updates"] > 0
    assert newest.version >= 2
    assert learner.figures["episodes"] <= len(rows)
    assert not list(tmp_path.glob("*/experience"))
    assert not list(tmp_path.glob("*/weights"))


def test_the_evaluator_reports_to_memory(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(), config()
    version = transport.weights.publish(make_policy(settings), make_version(2))
    context = a_context("evaluator", tmp_path, settings, transport=transport)
    Evaluator(context).evaluate(version, 3, name="v000002")
    last = transport.heartbeats.last("evaluator")
    assert last is not None
    assert last.what.startswith("evaluating version 2 (v000002): ")
    report = transport.reports.held["v000002"]
    assert isinstance(report, Report)
    assert (report.n, report.policy_version, report.unknown) == (3, 2, 0)
    assert context.heartbeat.figures["needs_s"] > 0


def fail(seen: Observation) -> Action:
    raise ZeroDivisionError("a bug of a policy")


def noting(context: RoleContext, progress: list[float]) -> RoleContext:
    """The context with a heartbeat whose progress is written down, as it would be in a file."""

    def note(beat: Heartbeat) -> None:
        progress.append(beat.figures.get("progress", 0.0))

    return replace(context, heartbeat=HeartbeatWriter(note, context.name, interval_s=0.0))


def test_an_evaluation_says_which_templates_training_has(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(), config(tasks={"suite": "sim-general", "max_oracle_steps": 5})
    version = transport.weights.publish(make_policy(settings), make_version(0))
    Evaluator(a_context("evaluator", tmp_path, settings, transport=transport)).evaluate(version, 12, name="before")
    report = transport.reports.held["before"]
    assert isinstance(report, Report)
    rows = report.per_task
    unseen = {row.template for row in rows if not row.seen}
    assert unseen == held_out_templates(suite("sim-general")) & {row.template for row in rows}
    assert 0 < len(unseen) < len(rows)


def test_an_evaluator_that_dies_before_its_report_has_made_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, settings = MemoryTransport(), config(evaluation={"devices": 1, "episodes": 1, "every_s": 0.001})
    transport.weights.publish(make_policy(settings), make_version(2))
    transport.reports.write("before", make_report([make_trajectory()], suite="sim-start", version=0))
    monkeypatch.setattr(evaluator_role, "make_policy", lambda *_: ScriptedPolicy(fail))
    for turns in (0, 1000):  # in its last evaluation, and in one on the way
        progress = list[float]()
        with pytest.raises(ZeroDivisionError):
            keep_evaluating(
                noting(a_context("evaluator", tmp_path, settings, turns=turns, transport=transport), progress)
            )
        assert progress[-1] == 0.0
        assert list(transport.reports.held) == ["before"]


def test_an_evaluator_that_waits_for_its_turn_or_has_reported_has_made_progress(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(), config(evaluation={"devices": 2, "episodes": 2, "every_s": 0.0})
    version = transport.weights.publish(make_policy(settings), make_version(2))
    transport.reports.write("before", make_report([make_trajectory()], suite="sim-start", version=0))
    idle, evaluating = list[float](), list[float]()
    context = noting(a_context("evaluator", tmp_path, settings, turns=2, transport=transport), idle)
    keep_evaluating(context)
    assert idle[1:3] == [1.0, 1.0], "nothing was due"
    assert set(transport.reports.held) == {"before", "after"}
    evaluator = Evaluator(noting(a_context("evaluator", tmp_path, settings, transport=transport), evaluating))
    for name in ("v000002", "v000003"):
        evaluator.evaluate(version, 1, name=name)
    assert (evaluating[1], evaluating[-1]) == (0.0, 1.0), "one report is there, whatever becomes of the next one"


def test_a_version_that_is_gone_is_skipped_where_there_are_newer_ones(tmp_path: Path) -> None:
    transport, settings = MemoryTransport(keep_versions=1), config()
    policy = make_policy(settings)
    old = transport.weights.publish(policy, make_version(1))
    transport.weights.publish(policy, make_version(2))
    Evaluator(a_context("evaluator", tmp_path, settings, transport=transport)).evaluate(old, 1, name="v000001")
    assert transport.reports.held == {}


def test_a_worker_and_the_evaluator_take_turns_on_the_same_phones(tmp_path: Path) -> None:
    settings = config(devices={"kind": "support.shared:make_phones", "per_worker": 2})
    transport, evaluated = FileTransport(FileLayout(tmp_path / "run")), threading.Event()
    version = transport.weights.publish(make_policy(settings), make_version(1))
    context = role("worker-0", tmp_path, settings, transport, evaluated.is_set)
    working = threading.Thread(target=collect, args=(context,))
    shared.CALLS.clear()
    working.start()
    wait_until(lambda: transport.episodes.stats().episodes >= 3)
    other = FileTransport(FileLayout(tmp_path / "run"))
    try:
        Evaluator(a_context("evaluator", tmp_path, settings, transport=other)).evaluate(version, 40, name="after")
    finally:
        evaluated.set()
        working.join(HANGS_S)
    report = msgspec.json.decode(other.reports.read("after") or b"", type=Report)
    assert (report.n, report.unknown) == (40, 0)
    playing: dict[str, str] = {}
    for device, owner, method in shared.CALLS:
        if method == "reset":
            playing[device] = owner
        assert playing[device] == owner, "someone else was in the middle of an episode"
    turns = [owner for _, owner, method in shared.CALLS if method == "reset"]
    first, last = turns.index("evaluator"), len(turns) - turns[::-1].index("evaluator")
    assert turns[first:last].count("worker-0") >= 3, "the worker plays on while an evaluation is under way"
