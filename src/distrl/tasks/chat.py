"""A client of one OpenAI-compatible chat-completions endpoint: messages in, the text of the answer out.

It owns what such an endpoint asks of its callers: a rate limit, retries with back-off within a deadline, Retry-After, and a
count of tokens. Whatever goes wrong is a `ChatFailed` with a named cause, counted. The API key goes into the request and
nowhere else: no text that leaves this module holds it, even where an endpoint sends it back.

The HTTP is the standard library's, in a thread for each request: a few requests a second that take seconds each need no
client library, and none is a dependency. Their JSON, megabytes where screenshots are in it, is made in a thread too: the event
loop also plays episodes. A request that is given up is cut off at its socket, so that its thread ends.
Redirects are not followed, since they would take the key elsewhere, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from random import Random
from threading import Thread
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from distrl.config.schema import ModelJudgeConfig
from distrl.threads import beside

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
Message = dict[str, Any]
"""One message of the API: plain JSON."""
Cause = Literal[
    "unreachable", "timeout", "unauthorised", "rate_limited", "server_error", "refused", "no_api", "malformed", "empty"
]
PATH = "/chat/completions"
MOST_BYTES = 1_000_000
"""Of an answer; a longer one is none."""
MOST_HOLD_S = 120.0
"""How long all requests wait where an endpoint asks for it, at most."""
EXCERPT = 200
"""Characters of an error of the endpoint that are told."""
MASK = "•••"


class ChatFailed(Exception):
    """There is no answer. The text says why and never holds the key."""

    def __init__(self, cause: Cause, why: str, *, retry: bool = False, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.cause, self.retry, self.after_s = cause, retry, after_s


class ChatCounts(msgspec.Struct, kw_only=True):
    """What a client has done so far."""

    requests: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    failed: Counter[str] = msgspec.field(default_factory=Counter)
    """Requests that failed, by cause."""


class RateLimit:
    """Turns that are evenly spaced in time; all of them can be held back for a while."""

    def __init__(self, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._spacing_s = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next_s = self._held_s = clock()

    def reserve(self, within_s: float) -> float | None:
        """Seconds until the turn that is now reserved; None, and nothing reserved, where that is too long."""
        now_s = self._clock()
        turn_s = max(now_s, self._next_s, self._held_s)
        if turn_s - now_s > within_s:
            return None
        self._next_s = turn_s + self._spacing_s
        return turn_s - now_s

    def hold(self, seconds: float) -> None:
        """Let nobody have a turn for so long."""
        self._held_s = max(self._held_s, self._clock() + min(seconds, MOST_HOLD_S))

    @property
    def is_held(self) -> bool:
        """Whether turns are held back, also those that were reserved before."""
        return self._held_s > self._clock()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back over HTTP."""

    status: int
    kind: str
    """Content-Type."""
    retry_after: str
    location: str
    data: bytes


class ChatClient:
    """Asks one model. `clock` and `sleep` are passed in for tests."""

    def __init__(
        self,
        settings: ModelJudgeConfig,
        key: str,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._settings, self._key, self._clock, self._sleep = settings, key, clock, sleep
        self._secret = re.compile("".join(map(_spellings, key)), re.IGNORECASE) if key else None
        self._limit, self._random = RateLimit(settings.per_minute, clock), Random()
        # Once: reading the certificates of the system takes longer than a request may hold up the event loop.
        self._tls = ssl.create_default_context() if settings.url.startswith("https:") else None
        self.counts = ChatCounts()

    async def ask(self, messages: Sequence[Message], *, within_s: float) -> str:
        """The text of the model's answer; `ChatFailed` where none has come after all retries or in time."""
        until_s = self._clock() + within_s
        data = await asyncio.shield(beside(partial(self._encode, messages), name="request to the judge"))
        for number in range(self._settings.retries + 1):
            await self._wait_for_turn(until_s)
            try:
                return await self._request(data, until_s)
            except ChatFailed as failed:
                self.counts.failed[failed.cause] += 1
                pause_s = max(failed.after_s, self._backoff_s(number))
                if failed.after_s:
                    self._limit.hold(failed.after_s)
                if not failed.retry or number == self._settings.retries:
                    raise
                if self._clock() + pause_s >= until_s:
                    why = f"{failed}; the next try would be in {pause_s:.0f} s, past the deadline"
                    raise ChatFailed(failed.cause, why) from None
            self.counts.retries += 1
            await self._sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    @property
    def cost(self) -> float:
        """What all answers came to, by the prices of the settings."""
        counts, settings = self.counts, self._settings
        return (counts.tokens_in * settings.price_in + counts.tokens_out * settings.price_out) / 1e6

    def mask(self, text: str) -> str:
        """`text` without the key, also where it was escaped for JSON, an address or a web page."""
        return self._secret.sub(MASK, text) if self._secret else text

    def _encode(self, messages: Sequence[Message]) -> bytes:
        settings = self._settings
        body = {
            "model": settings.model,
            "messages": list(messages),
            "max_tokens": settings.answer_tokens,
            "temperature": 0,
            "response_format": {"type": "json_object"},
            **(json.loads(settings.body) if settings.body else {}),
        }
        return msgspec.json.encode({name: value for name, value in body.items() if value is not None})

    def _backoff_s(self, number: int) -> float:
        """With jitter, so that those who failed together do not come back together."""
        return float(self._settings.backoff_s * 2**number * self._random.uniform(0.75, 1.25))

    async def _wait_for_turn(self, until_s: float) -> None:
        while True:
            wait_s = self._limit.reserve(max(0.0, until_s - self._clock()))
            if wait_s is None:
                self.counts.failed["rate_limited"] += 1
                raise ChatFailed("rate_limited", "the rate limit leaves no turn before the deadline")
            if wait_s:
                await self._sleep(wait_s)
            if not self._limit.is_held:
                return

    async def _request(self, data: bytes, until_s: float) -> str:
        self.counts.requests += 1
        left_s = max(0.0, until_s - self._clock())
        reply = await self._send(data, min(self._settings.request_s, left_s))
        completion = self._read(reply)
        if completion.usage is not None:
            self.counts.tokens_in += max(0, completion.usage.prompt_tokens)
            self.counts.tokens_out += max(0, completion.usage.completion_tokens)
        text = completion.choices[0].message.content if completion.choices else None
        if not text or not text.strip():
            raise ChatFailed("empty", "the model's answer is empty", retry=True)
        return text

    async def _send(self, data: bytes, limit_s: float) -> Reply:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        call = _Call(_connect_to(self._settings.url, limit_s, self._tls), self._settings.url, headers, data)
        try:
            async with asyncio.timeout(limit_s):
                return await call.in_thread()
        except TimeoutError:
            raise ChatFailed("timeout", f"no answer within {limit_s:.3g} s", retry=True) from None
        except (OSError, HTTPException) as error:
            why = self._told(f"{type(error).__name__}: {error}")
            host = urlsplit(self._settings.url).netloc
            raise ChatFailed("unreachable", f"{host} does not answer: {why}", retry=True) from None
        except ValueError:  # its text quotes headers
            raise ChatFailed("unreachable", "the request cannot be sent: judge.model.url or the key is odd") from None
        finally:
            call.cut()

    def _read(self, reply: Reply) -> _Completion:
        if not 200 <= reply.status < 300:
            raise self._refusal(reply)
        if len(reply.data) > MOST_BYTES:
            raise ChatFailed("malformed", f"the answer is longer than {MOST_BYTES:,} bytes")
        if _is_html(reply):
            raise ChatFailed("no_api", "the address answers with a web page: is judge.model.url right? (…/v1)")
        try:
            return msgspec.json.decode(reply.data, type=_Completion)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = f"the answer is no chat completion: {self._told(str(error))}"
            raise ChatFailed("malformed", why, retry=True) from None

    def _refusal(self, reply: Reply) -> ChatFailed:
        status, told = reply.status, f"HTTP {reply.status}{self._excerpt(reply)}"
        if status in (401, 403):
            return ChatFailed("unauthorised", f"{told}: is the key in {self._settings.key_env or '(no key)'} right?")
        if status == 429:
            return ChatFailed("rate_limited", told, retry=True, after_s=seconds_of(reply.retry_after))
        if status >= 500 or status == 408:
            return ChatFailed("server_error", told, retry=True, after_s=seconds_of(reply.retry_after))
        if status == 404 or status < 400:
            moved = f", moved to {self._told(reply.location)}" if reply.location else ""
            return ChatFailed("no_api", f"{told}{moved}: are judge.model.url (…/v1) and judge.model.model right?")
        return ChatFailed("refused", told)

    def _excerpt(self, reply: Reply) -> str:
        if _is_html(reply):
            return ", a web page"
        text = reply.data.decode(errors="replace")
        with suppress(msgspec.DecodeError):
            text = msgspec.json.decode(reply.data, type=_Problem).error.message
        return f": {self._told(text)}" if text.strip() else ""

    def _told(self, text: str) -> str:
        """What someone else wrote, as one short line without the key."""
        return one_line(self.mask(text), EXCERPT)


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Explained(msgspec.Struct):
    message: str


class _Problem(msgspec.Struct):
    error: _Explained


class _Call:
    """One POST in a thread of its own, which nothing waits for and which `cut` ends."""

    def __init__(self, connection: HTTPConnection, url: str, headers: dict[str, str], data: bytes) -> None:
        path = urlsplit(url).path.rstrip("/")
        self._path = path if path.endswith(PATH) else path + PATH
        self._connection, self._headers, self._data, self._is_cut = connection, headers, data, False
        self._socket: socket.socket | None = None
        """Of its own: the connection forgets it where the length of an answer is not told, and still reads from it."""

    def in_thread(self) -> asyncio.Future[Reply]:
        """The reply, once it is there."""
        done: Future[Reply] = Future()
        done.set_running_or_notify_cancel()

        def work() -> None:
            try:
                done.set_result(self._post())
            except (OSError, HTTPException, ValueError) as error:
                done.set_exception(error)
            finally:
                if not done.done():  # a bug: whoever waits hears of it at once
                    done.set_exception(ConnectionError("the request broke off"))

        Thread(target=work, name="judge", daemon=True).start()
        return asyncio.wrap_future(done)

    def cut(self) -> None:
        """End the connection, in whatever state it is; the thread sees that and ends."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _post(self) -> Reply:
        connection = self._connection
        try:
            connection.connect()
            self._socket = connection.sock
            if self._is_cut:
                raise ConnectionAbortedError("given up while connecting")
            connection.request("POST", self._path, self._data, self._headers)
            response = connection.getresponse()
            found = {name: response.getheader(name, "") for name in ("Content-Type", "Retry-After", "Location")}
            return Reply(
                status=response.status,
                kind=found["Content-Type"],
                retry_after=found["Retry-After"],
                location=found["Location"],
                data=response.read(MOST_BYTES + 1),
            )
        finally:
            connection.close()


def _spellings(letter: str) -> str:
    """A pattern for one character of the key, plain or escaped in any of the usual ways."""
    code = ord(letter)
    plain, named = re.escape(letter), re.escape(html.escape(letter))
    return rf"(?:\\?{plain}|{named}|%{code:02x}|\\u{code:04x}|\\x{code:02x}|&#0*{code};|&#x0*{code:x};)"


def seconds_of(retry_after: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """What a Retry-After header asks for, in seconds or as a date; 0 where it says nothing that makes sense."""
    text = retry_after.strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text, re.ASCII):
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now()).total_seconds())


def one_line(text: str, longest: int) -> str:
    """Text of someone else as one short line that can be printed: no control characters, no line breaks."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return plain if len(plain) <= longest else f"{plain[:longest]}…"


def _is_html(reply: Reply) -> bool:
    return "html" in reply.kind.lower() or reply.data[:100].lstrip()[:1] == b"<"


def _connect_to(url: str, limit_s: float, tls: ssl.SSLContext | None) -> HTTPConnection:
    """A connection that is not opened yet."""
    parts = urlsplit(url)
    host, timeout_s = parts.hostname or "", max(limit_s, 0.001)
    if tls is None:
        return HTTPConnection(host, parts.port, timeout=timeout_s)
    return HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)
