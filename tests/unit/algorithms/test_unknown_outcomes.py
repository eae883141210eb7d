"""A fault is no failure: what every algorithm makes of an episode whose outcome nobody knows."""

from __future__ import annotations

import msgspec
import pytest
import torch

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch, make_batch, prepare
from distrl.algorithms.digirl import DigiRL, rows_of
from distrl.config.kinds import AlgorithmConfig
from distrl.config.schema import Config
from distrl.runtime.factory import make_algorithm
from distrl.types import Ending, Verdict
from support.batches import Drawn, Played, decided_episode, gradient, tiny_policy, train_batch

NAMES = ["aride", "digirl", "filtered_bc", "grpo", "ppo"]
OUTCOME_CRITICS = ["digirl", "filtered_bc", "grpo"]
MIXED = (0.5, 0.5)
"""A group with a success and a failure, so that GRPO has something to compare with."""
SUCCESS = Drawn(reward=[0.0, 1.0], value=[0.4, 0.6], success=True, group=MIXED, instruction="open the clock")
FAILURE = Drawn(reward=[0.0, 0.0], value=[0.4, 0.6], group=MIXED, instruction="open the clock")
LOST = Drawn(
    reward=[0.0, 0.0], value=[0.8, 0.8], bootstrap=0.8, changed=[False, False], known=False, group=MIXED,
    instruction="buy a lamp",
)  # fmt: skip
"""The device was lost where things looked well; the critic's word on what was seen last is bootstrapped."""


def algorithm(name: str, **settings: object) -> Algorithm:
    """One with its own settings, where critics need no warm-up and nothing is discounted."""
    table: dict[str, object] = {"gamma": 1.0, **settings}
    if name in ("aride", "digirl", "ppo"):
        table["critic_warmup_updates"] = 0
    return make_algorithm(Config(algorithm=msgspec.convert({"kind": name, name: table}, AlgorithmConfig)))


def learn(name: str, *rows: Drawn, **settings: object) -> tuple[TrainBatch, Loss]:
    batch = train_batch(*rows)
    loss = algorithm(name, **settings).loss(batch, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return batch, loss


@pytest.mark.parametrize("name", OUTCOME_CRITICS)
def test_a_critic_of_outcomes_learns_nothing_from_an_episode_without_one(name: str) -> None:
    beside, loss = learn(name, SUCCESS, FAILURE, LOST)
    alone, _ = learn(name, SUCCESS, FAILURE)
    assert not gradient(beside.value_logit_BT)[2].any()
    assert gradient(beside.value_logit_BT)[:2].tolist() == gradient(alone.value_logit_BT).tolist()
    assert loss.td_BT[2].tolist() == [0.0, 0.0], "nobody missed anything of it"


@pytest.mark.parametrize("name", ["aride", "ppo"])
def test_a_critic_that_bootstraps_is_not_drawn_to_failure_by_a_fault(name: str) -> None:
    batch, loss = learn(name, SUCCESS, FAILURE, LOST)
    assert gradient(batch.value_logit_BT)[2].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
    assert loss.td_BT[2].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)
    failed, _ = learn(name, SUCCESS, FAILURE, msgspec.structs.replace(LOST, known=True, bootstrap=0.0))
    assert (gradient(failed.value_logit_BT)[2] > 0).all(), "an end that is a failure does lower it"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ppo"])
def test_no_action_of_an_episode_without_an_outcome_becomes_likelier_or_less_likely(name: str) -> None:
    batch, _ = learn(name, SUCCESS, FAILURE, LOST)
    assert gradient(batch.logp_BT)[0].any()
    assert not gradient(batch.logp_BT)[2].any()


def test_ppo_uses_its_bootstrapped_advantage_which_is_nothing_where_nothing_surprised() -> None:
    """Beside a batch whose advantages average to 0, so that normalising leaves a 0 a 0."""
    up, down = (Drawn(reward=[reward], value=[0.5]) for reward in (1.0, 0.0))
    batch, _ = learn("ppo", up, down, LOST)
    assert gradient(batch.logp_BT)[2].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert gradient(batch.logp_BT)[0, 0] < 0 < gradient(batch.logp_BT)[1, 0]


def test_the_instruction_critic_of_digirl_learns_nothing_from_it() -> None:
    found = []
    for rows in ((SUCCESS, LOST), (SUCCESS,)):
        digirl = algorithm("digirl")
        assert isinstance(digirl, DigiRL)
        digirl.loss(train_batch(*rows), updates=0).total.backward()  # type: ignore[no-untyped-call]
        found.append([gradient(weights) for weights in digirl.critic.parameters()])
    assert all(torch.allclose(one, other, atol=1e-7) for one, other in zip(*found, strict=True))
    lamp = list(rows_of("lamp"))
    assert not found[0][0][lamp].any()
    assert any(one.any() for one in found[0])


def test_grpo_gives_it_neither_an_advantage_nor_an_entropy_bonus_though_its_group_has_spread() -> None:
    batch, loss = learn("grpo", SUCCESS, FAILURE, LOST, entropy_weight=0.1)
    assert gradient(batch.entropy_BT)[:2].any()
    assert not gradient(batch.entropy_BT)[2].any()
    assert loss.metrics["compared_share"] == pytest.approx(4 / 6)


@pytest.mark.parametrize("positive_only", [True, False])
def test_certain_unlikelihood_leaves_its_steps_without_effect_alone(positive_only: bool) -> None:
    settings = {"unlikelihood": "certain", "invalid_weight": 1.0, "advantage_floor": 100.0}
    lost, _ = learn("aride", LOST, positive_only=positive_only, **settings)
    assert not gradient(lost.logp_BT).any()
    failed, _ = learn("aride", msgspec.structs.replace(LOST, known=True), positive_only=positive_only, **settings)
    assert gradient(failed.logp_BT)[0, 0] > 0, "the same step of a failure is lowered"


def test_what_the_device_refused_is_lowered_whatever_came_of_the_episode() -> None:
    refused = msgspec.structs.replace(LOST, valid=[False, True])
    batch, _ = learn("aride", refused, invalid_weight=1.0)
    assert gradient(batch.logp_BT)[0, 0] > 0 == gradient(batch.logp_BT)[0, 1]


# --- from the trajectory to the batch -------------------------------------------------------------------------------


def test_a_batch_says_whose_outcome_is_known_and_holds_no_unknown_claim_false() -> None:
    policy = tiny_policy()
    lost = decided_episode(policy, "lost", Played(ending=Ending.DEVICE_LOST))
    unjudged = msgspec.structs.replace(decided_episode(policy, "unjudged"), verdict=Verdict(outcome="unknown"))
    episodes = [
        lost,
        unjudged,
        decided_episode(policy, "failed"),
        decided_episode(policy, "cut", Played(ending=Ending.STEP_LIMIT)),
    ]
    batch = make_batch(policy, [prepare(episode, policy) for episode in episodes], [1.0] * 4)
    assert batch.known_B.tolist() == [False, False, True, True]
    assert batch.false_claim_BT.any(1).tolist() == [False, False, True, False]
    assert batch.outcome_mask_BT.any(1).tolist() == [False, False, True, True]
    assert torch.equal(batch.value_mask_BT, batch.mask_BT)
    assert batch.bootstrap_B[0] > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_outcome_adds_no_success_to_a_priority(name: str) -> None:
    trajectory = decided_episode(tiny_policy(), "lost", Played(ending=Ending.DEVICE_LOST))
    known = msgspec.structs.replace(trajectory, verdict=Verdict(outcome="success"))
    one = make_algorithm(Config(algorithm=AlgorithmConfig(kind=name)))
    weight = one.context.replay.success_weight
    assert one.first_priority(known) - one.first_priority(trajectory) == pytest.approx(weight)
    assert isinstance(one.context, AlgorithmContext)
