"""The supervisor's eye on the head of the cluster, with a port of this test's and a clock that it turns."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.errors import RoleCrashed
from distrl.runtime.ray.head_watch import RECONNECT, HeadWatch
from distrl.telemetry.events import EventLog, read_events


class Head:
    """Something that listens where a GCS would, or does not; and the time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._socket: socket.socket | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


@pytest.fixture
def head() -> Iterator[Head]:
    made = Head()
    yield made
    made.stop()


def pass_s(head: Head, watch: HeadWatch, seconds: float) -> None:
    for _ in range(int(seconds)):
        head.now_s += 1.0
        watch.look()


def test_a_head_that_is_away_is_named_at_once_and_ends_the_run_before_ray_does(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(RECONNECT, raising=False)
    log = tmp_path / "log.jsonl"
    watch = HeadWatch(f"127.0.0.1:{head.port}", EventLog(log), clock=lambda: head.now_s)
    pass_s(head, watch, 5)
    assert watch.away_s == 0.0
    head.stop()
    pass_s(head, watch, 10)
    assert watch.away_s == 10.0
    assert [event["event"] for event in read_events(log)] == ["head_away"]
    head.start()
    pass_s(head, watch, 2)
    assert watch.away_s == 0.0
    assert [event["event"] for event in read_events(log)] == ["head_away", "head"]
    head.stop()
    pass_s(head, watch, 45)
    with pytest.raises(RoleCrashed, match=r"its GCS at 127.0.0.1:\d+\) has not answered for 46 s"):
        pass_s(head, watch, 1)
    assert "does not answer; the run goes on without it for 45 s" in caplog.text


def test_who_lets_ray_wait_longer_for_its_head_has_the_run_wait_longer(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RECONNECT, "600")
    watch = HeadWatch(f"127.0.0.1:{head.port}", EventLog(tmp_path / "log.jsonl"), clock=lambda: head.now_s)
    head.stop()
    pass_s(head, watch, 450)
    with pytest.raises(RoleCrashed):
        pass_s(head, watch, 1)
