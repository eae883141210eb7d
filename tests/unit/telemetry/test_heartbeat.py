"""What a role says of itself, and when it is written down."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from threading import enumerate as threads

from distrl.telemetry.heartbeat import Heartbeat, HeartbeatWriter
from distrl.transport.files import FileHeartbeats


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def heard(folder: Path) -> Heartbeat:
    heartbeat = FileHeartbeats(folder).last("learner")
    assert heartbeat is not None
    return heartbeat


def test_a_role_is_heard_of_as_soon_as_it_lives(tmp_path: Path) -> None:
    HeartbeatWriter(FileHeartbeats(tmp_path / "heartbeats").beat, "learner", interval_s=1.0, clock=Clock())
    heartbeat = heard(tmp_path / "heartbeats")
    assert (heartbeat.role, heartbeat.pid, heartbeat.phase, heartbeat.beat_s) == (
        "learner",
        os.getpid(),
        "starting",
        100.0,
    )


def test_every_beat_says_which_incarnation_of_the_role_it_is(tmp_path: Path) -> None:
    FileHeartbeats(tmp_path).beat(
        Heartbeat(role="learner", pid=1, phase="doing", what="training", since_s=0.0, beat_s=0.0)
    )
    assert heard(tmp_path).incarnation == 0, "whoever does not say"
    writer = HeartbeatWriter(FileHeartbeats(tmp_path).beat, "learner", interval_s=0.0, incarnation=3)
    assert heard(tmp_path).incarnation == 3
    writer.stopped("finished")
    assert heard(tmp_path).incarnation == 3


def test_a_heart_beats_at_most_once_per_interval(tmp_path: Path) -> None:
    clock = Clock()
    writer = HeartbeatWriter(FileHeartbeats(tmp_path).beat, "learner", interval_s=1.0, clock=clock)
    clock.now_s += 0.5
    writer.doing("training")
    assert heard(tmp_path).phase == "starting"
    clock.now_s += 0.5
    writer.doing("training")
    assert (heard(tmp_path).phase, heard(tmp_path).what, heard(tmp_path).beat_s) == ("doing", "training", 101.0)


class Loading:
    """Counts how often it was asked how far a role has come, which goes on until it is `stuck`."""

    def __init__(self) -> None:
        self.asked, self.stuck = 0, False
        self._seen, self._changed = 0, Condition()

    def __call__(self) -> int:
        with self._changed:
            self.asked += 1
            self._seen += not self.stuck
            self._changed.notify_all()
            return self._seen

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, timeout=30.0)


def test_a_role_that_loads_libraries_beats_while_it_comes_further_and_is_silent_once_it_is_stuck() -> None:
    beats, loading = list[Heartbeat](), Loading()
    writer = HeartbeatWriter(beats.append, "learner", interval_s=0.001)
    writer.starting("loading its libraries")
    with writer.while_loading(loading):
        loading.wait_for(lambda: len(beats) > 3)
        assert {(beat.phase, beat.what) for beat in beats[2:]} == {("starting", "loading its libraries")}
        loading.stuck = True
        asked = loading.asked
        loading.wait_for(lambda: loading.asked > asked + 2)
        before, asked = len(beats), loading.asked
        loading.wait_for(lambda: loading.asked > asked + 5)
        assert len(beats) == before


def test_nobody_beats_for_a_role_that_has_come_to_its_work() -> None:
    beats, loading = list[Heartbeat](), Loading()
    writer = HeartbeatWriter(beats.append, "learner", interval_s=0.001)
    with writer.while_loading(loading):
        loading.wait_for(lambda: len(beats) > 1)
        writer.waiting("episodes")
        assert num_threads("loading") == 0


def num_threads(name: str) -> int:
    """How many threads of this name go on, once those that end have."""
    for thread in threads():
        if thread.name == name:
            thread.join(30.0)
    return sum(thread.name == name for thread in threads())


def test_since_is_kept_while_only_the_figures_behind_the_colon_change(tmp_path: Path) -> None:
    clock = Clock()
    writer = HeartbeatWriter(FileHeartbeats(tmp_path).beat, "learner", interval_s=0.0, clock=clock)
    for number in range(3):
        clock.now_s += 10.0
        writer.waiting(f"episodes: {number} of 64")
    assert (heard(tmp_path).since_s, heard(tmp_path).beat_s) == (110.0, 130.0)
    writer.doing("episodes: 4 of 64")
    assert heard(tmp_path).since_s == 130.0


def test_the_last_word_is_always_written(tmp_path: Path) -> None:
    writer = HeartbeatWriter(FileHeartbeats(tmp_path).beat, "learner", interval_s=1000.0, clock=Clock())
    writer.figures["updates"] = 3
    writer.stopped("finished")
    assert (heard(tmp_path).phase, heard(tmp_path).figures) == ("stopped", {"updates": 3})


def test_a_role_that_never_spoke_or_left_rubbish_is_not_heard(tmp_path: Path) -> None:
    assert FileHeartbeats(tmp_path).last("worker-0") is None
    (tmp_path / "worker-0.json").write_bytes(b'{"role": "wor')
    assert FileHeartbeats(tmp_path).last("worker-0") is None
