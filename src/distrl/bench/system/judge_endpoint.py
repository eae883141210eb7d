"""A local chat-completions endpoint for benchmarks: believes every claim, after as long as it is told to take.

It is a process of its own, as a server of models is: what it computes takes no turn of the run that asks it. How long an answer takes can
be changed while it serves. It says nothing about how well a model judges; it is there to measure what asking one costs a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import msgspec

from distrl.errors import RoleCrashed

MODULE = "distrl.bench.system.judge_endpoint"
CONTROL_S = 10.0
"""The most that it may take to change the delay or to read the counts."""


class EndpointCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint has been asked so far."""

    requests: int = 0
    pictures: int = 0
    """Screenshots that it was sent."""
    busy_s: float = 0.0
    """Seconds in requests, summed over all of them, also over those that are under way."""
    most_at_once: int = 0


class JudgeEndpoint:
    """Serves on loopback while it is entered."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s, self._port = delay_s, 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """For `judge.model.url`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-m", MODULE], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told:
            raise RoleCrashed("the endpoint of the judge ended before it was up", fix=f"python -m {MODULE}")
        self._port = int(told)
        self.set_delay(self._delay_s)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def set_delay(self, seconds: float) -> None:
        """Have requests from now on take so long."""
        self._control("POST", "/delay", json.dumps(seconds).encode())

    def counts(self) -> EndpointCounts:
        """What it was asked until now."""
        return msgspec.json.decode(self._control("GET", "/counts"), type=EndpointCounts)

    def _control(self, method: str, path: str, data: bytes | None = None) -> bytes:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=CONTROL_S)
        try:
            connection.request(method, path, data)
            return connection.getresponse().read()
        finally:
            connection.close()


class _Believer:
    """Answers and counts, for all threads of the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.delay_s = 0.0
        self._clock, self._lock = clock, threading.Lock()
        self._requests = self._pictures = self._now = self._most = 0
        self._busy_s, self._counted_s = 0.0, clock()

    def counts(self) -> EndpointCounts:
        """So far."""
        with self._lock:
            self._count(0)
            return EndpointCounts(
                requests=self._requests, pictures=self._pictures, busy_s=self._busy_s, most_at_once=self._most
            )

    def answer(self, asked: bytes) -> bytes:
        """Take the time that a model takes, then believe the claim."""
        with self._lock:
            self._count(+1)
            self._requests += 1
            self._pictures += asked.count(b'"image_url"') // 2  # the type and the key of each
        time.sleep(self.delay_s)
        with self._lock:
            self._count(-1)
        message = {"role": "assistant", "content": '{"outcome": "success", "reason": "as claimed"}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": 12}
        return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()

    def _count(self, change: int) -> None:
        now_s = self._clock()
        self._busy_s, self._counted_s = self._busy_s + self._now * (now_s - self._counted_s), now_s
        self._now += change
        self._most = max(self._most, self._now)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.believer = _Believer()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """The counts."""
        self._reply(msgspec.json.encode(self.server.believer.counts()))

    def do_POST(self) -> None:
        """A request for a completion, or another delay."""
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/delay":
            self.server.believer.delay_s = float(json.loads(asked))
            self._reply(b"{}")
        else:
            self._reply(self.server.believer.answer(asked))

    def _reply(self, answer: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main() -> None:
    """Serve until killed; the port is the first line of stdout."""
    server = _Server()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
