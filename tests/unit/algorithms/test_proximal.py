"""The policy of a few updates ago."""

from __future__ import annotations

import pytest
import torch

from distrl.algorithms.base import Episode, prepare, read_lesson
from distrl.algorithms.proximal import Proximal
from distrl.policies.pointer.policy import PointerPolicy
from support.lessons import Played, decided_episode, tiny_policy


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
    proximal.keep_up(0)
    before = read_lesson(policy, played, [1.0] * 3).logp_BT.detach()
    shake(policy)
    proximal.keep_up(1)
    lesson = read_lesson(policy, played, [1.0] * 3, proximal=proximal)
    assert torch.allclose(lesson.proximal_logp_BT, before, atol=1e-6)
    assert (lesson.logp_BT - before).abs().max() > 0.05
    assert not lesson.proximal_logp_BT.requires_grad


def test_looking_through_it_leaves_the_present_weights_and_their_gradient_alone(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy), Proximal(policy, every_updates=4)
    proximal.keep_up(0)
    shake(policy)
    weights = policy.dump()
    read_lesson(policy, played, [1.0] * 3).logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    expected = [found.grad.clone() for found in policy.network.parameters() if found.grad is not None]
    policy.network.zero_grad()
    proximal.keep_up(1)
    read_lesson(policy, played, [1.0] * 3, proximal=proximal).logp_BT.sum().backward()  # type: ignore[no-untyped-call]
    got = [found.grad for found in policy.network.parameters() if found.grad is not None]
    assert policy.dump() == weights
    assert len(got) == len(expected) > 0
    assert all(torch.allclose(one, other) for one, other in zip(got, expected, strict=True))


def test_it_is_made_anew_every_so_many_updates_and_at_the_first_whenever_that_is(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy)[0], Proximal(policy, every_updates=3)
    made = []
    for updates in range(5, 11):
        proximal.keep_up(updates)
        made.append(proximal.logp(played.encoded, played.choices) is None)
        shake(policy)
    assert made == [True, True, False, False, True, False]


def test_an_algorithm_that_asks_for_none_sees_the_present_policy(policy: PointerPolicy) -> None:
    played, proximal = episodes(policy), Proximal(policy, every_updates=0)
    proximal.keep_up(0)
    shake(policy)
    proximal.keep_up(1)
    lesson = read_lesson(policy, played, [1.0] * 3, proximal=proximal)
    assert torch.equal(lesson.proximal_logp_BT, lesson.logp_BT.detach())


def test_both_policies_read_the_same_variation_of_a_screen() -> None:
    config = tiny_policy().config
    varied = PointerPolicy(type(config)(width=16, layers=1, rename_share=1.0), seed=0)
    played, proximal = episodes(varied), Proximal(varied, every_updates=4)
    proximal.keep_up(0)
    proximal.keep_up(1)
    lesson = read_lesson(varied, played, [1.0] * 3, proximal=proximal)
    assert torch.allclose(lesson.proximal_logp_BT, lesson.logp_BT.detach(), atol=1e-6)
    assert (lesson.logp_BT - lesson.behaviour_logp_BT).abs().max() > 1e-3, "the screens were varied"
