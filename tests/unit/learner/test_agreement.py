"""Workers and learner agree about recorded decisions, and whatever breaks that raises an alarm."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import pytest
import torch
from PIL import Image

from distrl.algorithms.batch import Episode, prepare
from distrl.experience.replay import Sample
from distrl.learner.agreement import ALARM_KL, MOST, VERSIONS, Agreement, divergence
from distrl.policies.vlm.policy import VlmPolicy
from distrl.types import Decision, Observation, Step
from support.learners import Workshop, small_config
from support.trajectories import make_trajectory
from support.vlms import CHATML, PICTURES, NamedFrames, mixed_screens, shake, tiny_model, tiny_vlm

FAMILY = "qwen2.5-vl"


def acting(**settings: Any) -> VlmPolicy:
    """What acts and learns: the same adapters wherever it is made."""
    return shake(tiny_vlm(FAMILY, **settings))


def decisions_of(worker: VlmPolicy) -> list[tuple[Observation, Decision]]:
    seen = mixed_screens() * 4
    return list(
        zip(seen, worker.decide(seen, temperature=1.0, generator=torch.Generator().manual_seed(1)), strict=True)
    )


@pytest.fixture(scope="module")
def recorded() -> list[tuple[Observation, Decision]]:
    """What a worker recorded."""
    return decisions_of(acting())


def sample(
    learner: VlmPolicy, recorded: Sequence[tuple[Observation, Decision]], version: int = 3
) -> list[Sample[Episode]]:
    steps = tuple(Step(observation=seen, decision=decision, version=version) for seen, decision in recorded)
    trajectory = msgspec.structs.replace(make_trajectory("one", success=True), steps=steps)
    item = prepare(trajectory, learner)
    return [Sample(id="one", item=item, probability=1.0, weight=1.0, staleness=0)]


def checked(
    learner: VlmPolicy, recorded: Sequence[tuple[Observation, Decision]]
) -> tuple[Agreement, dict[str, float], list[str]]:
    told: list[str] = []
    agreement = Agreement(learner, num_steps=16, tell=told.append)
    agreement.published(3)
    shake(learner, by=0.3, seed=9)  # the learner has moved on; the version that acted is compared all the same
    return agreement, agreement.check(sample(learner, recorded)), told


def test_an_unchanged_policy_agrees_after_the_learner_has_moved_on(
    recorded: list[tuple[Observation, Decision]],
) -> None:
    learner = acting()
    agreement, figures, told = checked(learner, recorded)

    assert figures["agreement/kl"] < 1e-6
    assert figures["agreement/ratio"] == pytest.approx(1.0, abs=1e-3)
    assert not agreement.alarm
    assert not told


def test_the_weights_of_the_learner_are_its_own_again_after_a_check(
    recorded: list[tuple[Observation, Decision]],
) -> None:
    learner = acting()
    agreement = Agreement(learner, num_steps=4, tell=lambda why: None)
    agreement.published(3)
    shake(learner, seed=9)
    before = learner.dump()
    agreement.check(sample(learner, recorded))

    assert learner.dump() == before


def test_pictures_that_changed_on_the_way_raise_an_alarm(recorded: list[tuple[Observation, Decision]]) -> None:
    mixed_up = {"tall": PICTURES["other"], "other": PICTURES["tall"], "wide": _black(PICTURES["wide"])}
    agreement, figures, told = checked(acting(frames=NamedFrames(mixed_up)), recorded)

    assert figures["agreement/kl"] > ALARM_KL
    assert agreement.alarm
    assert len(told) == 1
    assert "screenshots" in told[0]


def test_another_template_on_one_side_raises_an_alarm(
    recorded: list[tuple[Observation, Decision]], tmp_path: Path
) -> None:
    folder = copytree(tiny_model(FAMILY), tmp_path / "model")
    template = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>user\nanswer: ")
    (folder / "chat_template.jinja").write_text(template)
    agreement, figures, told = checked(acting(path=str(folder)), recorded)

    assert figures["agreement/kl"] > ALARM_KL
    assert agreement.alarm
    assert len(told) == 1


def test_adapters_that_never_arrived_raise_an_alarm() -> None:
    agreement, figures, told = checked(acting(), decisions_of(tiny_vlm(FAMILY)))

    assert figures["agreement/kl"] > ALARM_KL
    assert agreement.alarm
    assert len(told) == 1


def test_an_alarm_is_told_once_and_its_end_too(recorded: list[tuple[Observation, Decision]]) -> None:
    learner, told = acting(), list[str]()
    agreement = Agreement(learner, num_steps=16, tell=told.append)
    agreement.published(3)
    wrong = [(seen, msgspec.structs.replace(found, logp=found.logp - 2.0)) for seen, found in recorded]
    for _ in range(2):
        agreement.check(sample(learner, wrong))
    assert agreement.alarm
    assert len(told) == 1
    for _ in range(4):
        agreement.check(sample(learner, recorded))

    assert not agreement.alarm
    assert "agree again" in told[1]
    assert len(told) == 2


def test_steps_of_versions_that_are_gone_or_of_examples_are_not_compared(
    recorded: list[tuple[Observation, Decision]],
) -> None:
    learner = acting()
    agreement = Agreement(learner, num_steps=4, tell=lambda why: None)
    for version in range(3, 4 + VERSIONS):
        agreement.published(version)
    newest = sample(learner, recorded, version=3 + VERSIONS)
    example = [msgspec.structs.replace(one, item=msgspec.structs.replace(one.item, example=True)) for one in newest]

    assert agreement.check(newest)
    assert not agreement.check(sample(learner, recorded, version=3))
    assert not agreement.check(example)


def test_a_log_probability_that_is_not_finite_is_left_to_those_who_count_it(
    recorded: list[tuple[Observation, Decision]],
) -> None:
    learner = acting()
    agreement = Agreement(learner, num_steps=4, tell=lambda why: None)
    agreement.published(3)
    lost = [(seen, msgspec.structs.replace(found, logp=math.nan)) for seen, found in recorded]

    assert not agreement.check(sample(learner, lost))
    assert not agreement.alarm


def test_the_estimate_is_never_negative_and_no_outlier_decides_alone() -> None:
    assert divergence(0.0) == 0.0
    assert divergence(0.1) > 0
    assert divergence(-0.1) > 0
    assert divergence(10.0) == divergence(-10.0) == MOST


def test_a_learner_reports_its_agreement_with_every_update(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    learner = workshop.learner()
    learner.publish()
    workshop.deliver(4)
    learner.take_in(limit=10)
    learner.update()

    assert workshop.hearer.metrics["agreement/kl"] < 1e-6


def test_nothing_is_compared_where_it_is_switched_off_or_sampling_was_not_at_temperature_1(tmp_path: Path) -> None:
    for name, sections in {
        "off": {"learner": {"agreement_steps": 0}},
        "hot": {"rollout": {"temperature": 1.5}},
    }.items():
        workshop = Workshop(tmp_path / name, small_config(**sections))
        learner = workshop.learner()
        learner.publish()
        workshop.deliver(4)
        learner.take_in(limit=10)
        learner.update()

        assert "agreement/kl" not in workshop.hearer.metrics
        assert workshop.hearer.metrics


def _black(data: bytes) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", Image.open(io.BytesIO(data)).size).save(out, "PNG")
    return out.getvalue()
