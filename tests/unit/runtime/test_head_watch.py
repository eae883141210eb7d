"""The supervisor's eye on the head of the cluster, with a port of this test's and a clock that it turns."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from distrl.errors import RoleCrashed
from distrl.runtime.ray import head_watch
from distrl.runtime.ray.head_watch import HELLO, RECONNECT, HeadWatch
from distrl.telemetry.events import EventLog, read_events


class Head:
    """What answers where a GCS would, or does not; and the time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.port = 0
        self._server: socketserver.TCPServer | None = None
        self.start()

    def start(self) -> None:
        self._server = socketserver.TCPServer(("127.0.0.1", self.port), Greeting, bind_and_activate=False)
        self._server.allow_reuse_address = True
        self._server.server_bind()
        self._server.server_activate()
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None


class Greeting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(len(HELLO)).startswith(b"PRI"):
            self.request.sendall(HELLO[-9:])


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
    pass_s(head, watch, 2)
    assert read_events(log) == []
    pass_s(head, watch, 8)
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


def test_a_head_that_is_stopped_takes_connections_and_counts_as_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_watch, "ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        now_s = iter(range(100, 1000))
        watch = HeadWatch(
            f"127.0.0.1:{listening.getsockname()[1]}",
            EventLog(tmp_path / "log.jsonl"),
            clock=lambda: float(next(now_s)),
        )
        assert not watch.answers()
        assert watch.away_s > 0


def test_who_lets_ray_wait_longer_for_its_head_has_the_run_wait_longer(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RECONNECT, "600")
    watch = HeadWatch(f"127.0.0.1:{head.port}", EventLog(tmp_path / "log.jsonl"), clock=lambda: head.now_s)
    head.stop()
    pass_s(head, watch, 450)
    with pytest.raises(RoleCrashed):
        pass_s(head, watch, 1)


def test_a_machine_that_slept_does_not_take_the_head_for_lost_by_one_late_answer(head: Head, tmp_path: Path) -> None:
    watch = HeadWatch(f"127.0.0.1:{head.port}", EventLog(tmp_path / "log.jsonl"), clock=lambda: head.now_s)
    pass_s(head, watch, 5)
    head.stop()
    head.now_s += 3600.0
    watch.look()
    assert watch.away_s == head_watch.LONGEST_LOOK_S
    head.start()
    pass_s(head, watch, 1)
    assert watch.away_s == 0.0


def test_one_late_answer_is_no_head_that_stays_away(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = HeadWatch(f"127.0.0.1:{head.port}", EventLog(tmp_path / "log.jsonl"), clock=lambda: head.now_s)
    late = iter((False, True))
    monkeypatch.setattr(watch, "_greet", lambda: next(late))
    assert not watch.stays_away()
    monkeypatch.undo()
    head.stop()
    assert watch.stays_away()
