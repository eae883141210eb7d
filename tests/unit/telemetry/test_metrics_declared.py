"""Every metric that a role writes is declared, every declared one is written, and the page in docs/ says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.schema import GroundingConfig, JudgeConfig, ModelJudgeConfig
from distrl.experience.frames import FrameCache
from distrl.learner.loop import Learner, LearnerParts
from distrl.plugins import BUILT_IN
from distrl.pretraining.cloning import CloningProgress
from distrl.pretraining.grounding.losses import GroundingLoss
from distrl.pretraining.grounding.training import GroundingProgress, _report
from distrl.pretraining.warm_start import WarmStarter
from distrl.rollout.worker import Worker
from distrl.runtime import inference_role, worker_role
from distrl.runtime.base import RoleContext
from distrl.runtime.evaluator_role import Evaluator
from distrl.runtime.factory import make_algorithm, make_policy
from distrl.runtime.learner_role import METRICS_EVERY_UPDATES, LearnerReporter, WarmStartReporter
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import Session
from distrl.tasks.model_judge import ModelJudge
from distrl.telemetry.events import read_events
from distrl.telemetry.gpu import GpuReading
from distrl.telemetry.metrics import METRICS, reference
from support.deciders import Actors, a_decider
from support.grounding import some_samples
from support.learners import Workshop, make_version, small_config
from support.pixels import TINY, tiny_pixels
from support.roles import a_context
from support.rollouts import Published, ScriptedPolicy, a_phone, make_parts

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
NOT_METRICS = {"time_s", "event", "role"}
"""What every line of a log has."""
OF_ALGORITHMS = {
    "aride": {"learner/loss/invalid"},
    "digirl": {"learner/loss/instruction", "learner/imitated_share"},
    "filtered_bc": set[str](),
    "grpo": {"learner/compared_share", "learner/trust_region_share"},
    "ppo": {"learner/trust_region_share"},
}
"""What an algorithm writes besides what all of them write."""


def declared(kind: str) -> set[str]:
    return {name for name in METRICS if name.startswith(f"{kind}/")}


def lines(folder: Path) -> set[str]:
    """Every name in the metrics of a run."""
    return {name for line in read_events(RunFolder(folder).metrics) for name in line} - NOT_METRICS


def reported(context: RoleContext, folder: Path, kind: str) -> set[str]:
    """Every name in a role's heartbeat and in its metrics."""
    return lines(folder) | {f"{kind}/{name}" for name in context.heartbeat.figures}


def test_a_worker_reports_what_is_declared(tmp_path: Path) -> None:
    context = a_context("worker-0", tmp_path, small_config())
    asking = ModelJudge(JudgeConfig(model=ModelJudgeConfig(url="http://127.0.0.1:9/v1", model="any", key_env="")))
    parts = replace(make_parts(tmp_path, ScriptedPolicy(), Published(), [a_phone()]), judge=asking)
    worker = Worker(parts)
    worker_role.Balancing(context, worker, parts).look()
    worker_role._beat(context, worker, parts)
    # `_collect` itself adds the time of the devices and the decisions, which it stops counting when the worker is told to stop.
    elsewhere = {f"worker/{name}" for name in a_decider(Actors(), context.transport.weights).skipped_counters}
    found = reported(context, tmp_path, "worker") | {"worker/busy_s", "worker/device_s", "worker/decisions"} | elsewhere
    assert found == declared("worker")


def test_an_inference_actor_reports_what_is_declared(tmp_path: Path) -> None:
    config = small_config(rollout={"decide": "actors"})
    context = a_context("inference-0", tmp_path, config, turns=inference_role.METRICS_EVERY + 1)
    context.transport.weights.publish(make_policy(config), make_version(2))
    inference_role.decide_for_workers(context)
    assert lines(tmp_path) == declared("inference")
    assert context.heartbeat.figures["version"] == 2


def learner_reports(folder: Path, algorithm: str) -> set[str]:
    """What the learner reports after one update with this algorithm."""
    config = small_config(algorithm={"kind": algorithm}, rollout={"group_size": 2})
    shop = Workshop(folder, config)
    shop.deliver(3)
    context = a_context("learner", folder, config)
    report = LearnerReporter(context)
    learner = Learner(
        LearnerParts(
            config=config,
            policy=shop.policy,
            algorithm=make_algorithm(config),
            episodes=shop.episodes,
            weights=shop.weights,
            checkpoints=shop.checkpoints,
            report=report,
        )
    )
    report.attach(learner)
    learner.publish()
    learner.take_in(limit=3)
    learner.updates = METRICS_EVERY_UPDATES - 1
    learner.update()
    return reported(context, folder, "learner")


@pytest.mark.parametrize("algorithm", sorted(BUILT_IN["algorithms"]))
def test_the_learner_reports_what_is_declared_with_every_algorithm(tmp_path: Path, algorithm: str) -> None:
    of_one = set[str]().union(*OF_ALGORITHMS.values())
    assert learner_reports(tmp_path, algorithm) == (declared("learner") - of_one) | OF_ALGORITHMS[algorithm]


def test_every_built_in_algorithm_is_named_here() -> None:
    assert OF_ALGORITHMS.keys() == BUILT_IN["algorithms"].keys()


def test_the_evaluator_reports_what_is_declared(tmp_path: Path) -> None:
    config = small_config(evaluation={"devices": 1}, tasks={"max_oracle_steps": 3})
    context = a_context("evaluator", tmp_path, config)
    version = context.transport.weights.publish(make_policy(config), make_version(0))
    Evaluator(context).evaluate(version, 1, name="before")
    assert reported(context, tmp_path, "evaluator") == declared("evaluator")


def test_behaviour_cloning_and_grounding_report_what_is_declared(tmp_path: Path) -> None:
    config = small_config()
    reporter = WarmStartReporter(a_context("learner", tmp_path, config, turns=9))
    starter = WarmStarter(config, make_policy(config), FrameCache(0), reporter)
    starter._measured(CloningProgress(share=1.0, samples=1, loss=0.5, certain=0.5, per_s=1.0))
    terms = GroundingLoss(tiny_pixels().network, TINY, GroundingConfig(), seed=0).compute(some_samples(), measured=True)
    parts = {**{name: float(value) for name, value in terms.parts.items()}, "norm": 1.0}
    _report(
        GroundingProgress(share=1.0, samples=1, batches=1, per_s=1.0, drawn=1, drawn_per_s=1.0, parts=parts, skipped=0),
        reporter,
    )
    assert lines(tmp_path) == declared("warm_start")


def test_the_supervisor_reports_what_is_declared_of_a_gpu(tmp_path: Path) -> None:
    config, run = small_config(), RunFolder(tmp_path)
    session = Session(run, config, LocalRuntime(run, config.runtime), watch=lambda moment: None)
    session._note_gpu(GpuReading(utilisation=0.5, memory_mb=100.0))
    assert lines(tmp_path) == declared("gpu")


def test_every_metric_has_a_meaning_and_a_healthy_range() -> None:
    assert [name for name, metric in METRICS.items() if not (metric.meaning and metric.healthy)] == []


def test_every_metric_stands_on_the_page_once() -> None:
    text = reference()
    assert [name for name in METRICS if text.count(f"| `{name}` |") != 1] == []


def test_the_page_is_what_the_metrics_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"
