"""The benchmarks of phones behind adb: strings, faults, a list and its judge; figures are those of what was run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast, get_args
from urllib.request import Request, urlopen

import pytest

from distrl.bench.base import BenchOptions
from distrl.bench.learning.judge_cost import EXACT, methods, summarise
from distrl.bench.learning.methods import FIRST, QUICK_EPISODE_BUDGET
from distrl.bench.learning.single_process import Point
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, TrainerResult
from distrl.bench.system import quoting
from distrl.bench.system.judge_endpoint import JudgeEndpoint
from distrl.bench.system.judge_load import (
    AT_ONCE,
    LEAST_PAUSE_S,
    Measured,
    Window,
    WindowPlan,
    count_overlap,
    load_of,
    ratios_of,
    write_list,
)
from distrl.config.schema import JudgeConfig, ListConfig, ModelJudgeConfig
from distrl.devices.serve_sim.server import FAULTS, FaultKind
from distrl.runtime.session import RunSnapshot
from distrl.tasks.base import SPLITS
from distrl.tasks.judges import Attempt, find_judge, judge_attempt
from distrl.tasks.lists import ListSuite
from distrl.telemetry.heartbeat import Heartbeat
from distrl.types import Bounds, Ending, EndState, Finish, ModelCheck, Observation, SimSetup, Task, UiElement


def test_no_string_breaks_out_and_a_quoting_that_is_broken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = quoting.run(BenchOptions(quick=True))
    assert (found.broken_out, found.changed, found.typed_wrong) == (0, 0, 0)
    assert found.strings == 1000
    assert found.typed["ADBKeyBoard"] > 900
    monkeypatch.setattr(quoting, "quote", lambda text: f'"{text}"')
    broken = quoting.run(BenchOptions(quick=True))
    assert broken.broken_out > 0
    assert broken.changed > 0


def a_moment(episodes: int, *, phase: str = "training", what: str = "") -> RunSnapshot:
    """A run at one moment, whose worker waits for `what`."""
    beat = Heartbeat(
        role="worker-0", pid=1, phase="waiting" if what else "doing", what=what, since_s=0.0, beat_s=0.0, time_s=0.0, figures={}
    )  # fmt: skip
    role, stats = SimpleNamespace(role="worker-0", heartbeat=beat), SimpleNamespace(episodes=episodes)
    return cast(RunSnapshot, SimpleNamespace(phase=phase, stats=stats, roles=[role]))


def ask_once(endpoint: JudgeEndpoint) -> None:
    data = json.dumps({"messages": [{"content": [{"type": "image_url", "image_url": {}}]}]}).encode()
    with urlopen(Request(f"{endpoint.url}/chat/completions", data), timeout=20.0) as response:
        assert response.status == 200


def test_windows_take_turns_in_a_warm_run_and_slow_answers_follow_from_the_rate_of_the_first() -> None:
    with JudgeEndpoint() as endpoint:
        plan = WindowPlan(endpoint, [0.0, None, 0.0], 10.0, warm_episodes=5)
        assert not plan.look(a_moment(4), 1.0)
        assert not plan.look(a_moment(5, phase="warming up"), 2.0)
        plan.look(a_moment(5), 3.0)
        plan.look(a_moment(5), 3.0 + LEAST_PAUSE_S)  # the first one opens
        for _ in range(160):
            ask_once(endpoint)
        plan.look(a_moment(30, what="the judge: 17 episodes wait for their verdict"), 10.0)
        plan.look(a_moment(60), 16.0)
        first = plan.windows[0]
        assert (first.start_s, first.end_s, first.requests, first.pictures) == (6.0, 16.0, 160, 160)
        assert (first.looks, first.waiting) == (2, 1)
        assert plan.slow_s == pytest.approx(AT_ONCE * 10.0 / 160)
        plan.look(a_moment(60), 16.1)
        assert len(plan.windows) == 1, "what was asked before is answered first"
        ask_once(endpoint)
        plan.look(a_moment(60), 20.0)
        for at_s in (29.9, 30.0):
            assert not plan.look(a_moment(60), at_s)
        assert (plan.windows[1].requests, plan.windows[1].delay_s) == (0, plan.slow_s)
        plan.look(a_moment(60), 40.0)
        assert plan.look(a_moment(60), 50.0)
        assert plan.windows[2].delay_s == 0.0
        assert endpoint.counts().busy_s >= plan.slow_s


def a_window(delay_s: float, start_s: float) -> Window:
    return Window(
        delay_s=delay_s, start_s=start_s, end_s=start_s + 10.0, requests=40, pictures=0, busy_s=80.0, looks=100, waiting=1
    )  # fmt: skip


def test_what_is_kept_is_the_ratio_of_neighbours_whichever_of_them_came_first() -> None:
    counts = [(0.0, 50), (2.0, 40), (2.0, 30), (0.0, 40)]
    measured = [
        Measured(window=a_window(delay_s, 20.0 * number), episodes=episodes, unknown=number % 2)
        for number, (delay_s, episodes) in enumerate(counts)
    ]
    assert ratios_of(measured) == pytest.approx([0.8, 0.75])
    slow = load_of(measured[1:3])
    assert (slow.episodes_per_s, slow.requests_per_s, slow.judged_at_once) == (3.5, 4.0, 8.0)
    assert (slow.unknown, slow.held_back, slow.windows_s) == (1, 0.01, 20.0)


def test_the_list_is_plain_text_of_500_instructions_without_overlap(tmp_path: Path) -> None:
    write_list(tmp_path / "list.txt")
    listed = ListSuite(ListConfig(path=str(tmp_path / "list.txt")))
    assert sum(listed.size(split) for split in SPLITS) == 500
    assert all(listed.size(split) for split in SPLITS)
    assert count_overlap(listed) == 0


def test_the_endpoint_counts_what_it_is_asked_at_once_and_a_real_judge_takes_its_answer() -> None:
    task = Task(id="t", suite="s", template="t", split="train", instruction="Do it", setup=SimSetup(phone=1, seed=1), check=ModelCheck())  # fmt: skip
    seen = Observation(instruction="Do it", elements=(UiElement(bounds=Bounds(0, 0, 1, 1), text="Done"),))
    attempt = Attempt(task=task, end=EndState(claim=Finish()), ending=Ending.FINISHED, screens=(seen,))

    async def ask(url: str) -> list[tuple[str, str]]:
        model = ModelJudgeConfig(url=url, model="local", key_env="", cache=0)
        judge = find_judge(JudgeConfig(kind="model", model=model))
        found = await asyncio.gather(*(judge_attempt(judge, attempt, deadline_s=20.0) for _ in range(4)))
        return [(verdict.outcome, verdict.reason) for verdict in found]

    with JudgeEndpoint(0.3) as endpoint:
        assert set(asyncio.run(ask(endpoint.url))) == {("success", "as claimed")}
        counts = endpoint.counts()
        assert (counts.requests, counts.most_at_once) == (4, 4)
        assert counts.busy_s >= 4 * 0.3
        endpoint.set_delay(0.0)
        assert set(asyncio.run(ask(endpoint.url))) == {("success", "as claimed")}
        assert endpoint.counts().requests == 8


def test_what_errors_of_a_judge_cost_is_the_difference_to_the_exact_one() -> None:
    rows = methods(quick=False)
    assert [row.name for row in rows[:3]] == [EXACT, "5% wrong, correlated", "10% wrong, correlated"]
    assert rows[2].settings["data.outcome_flip_by"] == "situation"
    point = Point(episodes=1, success=0.0, train_success=0.5, updates=1, wall_s=1.0, losses={})
    outcomes = {EXACT: 8, "20% wrong, at random": 7, "20% wrong, correlated": 4}
    runs = [
        EntryRuns(
            entry=Entry(method=row, arena=FIRST),
            results=[
                TrainerResult(
                    curve=[point],
                    outcomes=[number < outcomes.get(row.name, 8) for number in range(10)],
                    made_on="here",
                    judge_errors={"failure": 0.1, "success": 0.2, "all": 0.15},
                )
                for _ in range(3)
            ],
        )
        for row in rows
    ]
    found = summarise(runs, QUICK_EPISODE_BUDGET)
    cost, repetition = found.cost["20% wrong, correlated"], found.cost_of_repetition["20%"]
    assert cost is not None
    assert repetition is not None
    assert (cost[0], repetition[0]) == pytest.approx((0.4, 0.3), abs=0.05)
    assert found.wrong_verdicts[EXACT]["all"] == 0.15


def test_served_phones_report_commands_and_faults_while_they_run() -> None:
    command = [sys.executable, "-m", "distrl", "devices", "serve-sim", "--first-port", "0", "--json", "--width", "180"]
    process = subprocess.Popen([*command, "--report-every", "0.1"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        told = list[object]()
        for line in process.stdout:
            if line.startswith("{") and "commands" in line:
                told.append(json.loads(line))
                break
    finally:
        process.kill()
        process.wait()
    assert told == [{"commands": 0, "faults": {}}]
    assert set(get_args(FaultKind)) == set(FAULTS)
