"""What the roles report is declared, what is declared is reported, and the page in docs/ says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import Algorithm
from distrl.algorithms.ppo import PPO
from distrl.config.schema import AlgorithmConfig
from distrl.learner.loop import Learner, LearnerParts
from distrl.learner.weights import WeightsFolder
from distrl.rollout.worker import Worker
from distrl.runtime import worker_role
from distrl.runtime.assembly import make_policy
from distrl.runtime.evaluator_role import Examiner
from distrl.runtime.learner_role import METRICS_EVERY_UPDATES, PulseReporter
from distrl.runtime.role import Life
from distrl.telemetry.events import read_events
from distrl.telemetry.metrics import METRICS
from distrl.telemetry.reference import reference
from support.learners import Workshop, make_version, small_config
from support.lives import QuietLife
from support.rollouts import Published, ScriptedPolicy, a_phone, make_parts

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
NOT_METRICS = {"time_s", "event", "role"}
"""What every line of a log has."""


def reported(life: Life, kind: str) -> set[str]:
    """Every name in the role's heartbeat and in its lines of metrics."""
    lines = {name for line in read_events(life.run.metrics) for name in line}
    return (lines | {f"{kind}/{name}" for name in life.pulse.figures}) - NOT_METRICS


def declared(kind: str) -> set[str]:
    return {name for name in METRICS if name.startswith(f"{kind}/")}


def test_a_worker_reports_what_is_declared(tmp_path: Path) -> None:
    life, phones = QuietLife("worker-0", tmp_path, small_config()), [a_phone()]
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), phones)
    worker_role._beat(life, Worker(parts), parts, phones)
    assert reported(life, "worker") == declared("worker")


def learner_reports(folder: Path, make: Callable[[AlgorithmConfig], Algorithm]) -> set[str]:
    folder.mkdir()
    shop = Workshop(folder)
    shop.deliver(3)
    life = QuietLife("learner", folder, shop.config)
    report = PulseReporter(life)
    learner = Learner(
        LearnerParts(
            config=shop.config,
            policy=shop.policy,
            algorithm=make(shop.config.algorithm),
            store=shop.store,
            weights=shop.weights,
            checkpoints=shop.checkpoints,
            report=report,
        )
    )
    report.attach(learner)
    learner.take_in(limit=3)
    learner.updates = METRICS_EVERY_UPDATES - 1
    learner.update()
    return reported(life, "learner")


def test_the_learner_reports_what_is_declared(tmp_path: Path) -> None:
    ours, clipped = learner_reports(tmp_path / "aride", ARide), learner_reports(tmp_path / "ppo", PPO)
    assert ours | clipped == declared("learner")
    assert ours ^ clipped == {"learner/loss/invalid", "learner/near"}


def test_the_evaluator_reports_what_is_declared(tmp_path: Path) -> None:
    life = QuietLife("evaluator", tmp_path, small_config(evaluation={"devices": 1}, tasks={"max_oracle_steps": 3}))
    weights = WeightsFolder(life.run.weights)
    version = weights.publish(make_policy(life.config), make_version(0))
    Examiner(life, weights).evaluate(version, 1, name="before")
    assert reported(life, "evaluator") == declared("evaluator")


def test_every_metric_has_a_meaning_and_a_healthy_range() -> None:
    assert [name for name, metric in METRICS.items() if not (metric.meaning and metric.healthy)] == []


def test_every_metric_stands_on_the_page_once() -> None:
    text = reference()
    assert [name for name in METRICS if text.count(f"| `{name}` |") != 1] == []


def test_the_page_is_what_the_metrics_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"
