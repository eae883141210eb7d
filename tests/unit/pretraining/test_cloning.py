"""Behaviour cloning: likelier demonstrations, skipped NaN batches, schedules of streams."""

from __future__ import annotations

import math
from itertools import count, pairwise
from random import Random

import msgspec
import pytest
import torch

from distrl.config.schema import Config, TasksConfig, WarmStartConfig
from distrl.errors import OutOfMemory, RoleCrashed, UsageError
from distrl.learner.update import MOST_IN_A_ROW
from distrl.policies.pointer.policy import PointerPolicy
from distrl.pretraining.cloning import (
    WARMUP_SHARE,
    BCTrainer,
    CloningProgress,
    Example,
    clone,
    clone_stream,
    examples_for,
    lr_factor,
)
from distrl.pretraining.demonstrations import demonstrate, demonstration_tasks
from distrl.types import Finish, SimCheck, Want
from support.batches import PERTURBED, led_astray, some_tasks, tiny_policy
from support.faketime import FakeTime
from support.faltering import Faltering, all_nan, out_of_memory
from support.pixels import pictured, tiny_pixels

TASKS = some_tasks("sim-general", 6)


def test_cloning_demonstrations_makes_them_likelier() -> None:
    policy = tiny_policy()
    examples = examples_for(policy, demonstrate(TASKS, PERTURBED, history=6))
    encoded, choices = [item for item, _ in examples], [choice for _, choice in examples]
    with torch.no_grad():
        before = policy.score(encoded, choices).logp_N
    told: list[CloningProgress] = []
    config = WarmStartConfig(epochs=25, learning_rate=1e-2)
    loss = clone(policy, examples, config, random=Random(0), report=told.append)
    with torch.no_grad():
        after = policy.score(encoded, choices).logp_N
    assert float(after.mean()) > float(before.mean()) + 0.5
    assert loss < -float(before.mean())
    shares = [now.share for now in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert told[0].loss == pytest.approx(-float(before.mean()), abs=0.2)
    assert told[-1].samples == 25 * len(examples)


def test_cloning_is_the_same_for_the_same_seed() -> None:
    examples = examples_for(tiny_policy(), demonstrate(TASKS[:2], PERTURBED, history=6))
    clones = [tiny_policy(), tiny_policy()]
    for policy in clones:
        clone(policy, examples, WarmStartConfig(epochs=2), random=Random(3), report=lambda now: None)
    assert clones[0].dump() == clones[1].dump()


def test_a_past_action_refers_to_the_picture_that_it_was_decided_on() -> None:
    seen = [observation for observation, _ in pictured()]
    assert any(observation.recent for observation in seen)
    for before, after in pairwise(seen):
        if after.recent:
            assert after.recent[-1].screenshot == before.screenshot != ""


def test_demonstrations_are_whole_episodes_with_the_history_that_a_policy_would_see() -> None:
    pairs = demonstrate(TASKS[:1], PERTURBED, history=2)
    assert isinstance(pairs[-1][1], Finish)
    assert all(seen.instruction == TASKS[0].instruction for seen, _ in pairs)
    done = [action for _, action in pairs]
    for index, (seen, _) in enumerate(pairs):
        assert [past.action for past in seen.recent] == done[max(0, index - 2) : index]
    assert not any(seen.recent for seen, _ in demonstrate(TASKS[:1], PERTURBED, history=0))


def test_an_oracle_that_fails_shows_nothing() -> None:
    want = Want(table="settings", id="nothing", fields={"such": "thing"})
    hopeless = msgspec.structs.replace(TASKS[0], check=SimCheck(wants=(want,)))
    assert demonstrate([hopeless], PERTURBED, history=6) == []
    assert demonstrate([hopeless, TASKS[1]], PERTURBED, history=6) == demonstrate([TASKS[1]], PERTURBED, history=6)


def test_an_oracle_that_does_not_find_its_way_shows_nothing_and_stops_nobody() -> None:
    assert demonstrate([led_astray(TASKS[2]), TASKS[1]], PERTURBED, history=6) == demonstrate(
        [TASKS[1]], PERTURBED, history=6
    )


def test_demonstrations_come_from_training_tasks_and_the_seed_decides_which() -> None:
    config = Config(
        warm_start=WarmStartConfig(demonstrations=12), tasks=TasksConfig(suite="sim-shopping", max_oracle_steps=6)
    )
    tasks = demonstration_tasks(config)
    assert len(tasks) == 12
    assert {task.split for task in tasks} == {"train"}
    assert max(task.oracle_steps for task in tasks) <= 6
    assert tasks == demonstration_tasks(config)
    other = msgspec.structs.replace(config, run=msgspec.structs.replace(config.run, seed=1))
    assert tasks != demonstration_tasks(other)


def test_steps_that_the_grammar_cannot_express_are_skipped() -> None:
    policy = tiny_policy()
    pairs = demonstrate(TASKS[:1], PERTURBED, history=6)
    inexpressible = (pairs[0][0], Finish(answer="nothing on this screen says so"))
    assert len(examples_for(policy, [inexpressible, *pairs])) == len(pairs)


def test_nothing_to_clone_is_refused_and_not_called_learnt() -> None:
    with pytest.raises(UsageError, match=r"(?s)nothing to clone.*--warm_start\.demonstrations 0"):
        clone(tiny_policy(), [], WarmStartConfig(epochs=2), random=Random(0), report=lambda now: None)


def spoil(policy: PointerPolicy, batches: set[int]) -> None:
    """Make the gradient of one tensor NaN in those batches, counted from 0."""
    passes = count()
    next(policy.network.parameters()).register_hook(
        lambda grad: grad.fill_(float("nan")) if next(passes) in batches else grad
    )


def test_a_batch_with_a_nan_gradient_is_skipped_and_counted() -> None:
    spoilt, whole = tiny_policy(), tiny_policy()
    spoil(spoilt, {1, 2})
    examples = examples_for(whole, demonstrate(TASKS[:2], PERTURBED, history=6))
    trainer, other = BCTrainer(spoilt, WarmStartConfig()), BCTrainer(whole, WarmStartConfig())
    trainer.step(examples)
    other.step(examples)
    before = spoilt.dump()
    trainer.step(examples)
    trainer.step(examples)
    assert spoilt.dump() == before == whole.dump()
    trainer.step(examples)
    other.step(examples)
    assert spoilt.dump() == whole.dump() != before
    trainer.steps.check()
    assert trainer.steps.skipped == 2


def test_cloning_reports_how_many_batches_were_skipped() -> None:
    policy, told = tiny_policy(), list[CloningProgress]()
    spoil(policy, {0, 3})
    examples = examples_for(policy, demonstrate(TASKS[:2], PERTURBED, history=6))
    clone(policy, examples, WarmStartConfig(epochs=6, batch=64), random=Random(0), report=told.append)
    assert told[-1].skipped == 2
    assert all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_cloning_ends_with_the_fix_where_every_gradient_is_nan() -> None:
    policy = tiny_policy()
    spoil(policy, set(range(100)))
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))
    with pytest.raises(RoleCrashed, match=r"(?s)gradient of the last 3 batches.*lower warm_start\.learning_rate"):
        clone(policy, examples, WarmStartConfig(epochs=3, batch=64), random=Random(0), report=lambda now: None)


def test_a_batch_with_a_nan_loss_is_skipped_and_not_part_of_the_reported_loss() -> None:
    policy, told = Faltering({2}, all_nan), list[CloningProgress]()
    examples = examples_for(policy, demonstrate(TASKS[:2], PERTURBED, history=6))
    loss = clone(policy, examples, WarmStartConfig(epochs=4, batch=64), random=Random(0), report=told.append)
    assert [math.isfinite(now.loss) for now in told] == [True, True, False, True]
    assert (told[-1].skipped, loss) == (1, told[-1].loss)
    assert all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_cloning_without_enough_memory_names_the_setting_to_lower() -> None:
    policy = Faltering({0}, out_of_memory)
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))[:4]
    with pytest.raises(OutOfMemory, match=r"(?s)batch of 2.*--warm_start\.batch 1"):
        clone(policy, examples, WarmStartConfig(epochs=1, batch=4), random=Random(0), report=lambda now: None)


def test_a_stream_with_pictures_makes_what_it_shows_likelier() -> None:
    policy = tiny_pixels(learning=True)
    examples = examples_for(policy, pictured())[:12]
    encoded, choices = [item for item, _ in examples], [choice for _, choice in examples]
    with torch.no_grad():
        before = policy.score(encoded, choices).logp_N
    told: list[CloningProgress] = []
    config = WarmStartConfig(samples=12 * 40, learning_rate=5e-3)
    last = clone_stream(policy, lambda: examples, config, report=told.append)
    with torch.no_grad():
        after = policy.score(encoded, choices).logp_N
    assert float(after.mean()) > float(before.mean()) + 1.0
    assert told[0].loss > told[-1].loss
    assert last == told[-1]
    assert (last.share, last.samples) == (1.0, 12 * 40)
    assert last.certain == pytest.approx(float((after > -0.6931).float().mean()), abs=0.2)


def endless(examples: list[Example], time: FakeTime) -> list[Example]:
    time.now_s += 1.0
    return examples


def test_a_stream_ends_after_its_samples_or_its_minutes_whichever_come_first() -> None:
    policy, time = tiny_policy(), FakeTime()
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))[:2]
    short = WarmStartConfig(samples=10_000, minutes=0.2)
    last = clone_stream(policy, lambda: endless(examples, time), short, report=lambda now: None, clock=time.clock)
    assert (last.samples, last.share, last.per_s) == (24, 1.0, 2.0)
    few = WarmStartConfig(samples=6, minutes=5.0)
    last = clone_stream(policy, lambda: endless(examples, time), few, report=lambda now: None, clock=time.clock)
    assert (last.samples, last.share) == (6, 1.0)


def test_the_learning_rate_of_a_stream_warms_up_and_then_decays() -> None:
    shares = [step / 200 for step in range(201)]
    factors = [lr_factor(share) for share in shares]
    top = factors.index(max(factors))
    assert shares[top] == pytest.approx(WARMUP_SHARE)
    assert factors[top] == 1.0
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert 0 < factors[0] < 0.05
    assert factors[-1] == pytest.approx(0.05)


def test_a_stream_that_diverges_ends_with_the_fix() -> None:
    policy = tiny_policy()
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))
    with torch.no_grad():
        next(policy.network.parameters()).fill_(float("nan"))
    with pytest.raises(RoleCrashed, match=r"lower warm_start\.learning_rate"):
        clone_stream(policy, lambda: examples, WarmStartConfig(samples=1), report=lambda now: None)


def test_a_stream_goes_on_where_some_batches_are_nan() -> None:
    policy, told = Faltering(set(range(3, 3 + MOST_IN_A_ROW - 1)), all_nan), list[CloningProgress]()
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))[:2]
    last = clone_stream(policy, lambda: examples, WarmStartConfig(samples=60), report=told.append)
    assert [now.skipped for now in told] == [MOST_IN_A_ROW - 1] * 2
    assert all(math.isfinite(now.loss) for now in told)
    assert last.samples == 60


def test_a_stream_ends_with_the_fix_where_too_many_batches_in_a_row_are_nan() -> None:
    policy = Faltering(range(3, 1000), all_nan)
    examples = examples_for(policy, demonstrate(TASKS[:1], PERTURBED, history=6))[:2]
    with pytest.raises(RoleCrashed, match=r"(?s)last 20 batches.*lower warm_start\.learning_rate"):
        clone_stream(policy, lambda: examples, WarmStartConfig(samples=1000), report=lambda now: None)
    assert all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_a_stream_of_which_nothing_can_be_expressed_is_refused() -> None:
    with pytest.raises(RoleCrashed, match="can express none"):
        clone_stream(tiny_policy(), lambda: [], WarmStartConfig(samples=1), report=lambda now: None)
