"""`distrl bench judge`: its figures are those of the judge that it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.bench.base import BenchOptions
from distrl.bench.system.judge import (
    AGENTS,
    AT_ONCE,
    TRIED,
    Judged,
    NoisyJudge,
    confusion,
    judge_config,
    make_agent,
    measure,
    rates,
    run,
)
from distrl.config.schema import JudgeConfig
from distrl.errors import JudgeError
from distrl.tasks.base import suite
from distrl.tasks.judges import find_judge
from distrl.tasks.model_judge import ModelJudge
from distrl.types import Finish, Observation, Outcome, Verdict
from support.chats import KEY, ChatServer, Handler, fails, says

TRUTH = JudgeConfig(kind="sim")


def one(truth: Outcome, said: Outcome) -> Judged:
    return Judged(agent="oracle", steps=3, truth=truth, verdict=Verdict(outcome=said))


def test_rates_leave_unknown_verdicts_out_and_count_them() -> None:
    judged = [
        one("success", "success"), one("success", "success"), one("success", "failure"), one("success", "unknown"),
        one("failure", "success"), one("failure", "failure"), one("failure", "failure"), one("failure", "failure"),
    ]  # fmt: skip
    found = rates(judged)
    assert (found.n, found.accuracy, found.unknown) == (8, pytest.approx(5 / 7, abs=1e-4), 0.125)
    assert (found.false_positive_rate, found.false_negative_rate) == (0.25, pytest.approx(1 / 3, abs=1e-4))
    assert confusion(judged) == {
        "success": {"success": 2, "failure": 1, "unknown": 1},
        "failure": {"success": 1, "failure": 3, "unknown": 0},
    }
    assert rates([]).n == 0


def test_the_truth_is_right_about_itself_and_agents_succeed_and_fail() -> None:
    found = measure(find_judge(TRUTH), "truth", num_tasks=6)
    assert (found.n, found.accuracy, found.false_positive_rate, found.false_negative_rate) == (24, 1.0, 0.0, 0.0)
    assert sum(length.n for length in found.by_length.values()) == 24
    assert {agent: found.by_agent[agent].n for agent in AGENTS} == dict.fromkeys(AGENTS, 6)
    assert min(sum(said.values()) for said in found.confusion.values()) >= 5


def test_a_judge_that_is_always_turned_round_is_always_wrong() -> None:
    found = measure(NoisyJudge(find_judge(TRUTH), 1.0), "wrong", num_tasks=3)
    assert (found.accuracy, found.false_positive_rate, found.false_negative_rate) == (0.0, 1.0, 1.0)


def test_every_agent_ends_with_a_claim() -> None:
    task, seen = suite("sim-general").task("test", 0), Observation(instruction="")
    for agent in AGENTS:
        choose = make_agent(task, agent)
        first = [choose(seen) for _ in range(task.oracle_steps - 2)]
        rest = [choose(seen) for _ in range({"oracle": 2, "stops early": 1, "one too much": 3, "random": 2}[agent])]
        assert [isinstance(action, Finish) for action in [*first, *rest]] == [False] * (len(first + rest) - 1) + [True]


def test_the_model_of_the_environment_is_measured_over_the_network() -> None:
    with ChatServer(fails(400), usual=says("success")) as server:
        config = judge_config({"DISTRL_JUDGE_URL": server.url, "DISTRL_JUDGE_MODEL": "m", "DISTRL_JUDGE_KEY": KEY})
        assert config is not None
        found = measure(ModelJudge(config, environ={"DISTRL_JUDGE_KEY": KEY}), "m", num_tasks=2, pictures=True)
    assert (found.judge, found.n, found.false_positive_rate, found.false_negative_rate) == ("m", 8, 1.0, 0.0)
    assert (found.unknown, found.counters["failed/refused"]) == (0.125, 1)
    assert [reason.partition(":")[0] for reason in found.reasons] == ["refused"]
    assert all(any(part["type"] == "image_url" for part in asked["messages"][1]["content"]) for asked in server.asked)
    assert set(server.keys) == {f"Bearer {KEY}"}


@pytest.mark.parametrize("num_tasks", [1, 40])
def test_a_judge_without_any_verdict_is_refused_with_the_reason_and_not_asked_to_the_end(num_tasks: int) -> None:
    with ChatServer(usual=fails(401)) as server:
        config = judge_config({"DISTRL_JUDGE_URL": server.url, "DISTRL_JUDGE_MODEL": "m"})
        assert config is not None
        with pytest.raises(JudgeError, match=r"no verdict on any of .* because: unauthorised: HTTP 401") as caught:
            measure(find_judge(config), "m", num_tasks=num_tasks)
    assert caught.value.exit_code == 3
    assert len(server.asked) <= TRIED + AT_ONCE


def test_without_an_address_the_judge_of_simulated_phones_with_noise_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISTRL_JUDGE_URL", raising=False)
    found = run(BenchOptions(quick=True))
    assert (found.n, found.unknown, "turned round" in found.judge) == (60, 0.0, True)
    assert 0.75 < found.accuracy < 1.0


def test_without_an_address_there_is_no_model_and_without_a_key_none_is_sent() -> None:
    assert judge_config({}) is None
    config = judge_config({"DISTRL_JUDGE_URL": "http://127.0.0.1:1/v1", "DISTRL_JUDGE_MODEL": "m"})
    assert config is not None
    assert (config.model.key_env, config.model.model) == ("", "m")


def test_a_judge_that_reads_the_screen_is_told_from_one_that_believes_every_claim() -> None:
    def by_claim(handler: Handler) -> None:
        line = handler.asked["messages"][1]["content"][0]["text"].split("\n")[1]
        claimed = json.loads(line)["claim"]["status"] == "complete"
        says("success" if claimed else "failure")(handler)

    with ChatServer(usual=by_claim) as server:
        config = judge_config({"DISTRL_JUDGE_URL": server.url, "DISTRL_JUDGE_MODEL": "m"})
        assert config is not None
        found = measure(find_judge(config), "believes", num_tasks=4)
    assert found.false_positive_rate > 0.5


def test_the_judge_of_a_run_s_own_configuration_is_measured(tmp_path: Path) -> None:
    with ChatServer(usual=says("failure")) as server:
        path = tmp_path / "mine.toml"
        path.write_text(f'''[judge]
kind = "model"
[judge.model]
url = "{server.url}"
model = "blind"
key_env = ""
pictures = false
''')
        config = judge_config({"DISTRL_JUDGE_CONFIG": str(path), "DISTRL_JUDGE_URL": "http://127.0.0.1:1/v1"})
        assert config is not None
        found = measure(find_judge(config), "blind", num_tasks=1, pictures=config.model.pictures)
    assert (found.false_negative_rate, found.unknown) == (1.0, 0.0)
    assert not any(part["type"] == "image_url" for asked in server.asked for part in asked["messages"][1]["content"])
