"""A local chat-completions endpoint for benchmarks: believes every claim, after as long as it is told to take.

It says nothing about how well a model judges. It is there to measure what asking one costs a run.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class JudgeEndpoint:
    """Serves on loopback while it is entered."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.requests = self.pictures = self.most_at_once = 0
        self._now = 0
        self._busy_s = 0.0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """For `judge.model.url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def busy_s(self) -> float:
        """Seconds in requests, summed over all of them."""
        return self._busy_s

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)

    def answer(self, asked: bytes) -> bytes:
        """Take the time that a model takes, then believe the claim."""
        began_s = time.monotonic()
        with self._lock:
            self._now += 1
            self.requests += 1
            self.pictures += asked.count(b'"image_url"') // 2  # the type and the key of each
            self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(self.delay_s)
        with self._lock:
            self._now -= 1
            self._busy_s += time.monotonic() - began_s
        message = {"role": "assistant", "content": '{"outcome": "success", "reason": "as claimed"}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": 12}
        return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


class _Server(ThreadingHTTPServer):
    owner: JudgeEndpoint
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """One request for a completion."""
        answer = self.server.owner.answer(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
