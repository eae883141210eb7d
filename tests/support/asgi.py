"""One request to an ASGI app, without a server."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.types import ASGIApp


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)


def ask(app: ASGIApp, target: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """The answer to one request; `host="…"` and others are its headers, with `_` for `-`."""
    path, _, query = target.partition("?")
    sent = {"host": "127.0.0.1:8642", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8642), "client": ("127.0.0.1", 5), "root_path": "",
    }  # fmt: skip
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return Answer(
        status=messages[0]["status"],
        headers={name.decode().lower(): value.decode("latin-1") for name, value in messages[0]["headers"]},
        body=b"".join(message.get("body", b"") for message in messages[1:]),
    )
