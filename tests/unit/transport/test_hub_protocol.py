"""The protocol by which an episode gets from a worker to the learner, through any interleaving of crashes, losses and repetitions.

The hub's service, its folder and the workers' spools are the real ones. What a network, a kill and a second incarnation may do
in between is drawn by hypothesis, step by step; the model is two sets: what must be there, and what may be.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distrl.experience.frames import reference_of
from distrl.experience.index import IndexRow
from distrl.rollout.outbox import Spool
from distrl.transport.ray.service import HubService
from distrl.transport.ray.wire import Caller, Superseded
from distrl.types import Trajectory
from support.trajectories import make_trajectory

MEMORY = Path("/dev/shm")
"""Where there is one: what is synced thousands of times need not go to a disk."""
WORKERS = ("worker-0", "worker-1")
WORKER = st.sampled_from(WORKERS)
LOSSES = ("none", "request", "answer", "hub before its row", "hub after its row")
"""What may happen to a call: it never arrives, its answer does not, or the hub is killed at one of two places within."""


class Lost(Exception):
    """The caller hears nothing."""


class LearnerState(msgspec.Struct, frozen=True):
    cursor: int
    taken: tuple[str, ...]


class Worker:
    """One worker: what it holds in memory, and its spool, which outlives it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.incarnation = name, folder, 0
        self.begin()

    def begin(self) -> None:
        self.incarnation += 1
        self.spool = Spool(self.folder, capacity=100)
        self.pending: list[tuple[Trajectory, dict[str, bytes]]] = []

    @property
    def caller(self) -> Caller:
        return Caller(role=self.name, incarnation=self.incarnation)


class Protocol(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="protocol-", dir=MEMORY if MEMORY.is_dir() else None))
        self.workers = {name: Worker(name, self.place / "spools" / name) for name in WORKERS}
        self.finished: dict[str, bytes] = {}
        """What has to be there in the end, with its picture."""
        self.gone: set[str] = set()
        """What a killed worker had in memory alone: it may be there, if its answer was lost."""
        self.acknowledged: set[str] = set()
        self.rows: list[IndexRow] = []
        self.learner, self.saved = LearnerState(0, ()), LearnerState(0, ())
        self.learner_incarnation = self.num = 0
        self.hub = self.new_hub()
        for worker in self.workers.values():
            self.call(worker.caller, "begin", worker.name, worker.incarnation)
        self.restart_learner()

    def new_hub(self) -> HubService:
        return HubService(self.place / "run", keep_versions=3, metrics=self.place / "metrics.jsonl")

    def call(self, caller: Caller, name: str, *arguments: object, loss: str = "none") -> bytes:
        if loss == "request":
            raise Lost
        if loss.startswith("hub"):
            self.kill_hub_within(caller, name, arguments, before=loss == "hub before its row")
            raise Lost
        answer = self.hub.answer(caller, name, msgspec.msgpack.encode(arguments))
        if loss == "answer":
            raise Lost
        return answer

    def kill_hub_within(self, caller: Caller, name: str, arguments: object, *, before: bool) -> None:
        index = self.hub._episodes.store._index
        insert = index.insert

        def killed(*given: object) -> int:
            if not before:
                insert(*given)  # type: ignore[arg-type]
            raise Lost

        index.insert = killed  # type: ignore[method-assign, assignment]
        try:
            self.hub.answer(caller, name, msgspec.msgpack.encode(arguments))
        except Lost:
            pass
        finally:
            self.hub.files.close()
        self.hub = self.new_hub()

    # --- workers ------------------------------------------------------------------------------------------------------

    @rule(worker=WORKER, shared=st.booleans())
    def finish_an_episode(self, worker: str, shared: bool) -> None:
        self.num += 1
        picture = b"home screen" if shared else f"picture {self.num}".encode()
        trajectory = make_trajectory(f"e{self.num}", version=self.num // 5)
        self.workers[worker].pending.append((trajectory, {reference_of(picture): picture}))
        self.finished[trajectory.id] = picture

    @rule(worker=WORKER, loss=st.sampled_from(LOSSES))
    def submit(self, worker: str, loss: str) -> None:
        found = self.workers[worker]
        if not found.pending:
            return
        trajectory, frames = found.pending[0]
        try:
            self.call(found.caller, "add", trajectory, frames, loss=loss)
        except Lost:
            return  # it stays where it is and is submitted again
        self.acknowledged.add(trajectory.id)
        del found.pending[0]

    @rule(worker=WORKER)
    def spool(self, worker: str) -> None:
        found = self.workers[worker]
        if found.pending:
            found.spool.put(*found.pending.pop(0))

    @rule(worker=WORKER, losses=st.lists(st.sampled_from(LOSSES), max_size=3), killed=st.booleans())
    def hand_the_spool_over(self, worker: str, losses: list[str], killed: bool) -> None:
        found = self.workers[worker]
        for path, trajectory, frames in found.spool.items():
            try:
                self.call(found.caller, "add", trajectory, frames, loss=losses.pop() if losses else "none")
            except Lost:
                break
            self.acknowledged.add(trajectory.id)
            if killed:  # between the acknowledgement and its end in the spool: it is handed over once more
                self.kill_worker(worker)
                break
            found.spool.remove(path)

    @rule(worker=WORKER)
    def kill_worker(self, worker: str) -> None:
        found = self.workers[worker]
        for trajectory, _ in found.pending:
            self.gone.add(trajectory.id)
            self.finished.pop(trajectory.id)
        found.begin()
        self.call(found.caller, "begin", found.name, found.incarnation)

    @rule(worker=WORKER)
    def a_worker_that_was_replaced_comes_back(self, worker: str) -> None:
        """Beyond a cut network it has finished one more episode: that counts, and nothing else that it says does."""
        found = self.workers[worker]
        old = found.caller
        self.kill_worker(worker)
        self.num += 1
        late = make_trajectory(f"e{self.num}")
        self.call(old, "add", late, {})
        self.acknowledged.add(late.id)
        with pytest.raises(Superseded):
            self.call(old, "remove_report", "before")

    # --- the hub and the learner --------------------------------------------------------------------------------------

    @rule()
    def kill_the_hub(self) -> None:
        self.hub.files.close()
        self.hub = self.new_hub()

    @rule()
    def recover(self) -> None:
        self.call(self.learner_caller, "recover")

    @property
    def learner_caller(self) -> Caller:
        return Caller(role="learner", incarnation=self.learner_incarnation)

    @rule(limit=st.integers(1, 4))
    def take_in(self, limit: int) -> None:
        data = self.call(self.learner_caller, "after", self.learner.cursor, limit)
        for row in msgspec.msgpack.decode(data, type=list[IndexRow]):
            read = msgspec.msgpack.decode(self.call(self.learner_caller, "read", row.id), type=Trajectory)
            assert read.id == row.id
            self.learner = LearnerState(row.seq, (*self.learner.taken, row.id))

    @rule(loss=st.sampled_from(("none", "request", "answer")))
    def save_a_checkpoint(self, loss: str) -> None:
        files = {"state.json": msgspec.json.encode(self.learner)}
        try:
            self.call(self.learner_caller, "write_checkpoint", files, loss=loss)
        except Lost:
            if loss == "request":
                return
        self.saved = self.learner

    @rule()
    def restart_learner(self) -> None:
        """Killed at any instant: it goes on from its last checkpoint, and its predecessor can overwrite nothing."""
        old = self.learner_caller
        self.learner_incarnation += 1
        self.call(self.learner_caller, "begin", "learner", self.learner_incarnation)
        if old.incarnation:
            with pytest.raises(Superseded):
                self.call(old, "write_checkpoint", {"state.json": b"{}"})
        data = self.call(self.learner_caller, "newest_checkpoint")
        files = msgspec.msgpack.decode(data, type=dict[str, bytes] | None)
        state = LearnerState(0, ()) if files is None else msgspec.json.decode(files["state.json"], type=LearnerState)
        assert state == self.saved
        self.learner = state

    # --- what always holds --------------------------------------------------------------------------------------------

    def all_rows(self) -> list[IndexRow]:
        return self.hub._episodes.after(0, 10_000)

    @invariant()
    @precondition(lambda self: hasattr(self, "hub"))
    def what_was_seen_stays_and_what_was_acknowledged_is_there_once(self) -> None:
        rows = self.all_rows()
        assert rows[: len(self.rows)] == self.rows, "a cursor is safe: nothing appears before what was seen"
        self.rows = rows
        ids = [row.id for row in rows]
        assert len(ids) == len(set(ids))
        assert self.acknowledged <= set(ids)
        assert [*self.learner.taken] == [row.id for row in rows if row.seq <= self.learner.cursor]

    def teardown(self) -> None:
        if not hasattr(self, "hub"):
            return
        try:
            self.drain()
            ids = {row.id for row in self.all_rows()}
            assert set(self.finished) <= ids, "nothing that was finished is lost"
            assert ids <= set(self.finished) | self.gone | self.acknowledged
            audit = self.hub.audit()
            assert (audit.healthy, audit.orphans) == (True, ())
            for id in self.finished:
                assert self.hub.read(id).id == id
            for picture in set(self.finished.values()):
                assert self.hub.get_frame(reference_of(picture)) == picture
        finally:
            self.hub.files.close()
            shutil.rmtree(self.place)

    def drain(self) -> None:
        for name in WORKERS:
            while self.workers[name].pending:
                self.submit(name, "none")
            self.hand_the_spool_over(name, [], killed=False)
        before = None
        while before != self.learner:
            before = self.learner
            self.take_in(4)


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
