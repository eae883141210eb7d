"""Episodes with pictures from play to update: played, stored, read back and learnt from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.algorithms.aride import ARide, push_down
from distrl.algorithms.base import prepare, read_lesson
from distrl.config.schema import Config
from distrl.evaluation.evaluate import Evaluation, evaluate, held_out
from distrl.experience.frame_memory import IllustratedStore, UnwrittenFrames
from distrl.experience.frames import FrameStore
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import CheckpointFolder
from distrl.learner.loop import Learner, LearnerParts
from distrl.learner.weights import WeightsFolder
from distrl.policies.base import Scores
from distrl.runtime.assembly import make_policy
from distrl.types import Ending, Trajectory
from support.learners import Hearer
from support.lessons import Played, decided_episode, tiny_policy
from support.pixels import pixel_config
from support.rollouts import ScriptedPolicy

CONFIG = pixel_config(
    tasks__max_oracle_steps=3,
    evaluation__devices=2,
    learner__batch_trajectories=2,
    learner__first_update_episodes=1,
    learner__updates_per_episode=5.0,
    algorithm__critic_warmup_updates=0,
)


def play(folder: Path, config: Config, count: int = 3) -> list[Trajectory]:
    """Episodes of an untrained policy in the store of a run, as a worker leaves them."""
    frames = UnwrittenFrames(FrameStore(folder), capacity=50)
    policy = make_policy(config, frames)
    tasks = [replace(task, max_steps=3) for task in held_out(config, count, "train")]
    found = evaluate(policy, tasks, Evaluation(config=config, temperature=1.0, keep_frame=frames.put))
    with ExperienceStore(folder) as store:
        sink = IllustratedStore(store, frames)
        for trajectory in found:
            sink.add(trajectory)
    return found


def learner_of(folder: Path, config: Config) -> Learner:
    return Learner(
        LearnerParts(
            config=config,
            policy=make_policy(config, FrameStore(folder), learning=True),
            algorithm=ARide(config.algorithm),
            store=ExperienceStore(folder),
            weights=WeightsFolder(folder / "weights"),
            checkpoints=CheckpointFolder(folder / "checkpoints"),
            report=Hearer(),
        )
    )


def test_what_was_played_with_pictures_is_learnt_from_and_scored_as_it_was_acted(tmp_path: Path) -> None:
    played = play(tmp_path, CONFIG)
    assert all(step.observation.screenshot for trajectory in played for step in trajectory.steps)
    learner = learner_of(tmp_path, CONFIG)
    assert learner.take_in(limit=10) == len(played)
    policy = make_policy(CONFIG, FrameStore(tmp_path), learning=True)
    lesson = read_lesson(policy, [prepare(trajectory, policy) for trajectory in played], [1.0] * len(played))
    assert torch.allclose(lesson.ratio_BT[lesson.mask_BT], torch.ones(int(lesson.mask_BT.sum())), atol=1e-3)
    before = learner.replay.priorities()
    while learner.ready():
        learner.update()
    assert learner.updates == 15
    assert learner.replay.priorities() != before


def test_an_episode_whose_picture_is_gone_or_damaged_is_passed_over_and_counted(tmp_path: Path) -> None:
    played = play(tmp_path, CONFIG)
    gone, damaged = (FrameStore(tmp_path)._path(t.steps[0].observation.screenshot[7:]) for t in played[:2])
    gone.unlink()
    damaged.write_bytes(b"rubbish")
    learner = learner_of(tmp_path, CONFIG)
    learner.take_in(limit=10)
    assert learner.unreadable == 2
    assert list(learner.replay.priorities()) == [played[2].id]


class Elsewhere(ScriptedPolicy):
    """A policy whose scores lie on another device, with a shape and no content."""

    def augment(self, encoded: Any) -> Any:
        return encoded

    def score(self, encoded: Any, choices: Any) -> Scores:
        some = torch.zeros(len(encoded), device="meta", requires_grad=True)
        return Scores(logp_N=some, entropy_N=some, value_logit_N=some)


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.STEP_LIMIT])
def test_a_lesson_and_its_targets_lie_where_the_scores_lie(ending: Ending) -> None:
    lengths = {"a": 2, "b": 3}
    episodes = [decided_episode(tiny_policy(), id, Played(num_steps=n, ending=ending)) for id, n in lengths.items()]
    policy = Elsewhere()
    lesson = read_lesson(policy, [prepare(episode, policy) for episode in episodes], [1.0, 0.5])
    assert {name: getattr(lesson, name).device.type for name in lesson.__struct_fields__} == dict.fromkeys(
        lesson.__struct_fields__, "meta"
    )
    algorithm = ARide(CONFIG.algorithm)
    targets = algorithm._targets(lesson)
    assert {targets.td_BT.device.type, targets.value_BT.device.type, targets.advantage_BT.device.type} == {"meta"}
    assert algorithm._policy_loss(lesson, targets).device.type == "meta"
    assert push_down(lesson, algorithm._bad(lesson)).device.type == "meta"
