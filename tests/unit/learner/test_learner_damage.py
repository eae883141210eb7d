"""An episode file that came to harm costs that episode, not the run."""

from __future__ import annotations

from pathlib import Path

from support.learners import Workshop


def test_an_episode_that_cannot_be_read_is_skipped_and_counted(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    ids = shop.deliver(4)
    next(tmp_path.glob(f"experience/episodes/*/{ids[1]}.ep")).unlink()
    next(tmp_path.glob(f"experience/episodes/*/{ids[2]}.ep")).write_bytes(b"rubbish")
    learner = shop.learner()
    assert learner.take_in(limit=10) == 4
    assert list(learner.replay.priorities()) == [ids[0], ids[3]]
    assert (learner.unreadable, learner.take_in(limit=10)) == (2, 0)
    assert shop.store.audit().missing == (ids[1], ids[2])


def test_an_episode_that_was_held_and_came_to_harm_does_not_stop_the_next_incarnation(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    ids = shop.deliver(3)
    first = shop.learner()
    first.take_in(limit=10)
    first.save()
    next(tmp_path.glob(f"experience/episodes/*/{ids[0]}.ep")).unlink()
    second = shop.learner()
    assert second.resume()
    assert list(second.replay.priorities()) == ids[1:]
    assert second.unreadable == 1
