"""The learner's role on a run folder: one life after the other, each on what the last one left."""

from __future__ import annotations

from pathlib import Path

import msgspec

from distrl.config.schema import Config
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import Checkpoint, CheckpointFolder
from distrl.runtime.learner_role import learn
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.spent import Spent
from distrl.telemetry.events import read_events
from support.learners import small_config
from support.lessons import decided_episode, tiny_policy
from support.lives import QuietLife
from support.pixels import pixel_config


def live(folder: Path, config: Config, *, turns: int = 5) -> Checkpoint:
    """One life of the learner, and what it saved at its end."""
    learn(QuietLife("learner", folder, config, turns=turns))
    checkpoint = CheckpointFolder(RunFolder(folder).checkpoints).newest()
    assert checkpoint is not None
    return checkpoint


def deliver(folder: Path, count: int) -> None:
    with ExperienceStore(RunFolder(folder).experience) as store:
        for number in range(count):
            store.add(decided_episode(tiny_policy(), f"episode-{number}"))


def test_a_learner_that_is_started_again_goes_by_the_time_that_the_run_has_spent(tmp_path: Path) -> None:
    config = small_config(
        run={"minutes": 10.0}, learner={"fall_share": 0.5, "updates_per_episode": 4.0}, warm_start={"demonstrations": 0}
    )
    deliver(tmp_path, 4)
    first = live(tmp_path, config)
    RunFolder(tmp_path).progress.write_bytes(msgspec.json.encode(Spent(collect_s=300.0)))
    second = live(tmp_path, config)
    RunFolder(tmp_path).progress.write_bytes(msgspec.json.encode(Spent(collect_s=600.0)))
    third = live(tmp_path, config)
    assert first.state.updates < second.state.updates < third.state.updates
    assert first.policy != second.policy
    # Nothing is left of the learning rate once nothing is left of the budget.
    assert second.policy == third.policy


def test_a_learner_that_is_started_again_says_that_it_no_longer_rehearses(tmp_path: Path) -> None:
    config = pixel_config(warm_start__demonstrations=0)
    live(tmp_path, config, turns=1)
    rehearsing = pixel_config(warm_start__demonstrations=4, warm_start__samples=64, warm_start__rehearse=8)
    for again, told in ((config, 0), (rehearsing, 1)):
        live(tmp_path, again, turns=1)
        events = [event["event"] for event in read_events(RunFolder(tmp_path).log("learner"))]
        assert events.count("rehearsal_over") == told
