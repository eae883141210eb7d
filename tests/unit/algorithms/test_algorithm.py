"""The base class: what an algorithm of your own gets without writing it."""

from __future__ import annotations

import pytest
import torch

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of
from distrl.algorithms.batch import Episode, prepare
from distrl.config.schema import ReplayConfig
from distrl.experience.priorities import EPS, first_priority
from distrl.experience.replay import Sample
from support.batches import Drawn, Played, decided_episode, tiny_policy, train_batch

REPLAY = ReplayConfig(td_weight=10.0, ratio_weight=2.0, entropy_weight=0.5, success_weight=100.0)
LONG = Drawn(reward=[0.0, 0.0, 1.0], value=[0.5] * 3, ratio=[0.5, 4.0, 1.0], entropy=[1.0, 2.0, 3.0], success=True)
SHORT = Drawn(reward=[0.0], value=[0.5], ratio=[0.25], entropy=[0.4])


def test_an_algorithm_without_a_loss_says_what_to_write() -> None:
    class Nothing(Algorithm):
        pass

    with pytest.raises(TypeError, match=r"Nothing has no `loss`: write loss\(self, batch, \*, updates\)"):
        Nothing(None, AlgorithmContext()).loss(train_batch(LONG), updates=0)


def test_every_term_and_the_total_become_plain_numbers() -> None:
    batch = train_batch(LONG, SHORT)
    total = batch.logp_BT.sum()
    loss = loss_of(
        batch,
        torch.zeros(2, 3),
        total=total,
        losses={"policy": 2 * total},
        metrics={"entropy": batch.entropy_BT.mean()},
    )
    assert loss.losses == {
        "policy": pytest.approx(2 * float(total.detach())),
        "total": pytest.approx(float(total.detach())),
    }
    assert loss.metrics == {"entropy": pytest.approx(float(batch.entropy_BT.detach().mean()))}
    assert loss.total is total
    assert not loss.entropy_BT.requires_grad


def long_and_short() -> list[Sample[Episode]]:
    policy = tiny_policy()
    return [
        Sample(
            id=id, item=prepare(decided_episode(policy, id, played), policy), probability=0.5, weight=1.0, staleness=0
        )
        for id, played in (("long", Played(num_steps=3, success=True)), ("short", Played(num_steps=1)))
    ]


def test_signals_that_a_loss_does_not_give_count_as_0_in_the_default_priorities() -> None:
    algorithm, samples = Algorithm(None, AlgorithmContext(replay=REPLAY)), long_and_short()
    total = torch.zeros(())
    assert algorithm.priorities(Loss(total=total), samples) == pytest.approx([100.0 + EPS, EPS])
    entropy_BT = torch.tensor([[1.0, 2.0, 3.0], [0.4, 77.0, 77.0]])
    found = algorithm.priorities(Loss(total=total, entropy_BT=entropy_BT), samples)
    assert found == pytest.approx([1.0 + 100.0 + EPS, 0.2 + EPS])


def test_default_priorities_are_those_of_prioritised_replay_over_the_real_steps() -> None:
    batch, samples = train_batch(LONG, SHORT), long_and_short()
    td = torch.tensor([[0.3, -0.6, 0.9], [-0.2, 77.0, 77.0]])
    loss = loss_of(batch, td, total=batch.logp_BT.sum(), losses={}, metrics={})
    algorithm = Algorithm(None, AlgorithmContext(replay=REPLAY))
    algorithm.rho_max = 2.0
    found = algorithm.priorities(loss, samples)
    long = 10 * 0.6 + 2 * (0.5 + 2.0 + 1.0) / 3 + 0.5 * 2.0 + 100.0 + EPS
    assert found == pytest.approx([long, 10 * 0.2 + 2 * 0.25 + 0.5 * 0.4 + EPS], rel=1e-5)


def test_a_first_priority_goes_by_the_algorithms_own_discount() -> None:
    trajectory = decided_episode(tiny_policy(), "played", Played(num_steps=3, success=True))
    algorithm = Algorithm(None, AlgorithmContext(replay=REPLAY))
    found = []
    for gamma in (0.5, 1.0):
        algorithm.gamma = gamma
        found.append(algorithm.first_priority(trajectory))
        assert found[-1] == first_priority(trajectory, REPLAY, gamma=gamma)
    assert found[0] != found[1]
