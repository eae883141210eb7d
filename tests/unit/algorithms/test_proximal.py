"""The policy of a few updates ago."""

from __future__ import annotations

import pytest
import torch

from distrl.algorithms.batch import Episode, Proximal, make_batch, prepare
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.policy import PointerPolicy
from support.batches import Played, decided_episode, tiny_policy


@pytest.fixture
def policy() -> PointerPolicy:
    return tiny_policy(spread=0.2)


def shake(policy: PointerPolicy) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.add_(0.1 * torch.randn(weights.shape, generator=generator))


def episodes(policy: PointerPolicy) -> list[Episode]:
    return [prepare(decided_episode(policy, f"e{n}", Played(num_steps=2 + n)), policy) for n in range(3)]


def test_it_remembers_what_the_policy_thought_when_it_was_copied(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy), Proximal(policy, every_updates=4)
    proximal.refresh(0)
    before = make_batch(policy, played, [1.0] * 3).logp_BT.detach()
    shake(policy)
    proximal.refresh(1)
    batch = make_batch(policy, played, [1.0] * 3, proximal=proximal)
    assert torch.allclose(batch.proximal_logp_BT, before, atol=1e-6)
    assert (batch.logp_BT - before).abs().max() > 0.05
    assert not batch.proximal_logp_BT.requires_grad


def test_looking_through_it_leaves_the_present_weights_and_their_gradient_alone(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy), Proximal(policy, every_updates=4)
    proximal.refresh(0)
    shake(policy)
    weights = policy.dump()
    make_batch(policy, played, [1.0] * 3).logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    expected = [found.grad.clone() for found in policy.network.parameters() if found.grad is not None]
    policy.network.zero_grad()
    proximal.refresh(1)
    make_batch(policy, played, [1.0] * 3, proximal=proximal).logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    got = [found.grad for found in policy.network.parameters() if found.grad is not None]
    assert policy.dump() == weights
    assert len(got) == len(expected) > 0
    assert all(torch.allclose(one, other) for one, other in zip(got, expected, strict=True))


def test_it_is_made_anew_every_so_many_updates_and_at_the_first_whenever_that_is(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy)[0], Proximal(policy, every_updates=3)
    made = []
    for updates in range(5, 11):
        proximal.refresh(updates)
        made.append(proximal.logp(played.encoded, played.choices) is None)
        shake(policy)
    assert made == [True, True, False, False, True, False]


def test_an_algorithm_that_asks_for_none_sees_the_present_policy(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy), Proximal(policy, every_updates=0)
    proximal.refresh(0)
    shake(policy)
    proximal.refresh(1)
    batch = make_batch(policy, played, [1.0] * 3, proximal=proximal)
    assert torch.equal(batch.proximal_logp_BT, batch.logp_BT.detach())


def test_both_policies_read_the_same_variation_of_a_screen() -> None:
    config = tiny_policy().config
    varied = PointerPolicy(type(config)(width=16, layers=1, word_swap_share=1.0), PolicyContext())
    played, proximal = episodes(varied), Proximal(varied, every_updates=4)
    proximal.refresh(0)
    proximal.refresh(1)
    batch = make_batch(varied, played, [1.0] * 3, proximal=proximal)
    assert torch.allclose(batch.proximal_logp_BT, batch.logp_BT.detach(), atol=1e-6)
    assert (batch.logp_BT - batch.behaviour_logp_BT).abs().max() > 1e-3, "the screens were varied"
