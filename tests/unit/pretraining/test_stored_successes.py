"""What is imitated of stored episodes: successes without their no-op steps, in the policy's grammar."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distrl.config.schema import PointerConfig, PolicyConfig, VlmConfig
from distrl.experience.store import ExperienceStore
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.policy import PointerPolicy
from distrl.pretraining.cloning import (
    CHUNK,
    Successes,
    nothing_expressible,
    read_successes,
    stored_examples,
    stored_successes,
)
from distrl.types import Action, Finish, Observation, Tap, Trajectory
from support.batches import Played, decided_episode, tiny_policy
from support.pixels import tiny_pixels


def stored(folder: Path, *episodes: Trajectory) -> ExperienceStore:
    store = ExperienceStore(folder)
    for episode in episodes:
        store.add(episode)
    return store


def an_episode(id: str, *, success: bool = True, invalid: tuple[int, ...] = ()) -> Trajectory:
    return decided_episode(tiny_policy(), id, Played(success=success, invalid=invalid))


def test_only_successes_are_read_oldest_first(tmp_path: Path) -> None:
    names = [f"e{number:02}" for number in range(6)]
    store = stored(tmp_path, *(an_episode(name, success=number % 2 == 0) for number, name in enumerate(names)))
    found = list(stored_successes(store, on_damaged=pytest.fail))
    assert [trajectory.id for trajectory in found] == ["e00", "e02", "e04"]


def test_more_episodes_than_are_listed_at_once_are_all_read(tmp_path: Path) -> None:
    small = msgspec.structs.replace(an_episode("x"), steps=an_episode("x").steps[:1])
    store = stored(tmp_path, *(msgspec.structs.replace(small, id=f"e{n}") for n in range(CHUNK + 5)))
    assert sum(1 for _ in stored_successes(store, on_damaged=pytest.fail)) == CHUNK + 5


def test_steps_that_the_device_refused_are_not_imitated(tmp_path: Path) -> None:
    found = read_successes([stored(tmp_path, an_episode("a", invalid=(0, 1)))])
    (pairs,) = found.episodes
    whole = an_episode("a").steps
    assert pairs == [(whole[2].observation, whole[2].decision.action)]
    assert found.damaged == []


def test_a_damaged_episode_is_skipped_with_the_reason_and_the_others_are_read(tmp_path: Path) -> None:
    store = stored(tmp_path, an_episode("good"), an_episode("bad"))
    (file,) = [file for file in tmp_path.glob("episodes/*/*.ep") if "bad" in file.name]
    file.write_bytes(b"rubbish")
    found = read_successes([store])
    assert len(found.episodes) == 1
    assert len(found.damaged) == 1
    assert "bad" in found.damaged[0]


def test_inexpressible_steps_count_as_steps_and_make_no_examples() -> None:
    seen = an_episode("a").steps[0].observation
    found = Successes(episodes=[[(seen, Finish(answer="not on the screen")), (seen, Finish())]], damaged=["torn"])
    made = stored_examples(tiny_policy(), found)
    assert (made.num_steps, len(made.examples), made.damaged) == (2, 1, ["torn"])


def test_an_episode_whose_screenshot_is_gone_is_skipped_as_a_whole() -> None:
    gone = Observation(instruction="Go", screenshot="sha256:nobody-has-it")
    made = stored_examples(tiny_pixels(), Successes(episodes=[[(gone, Tap(0.5, 0.5))]], damaged=[]))
    assert (made.num_steps, made.examples) == (0, [])
    (reason,) = made.damaged
    assert "sha256:nobody-has-it" in reason


class Broken(PointerPolicy):
    """A policy with a bug."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        raise RuntimeError("a bug")


def test_a_bug_of_the_policy_is_not_counted_as_damage() -> None:
    seen = an_episode("a").steps[0].observation
    policy = Broken(PointerConfig(width=16, layers=1), PolicyContext())
    with pytest.raises(RuntimeError, match="a bug"):
        stored_examples(policy, Successes(episodes=[[(seen, Finish())]], damaged=[]))


def test_the_error_for_inexpressible_steps_names_what_a_language_model_could_change() -> None:
    vlm = PolicyConfig(kind="vlm", vlm=VlmConfig(answer_tokens=3, dialect="aitw"))
    error = nothing_expressible(12, vlm, otherwise="another suite")
    assert "none of the 12" in error.seen
    assert "'aitw'" in error.expected
    assert "answer_tokens above 3" in error.fix
    assert error.fix.endswith("or another suite")
    assert nothing_expressible(12, PolicyConfig(), otherwise="another suite").fix == "another suite"
