"""A session from start to summary on a runtime without processes: budget, order of the end, and who is waited for.

Its transport is in memory: a session that reached around it, to the files of the run, would find nothing there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from distrl.config.load import load_config
from distrl.errors import DeviceError, JudgeError, RoleCrashed, StoreError
from distrl.evaluation.report import make_report
from distrl.runtime import session as sessions
from distrl.runtime.base import RoleStatus, Runtime
from distrl.runtime.run_folder import create_run, take
from distrl.runtime.session import LEARNER_END_S, WORKER_END_S, RunSnapshot, Session
from distrl.telemetry.events import EventLog, events_of
from distrl.telemetry.heartbeat import Heartbeat, Phase
from distrl.transport.base import BudgetUsed
from distrl.transport.memory import MemoryTransport
from support.batches import tiny_policy
from support.learners import make_version
from support.trajectories import make_trajectory

START_S = 20.0
"""In these tests, until an evaluation has begun."""
ROLES = ("learner", "worker-0", "worker-1", "evaluator")


@pytest.fixture(autouse=True)
def _short_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "EVALUATOR_START_S", START_S)


class FakeRuntime:
    """`runtime.base.Runtime` without processes: roles play from the start and end a while after they are asked to."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.now_s = 1000.0
        self.ends_after_s: dict[str, float] = {}
        """How long a role takes to end; None of them: at once."""
        self.needs_s: dict[str, float] = {}
        self.devices_s = 0.0
        """What the workers say of their devices' time; 0: nothing."""
        self.doing = "playing"
        self.phase: Phase = "doing"
        self.figures: dict[str, float] = {}
        """Of every role."""
        self.did: list[str] = []
        self.on_turn: Callable[[], None] = lambda: None
        self._asked_s: dict[str, float] = {}
        self._gone: set[str] = set()

    def start(self, roles: tuple[str, ...]) -> None:
        self.did.append(f"start {' '.join(roles)}")
        self.transport.weights.publish(tiny_policy(), make_version(4))

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
        needs = {"needs_s": self.needs_s[role]} if role in self.needs_s and role in self._asked_s else {}
        beat = Heartbeat(
            role=role, pid=1, phase=self.phase, what=self.doing, since_s=0.0, beat_s=self.now_s,
            figures={**self.figures, **needs},
        )  # fmt: skip
        return RoleStatus(role=role, alive=role not in self._gone, restarts=0, note="", heartbeat=beat)

    def restarts(self) -> int:
        return 3

    def busy_s(self) -> float:
        return 30.0

    def device_s(self) -> float:
        return self.devices_s

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
        self.runtime = FakeRuntime()
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
        episodes = self.runtime.transport.episodes
        for _ in range(count):
            episodes.add(make_trajectory(f"e{episodes.stats().episodes}"))

    @property
    def used(self) -> BudgetUsed:
        return self.runtime.transport.budget.read()


def test_a_run_ends_when_its_minutes_are_used_and_the_budget_is_written_down(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    summary = scene.session().train()
    assert summary.collect_s == pytest.approx(60.0, abs=1.5)
    assert (summary.restarts, summary.interrupted) == (3, False)
    assert summary.device_utilisation == pytest.approx(30.0 / (4 * 60.0), abs=0.02)
    assert scene.used.collect_s == pytest.approx(60.0, abs=1.5)
    assert summary.policy_version == 4, "from the weights themselves"
    assert [moment.phase for moment in scene.seen][:1] == ["training"]


def test_a_run_ends_when_its_episodes_are_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run__minutes=0, run__episodes=5)
    scene.runtime.on_turn = lambda: scene.deliver(1)
    assert scene.session().train().episodes >= 5
    assert scene.runtime.now_s < 1000.0 + 60.0


def test_the_budget_of_earlier_sessions_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    before = BudgetUsed(wall_s=500.0, collect_s=50.0, busy_s=7.0, device_s=200.0, restarts=2)
    scene.runtime.transport.budget.write(before)
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


def test_a_learner_has_as_long_to_end_as_two_of_its_updates_may_take(tmp_path: Path) -> None:
    scene = Scene(tmp_path, runtime__silent_after_s=5 * LEARNER_END_S)
    scene.runtime.ends_after_s = {"learner": 9 * LEARNER_END_S}
    scene.session().train()
    assert "ended learner" in scene.runtime.did


def test_an_evaluation_that_says_how_long_it_needs_is_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.needs_s = {"evaluator": 5 * START_S}
    scene.runtime.ends_after_s = {"evaluator": 4 * START_S}
    scene.session().train()
    assert scene.runtime.did[-2:] == ["ended evaluator", "stop"]
    assert scene.seen[-1].phase == "evaluating"


def test_how_long_an_evaluation_may_take_is_counted_from_its_own_beginning(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.needs_s = {"evaluator": 2 * START_S}
    scene.runtime.ends_after_s = {"evaluator": 3.5 * START_S}
    asked_s: list[float] = []

    def work() -> None:  # it is still at an evaluation of the training when it is asked for the last one
        if "ask evaluator (needed)" in scene.runtime.did:
            asked_s.append(scene.runtime.now_s)
            late = scene.runtime.now_s > asked_s[0] + 1.8 * START_S
            scene.runtime.doing = (
                "evaluating version 4 (after): 1 of 9"
                if late
                else f"evaluating version 4 (v000004): {len(asked_s)} of 9"
            )

    scene.runtime.on_turn = work
    scene.session().train()
    assert scene.runtime.did[-2:] == ["ended evaluator", "stop"]


def test_an_evaluation_that_is_begun_again_and_again_is_not_waited_for_without_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.needs_s, scene.runtime.ends_after_s = {"evaluator": 2 * START_S}, {"evaluator": 1e6}
    turns = iter(range(10_000))

    def die_and_start_again() -> None:
        scene.runtime.doing = (
            "evaluating version 4 (after): 1 of 9" if next(turns) % 20 > 5 else "loading its libraries"
        )

    scene.runtime.on_turn = die_and_start_again
    before_s = scene.runtime.now_s
    assert "it did not end in time" in scene.session().train().cut_off
    assert scene.runtime.now_s - before_s - 60.0 <= 2 * 2 * START_S + 30.0


def test_no_more_evaluations_prolong_the_end_than_may_be_due(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.needs_s, scene.runtime.ends_after_s = {"evaluator": 2 * START_S}, {"evaluator": 1e6}
    turns = iter(range(10_000))
    scene.runtime.on_turn = lambda: setattr(scene.runtime, "doing", f"evaluating version {next(turns)} (after)")
    before_s = scene.runtime.now_s
    assert "it did not end in time" in scene.session().train().cut_off
    assert scene.runtime.now_s - before_s - 60.0 <= 2 * 2 * START_S + 5.0


def test_a_worker_has_time_for_all_verdicts_that_may_be_pending_at_its_end(tmp_path: Path) -> None:
    for hindsight, rounds in ((True, 2 * 6), (False, 6)):
        scene = Scene(tmp_path / str(hindsight), devices__per_worker=72, judge__at_once=16, data__hindsight=hindsight)
        needs_s = WORKER_END_S + scene.config.rollout.drain_s + rounds * scene.config.judge.deadline_s
        scene.runtime.ends_after_s = {"worker-0": needs_s - 5.0, "worker-1": needs_s + 5.0}
        scene.session().train()
        assert "ended worker-0" in scene.runtime.did
        assert "kill worker-1: it did not end in time" in scene.runtime.did


# --- devices that are gone


def test_time_in_which_no_worker_has_a_device_is_not_charged_to_the_budget(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def lose_all_devices_for_a_while() -> None:
        gone = 1020.0 < scene.runtime.now_s <= 1320.0
        scene.runtime.phase, scene.runtime.figures = ("waiting", {"healthy": 0.0}) if gone else ("doing", {})

    scene.runtime.on_turn = lose_all_devices_for_a_while
    summary = scene.session().train()
    assert summary.collect_s == pytest.approx(60.0, abs=3.0)
    assert summary.wall_s == pytest.approx(360.0, abs=6.0)
    phases = [moment.phase for moment in scene.seen]
    assert list(dict.fromkeys(phases)) == ["training", "waiting for devices"]
    assert phases[-1] == "training"


def test_a_worker_whose_devices_never_came_up_does_not_begin_the_budget(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.phase, scene.runtime.figures = "waiting", {"healthy": 0.0}
    made = scene.session()
    scene.runtime.on_turn = lambda: setattr(made, "interrupted", scene.runtime.now_s > 1500.0)
    assert made.train().collect_s == 0.0
    assert {moment.phase for moment in scene.seen} == {"warming up"}


def test_a_run_whose_devices_do_not_come_back_ends_with_the_fix(tmp_path: Path) -> None:
    scene = Scene(tmp_path, runtime__no_devices_s=600.0)
    EventLog(scene.run.log("worker-0")).write(
        "device_lost", device="R58M", why="adb knows no device 'R58M'", cause="gone"
    )

    def lose_all_devices() -> None:
        if scene.runtime.now_s > 1020.0:
            scene.runtime.phase, scene.runtime.figures = "waiting", {"healthy": 0.0}

    scene.runtime.on_turn = lose_all_devices
    scene.runtime.needs_s, scene.runtime.ends_after_s = {"evaluator": 2 * START_S}, {"evaluator": 4 * START_S}
    with pytest.raises(DeviceError, match="no worker has had a device for 600 s") as caught:
        scene.session().train()
    assert "--resume" in str(caught.value)
    assert caught.value.seen.endswith("the last was lost: R58M: adb knows no device 'R58M'")
    assert scene.run.summary.exists(), "what was learnt is saved and summed up first"
    assert 1620.0 < scene.runtime.now_s < 1640.0, "an evaluation would wait for the same devices"


def test_a_run_whose_judge_gives_no_verdicts_ends_with_why_and_can_be_resumed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, runtime__no_verdicts=50)
    EventLog(scene.run.log("worker-0")).write("unjudged", id="1", why="unauthorised: HTTP 401: is the key in K right?")

    def give_no_verdict() -> None:
        scene.runtime.figures = {"unjudged_in_a_row": scene.runtime.now_s - 1000.0}

    scene.runtime.on_turn = give_no_verdict
    with pytest.raises(JudgeError, match="HTTP 401") as caught:
        scene.session().train()
    assert (caught.value.exit_code, "--resume" in caught.value.fix) == (3, True)
    assert scene.run.summary.exists(), "what was learnt is saved and summed up first"
    assert 1050.0 <= scene.runtime.now_s < 1060.0


@pytest.mark.parametrize(("most", "in_a_row"), [(0, 1e6), (50, 49.0)])
def test_a_judge_that_sometimes_says_something_ends_no_run(tmp_path: Path, most: int, in_a_row: float) -> None:
    scene = Scene(tmp_path, runtime__no_verdicts=most)
    scene.runtime.figures = {"unjudged_in_a_row": in_a_row}
    assert scene.session().train().collect_s == pytest.approx(60.0, abs=1.5)


def test_a_worker_that_waits_for_something_else_has_begun_once_it_has_played(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.phase, scene.runtime.figures = "waiting", {"healthy": 2.0, "steps": 40.0}
    assert scene.session().train().collect_s == pytest.approx(60.0, abs=1.5)


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
    assert scene.used.wall_s >= 0.0
    assert scene.used.restarts == 3, "what was used is written down all the same"
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
    reports = scene.runtime.transport.reports
    reports.write("after", make_report([make_trajectory()], suite="sim-start", version=1))
    seen: list[bool] = []
    scene.runtime.on_turn = lambda: seen.append(reports.has("after"))
    scene.session().train()
    assert seen
    assert not any(seen)


def test_claims_of_an_earlier_session_are_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    claims = scene.runtime.transport.claims("worker-7", lifetime_s=1e9)
    assert len(claims.take(0, 5, 5)) == 5
    scene.session().train()
    assert len(claims.take(0, 5, 5)) == 5


def test_nothing_of_what_travels_is_written_to_the_folder(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.on_turn = lambda: scene.deliver(1)
    assert scene.session().train().episodes > 0
    written = (scene.run.experience, scene.run.weights, scene.run.budget, scene.run.claims, scene.run.evaluations)
    assert [path.name for path in written if path.exists()] == []
    assert scene.run.summary.exists()


def test_utilisation_is_of_the_devices_that_the_workers_have_where_they_say(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.devices_s = 40.0  # a factory that made fewer devices than were asked for
    assert scene.session().train().device_utilisation == pytest.approx(30.0 / 40.0)


# --- an end that is missing something


def test_an_evaluator_that_is_cut_off_is_told_of_and_the_run_is_not_whole(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.doing, scene.runtime.ends_after_s = "evaluating version 4 (after): 7 of 300", {"evaluator": 1e9}
    summary = scene.session().train()
    assert summary.cut_off == "the evaluator was cut off: it did not end in time, while evaluating version 4 (after)"
    assert (summary.interrupted, summary.is_whole) == (False, False)


def test_a_learner_that_is_cut_off_is_told_of_even_where_the_run_was_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.ends_after_s = {"learner": 1e9}
    made = scene.session()
    scene.runtime.on_turn = lambda: setattr(made, "interrupted", True)
    summary = made.train()
    assert summary.cut_off.startswith("the learner was cut off: it did not end in time")
    assert summary.interrupted


def test_an_evaluator_that_ends_without_its_report_is_told_of(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert "ended without its last report" in scene.session().train().cut_off
    scene = Scene(tmp_path / "again")
    reports, report = scene.runtime.transport.reports, make_report([make_trajectory()], suite="sim-start", version=4)
    scene.runtime.on_turn = lambda: reports.write("after", report)
    assert scene.session().train().is_whole


def test_a_role_that_has_finished_and_whose_process_does_not_leave_is_not_cut_off(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.ends_after_s = {"learner": 1e9, "evaluator": 1e9}
    reports, report = scene.runtime.transport.reports, make_report([make_trajectory()], suite="sim-start", version=4)

    def turn() -> None:
        if "ask learner (needed)" in scene.runtime.did:
            scene.runtime.doing, scene.runtime.phase = "finished", "stopped"
            reports.write("after", report)

    scene.runtime.on_turn = turn
    assert scene.session().train().is_whole
    assert {"kill learner: it did not end in time", "kill evaluator: it did not end in time"} < set(scene.runtime.did)


def test_an_evaluation_that_is_stopped_on_purpose_is_no_fault(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.ends_after_s = {"evaluator": 1e9}
    made = scene.session()
    scene.runtime.on_turn = lambda: setattr(made, "interrupted", True)
    assert made.train().cut_off == ""


def test_a_damaged_report_to_compare_with_is_noticed_before_anything_starts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runtime.transport.reports.write("before", BudgetUsed())
    with pytest.raises(StoreError, match=r"before\.json is damaged"):
        scene.session().train()
    assert scene.runtime.did == []


def test_why_a_session_ended_early_is_written_down(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def crash() -> None:
        raise RoleCrashed("worker-0 died 4 times in a row", fix="read a file")

    scene.runtime.on_turn = crash
    with pytest.raises(RoleCrashed):
        scene.session().train()
    (ended,) = events_of(scene.run.log("supervisor"), "ended", "why")
    assert ended["why"] == "worker-0 died 4 times in a row"
