"""Episodes with pictures from play to update: played, stored, read back and learnt from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.algorithms.aride import ARide, unlikelihood
from distrl.algorithms.base import AlgorithmContext
from distrl.algorithms.batch import Groups, TrainBatch, make_batch, prepare
from distrl.algorithms.digirl import DigiRL
from distrl.algorithms.grpo import group_advantage
from distrl.algorithms.ppo import clipped_gain, normalised
from distrl.algorithms.targets import lambda_returns
from distrl.config.schema import Config
from distrl.evaluation.evaluate import evaluate
from distrl.experience.frames import FrameBuffer, FrameCache, FrameStore
from distrl.learner.loop import Learner, LearnerParts
from distrl.policies.base import Scores
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.warm_start import WarmStarter
from distrl.rollout.worker import references_of
from distrl.runtime.factory import make_algorithm, make_evaluation, make_policy, make_relabeller
from distrl.tasks.base import find_suite, held_out
from distrl.transport.files import CheckpointFolder, FileEpisodes
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Ending, Trajectory
from support.batches import Played, decided_episode, tiny_policy
from support.grounding import RecordingReporter
from support.learners import Hearer
from support.pixels import pictured_screens, pixel_config, tiny_pixels
from support.rollouts import ScriptedPolicy
from support.strays import strays

CONFIG = pixel_config(
    tasks__max_oracle_steps=3,
    evaluation__devices=2,
    learner__batch_trajectories=2,
    learner__first_update_episodes=1,
    learner__updates_per_episode=5.0,
    algorithm__aride__critic_warmup_updates=0,
)


def play(folder: Path, config: Config, count: int = 3) -> list[Trajectory]:
    """Episodes of an untrained policy in the store of a run, as a worker leaves them."""
    frames = FrameBuffer(FrameStore(folder), capacity=50)
    policy = make_policy(config, frames)
    tasks = [replace(task, max_steps=3) for task in held_out(config.tasks, count, "train")]
    how = replace(make_evaluation(config, seed=0), temperature=1.0, keep_frame=frames.put)
    found, episodes = evaluate(policy, tasks, how), FileEpisodes(folder)
    for trajectory in found:
        episodes.add(trajectory, frames.collect(references_of(trajectory)))
    return found


def learner_of(folder: Path, config: Config) -> Learner:
    frames = FrameCache(100, FrameStore(folder))
    return Learner(
        LearnerParts(
            config=config,
            policy=make_policy(config, frames, learning=True),
            algorithm=make_algorithm(config),
            episodes=FileEpisodes(folder),
            weights=WeightsFolder(folder / "weights"),
            checkpoints=CheckpointFolder(folder / "checkpoints"),
            report=Hearer(),
        )
    )


def keep_demonstrations(learner: Learner, folder: Path, config: Config) -> None:
    """As the learner's role does: rendered into memory, then stored with their pictures."""
    frames = FrameCache(100)
    learner.keep(WarmStarter(config, make_policy(config, frames), frames, RecordingReporter()).kept())


def wander(folder: Path, config: Config, count: int) -> list[Trajectory]:
    """Failures that did something else, and what hindsight makes of them, in a store with pictures and no elements."""
    frames, policy = FrameStore(folder), tiny_pixels()
    found = [pixelled(episode, frames, policy) for episode in strays(CONFIG.tasks.suite, count)]
    relabeller = make_relabeller(config, find_suite(config.tasks), policy, make_algorithm(config))
    assert relabeller is not None
    episodes = FileEpisodes(folder)
    for trajectory in found:
        episodes.add(trajectory, {})
        if (relabelled := relabeller.relabel(trajectory)) is not None:
            episodes.add(relabelled, {})
    return found


def pixelled(episode: Trajectory, frames: FrameStore, policy: PixelPolicy) -> Trajectory:
    steps = []
    for number, step in enumerate(episode.steps):
        picture = frames.put(f"picture {number} of {episode.id}".encode())
        choice = policy.imitate(step.observation, step.decision.action) or (0, 0, 0)
        seen = replace(step.observation, elements=(), screenshot=picture)
        steps.append(replace(step, observation=seen, decision=replace(step.decision, choice=choice)))
    return replace(episode, steps=tuple(steps))


def test_what_was_played_with_pictures_is_learnt_from_and_scored_as_it_was_acted(tmp_path: Path) -> None:
    played = play(tmp_path, CONFIG)
    assert all(step.observation.screenshot for trajectory in played for step in trajectory.steps)
    learner = learner_of(tmp_path, CONFIG)
    assert learner.take_in(limit=10) == len(played)
    policy = make_policy(CONFIG, FrameStore(tmp_path), learning=True)
    batch = make_batch(policy, [prepare(trajectory, policy) for trajectory in played], [1.0] * len(played))
    assert torch.allclose(batch.ratio_BT[batch.mask_BT], torch.ones(int(batch.mask_BT.sum())), atol=1e-3)
    before = learner.replay.priorities()
    while learner.ready():
        learner.update()
    assert learner.updates == 15
    assert learner.replay.priorities() != before


def test_an_episode_whose_picture_is_gone_or_damaged_is_skipped_and_counted(tmp_path: Path) -> None:
    played = play(tmp_path, CONFIG)
    gone, damaged = (FrameStore(tmp_path)._path(t.steps[0].observation.screenshot[7:]) for t in played[:2])
    gone.unlink()
    damaged.write_bytes(b"rubbish")
    learner = learner_of(tmp_path, CONFIG)
    learner.take_in(limit=10)
    assert learner.unreadable == 2
    assert list(learner.replay.priorities()) == [played[2].id]


def test_hindsight_needs_no_elements_and_sees_the_pictures_that_were_seen(tmp_path: Path) -> None:
    config = replace(CONFIG, tasks=replace(CONFIG.tasks, max_oracle_steps=0))
    played = wander(tmp_path, config, 3)
    learner = learner_of(tmp_path, config)
    learner.take_in(limit=10)
    assert learner.data.relabelled > 0
    held = {sample.item.id: sample.item for sample in learner.replay.sample(100)}
    for trajectory in played:
        again = held.get(f"{trajectory.id}+hindsight")
        if again is not None:
            seen = [step.observation.screenshot for step in trajectory.steps]
            assert [one.reference for one in again.encoded] == [
                r for r in seen if r in {e.reference for e in again.encoded}
            ]
            assert again.instruction != trajectory.task.instruction
    learner.update()


@pytest.mark.parametrize("name", ["digirl", "filtered_bc", "grpo", "ppo"])
def test_every_algorithm_learns_from_pictures(tmp_path: Path, name: str) -> None:
    config = replace(CONFIG, algorithm=replace(CONFIG.algorithm, kind=name))
    play(tmp_path, config)
    learner = learner_of(tmp_path, config)
    learner.take_in(limit=10)
    while learner.ready():
        learner.update()
    learner.save()
    assert learner.updates == 15
    again = learner_of(tmp_path, config)
    assert again.resume()
    assert again.replay.priorities() == learner.replay.priorities()


def test_kept_demonstrations_have_pictures_also_after_a_kill_and_a_stream_leaves_none(tmp_path: Path) -> None:
    shown = pixel_config(warm_start__demonstrations=2, tasks__max_oracle_steps=3)
    learner = learner_of(tmp_path, shown)
    keep_demonstrations(learner, tmp_path, shown)
    assert list(learner.replay.priorities()) == ["demonstration-0", "demonstration-1"]
    assert all(one.image for sample in learner.replay.sample(2) for one in sample.item.encoded)
    learner.update()
    learner.save()
    again = learner_of(tmp_path, shown)
    assert again.resume()
    assert again.replay.priorities() == learner.replay.priorities()
    stream = pixel_config(warm_start__demonstrations=2, warm_start__samples=8)
    streamed = learner_of(tmp_path / "streamed", stream)
    keep_demonstrations(streamed, tmp_path / "streamed", stream)
    assert len(streamed.replay.priorities()) == 0


def test_a_resumed_learner_varies_colours_on_from_where_it_stopped() -> None:
    jittery = replace(tiny_pixels().config, jitter=0.2)
    (screen,) = pictured_screens(1)
    first, second = tiny_pixels(config=jittery), tiny_pixels(seed=1, config=jittery)
    first.augment(first.encode(screen))
    second.augmentation_state = first.augmentation_state
    tints = [policy.augment(policy.encode(screen)).tint_C for policy in (first, second)]
    assert tints[0] is not None
    assert tints[1] is not None
    assert tints[0].tolist() == tints[1].tolist()


class Elsewhere(ScriptedPolicy):
    """A policy whose scores lie on another device, with a shape and no content."""

    def augment(self, encoded: Any) -> Any:
        return encoded

    def score(self, encoded: Any, choices: Any) -> Scores:
        some = torch.zeros(len(encoded), device="meta", requires_grad=True)
        return Scores(logp_N=some, entropy_N=some, value_logit_N=some)


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.STEP_LIMIT])
def test_a_batch_and_its_targets_lie_where_the_scores_lie(ending: Ending) -> None:
    lengths = {"a": 2, "b": 3}
    episodes = [decided_episode(tiny_policy(), id, Played(num_steps=n, ending=ending)) for id, n in lengths.items()]
    policy = Elsewhere()
    episodes[1] = replace(episodes[1], source="demonstration")
    prepared = [prepare(episode, policy) for episode in episodes]
    batch = make_batch(policy, prepared, [1.0, 0.5], groups=Groups(2))
    names = [name for name in batch.__struct_fields__ if isinstance(getattr(batch, name), torch.Tensor)]
    assert len(names) > 10
    assert {name: getattr(batch, name).device.type for name in names} == dict.fromkeys(names, "meta")
    check_aride(batch)
    check_the_others(batch)


def check_aride(batch: TrainBatch) -> None:
    algorithm = ARide(CONFIG.algorithm.aride, AlgorithmContext())
    targets = algorithm._targets(batch)
    assert {targets.td_BT.device.type, targets.value_BT.device.type, targets.advantage_BT.device.type} == {"meta"}
    assert algorithm._policy_loss(batch, targets).device.type == "meta"
    assert unlikelihood(batch, algorithm._bad(batch)).device.type == "meta"


def check_the_others(batch: TrainBatch) -> None:
    digirl = DigiRL(CONFIG.algorithm.digirl, AlgorithmContext())
    promise_B = digirl.critic.to("meta")(batch.instructions)
    assert {promise_B.device.type, digirl._imitated(batch, promise_B).device.type} == {"meta"}
    advantage_BT = lambda_returns(batch.return_inputs, gamma=0.9, lambda_=0.9).advantage_BT
    gain_BT = clipped_gain(batch, normalised(advantage_BT, batch.attempts_BT), CONFIG.algorithm.ppo)
    assert {gain_BT.device.type, group_advantage(batch).device.type} == {"meta"}


def test_what_an_algorithm_trains_beside_the_policy_lies_where_the_policy_does(tmp_path: Path) -> None:
    config = replace(CONFIG, algorithm=replace(CONFIG.algorithm, kind="digirl"))
    digirl, policy = DigiRL(config.algorithm.digirl, AlgorithmContext()), Elsewhere()
    policy._network = torch.nn.Linear(1, 1, device="meta")
    Learner(
        LearnerParts(
            config=config,
            policy=policy,
            algorithm=digirl,
            episodes=FileEpisodes(tmp_path),
            weights=WeightsFolder(tmp_path / "weights"),
            checkpoints=CheckpointFolder(tmp_path / "checkpoints"),
            report=Hearer(),
        )
    )
    assert {weights.device.type for weights in digirl.critic.parameters()} == {"meta"}
