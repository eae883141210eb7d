"""From stored episodes to the rectangle that every algorithm sees."""

from __future__ import annotations

import msgspec
import pytest
import torch

from distrl.algorithms.base import Lesson, mean_over, prepare, read_lesson
from distrl.policies.pointer.policy import PointerPolicy
from distrl.types import Ending, Trajectory
from support.lessons import Played, decided_episode, tiny_policy


@pytest.fixture(scope="module")
def policy() -> PointerPolicy:
    return tiny_policy(spread=0.2)


def lesson_of(policy: PointerPolicy, *episodes: Trajectory) -> Lesson:
    return read_lesson(policy, [prepare(episode, policy) for episode in episodes], [1.0] * len(episodes))


def test_an_episode_read_back_by_the_policy_that_played_it_is_on_policy(policy: PointerPolicy) -> None:
    episodes = [decided_episode(policy, f"e{n}", Played(num_steps=1 + n)) for n in range(6)]
    lesson = lesson_of(policy, *episodes)
    assert lesson.mask_BT.sum(1).tolist() == [1, 2, 3, 4, 5, 6]
    assert lesson.ratio_BT[lesson.mask_BT].tolist() == pytest.approx([1.0] * 21, abs=1e-4)
    assert not lesson.ratio_BT[~lesson.mask_BT].any()


def test_the_entropy_of_a_lesson_is_that_of_the_distribution_and_not_of_the_action_taken(policy: PointerPolicy) -> None:
    episode = decided_episode(policy, "entropy", Played(num_steps=4))
    lesson = lesson_of(policy, episode)
    recorded = [step.decision.entropy for step in episode.steps]
    assert lesson.entropy_BT[0].tolist() == pytest.approx(recorded, abs=1e-5)
    assert (lesson.entropy_BT + lesson.logp_BT).abs().max() > 0.05
    assert lesson.entropy_BT.requires_grad


def test_what_the_device_refused_is_invalid_and_what_it_took_is_valid(policy: PointerPolicy) -> None:
    lesson = lesson_of(policy, decided_episode(policy, "refused", Played(num_steps=4, invalid=(1, 3))))
    assert lesson.valid_BT.tolist() == [[True, False, True, False]]


def test_what_had_no_effect_is_marked_step_by_step(policy: PointerPolicy) -> None:
    played = decided_episode(policy, "idle", Played(num_steps=3))
    idle = msgspec.structs.replace(played.steps[1], changed=False)
    steps = (played.steps[0], idle, played.steps[2])
    lesson = lesson_of(policy, msgspec.structs.replace(played, steps=steps))
    assert lesson.changed_BT.tolist() == [[True, False, True]]


def test_a_false_claim_is_the_last_step_of_a_failure_that_the_agent_ended_and_no_other(policy: PointerPolicy) -> None:
    cut = (Ending.STEP_LIMIT, Ending.TIME_LIMIT, Ending.DEVICE_LOST)
    lesson = lesson_of(
        policy,
        decided_episode(policy, "claimed", Played(num_steps=2)),
        decided_episode(policy, "claimed later", Played(num_steps=4)),
        decided_episode(policy, "achieved", Played(num_steps=3, success=True)),
        *(decided_episode(policy, f"cut by {why}", Played(num_steps=3, ending=why)) for why in cut),
    )
    false_claims = lesson.false_claim_BT.tolist()
    assert false_claims[0] == [False, True, False, False]
    assert false_claims[1] == [False, False, False, True]
    assert not any(any(row) for row in false_claims[2:])


def test_only_an_episode_that_was_cut_off_is_bootstrapped_and_by_the_present_critic(policy: PointerPolicy) -> None:
    over = decided_episode(policy, "finished")
    # Even where somebody noted what the screen showed after the end.
    finished = msgspec.structs.replace(over, last=over.steps[0].observation, last_value=0.9)
    cut = decided_episode(policy, "cut", Played(ending=Ending.STEP_LIMIT))
    lesson = lesson_of(policy, finished, cut)
    assert cut.last is not None
    with torch.no_grad():
        now = torch.sigmoid(policy.score([policy.encode(cut.last)], [()]).value_logit_N)
    assert lesson.bootstrap_B.tolist() == pytest.approx([0.0, float(now)], abs=1e-5)
    assert not lesson.bootstrap_B.requires_grad
    assert lesson.logp_BT.shape == (2, 3)


def test_a_cut_episode_without_a_last_screen_is_bootstrapped_by_the_value_that_came_with_it(
    policy: PointerPolicy,
) -> None:
    cut = decided_episode(policy, "lost", Played(ending=Ending.DEVICE_LOST))
    blind = msgspec.structs.replace(cut, last=None, last_value=0.37)
    assert lesson_of(policy, blind).bootstrap_B.tolist() == pytest.approx([0.37])


def test_an_episode_is_as_old_as_the_oldest_version_that_acted_in_it(policy: PointerPolicy) -> None:
    episode = decided_episode(policy, "swapped", Played(version=7))
    first = msgspec.structs.replace(episode.steps[1], version=4)
    swapped = msgspec.structs.replace(episode, steps=(episode.steps[0], first, *episode.steps[2:]))
    assert prepare(swapped, policy).version == 4


def test_scores_of_a_lesson_lie_in_the_rows_of_their_own_episodes(policy: PointerPolicy) -> None:
    episodes = [decided_episode(policy, f"row{n}", Played(num_steps=2 + n % 3)) for n in range(5)]
    together = lesson_of(policy, *episodes)
    for row, episode in enumerate(episodes):
        alone = lesson_of(policy, episode)
        length = alone.logp_BT.shape[1]
        for name in ("logp_BT", "entropy_BT", "value_logit_BT", "behaviour_logp_BT", "reward_BT"):
            got, wanted = getattr(together, name)[row, :length], getattr(alone, name)[0]
            assert got.tolist() == pytest.approx(wanted.tolist(), abs=1e-5), name


def test_a_mean_over_no_steps_is_zero_and_over_some_counts_these_alone() -> None:
    values = torch.tensor([[1.0, 2.0, 9.0]])
    assert float(mean_over(values, torch.tensor([[True, True, False]]))) == 1.5
    assert float(mean_over(values, torch.zeros(1, 3, dtype=torch.bool))) == 0.0


# --- cut steps and examples -----------------------------------------------------------------------------------------


def with_waste(policy: PointerPolicy, *, success: bool) -> Trajectory:
    """An episode of four steps, the second of which the device refused."""
    return decided_episode(policy, "wasteful", Played(num_steps=4, success=success, invalid=(1,)))


def test_without_cutting_every_step_teaches_and_tells(policy: PointerPolicy) -> None:
    lesson = lesson_of(policy, with_waste(policy, success=True), with_waste(policy, success=False))
    assert torch.equal(lesson.teaches_BT, lesson.mask_BT)
    assert torch.equal(lesson.tells_BT, lesson.mask_BT)
    assert not lesson.example_B.any()


def test_the_wasted_steps_of_a_success_teach_nothing_and_still_tell_the_critic(policy: PointerPolicy) -> None:
    both = [with_waste(policy, success=success) for success in (True, False)]
    lesson = read_lesson(policy, [prepare(one, policy, cut=True) for one in both], [1.0, 1.0])
    assert lesson.teaches_BT.tolist() == [[True, False, True, True], [True] * 4]
    assert torch.equal(lesson.tells_BT, lesson.mask_BT)


def test_an_example_has_a_ratio_of_one_under_any_policy_and_tells_the_critic_nothing(policy: PointerPolicy) -> None:
    own = decided_episode(policy, "own", Played(num_steps=2))
    shown = prepare(decided_episode(policy, "shown", Played(num_steps=3, success=True)), policy, example=True)
    lesson = read_lesson(tiny_policy(1, spread=0.5), [prepare(own, policy), shown], [1.0, 1.0])
    assert lesson.example_B.tolist() == [False, True]
    assert lesson.tells_BT.tolist() == [[True, True, False], [False] * 3]
    assert lesson.ratio_BT[1].tolist() == [1.0] * 3
    assert max(abs(ratio - 1.0) for ratio in lesson.ratio_BT[0, :2].tolist()) > 0.01
    assert not lesson.ratio_BT[0, 2:].any()
    assert not lesson.ratio_BT.requires_grad
