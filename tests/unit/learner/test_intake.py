"""What gets into the replay beside what was played, and what it must not touch: the count of real episodes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.devices.sim.names import names_in
from distrl.devices.sim.world import content
from distrl.experience.waste import wasted
from distrl.learner.intake import misjudged, relabel
from distrl.learner.loop import Learner
from distrl.policies.pointer.grammar import to_action
from distrl.pretraining.demonstrations import demonstration_tasks
from distrl.runtime.assembly import make_feed, make_fitting
from distrl.types import Ending, Task, Trajectory, TypeText
from support.learners import Noting, Workshop, small_config
from support.lessons import Played, decided_episode, tiny_policy
from support.strays import strays
from support.trajectories import make_trajectory

SUITE = "sim-start"
HINDSIGHT = small_config(data={"hindsight": True}, tasks={"suite": SUITE}, replay={"capacity_steps": 4000})
BOTH = small_config(data={"hindsight": True, "cut": True}, tasks={"suite": SUITE}, replay={"capacity_steps": 4000})
KEEPING = small_config(warm_start={"keep": True, "demonstrations": 6}, tasks={"suite": SUITE})


@cache
def renamed() -> tuple[tuple[Trajectory, Task], ...]:
    """Failures with the task that they turned out to be."""
    fitting = make_fitting(HINDSIGHT)
    assert fitting is not None
    found = [(episode, next(iter(fitting(episode)), None)) for episode in strays(SUITE, 16)]
    return tuple((episode, task) for episode, task in found if task is not None)


def delivered(shop: Workshop, count: int = 5) -> list[str]:
    """Failures that can be relabelled, in the store; their ids."""
    episodes = [episode for episode, _ in renamed()[:count]]
    for episode in episodes:
        shop.store.add(episode)
    return [episode.id for episode in episodes]


def held(learner: Learner) -> list[str]:
    return list(learner.replay.priorities())


def with_hindsight(ids: list[str]) -> list[str]:
    return [name for id in ids for name in (id, f"{id}+hindsight")]


# --- relabelling ----------------------------------------------------------------------------------------------------


def test_a_relabelled_episode_is_the_same_deed_under_another_instruction() -> None:
    policy = tiny_policy()
    for episode, task in renamed():
        found = relabel(episode, task, policy, cut=False)
        assert found is not None
        assert (found.id, found.task, found.verdict.success) == (task.id, task, True)
        assert {step.observation.instruction for step in found.steps} == {task.instruction}
        assert [step.decision.action for step in found.steps] == [step.decision.action for step in episode.steps]
        for step in found.steps:
            again = to_action(step.decision.choice, step.observation)  # type: ignore[arg-type]
            assert type(again) is type(step.decision.action)
            assert policy.imitate(step.observation, again) == step.decision.choice
        assert found.steps[-1].reward == episode.steps[-1].reward + 1.0
        assert [step.observation.elements for step in found.steps] == [s.observation.elements for s in episode.steps]


def test_a_typed_word_that_the_new_instruction_does_not_have_cannot_be_relabelled() -> None:
    episode, task = renamed()[0]
    typing = replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    typed = replace(episode, steps=(replace(episode.steps[0], decision=typing), *episode.steps[1:]))
    assert relabel(typed, task, tiny_policy(), cut=False) is None
    told = replace(task, instruction=f"{task.instruction} for Rumpelstiltskin")
    assert relabel(typed, told, tiny_policy(), cut=False) is not None


def test_with_cutting_a_relabelled_episode_is_left_without_its_wasted_steps_whatever_they_typed() -> None:
    episode, task = renamed()[0]
    refused = replace(
        episode.steps[0], valid=False, decision=replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    )
    wasteful = replace(episode, steps=(refused, *episode.steps))
    assert wasted(wasteful).sum() == 1
    assert relabel(wasteful, task, tiny_policy(), cut=False) is None
    assert relabel(wasteful, task, tiny_policy(), cut=True) == relabel(episode, task, tiny_policy(), cut=True)


# --- in the replay --------------------------------------------------------------------------------------------------


def test_without_hindsight_a_failure_stays_a_failure(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, replace(HINDSIGHT, data=small_config().data))
    ids, learner = delivered(shop), shop.learner()
    learner.take_in(limit=10)
    assert held(learner) == ids
    assert learner.data.relabelled == 0


def test_a_relabelled_failure_stands_beside_the_original_and_counts_as_no_episode(tmp_path: Path) -> None:
    plain, shop = Workshop(tmp_path / "plain"), Workshop(tmp_path / "hindsight", HINDSIGHT)
    learners = []
    for each in (plain, shop):
        delivered(each)
        each.deliver(2, Played(success=True))
        learners.append(each.learner())
        for _ in range(12):
            learners[-1].step()
    before, after = learners
    for count in ("episodes", "cursor", "updates", "version", "unreadable"):
        assert getattr(after, count) == getattr(before, count), count
    assert after.publish_interval_s() == before.publish_interval_s()
    assert shop.store.audit() == plain.store.audit()
    assert held(after) == [*with_hindsight(held(before)[:5]), *held(before)[5:]]
    assert (after.data.relabelled, after.data.unsayable) == (5, 0)


def test_a_relabelled_failure_is_an_example_and_a_success_and_the_original_is_neither(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, HINDSIGHT)
    delivered(shop, 3)
    noting = Noting()
    learner = shop.learner(noting)
    learner.take_in(limit=10)
    learner.update()
    for _ in range(5):
        learner.update()
    lessons = noting.lessons
    assert any(lesson.example_B.any() for lesson in lessons)
    for lesson in lessons:
        assert lesson.success_B.bool().tolist() == lesson.example_B.tolist()
        assert not (lesson.tells_BT & lesson.example_B[:, None]).any()
        assert not (lesson.false_claim_BT & lesson.example_B[:, None]).any()


def test_an_episode_that_no_other_instruction_can_express_is_dropped_and_counted(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, HINDSIGHT)
    episode, _ = renamed()[0]
    typing = replace(episode.steps[0].decision, action=TypeText("Rumpelstiltskin"))
    shop.store.add(replace(episode, steps=(replace(episode.steps[0], decision=typing), *episode.steps[1:])))
    learner = shop.learner()
    learner.take_in(limit=10)
    assert held(learner) == [episode.id]
    assert (learner.data.relabelled, learner.data.unsayable) == (0, 1)


def test_the_share_of_cut_steps_is_that_of_successes(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, small_config(data={"cut": True}))
    shop.deliver(1, Played(num_steps=4, success=True, invalid=(1,)))
    shop.deliver(1, Played(num_steps=4, invalid=(0, 1)))
    learner = shop.learner()
    learner.take_in(limit=10)
    assert learner.data.cut_share == 0.25


# --- going on after a kill ------------------------------------------------------------------------------------------


def test_a_resumed_learner_has_the_same_hindsight_and_goes_on_exactly_as_the_first_one_does(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, BOTH)
    ids = delivered(shop)
    first = shop.learner()
    for _ in range(3):
        first.step()
    first.save()
    policy, second = shop.policy, shop.learner()
    assert second.resume()
    assert held(second) == with_hindsight(ids)
    assert second.data == first.data
    for learner in (first, second):
        for _ in range(4):
            learner.update()
    assert shop.policy is not policy
    assert shop.policy.dump() == policy.dump()
    assert second.replay.priorities() == first.replay.priorities()


def test_a_relabelled_failure_comes_back_also_where_the_original_has_left_the_replay(tmp_path: Path) -> None:
    steps = sum(len(episode.steps) for episode, _ in renamed()[:3])
    config = replace(HINDSIGHT, replay=replace(HINDSIGHT.replay, capacity_steps=2 * steps - 1))
    shop = Workshop(tmp_path, config)
    ids = delivered(shop, 3)
    first = shop.learner()
    first.take_in(limit=10)
    assert held(first) == with_hindsight(ids)[1:]
    first.save()
    second = shop.learner()
    assert second.resume()
    assert second.replay.priorities() == first.replay.priorities()


def test_what_was_counted_stays_counted_though_it_has_left_the_replay(tmp_path: Path) -> None:
    config = replace(BOTH, replay=replace(BOTH.replay, capacity_steps=20))
    shop = Workshop(tmp_path, config)
    delivered(shop, 5)
    shop.deliver(3, Played(success=True))
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    second = shop.learner()
    assert second.resume()
    assert second.data == first.data
    assert (second.data.relabelled, second.data.success_steps) == (5, 9)


def test_a_damaged_file_is_lost_once_and_takes_its_hindsight_along(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, HINDSIGHT)
    ids = delivered(shop, 3)
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    next(tmp_path.glob(f"experience/episodes/*/{ids[0]}.ep")).unlink()
    second = shop.learner()
    assert second.resume()
    assert held(second) == with_hindsight(ids[1:])
    assert second.unreadable == 1


# --- kept demonstrations --------------------------------------------------------------------------------------------


def test_kept_demonstrations_are_examples_that_count_as_no_episodes(tmp_path: Path) -> None:
    shop, noting = Workshop(tmp_path, KEEPING), Noting()
    learner = shop.learner(noting)
    learner.keep_demonstrations()
    assert held(learner) == [f"demonstration-{n}" for n in range(6)]
    assert (learner.episodes, learner.cursor, learner.ready()) == (0, 0, False)
    learner.update()
    assert noting.lessons[0].example_B.all()
    assert noting.lessons[0].success_B.all()
    assert noting.lessons[0].reward_BT.sum(1).tolist() == [1.0] * 3


def test_kept_demonstrations_come_back_after_a_kill_and_are_not_kept_where_nobody_asked(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, KEEPING)
    first = shop.learner()
    first.keep_demonstrations()
    ids = shop.deliver(3)
    first.take_in(limit=10)
    first.update()
    first.save()
    second = shop.learner()
    assert second.resume()
    assert held(second) == [*(f"demonstration-{n}" for n in range(6)), *ids]
    assert second.replay.priorities() == first.replay.priorities()
    other = Workshop(tmp_path / "other", small_config(warm_start={"demonstrations": 6})).learner()
    other.keep_demonstrations()
    assert held(other) == []


def test_the_oldest_demonstrations_make_room_like_everything_else(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, replace(KEEPING, replay=replace(KEEPING.replay, capacity_steps=20)))
    learner = shop.learner()
    learner.keep_demonstrations()
    shop.deliver(5)
    learner.take_in(limit=10)
    assert learner.replay.num_steps <= 20
    assert not any(id.startswith("demonstration") for id in held(learner)[-5:])


# --- verdicts that are turned round ---------------------------------------------------------------------------------


@pytest.mark.parametrize("success", [True, False])
def test_a_turned_verdict_turns_the_reward_too(success: bool) -> None:
    episode = decided_episode(tiny_policy(), "judged", Played(success=success))
    turned = misjudged(episode, 1.0)
    assert turned.verdict.success is not success
    assert turned.steps[-1].reward - episode.steps[-1].reward == (-1.0 if success else 1.0)
    assert turned.steps[:-1] == episode.steps[:-1]
    assert misjudged(episode, 0.0) is episode


def test_the_id_decides_which_verdicts_are_turned_and_what_was_cut_off_keeps_its_own() -> None:
    episodes = [make_trajectory(f"e{n}") for n in range(200)]
    turned = [misjudged(episode, 0.2).id for episode in episodes if misjudged(episode, 0.2) != episode]
    assert 20 <= len(turned) <= 60
    assert turned == [misjudged(episode, 0.2).id for episode in episodes if misjudged(episode, 0.2) != episode]
    cut = replace(episodes[0], ending=Ending.STEP_LIMIT)
    assert misjudged(cut, 1.0) is cut


def test_a_turned_verdict_is_what_the_learner_sees_and_the_store_keeps_the_true_one(tmp_path: Path) -> None:
    shop, noting = Workshop(tmp_path, small_config(data={"outcome_flip": 1.0})), Noting()
    ids = shop.deliver(2, Played(success=True))
    learner = shop.learner(noting)
    learner.take_in(limit=10)
    learner.update()
    assert not noting.lessons[0].success_B.any()
    assert all(shop.store.read(id).verdict.success for id in ids)


# --- under other names ----------------------------------------------------------------------------------------------


def test_a_failure_on_a_renamed_phone_gets_its_hindsight_again_in_a_next_life(tmp_path: Path) -> None:
    shop, episodes = Workshop(tmp_path, HINDSIGHT), strays(SUITE, 8, names=1030)
    for episode in episodes:
        shop.store.add(episode)
    lives: list[dict[str, str]] = []
    for _ in range(2):
        learner = shop.learner(Noting())
        if not learner.resume():
            learner.take_in(limit=20)
            learner.save()
        drawn = learner.replay.sample(400)
        lives.append({sample.id: sample.item.instruction for sample in drawn})
    assert lives[0] == lives[1]
    relabelled = {id: text for id, text in lives[0].items() if id.endswith("+hindsight")}
    assert len(relabelled) >= 5
    for episode in episodes:
        own = names_in(content(episode.task.phone, held_out=False))
        assert not any(name in relabelled.get(f"{episode.id}+hindsight", "") for name in own)


def test_demonstrations_that_are_kept_keep_their_names_whatever_is_practised() -> None:
    practised = replace(KEEPING, tasks=replace(KEEPING.tasks, rename_share=1.0))
    assert demonstration_tasks(practised) == demonstration_tasks(KEEPING)
    assert {task.names for task in demonstration_tasks(practised)} == {0}
    assert make_feed(practised, seed="a").next().names > 0
