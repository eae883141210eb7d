"""A batch can be scored once more, by the present policy and by a frozen reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from distrl.algorithms.base import Algorithm
from distrl.algorithms.batch import ReferencePolicy, TrainBatch, make_batch, prepare
from distrl.config.schema import Config
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime.factory import make_algorithm
from distrl.types import Ending
from support.batches import Played, decided_episode, tiny_policy
from support.learners import Workshop, small_config

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def policy() -> PointerPolicy:
    return tiny_policy(spread=0.2)


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """A run with the example of a KL penalty."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield small_config(algorithm={"kind": "kl_to_reference:HeldBack", "options": {"kl_weight": 0.5}, "aride": {}})
    sys.modules.pop("kl_to_reference", None)


def batch_of(policy: PointerPolicy) -> TrainBatch:
    """Episodes of unequal length, one of them cut off."""
    played = (Played(num_steps=2), Played(num_steps=4, ending=Ending.STEP_LIMIT), Played(num_steps=1, success=True))
    episodes = [prepare(decided_episode(policy, f"e{n}", one), policy) for n, one in enumerate(played)]
    return make_batch(policy, episodes, [1.0] * len(episodes))


def shake(policy: PointerPolicy) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.add_(0.1 * torch.randn(weights.shape, generator=generator))


def gradients(policy: PointerPolicy) -> list[torch.Tensor]:
    found = [weights.grad.clone() for weights in policy.network.parameters() if weights.grad is not None]
    policy.network.zero_grad()
    return found


def test_a_batch_scored_again_says_the_same_with_gradient(policy: PointerPolicy) -> None:
    batch = batch_of(policy)
    again = batch.score(policy)
    for one, other in (
        (again.logp_BT, batch.logp_BT),
        (again.entropy_BT, batch.entropy_BT),
        (again.value_logit_BT, batch.value_logit_BT),
    ):
        assert torch.equal(one, other)
        assert one.requires_grad
    shake(policy)
    assert (batch.score(policy).logp_BT - batch.logp_BT).abs().max() > 0.05


def test_a_batch_holds_what_was_read_and_chosen_itself_and_no_copy(policy: PointerPolicy) -> None:
    episode = prepare(decided_episode(policy, "e", Played(num_steps=3, ending=Ending.STEP_LIMIT)), policy)
    batch = make_batch(policy, [episode], [1.0])
    assert [one is other for one, other in zip(batch.encoded, episode.encoded, strict=True)] == [True] * 4
    assert batch.choices == (*episode.choices, ())
    assert batch.rows == (range(3),)


def test_a_reference_stays_what_the_policy_was_at_its_first_score(policy: PointerPolicy) -> None:
    reference = ReferencePolicy(policy)
    shake(policy)  # a warm start comes after the making
    batch = batch_of(policy)
    before = reference.score(batch)
    assert torch.equal(before.logp_BT, batch.logp_BT)
    shake(policy)
    assert torch.equal(reference.score(batch).logp_BT, before.logp_BT)
    assert not before.logp_BT.requires_grad
    assert list(reference.parameters()) == []


def test_scoring_by_a_reference_in_the_middle_of_a_loss_leaves_weights_and_gradient_alone(
    policy: PointerPolicy,
) -> None:
    reference = ReferencePolicy(policy)
    reference.score(batch_of(policy))
    shake(policy)
    weights = policy.dump()
    batch_of(policy).logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    expected = gradients(policy)
    batch = batch_of(policy)
    reference.score(batch)
    batch.logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    assert policy.dump() == weights
    assert all(torch.equal(one, other) for one, other in zip(gradients(policy), expected, strict=True))


def test_the_example_pays_nothing_at_first_and_more_the_further_the_policy_moves(
    held_back: Config, policy: PointerPolicy
) -> None:
    algorithm = make_algorithm(held_back)
    algorithm.bind(policy)
    first = algorithm.loss(batch_of(policy), updates=0).metrics["kl"]
    shake(policy)
    second = algorithm.loss(batch_of(policy), updates=1)
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second.metrics["kl"] > 0.001


def test_the_reference_of_a_resumed_run_is_the_one_it_began_with(held_back: Config, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, held_back)
    shop.deliver(4, Played(success=True))
    first: Any = make_algorithm(held_back)
    learner = shop.learner(first)
    learner.take_in(limit=10)
    for _ in range(3):
        learner.update()
    learner.save()
    again: Any = make_algorithm(held_back)
    resumed = shop.learner(again)
    assert resumed.resume()
    kept, found = first.critic.state_dict(), again.critic.state_dict()
    assert kept.keys() == found.keys()
    assert bool(found["taken"])
    assert all(torch.equal(kept[name], found[name]) for name in kept)
    resumed.update()
    assert shop.hearer.metrics["kl"] > 0.0


def test_the_learner_tells_its_algorithm_which_policy_it_trains(tmp_path: Path) -> None:
    told: list[object] = []

    class Curious(Algorithm):
        def bind(self, policy: object) -> None:
            told.append(policy)

    shop = Workshop(tmp_path)
    shop.learner(Curious(None, make_algorithm(shop.config).context))
    assert told == [shop.policy]
