"""Pages of an installed package, served on loopback to the phones of one process."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

LONGEST_REQUEST = 64 * 1024


class _Exchange(asyncio.Protocol):
    """One connection, request after request."""

    def __init__(self, answer: Callable[[str, str], bytes]) -> None:
        self._answer, self._asked = answer, bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole; a request without an end is not listened to for ever."""
        assert self._transport is not None
        self._asked += data
        while (end := self._asked.find(b"\r\n\r\n")) >= 0:
            words = bytes(self._asked[:end]).decode("latin-1").split(" ", 2)
            del self._asked[: end + 4]
            self._transport.write(self._answer(*words[:2]) if len(words) == 3 else self._answer("", ""))
        if len(self._asked) > LONGEST_REQUEST:
            self._transport.abort()


class FolderSite:
    """`GET` and nothing else, of files below one folder. Belongs to one event loop."""

    def __init__(self, folder: Path, *, headers: Mapping[str, str] | None = None) -> None:
        self._folder, self._server = folder.resolve(), None  # type: Path, asyncio.Server | None
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self.origin = ""
        """Such as http://127.0.0.1:40123; empty: it is not started."""

    async def start(self) -> str:
        """Listen on a free port of this machine alone; its origin."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Exchange(self.answer), "127.0.0.1", 0)
            self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.origin

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()
        self._server, self.origin = None, ""

    def answer(self, method: str, target: str) -> bytes:
        """A whole HTTP response."""
        file = self._file(target) if method == "GET" else None
        if file is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        kind += "; charset=utf-8" if kind.startswith("text/") else ""
        data = file.read_bytes()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nCache-Control: max-age=86400\r\n{self._headers}\r\n"
        return head.encode() + data

    def _file(self, target: str) -> Path | None:
        file = (self._folder / unquote(urlsplit(target).path).lstrip("/")).resolve()
        file = file / "index.html" if file.is_dir() else file
        return file if file.is_relative_to(self._folder) and file.is_file() else None
