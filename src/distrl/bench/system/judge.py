"""`distrl bench judge`: how often a judge is right about episodes on simulated phones, whose outcome is known.

Each task is played by four agents: the oracle, an oracle that stops one step early, one that does one thing too much, and a
random one. All of them end with a claim, so that the claim gives nothing away. The judge sees what it sees in a run; the truth is the
state of the phone.

The judge is that of the configuration DISTRL_JUDGE_CONFIG, a file with `[judge]` as `distrl train` takes it; or the model of the
environment: DISTRL_JUDGE_URL, DISTRL_JUDGE_MODEL, and DISTRL_JUDGE_KEY where it takes a key. Without either, it is the judge of simulated phones with 10 % of its verdicts turned round, which shows what the figures of
such a judge look like.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.load import load_config
from distrl.config.schema import (
    NO_PERTURBATIONS,
    DevicesConfig,
    JudgeConfig,
    LatencyConfig,
    ModelJudgeConfig,
    SimConfig,
)
from distrl.devices.base import Device, Fleet, find_devices
from distrl.errors import JudgeError
from distrl.experience.frames import FrameCache
from distrl.pretraining.demonstrations import demonstrate
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, attempt_of, run_episode
from distrl.tasks.base import suite, tasks_of
from distrl.tasks.judges import Attempt, Judge, find_judge, judge_attempt
from distrl.types import Action, Decision, Finish, Observation, Outcome, Press, Tap, Task, Verdict

SUITE = "sim-general"
TASKS, QUICK_TASKS = 100, 15
NOISE = 0.1
AT_ONCE, TRIED = 8, 24
"""Asked at once; without a verdict on any of so many, the others are not asked."""
LENGTHS = {"1 to 4 steps": range(1, 5), "5 to 7 steps": range(5, 8), "8 steps or more": range(8, 1000)}
"""Of the oracle's solution, its claim included."""
LIMITS = EpisodeLimits(history=0, repeat_penalty=0.0)
Agent = Literal["oracle", "stops early", "one too much", "random"]
AGENTS: tuple[Agent, ...] = ("oracle", "stops early", "one too much", "random")
Choose = Callable[[Observation], Action]
Confusion = dict[str, dict[str, int]]
"""By the truth, then by what the judge said."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How a judge did on some episodes; shares of nothing are 0."""

    n: int
    accuracy: float
    """Share of the known verdicts that are right."""
    false_positive_rate: float
    """Share of the failures that it calls successes; without unknown verdicts."""
    false_negative_rate: float
    """Share of the successes that it calls failures; without unknown verdicts."""
    unknown: float
    """Share of all episodes without a verdict."""


class JudgeFigures(Rates, frozen=True, kw_only=True):
    """A judge measured against the truth."""

    judge: str
    confusion: Confusion
    by_length: dict[str, Rates]
    by_agent: dict[str, Rates]
    counters: dict[str, float]
    """Requests, tokens and cost, where the judge counts them."""
    reasons: list[str]
    """Of some unknown verdicts."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One episode, and what came of judging it."""

    agent: Agent
    steps: int
    """Of the oracle."""
    truth: Outcome
    verdict: Verdict


def run(options: BenchOptions) -> JudgeFigures:
    """Measure the judge of the environment."""
    config = judge_config(os.environ)
    judge = find_judge(config) if config else NoisyJudge(find_judge(JudgeConfig(kind="sim")), NOISE)
    name = config.model.model or config.kind if config else f"the state of simulated phones, {NOISE:.0%} of the verdicts turned round"  # fmt: skip
    pictures = config is not None and config.model.pictures
    return measure(judge, name, num_tasks=QUICK_TASKS if options.quick else TASKS, pictures=pictures)


def judge_config(environ: Mapping[str, str]) -> JudgeConfig | None:
    """The judge that the environment names; None where it names none."""
    if path := environ.get("DISTRL_JUDGE_CONFIG"):
        return load_config(Path(path)).judge
    if not environ.get("DISTRL_JUDGE_URL"):
        return None
    key_env = "DISTRL_JUDGE_KEY" if environ.get("DISTRL_JUDGE_KEY") else ""
    model = ModelJudgeConfig(
        url=environ["DISTRL_JUDGE_URL"], model=environ.get("DISTRL_JUDGE_MODEL", ""), key_env=key_env
    )
    return JudgeConfig(kind="model", model=model, deadline_s=180.0)


def measure(judge: Judge, name: str, *, num_tasks: int, pictures: bool = False) -> JudgeFigures:
    """What `judge` makes of the episodes of all agents at so many tasks; `JudgeError` where it has no verdict on any."""
    judged = asyncio.run(_measure(judge, num_tasks, pictures))
    counters = getattr(judge, "counters", dict[str, float])()
    return JudgeFigures(
        judge=name,
        **msgspec.structs.asdict(rates(judged)),
        confusion=confusion(judged),
        by_length={name: rates([one for one in judged if one.steps in steps]) for name, steps in LENGTHS.items()},
        by_agent={agent: rates([one for one in judged if one.agent == agent]) for agent in AGENTS},
        counters=counters,
        reasons=list(dict.fromkeys(one.verdict.reason for one in judged if not one.verdict.known))[:5],
    )


class NoisyJudge:
    """Another judge, some of whose verdicts are turned round at random."""

    def __init__(self, judge: Judge, flip: float, *, seed: int = 0) -> None:
        self._judge, self._flip, self._random = judge, flip, Random(seed)

    async def judge(self, attempt: Attempt) -> Verdict:
        """The other judge's verdict, or its opposite."""
        found = await self._judge.judge(attempt)
        if not found.known or self._random.random() >= self._flip:
            return found
        return Verdict(outcome="failure" if found.success else "success", reason="turned round")


def rates(judged: Sequence[Judged]) -> Rates:
    """The rates over some episodes."""
    known = [one for one in judged if one.verdict.known]
    good = [one for one in known if one.truth == "success"]
    bad = [one for one in known if one.truth == "failure"]
    return Rates(
        n=len(judged),
        accuracy=_share(known, lambda one: one.verdict.outcome == one.truth),
        false_positive_rate=_share(bad, lambda one: one.verdict.success),
        false_negative_rate=_share(good, lambda one: not one.verdict.success),
        unknown=_share(judged, lambda one: not one.verdict.known),
    )


def confusion(judged: Sequence[Judged]) -> Confusion:
    """How often what was said of what."""
    said: tuple[Outcome, ...] = ("success", "failure", "unknown")
    pairs = [(one.truth, one.verdict.outcome) for one in judged]
    return {truth: {outcome: pairs.count((truth, outcome)) for outcome in said} for truth in said[:2]}


def _share(judged: Sequence[Judged], holds: Callable[[Judged], bool]) -> float:
    return round(sum(map(holds, judged)) / len(judged), 4) if judged else 0.0


async def _measure(judge: Judge, num_tasks: int, pictures: bool) -> list[Judged]:
    phones = SimConfig(perturbations=NO_PERTURBATIONS, latency=LatencyConfig(profile="instant"))
    (phone,) = find_devices(DevicesConfig(sim=phones), Fleet(owner="bench", count=1, seed=0, purpose="evaluation"))
    frames, turns = FrameCache(1_000_000) if pictures else None, asyncio.Semaphore(AT_ONCE)
    played = [
        (agent, await _play(task, agent, phone, frames))
        for task in tasks_of(suite(SUITE), "test", num_tasks)
        for agent in AGENTS
    ]

    verdicts: list[Verdict] = []

    async def ask(agent: Agent, attempt: Attempt) -> Judged:
        truth = await find_judge(JudgeConfig(kind="sim")).judge(attempt)
        async with turns:
            verdict = await judge_attempt(judge, attempt, deadline_s=180.0)
        verdicts.append(verdict)
        _refuse_silence(verdicts, min(TRIED, len(played)))
        return Judged(agent=agent, steps=attempt.task.oracle_steps, truth=truth.outcome, verdict=verdict)

    return await asyncio.gather(*(ask(agent, attempt) for agent, attempt in played))


def _refuse_silence(verdicts: Sequence[Verdict], enough: int) -> None:
    """Raise where so many are there and none of them is known: shares of nothing would look like figures."""
    if len(verdicts) >= enough and not any(verdict.known for verdict in verdicts):
        raise JudgeError(
            f"the judge has no verdict on any of {len(verdicts)} episodes, the last because: {verdicts[-1].reason}",
            fix="docs/judges.md says what each of these reasons means and how to mend it",
        )


async def _play(task: Task, agent: Agent, phone: Device, frames: FrameCache | None) -> Attempt:
    choose = make_agent(task, agent)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return Decision(action=choose(seen), choice=(), logp=0.0, entropy=0.0, value=0.0), 0

    tools = EpisodeTools(decide=decide, clock=time.monotonic, keep_frame=frames.put if frames is not None else None)
    played = await run_episode(f"{task.id} {agent}", phone, task, tools, LIMITS)
    assert played.trajectory is not None, played.lost
    return attempt_of(played.trajectory, picture=frames.get if frames is not None else None)


def make_agent(task: Task, agent: Agent) -> Choose:
    """What an agent does on each screen, one after another; every agent ends with a claim."""
    route = [action for _, action in demonstrate([task], NO_PERTURBATIONS, history=0)]
    random, claim = Random(f"{task.id} {agent}"), route[-1]

    def act_randomly(seen: Observation) -> Action:
        clickable = [element for element in seen.elements if element.clickable]
        return Tap(*random.choice(clickable).bounds.centre) if clickable else Press("back")

    match agent:
        case "oracle":
            plan: list[Action | Choose] = [*route]
        case "stops early":
            plan = [*route[:-2], claim if len(route) > 1 else Finish()]
        case "one too much":
            plan = [*route[:-1], act_randomly, claim]
        case "random":
            plan = [*([act_randomly] * max(1, len(route) - 1)), claim]
    steps = iter(plan)

    def choose(seen: Observation) -> Action:
        step = next(steps)
        return step(seen) if callable(step) else step

    return choose
