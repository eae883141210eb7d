"""The benchmarks of phones behind adb: strings, faults, a list and its judge; figures are those of what was run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from distrl.bench.base import BenchOptions
from distrl.bench.learning.judge_cost import EXACT, methods, summarise
from distrl.bench.learning.methods import FIRST, QUICK_EPISODE_BUDGET
from distrl.bench.learning.single_process import Point
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, TrainerResult
from distrl.bench.system import quoting
from distrl.bench.system.judge_endpoint import JudgeEndpoint
from distrl.bench.system.judge_load import count_overlap, rate_of, write_list
from distrl.config.schema import JudgeConfig, ListConfig, ModelJudgeConfig
from distrl.devices.serve_sim.server import FAULTS, FaultKind
from distrl.experience.store import IndexRow
from distrl.tasks.base import SPLITS
from distrl.tasks.judges import Attempt, find_judge, judge_attempt
from distrl.tasks.lists import ListSuite
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


def a_row(number: int) -> IndexRow:
    return IndexRow(
        seq=number, id=str(number), task="t", template="t", version=0, steps=1, success=False, source="played",
        ending=Ending.FINISHED, wall_s=1.0, worker="worker-0", created_s=float(number) / 2, size_bytes=1,
    )  # fmt: skip


def test_a_rate_leaves_out_the_episodes_before_a_run_has_settled() -> None:
    steady = [a_row(number) for number in range(40)]
    assert rate_of(steady) == pytest.approx(2.0)
    assert rate_of([steady[0], *steady[30:]]) == pytest.approx(2.0)  # whatever came first came long before
    assert rate_of([]) == 0.0


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
        assert (endpoint.requests, endpoint.most_at_once) == (4, 4)
        assert endpoint.busy_s >= 4 * 0.3


def test_what_errors_of_a_judge_cost_is_the_difference_to_the_exact_one() -> None:
    rows = methods(quick=False)
    assert [row.name for row in rows[:3]] == [EXACT, "5% wrong, at random", "5% wrong, correlated"]
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
