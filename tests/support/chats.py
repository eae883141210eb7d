"""A chat-completions endpoint on loopback that answers however a test wants it to, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from distrl.config.schema import JudgeConfig, ModelJudgeConfig

KEY = "sk-test-0123456789abcdef"
KEY_ENV = "DISTRL_JUDGE_KEY"
Act = Callable[["Handler"], None]
"""Answers one request."""


class Handler(BaseHTTPRequestHandler):
    """One request, with what a test needs to answer it."""

    server: _Server
    asked: dict[str, Any]

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.owner.answer(self)

    def send(self, data: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    owner: ChatServer
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


class ChatServer:
    """The endpoint. `acts` are used up one request after another; then `usual` answers."""

    def __init__(self, *acts: Act, usual: Act | None = None) -> None:
        self._acts, self._usual, self._lock = list(acts), usual or says("success"), threading.Lock()
        self._now = 0
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.most_at_once = 0
        self.over = threading.Event()
        """Set at the end: whoever is slow gives up waiting."""

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, handler: Handler) -> None:
        with self._lock:
            self.asked.append(handler.asked)
            self.paths.append(handler.path)
            self.keys.append(handler.headers.get("Authorization", ""))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            act = self._acts.pop(0) if self._acts else self._usual
        try:
            act(handler)
        finally:
            with self._lock:
                self._now -= 1


def completion(text: str | None, *, tokens_in: int = 100, tokens_out: int = 10) -> bytes:
    """What the API sends for an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def says(outcome: str, reason: str = "the screen shows it") -> Act:
    """A proper verdict."""
    return says_text(json.dumps({"outcome": outcome, "reason": reason}))


def says_text(text: str | None) -> Act:
    """An answer of any text."""
    return lambda handler: handler.send(completion(text))


def sends(data: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> Act:
    """Any bytes at all."""
    return lambda handler: handler.send(data, status=status, kind=kind, **headers)


def fails(status: int, message: str = "no", **headers: str) -> Act:
    """An error as the API sends it."""
    return sends(json.dumps({"error": {"message": message, "type": "x"}}).encode(), status=status, **headers)


def drops(handler: Handler) -> None:
    """End the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def hangs(handler: Handler) -> None:
    """Say nothing until the test is over."""
    handler.server.owner.over.wait(30.0)


def drips(handler: Handler) -> None:
    """Send a byte now and then, for ever: no single read is ever late."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while not handler.server.owner.over.wait(0.02):
        handler.wfile.write(b" ")


def model_settings(url: str, **changes: Any) -> ModelJudgeConfig:
    """Settings of the model judge for tests: quick retries."""
    return ModelJudgeConfig(**{"url": url, "model": "judge-1", "backoff_s": 0.01, "retries": 2, **changes})


def judge_settings(url: str, *, kind: str = "model", deadline_s: float = 20.0, **changes: Any) -> JudgeConfig:
    """`[judge]` with the model at this address."""
    return JudgeConfig(kind=kind, deadline_s=deadline_s, model=model_settings(url, **changes))
