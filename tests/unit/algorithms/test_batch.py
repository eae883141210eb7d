"""From stored episodes to the rectangle that every algorithm sees."""

from __future__ import annotations

import msgspec
import pytest
import torch

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import AlgorithmContext
from distrl.algorithms.batch import TrainBatch, make_batch, mean_over, prepare
from distrl.config.kinds import ARideConfig
from distrl.policies.nonfinite import SKIPPED_DECISION
from distrl.policies.pointer.policy import PointerPolicy
from distrl.types import Ending, Trajectory
from support.batches import Played, decided_episode, gradient, tiny_policy


@pytest.fixture(scope="module")
def policy() -> PointerPolicy:
    return tiny_policy(spread=0.2)


def batch_of(policy: PointerPolicy, *episodes: Trajectory) -> TrainBatch:
    return make_batch(policy, [prepare(episode, policy) for episode in episodes], [1.0] * len(episodes))


def test_an_episode_read_back_by_the_policy_that_played_it_is_on_policy(policy: PointerPolicy) -> None:
    episodes = [decided_episode(policy, f"e{n}", Played(num_steps=1 + n)) for n in range(6)]
    batch = batch_of(policy, *episodes)
    assert batch.mask_BT.sum(1).tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.ratio_BT[batch.mask_BT].tolist() == pytest.approx([1.0] * 21, abs=1e-4)
    assert not batch.ratio_BT[~batch.mask_BT].any()


def test_the_entropy_of_a_batch_is_that_of_the_distribution_and_not_of_the_action_taken(policy: PointerPolicy) -> None:
    episode = decided_episode(policy, "entropy", Played(num_steps=4))
    batch = batch_of(policy, episode)
    recorded = [step.decision.entropy for step in episode.steps]
    assert batch.entropy_BT[0].tolist() == pytest.approx(recorded, abs=1e-5)
    assert (batch.entropy_BT + batch.logp_BT).abs().max() > 0.05
    assert batch.entropy_BT.requires_grad


def test_what_the_device_refused_is_invalid_and_what_it_took_is_valid(policy: PointerPolicy) -> None:
    batch = batch_of(policy, decided_episode(policy, "refused", Played(num_steps=4, invalid=(1, 3))))
    assert batch.valid_BT.tolist() == [[True, False, True, False]]


def test_what_had_no_effect_is_marked_step_by_step(policy: PointerPolicy) -> None:
    played = decided_episode(policy, "idle", Played(num_steps=3))
    idle = msgspec.structs.replace(played.steps[1], changed=False)
    steps = (played.steps[0], idle, played.steps[2])
    batch = batch_of(policy, msgspec.structs.replace(played, steps=steps))
    assert batch.changed_BT.tolist() == [[True, False, True]]


def test_a_false_claim_is_the_last_step_of_a_failure_that_the_agent_ended_and_no_other(policy: PointerPolicy) -> None:
    cut = (Ending.STEP_LIMIT, Ending.TIME_LIMIT, Ending.DEVICE_LOST)
    batch = batch_of(
        policy,
        decided_episode(policy, "claimed", Played(num_steps=2)),
        decided_episode(policy, "claimed later", Played(num_steps=4)),
        decided_episode(policy, "achieved", Played(num_steps=3, success=True)),
        *(decided_episode(policy, f"cut by {why}", Played(num_steps=3, ending=why)) for why in cut),
    )
    false_claims = batch.false_claim_BT.tolist()
    assert false_claims[0] == [False, True, False, False]
    assert false_claims[1] == [False, False, False, True]
    assert not any(any(row) for row in false_claims[2:])


def test_only_an_episode_that_was_cut_off_is_bootstrapped_and_by_the_present_critic(policy: PointerPolicy) -> None:
    over = decided_episode(policy, "finished")
    # Even where somebody noted what the screen showed after the end.
    finished = msgspec.structs.replace(over, last=over.steps[0].observation, last_value=0.9)
    cut = decided_episode(policy, "cut", Played(ending=Ending.STEP_LIMIT))
    batch = batch_of(policy, finished, cut)
    assert cut.last is not None
    with torch.no_grad():
        now = torch.sigmoid(policy.score([policy.encode(cut.last)], [()]).value_logit_N)
    assert batch.bootstrap_B.tolist() == pytest.approx([0.0, float(now)], abs=1e-5)
    assert not batch.bootstrap_B.requires_grad
    assert batch.logp_BT.shape == (2, 3)


def test_a_cut_episode_without_a_last_screen_is_bootstrapped_by_the_value_that_came_with_it(
    policy: PointerPolicy,
) -> None:
    cut = decided_episode(policy, "lost", Played(ending=Ending.DEVICE_LOST))
    blind = msgspec.structs.replace(cut, last=None, last_value=0.37)
    assert batch_of(policy, blind).bootstrap_B.tolist() == pytest.approx([0.37])


def test_an_episode_is_as_old_as_the_oldest_version_that_acted_in_it(policy: PointerPolicy) -> None:
    episode = decided_episode(policy, "swapped", Played(version=7))
    first = msgspec.structs.replace(episode.steps[1], version=4)
    swapped = msgspec.structs.replace(episode, steps=(episode.steps[0], first, *episode.steps[2:]))
    assert prepare(swapped, policy).version == 4


def test_scores_of_a_batch_lie_in_the_rows_of_their_own_episodes(policy: PointerPolicy) -> None:
    episodes = [decided_episode(policy, f"row{n}", Played(num_steps=2 + n % 3)) for n in range(5)]
    together = batch_of(policy, *episodes)
    for row, episode in enumerate(episodes):
        alone = batch_of(policy, episode)
        length = alone.logp_BT.shape[1]
        for name in ("logp_BT", "entropy_BT", "value_logit_BT", "behaviour_logp_BT", "reward_BT"):
            got, wanted = getattr(together, name)[row, :length], getattr(alone, name)[0]
            assert got.tolist() == pytest.approx(wanted.tolist(), abs=1e-5), name


def test_a_mean_over_no_steps_is_zero_and_over_some_counts_these_alone() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0]])
    assert float(mean_over(values, torch.tensor([[True, True, False]]))) == 1.5
    assert float(mean_over(values, torch.zeros(1, 3, dtype=torch.bool))) == 0.0


# --- no-op steps and examples--------------------------------------------------------------------------------------


def with_noop(policy: PointerPolicy, *, success: bool) -> Trajectory:
    """An episode of four steps, the second of which the device refused."""
    return decided_episode(policy, "noop", Played(num_steps=4, success=success, invalid=(1,)))


def test_without_the_no_op_filter_every_step_is_in_both_masks(policy: PointerPolicy) -> None:
    batch = batch_of(policy, with_noop(policy, success=True), with_noop(policy, success=False))
    assert torch.equal(batch.policy_mask_BT, batch.mask_BT)
    assert torch.equal(batch.value_mask_BT, batch.mask_BT)
    assert not batch.example_B.any()


def test_the_no_op_steps_of_a_success_leave_the_policy_mask_and_stay_in_the_value_mask(policy: PointerPolicy) -> None:
    both = [with_noop(policy, success=success) for success in (True, False)]
    batch = make_batch(policy, [prepare(one, policy, filter_noops=True) for one in both], [1.0, 1.0])
    assert batch.policy_mask_BT.tolist() == [[True, False, True, True], [True] * 4]
    assert torch.equal(batch.value_mask_BT, batch.mask_BT)


def test_an_example_has_a_ratio_of_one_under_any_policy_and_is_outside_the_value_mask(policy: PointerPolicy) -> None:
    own = decided_episode(policy, "own", Played(num_steps=2))
    played = decided_episode(policy, "shown", Played(num_steps=3, success=True))
    shown = prepare(msgspec.structs.replace(played, source="demonstration"), policy)
    batch = make_batch(tiny_policy(1, spread=0.5), [prepare(own, policy), shown], [1.0, 1.0])
    assert batch.example_B.tolist() == [False, True]
    assert batch.value_mask_BT.tolist() == [[True, True, False], [False] * 3]
    assert batch.ratio_BT[1].tolist() == [1.0] * 3
    assert max(abs(ratio - 1.0) for ratio in batch.ratio_BT[0, :2].tolist()) > 0.01
    assert not batch.ratio_BT[0, 2:].any()
    assert not batch.ratio_BT.requires_grad


def test_a_skipped_decision_is_no_choice_its_ratio_is_1_and_the_policy_term_leaves_it_out(
    policy: PointerPolicy,
) -> None:
    played = decided_episode(policy, "skipped", Played(num_steps=3, success=True, invalid=(1,)))
    skipped = msgspec.structs.replace(played.steps[1], decision=SKIPPED_DECISION)
    batch = batch_of(policy, msgspec.structs.replace(played, steps=(played.steps[0], skipped, played.steps[2])))
    assert batch.decided_BT.tolist() == batch.policy_mask_BT.tolist() == [[True, False, True]]
    assert batch.mask_BT.all()
    assert batch.ratio_BT[0].tolist() == pytest.approx([1.0] * 3, abs=1e-4)


def test_a_skipped_decision_does_not_lower_the_chance_to_wait(policy: PointerPolicy) -> None:
    played = decided_episode(policy, "skipped", Played(num_steps=2, invalid=(0, 1)))
    steps = (played.steps[0], msgspec.structs.replace(played.steps[1], decision=SKIPPED_DECISION))
    batch = batch_of(policy, msgspec.structs.replace(played, steps=steps))
    only = ARide(ARideConfig(value_weight=0.0, invalid_weight=1.0, critic_warmup_updates=0), AlgorithmContext())
    batch.logp_BT.retain_grad()
    only.loss(batch, updates=0).total.backward()  # type: ignore[no-untyped-call]
    assert gradient(batch.logp_BT)[0].ne(0).tolist() == [True, False]


def test_what_the_device_gave_stands_beside_the_reward_and_not_in_it(policy: PointerPolicy) -> None:
    played = decided_episode(policy, "paid", Played(num_steps=3, success=True))
    steps = tuple(msgspec.structs.replace(step, device_reward=0.25 * t) for t, step in enumerate(played.steps))
    paid = msgspec.structs.replace(played, steps=steps)
    relabelled = msgspec.structs.replace(paid, source="hindsight")
    batch = batch_of(policy, paid, relabelled, decided_episode(policy, "unpaid", Played(num_steps=1)))
    assert batch.device_reward_BT.tolist() == [[0.0, 0.25, 0.5], [0.0] * 3, [0.0] * 3]
    assert batch.reward_BT.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0] * 3]
