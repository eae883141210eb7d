"""Several judges that vote: each rule, what becomes of unknown votes, and judges that fail."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import EnsembleConfig, JudgeConfig
from distrl.errors import ConfigError
from distrl.tasks.ensemble import Ensemble, EnsembleJudge, decide
from distrl.tasks.judges import Attempt, Judge, find_judge
from distrl.types import Ending, EndState, Finish, Observation, Outcome, RewardCheck, UiElement, Verdict
from support.chats import ChatServer, hangs, judge_settings, says
from support.trajectories import TASK, make_step

OUTCOMES: dict[str, Outcome] = {"s": "success", "f": "failure", "u": "unknown"}
PAID = replace(TASK, check=RewardCheck())
ON = Attempt(
    task=PAID,
    end=EndState(claim=Finish(), reward=1.0),
    ending=Ending.FINISHED,
    screens=(make_step(0).observation,),
)


class Says:
    """A judge of one opinion."""

    def __init__(self, outcome: str, **more: Any) -> None:
        self._verdict = Verdict(outcome=OUTCOMES[outcome], **more)

    async def judge(self, attempt: Attempt) -> Verdict:
        return self._verdict


class Breaks:
    async def judge(self, attempt: Attempt) -> Verdict:
        raise ZeroDivisionError("by zero")


class Hangs:
    async def judge(self, attempt: Attempt) -> Verdict:
        await asyncio.Event().wait()
        raise AssertionError


def rule(name: str, unknown: str = "keep") -> EnsembleConfig:
    return EnsembleConfig(rule=name, unknown=unknown)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "unknown", "expected"),
    [
        ("all", "keep", "ss=s sf=f su=u ff=f fu=f uu=u sss=s ssu=u sfu=f"),
        ("any", "keep", "ss=s sf=s su=s ff=f fu=u uu=u fff=f ffu=u sfu=s"),
        ("majority", "keep", "ss=s sf=u su=u ff=f fu=u uu=u ssf=s ssu=s sff=f sfu=u ffu=f suu=u"),
        ("all", "leave_out", "su=s fu=f uu=u sfu=f ssu=s"),
        ("any", "leave_out", "su=s fu=f uu=u sfu=s"),
        ("majority", "leave_out", "su=s fu=f uu=u sfu=u ssfu=s suu=s"),
    ],
)
def test_what_votes_come_to(name: str, unknown: str, expected: str) -> None:
    for votes, outcome in (one.split("=") for one in expected.split()):
        found = decide([OUTCOMES[vote] for vote in votes], rule(name, unknown))
        assert found == OUTCOMES[outcome], votes


@pytest.mark.parametrize("name", ["all", "majority", "any"])
def test_a_known_outcome_holds_whatever_the_unknown_votes_would_have_been(name: str) -> None:
    for votes in product("sfu", repeat=3):
        found = decide([OUTCOMES[vote] for vote in votes], rule(name))
        if found == "unknown":
            continue
        for instead in product("sf", repeat=3):
            filled = [OUTCOMES[b if a == "u" else a] for a, b in zip(votes, instead, strict=True)]
            assert decide(filled, rule(name)) == found, (votes, instead)


def ensemble(name: str, unknown: str = "keep", deadline_s: float = 5.0, **judges: Judge) -> Verdict:
    return asyncio.run(Ensemble(judges, rule(name, unknown), deadline_s=deadline_s).judge(ON))


def test_the_verdict_carries_what_those_found_who_agree_with_it() -> None:
    found = ensemble(
        "majority",
        a=Says("f", progress=0.5, false_completion=True, side_effects=("x",), reason="no"),
        b=Says("f", progress=0.25, side_effects=("x", "y")),
        c=Says("s", progress=1.0),
    )
    assert (found.outcome, found.progress, found.false_completion, found.side_effects) == (
        "failure", 0.5, True, ("x", "y"),
    )  # fmt: skip
    assert found.reason == "majority of 3: a: failure (no); b: failure; c: success"


def test_a_judge_that_raises_or_is_late_has_no_vote() -> None:
    assert ensemble("any", a=Breaks(), b=Says("s")).success
    found = ensemble("all", deadline_s=0.05, a=Hangs(), b=Breaks(), c=Says("s"))
    assert found.outcome == "unknown"
    assert "took over 0.05 s" in found.reason
    assert "ZeroDivisionError" in found.reason
    assert ensemble("all", "leave_out", 0.05, a=Hangs(), b=Says("s")).success


def test_the_configuration_names_the_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "k")
    vote = EnsembleConfig(judges=("reward", "model"), rule="all")
    with ChatServer(says("failure", "not on the screen"), says("success")) as server:
        judge = find_judge(replace(judge_settings(server.url, kind="ensemble"), ensemble=vote))
        assert isinstance(judge, EnsembleJudge)
        found = asyncio.run(judge.judge(ON))
        assert (found.outcome, "not on the screen" in found.reason) == ("failure", True)
        changed = replace(
            ON, screens=(Observation(instruction="", elements=(UiElement(bounds=(0, 0, 1, 1), text="y"),)),)
        )  # type: ignore[arg-type]
        assert asyncio.run(judge.judge(changed)).success
    assert judge.counters()["model/requests"] == 2


def test_a_model_that_hangs_leaves_the_others_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "k")
    vote = EnsembleConfig(judges=("reward", "model"), rule="all", unknown="leave_out")
    with ChatServer(usual=hangs) as server:
        settings = judge_settings(server.url, kind="ensemble", deadline_s=0.5)
        found = asyncio.run(find_judge(replace(settings, ensemble=vote)).judge(ON))
    assert found.success
    assert "model: unknown (" in found.reason  # by its own deadline or, on a busy machine, by that of the vote


@pytest.mark.parametrize(
    ("judges", "seen"),
    [
        ((), "is no ensemble"),
        (("sim",), "is no ensemble"),
        (("sim", "sim"), "is no ensemble"),
        (("sim", "ensemble"), "no built-in judge"),
        (("sim", "modle"), "no built-in judge"),
        (("sim", "os:system"), "no built-in judge"),
    ],
)
def test_what_is_no_ensemble_is_refused_at_the_start(judges: tuple[str, ...], seen: str) -> None:
    with pytest.raises(ConfigError, match=seen) as caught:
        find_judge(JudgeConfig(kind="ensemble", ensemble=EnsembleConfig(judges=judges)))
    assert caught.value.fix


def test_the_table_of_an_ensemble_is_read_by_it_alone() -> None:
    config = load_config(None, {"judge.kind": "ensemble", "judge.ensemble.judges": "sim,reward"})
    assert config.judge.ensemble.judges == ("sim", "reward")
    with pytest.raises(ConfigError, match="is read by ensemble alone"):
        load_config(None, {"judge.ensemble.rule": "any"})
