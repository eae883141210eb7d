"""A session from start to summary on a runtime without processes: budget, order of the end, and who is waited for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from distrl.config.load import load_config
from distrl.errors import RoleCrashed, StoreError
from distrl.experience.store import ExperienceStore
from distrl.runtime import session as sessions
from distrl.runtime.base import RoleStatus, Runtime
from distrl.runtime.run_folder import RunFolder, create_run, take
from distrl.runtime.session import WORKER_END_S, RunSnapshot, Session
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import BudgetUsed, read_budget
from support.trajectories import make_trajectory

START_S = 20.0
"""In these tests, until an evaluation has begun."""
ROLES = ("learner", "worker-0", "worker-1", "evaluator")


@pytest.fixture(autouse=True)
def _short_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "EVALUATOR_START_S", START_S)


class FakeRuntime:
    """`runtime.base.Runtime` without processes: roles play from the start and end a while after they are asked to."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self.now_s = 1000.0
        self.ends_after_s: dict[str, float] = {}
        """How long a role takes to end; None of them: at once."""
        self.needs_s: dict[str, float] = {}
        self.did: list[str] = []
        self.on_turn: Callable[[], None] = lambda: None
        self._asked_s: dict[str, float] = {}
        self._gone: set[str] = set()

    def start(self, roles: tuple[str, ...]) -> None:
        self.did.append(f"start {' '.join(roles)}")
        self._run.weights.mkdir()
        (self._run.weights / "latest.json").write_text("{}")

    def supervise(self) -> None:
        self.on_turn()

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        self.did.append(f"ask {role}{' (needed)' if needed else ''}")
        self._asked_s[role] = self.now_s

    def ended(self, role: str) -> bool:
        asked_s = self._asked_s.get(role)
        over = asked_s is not None and self.now_s >= asked_s + self.ends_after_s.get(role, 0.0)
        if over and role not in self._gone:
            self._gone.add(role)
            self.did.append(f"ended {role}")
        return over or role in self._gone

    def kill(self, role: str, why: str) -> None:
        if role not in self._gone:
            self._gone.add(role)
            self.did.append(f"kill {role}: {why}")

    def status(self) -> list[RoleStatus]:
        return [self._status(role) for role in ROLES]

    def _status(self, role: str) -> RoleStatus:
        figures = {"needs_s": self.needs_s[role]} if role in self.needs_s and role in self._asked_s else {}
        beat = Heartbeat(
            role=role, pid=1, phase="doing", what="playing", since_s=0.0, beat_s=self.now_s, figures=figures
        )
        return RoleStatus(role=role, alive=role not in self._gone, restarts=0, note="", heartbeat=beat)

    def restarts(self) -> int:
        return 3

    def busy_s(self) -> float:
        return 30.0

    def stop(self) -> None:
        self.did.append("stop")

    def sleep(self, seconds: float) -> None:
        self.now_s += 10 * seconds  # a second a turn: the longest waits take many


class Scene:
    """A run with a budget, on that runtime."""

    def __init__(self, root: Path, **settings: object) -> None:
        flags = {"run.root": str(root), "rollout.workers": 2, "devices.per_worker": 2, "run.minutes": 1.0}
        given = {key.replace("__", "."): value for key, value in settings.items()}
        self.config = load_config(None, {**flags, **given})  # type: ignore[arg-type]
        self.run = create_run(self.config, now=datetime(2026, 5, 4))
        self.runtime = FakeRuntime(self.run)
        self.seen: list[RunSnapshot] = []

    def session(self) -> Session:
        runtime: Runtime = self.runtime
        made = Session(
            self.run,
            self.config,
            runtime,
            self.seen.append,
            clock=lambda: self.runtime.now_s,
            sleep=self.runtime.sleep,
        )
        return made

    def deliver(self, count: int) -> None:
        with ExperienceStore(self.run.experience) as store:
            for _ in range(count):
                store.add(make_trajectory(f"e{store.count()}"))


def test_a_run_ends_when_its_minutes_are_used_and_the_budget_is_written_down(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    summary = scene.session().train()
    assert summary.collect_s == pytest.approx(60.0, abs=1.5)
    assert (summary.restarts, summary.interrupted) == (3, False)
    assert summary.device_utilisation == pytest.approx(30.0 / (4 * 60.0), abs=0.02)
    assert read_budget(scene.run.budget).collect_s == pytest.approx(60.0, abs=1.5)
    assert [moment.phase for moment in scene.seen][:1] == ["training"]


def test_a_run_ends_when_its_episodes_are_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run__minutes=0, run__episodes=5)
    scene.runtime.on_turn = lambda: scene.deliver(1)
    assert scene.session().train().episodes >= 5
    assert scene.runtime.now_s < 1000.0 + 60.0


def test_the_budget_of_earlier_sessions_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    before = BudgetUsed(wall_s=500.0, collect_s=50.0, busy_s=7.0, device_s=200.0, restarts=2)
    scene.run.budget.write_bytes(msgspec.json.encode(before))
    summary = scene.session().train()
    assert summary.collect_s == pytest.approx(60.0, abs=1.5)
    assert scene.runtime.now_s - 1000.0 == pytest.approx(10.0, abs=2.0), "ten seconds were left"
    assert (summary.restarts, summary.wall_s) == (5, pytest.approx(510.0, abs=2.0))


def test_workers_end_first_then_the_learner_with_what_they_left_then_the_last_evaluation(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.session().train()
    assert scene.runtime.did == [
        "start learner worker-0 worker-1 evaluator",
        "ask worker-0",
        "ask worker-1",
        "ended worker-0",
        "ended worker-1",
        "ask learner (needed)",
        "ended learner",
        "ask evaluator (needed)",
        "ended evaluator",
        "stop",
    ]
    assert list(dict.fromkeys(moment.phase for moment in scene.seen)) == ["training"], "all ended at once"


def test_each_role_is_waited_for_and_killed_when_its_time_is_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.ends_after_s = {"worker-0": 3.0, "worker-1": 10 * WORKER_END_S, "learner": 5.0}
    scene.session().train()
    did = scene.runtime.did
    assert did.index("ended worker-0") < did.index("kill worker-1: it did not end in time") < did.index("ended learner")
    assert {"finishing", "training"} <= {moment.phase for moment in scene.seen}


def test_an_evaluation_that_says_how_long_it_needs_is_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.needs_s = {"evaluator": 5 * START_S}
    scene.runtime.ends_after_s = {"evaluator": 4 * START_S}
    scene.session().train()
    assert scene.runtime.did[-2:] == ["ended evaluator", "stop"]
    assert scene.seen[-1].phase == "evaluating"


def test_an_evaluation_that_takes_longer_than_it_said_or_says_nothing_is_ended(tmp_path: Path) -> None:
    for number, needs in enumerate(({}, {"evaluator": 2 * START_S})):
        scene = Scene(tmp_path / str(number))
        scene.runtime.needs_s, scene.runtime.ends_after_s = needs, {"evaluator": 4 * START_S}
        before_s = scene.runtime.now_s
        scene.session().train()
        assert "kill evaluator: it did not end in time" in scene.runtime.did
        waited_s = scene.runtime.now_s - before_s - 60.0
        assert waited_s == pytest.approx(max(START_S, needs.get("evaluator", 0.0)), abs=5.0)


def test_a_run_that_is_interrupted_finishes_saves_and_can_go_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.ends_after_s = {"evaluator": 4 * START_S}
    made = scene.session()

    def interrupt() -> None:
        made.interrupted = scene.runtime.now_s > 1010.0

    scene.runtime.on_turn = interrupt
    summary = made.train()
    assert summary.interrupted
    assert summary.collect_s == pytest.approx(10.0, abs=2.0)
    assert "ended learner" in scene.runtime.did
    assert scene.runtime.did[-2:] == ["kill evaluator: the run is being stopped", "stop"]


def test_before_the_first_weights_nobody_is_needed_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    monkeypatch.setattr(scene.runtime, "start", lambda roles: None)
    made = scene.session()
    scene.runtime.on_turn = lambda: setattr(made, "interrupted", True)
    summary = made.train()
    assert "ask learner" in scene.runtime.did
    assert (summary.collect_s, summary.device_utilisation) == (0.0, 0.0)
    assert scene.seen[0].phase == "warming up"


def test_a_role_that_crashed_for_good_ends_the_run_and_everything_is_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def crash() -> None:
        raise RoleCrashed("worker-0 died 4 times in a row")

    scene.runtime.on_turn = crash
    with pytest.raises(RoleCrashed):
        scene.session().train()
    assert scene.runtime.did[-1] == "stop"
    assert scene.run.budget.exists(), "what was used is written down all the same"
    take(scene.run.lock("supervisor"), wait_s=0.0, what="it").release()


def test_two_sessions_of_one_run_at_a_time_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LOCK_WAIT_S", 0.0)
    scene = Scene(tmp_path)
    lock = take(scene.run.lock("supervisor"), wait_s=0.0, what="it")
    with pytest.raises(StoreError):
        scene.session().train()
    assert scene.runtime.did == []
    lock.release()


def test_figures_of_an_earlier_session_are_removed_once_there_is_something_new(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.run.evaluations.mkdir()
    (scene.run.evaluations / "after.json").write_text("{}")
    seen: list[bool] = []
    scene.runtime.on_turn = lambda: seen.append((scene.run.evaluations / "after.json").exists())
    scene.session().train()
    assert not any(seen)
