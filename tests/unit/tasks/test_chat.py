"""The client of a chat-completions endpoint: retries, deadlines, the rate limit and what it says of failures."""

from __future__ import annotations

import asyncio
import html
import json
import re
import threading
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from distrl.config.schema import ModelJudgeConfig
from distrl.tasks.chat import MASK, MOST_HOLD_S, ChatClient, ChatFailed, RateLimit, one_line, seconds_of
from support.chats import (
    KEY,
    Act,
    ChatServer,
    completion,
    drips,
    drops,
    fails,
    hangs,
    model_settings,
    says_text,
    sends,
)
from support.rollouts import HANGS_S

MESSAGES = [{"role": "user", "content": "hello"}]
OVERLOADED = fails(429, "slow down", Retry_After="0.01")


def client(server: ChatServer, **changes: Any) -> ChatClient:
    return ChatClient(model_settings(server.url, **changes), KEY)


def ask(asked: ChatClient, *, within_s: float = 20.0) -> str:
    return asyncio.run(asked.ask(MESSAGES, within_s=within_s))


def failure(asked: ChatClient, *, within_s: float = 20.0) -> ChatFailed:
    with pytest.raises(ChatFailed) as caught:
        ask(asked, within_s=within_s)
    return caught.value


class FakeTime:
    """A clock that sleeping alone moves."""

    def __init__(self) -> None:
        self.now_s, self.slept = 100.0, list[float]()

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


# --- requests


def test_a_request_is_what_the_api_takes_and_its_answer_is_counted() -> None:
    with ChatServer(says_text("hi")) as server:
        asked = client(server, price_in=2.0, price_out=10.0, answer_tokens=77)
        assert ask(asked) == "hi"
    (body,) = server.asked
    assert server.paths == ["/v1/chat/completions"]
    assert server.keys == [f"Bearer {KEY}"]
    assert (body["model"], body["messages"], body["max_tokens"]) == ("judge-1", MESSAGES, 77)
    assert (asked.counts.requests, asked.counts.tokens_in, asked.counts.tokens_out) == (1, 100, 10)
    assert asked.cost == pytest.approx((100 * 2 + 10 * 10) / 1e6)


def test_further_fields_are_added_and_null_removes_one() -> None:
    with ChatServer(says_text("hi")) as server:
        ask(client(server, body='{"seed": 1, "max_tokens": null, "max_completion_tokens": 5}'))
    assert (server.asked[0]["seed"], server.asked[0]["max_completion_tokens"]) == (1, 5)
    assert "max_tokens" not in server.asked[0]


def test_an_endpoint_without_a_key_is_sent_none_and_may_be_given_by_its_full_address() -> None:
    with ChatServer(says_text("hi")) as server:
        settings = ModelJudgeConfig(url=f"{server.url}/chat/completions/", model="m", key_env="")
        assert ask(ChatClient(settings, "")) == "hi"
    assert (server.keys, server.paths) == ([""], ["/v1/chat/completions"])


@pytest.mark.parametrize(
    "act",
    [OVERLOADED, fails(500), fails(503), fails(408), drops, says_text(""), says_text(None), sends(b"{"), sends(b"")],
    ids=["429", "500", "503", "408", "dropped", "empty", "null", "cut off", "nothing"],
)
def test_what_may_pass_is_tried_again(act: Act) -> None:
    with ChatServer(act, says_text("hi")) as server:
        asked = client(server)
        assert ask(asked) == "hi"
    assert (asked.counts.requests, asked.counts.retries, sum(asked.counts.failed.values())) == (2, 1, 1)


@pytest.mark.parametrize(
    ("act", "cause", "said"),
    [
        (fails(401, "bad key"), "unauthorised", "HTTP 401: bad key: is the key in DISTRL_JUDGE_KEY right?"),
        (fails(403), "unauthorised", "HTTP 403"),
        (fails(404, "no such model"), "no_api", "no such model: are judge.model.url"),
        (fails(400, "no pictures"), "refused", "HTTP 400: no pictures"),
        (sends(b"<!doctype html>", kind="text/html"), "no_api", "a web page"),
        (sends(b" <html>", kind="application/json"), "no_api", "a web page"),
        (sends(b"", status=301, Location="https://elsewhere.example/"), "no_api", "moved to https://elsewhere.example/"),
        (sends(b" " * 1_100_000), "malformed", "longer than 1,000,000 bytes"),
    ],
    ids=["401", "403", "404", "400", "html", "html as json", "redirect", "endless"],
)  # fmt: skip
def test_what_will_not_pass_is_told_at_once(act: Act, cause: str, said: str) -> None:
    with ChatServer(act) as server:
        asked = client(server)
        failed = failure(asked)
    assert failed.cause == cause
    assert said in str(failed)
    assert (asked.counts.requests, asked.counts.failed[cause]) == (1, 1)


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (OVERLOADED, "rate_limited"),
        (fails(500, "boom"), "server_error"),
        (sends(b"<html>", status=502, kind="text/html"), "server_error"),
        (drops, "unreachable"),
        (says_text(" \n"), "empty"),
        (sends(b'{"choices": []}'), "empty"),
        (sends(b'{"choices": [{"message": {"content": [1]}}]}'), "malformed"),
        (sends(b"\xff\xfe"), "malformed"),
        (sends(b"[" * 5000), "malformed"),
    ],
)
def test_what_never_passes_is_given_up_after_the_retries(act: Act, cause: str) -> None:
    with ChatServer(usual=act) as server:
        asked = client(server)
        assert failure(asked).cause == cause
    assert (asked.counts.requests, asked.counts.failed[cause]) == (3, 3)


def test_an_address_where_nobody_listens_is_named() -> None:
    with ChatServer() as server:
        url = server.url
    failed = failure(ChatClient(model_settings(url), KEY))
    assert failed.cause == "unreachable"
    assert "127.0.0.1:" in str(failed)


# --- time


@pytest.mark.parametrize("act", [hangs, drips])
def test_a_request_that_takes_too_long_is_cut_off_and_leaves_no_thread(act: Act) -> None:
    with ChatServer(usual=act) as server:
        asked = client(server, request_s=0.1, retries=1)
        failed = failure(asked)
        assert (failed.cause, str(failed)) == ("timeout", "no answer within 0.1 s")
        until_s = time.monotonic() + HANGS_S
        while any(thread.name == "judge" for thread in threading.enumerate()):
            assert time.monotonic() < until_s, "its thread is still there"
            time.sleep(0.01)


def test_whoever_is_cancelled_leaves_no_thread() -> None:
    async def scene(asked: ChatClient) -> None:
        asking = asyncio.create_task(asked.ask(MESSAGES, within_s=20.0))
        while not server.asked:
            await asyncio.sleep(0.005)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        while any(thread.name == "judge" for thread in threading.enumerate()):
            await asyncio.sleep(0.005)

    with ChatServer(usual=hangs) as server:
        asyncio.run(asyncio.wait_for(scene(client(server)), HANGS_S))


def test_retry_after_is_waited_for_by_all_and_not_past_the_deadline() -> None:
    fake = FakeTime()
    with ChatServer(fails(429, Retry_After="7"), says_text("hi")) as server:
        asked = ChatClient(model_settings(server.url), KEY, clock=fake.clock, sleep=fake.sleep)
        assert ask(asked, within_s=60.0) == "hi"
        assert fake.now_s == pytest.approx(107.0)
    fake = FakeTime()
    with ChatServer(fails(429, Retry_After="90")) as server:
        asked = ChatClient(model_settings(server.url), KEY, clock=fake.clock, sleep=fake.sleep)
        failed = failure(asked, within_s=60.0)
        assert (failed.cause, "in 90 s, past the deadline" in str(failed)) == ("rate_limited", True)
        again = failure(asked, within_s=60.0)  # the endpoint is not bothered meanwhile
        assert "leaves no turn" in str(again)
        assert (len(server.asked), fake.slept) == (1, [])


def test_back_off_doubles() -> None:
    fake = FakeTime()
    with ChatServer(usual=fails(500)) as server:
        asked = ChatClient(
            model_settings(server.url, backoff_s=1.0, retries=4), KEY, clock=fake.clock, sleep=fake.sleep
        )
        failure(asked, within_s=100.0)
    assert [0.75 * 2**n <= slept <= 1.25 * 2**n for n, slept in enumerate(fake.slept)] == [True] * 4


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0), (" 1.5 ", 1.5), ("", 0.0), ("-3", 0.0), ("nan", 0.0), ("1e9", 0.0), ("soon", 0.0), ("9" * 50, 0.0),
        ("Wed, 01 Jan 2025 00:00:30 GMT", 30.0), ("Tue, 31 Dec 2024 00:00:00 GMT", 0.0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float) -> None:
    assert seconds_of(text, now=lambda: datetime(2025, 1, 1, tzinfo=UTC)) == seconds


# --- the rate limit


def test_turns_are_evenly_spaced_and_none_is_reserved_that_comes_too_late() -> None:
    fake = FakeTime()
    limit = RateLimit(60, fake.clock)
    assert [limit.reserve(10.0) for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
    assert limit.reserve(3.5) is None
    assert limit.reserve(4.0) == 4.0
    fake.now_s += 100.0
    assert limit.reserve(0.0) == 0.0


def test_without_a_limit_nobody_waits_unless_all_are_held() -> None:
    fake = FakeTime()
    limit = RateLimit(0, fake.clock)
    assert [limit.reserve(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    limit.hold(1e9)
    assert limit.is_held
    assert limit.reserve(1e9) == MOST_HOLD_S


def test_requests_keep_to_the_rate_limit() -> None:
    fake = FakeTime()
    with ChatServer(usual=says_text("hi")) as server:
        asked = ChatClient(model_settings(server.url, per_minute=30), KEY, clock=fake.clock, sleep=fake.sleep)
        for _ in range(4):
            ask(asked, within_s=60.0)
    assert fake.now_s == pytest.approx(106.0)


# --- the key


@pytest.mark.parametrize(
    "act",
    [
        fails(401, f"Incorrect API key provided: {KEY}"),
        fails(500, f"{'x' * 190}{KEY}"),
        fails(429, KEY),
        sends(KEY.encode(), status=400, kind="text/plain"),
        sends(b"", status=302, Location=f"http://127.0.0.1/?key={KEY}"),
        sends(b'{"choices": "' + KEY.encode() + b'"}'),
        sends(KEY.encode()),
    ],
)
def test_no_error_tells_the_key_even_where_the_endpoint_does(act: Act) -> None:
    with ChatServer(usual=act) as server:
        said = str(failure(client(server, retries=0)))
    assert KEY not in said
    assert KEY[:8] not in said


ODD_KEY = "sk/ab+c=d\"e&f'%9<>"


@pytest.mark.parametrize(
    "sent",
    [
        json.dumps(ODD_KEY).replace("/", "\\/"),
        "".join(f"\\u{ord(letter):04X}" for letter in ODD_KEY),
        repr(ODD_KEY),
        html.escape(ODD_KEY),
        "".join(f"&#{ord(letter)};" for letter in ODD_KEY),
        quote(ODD_KEY),
        quote(ODD_KEY, safe="").lower(),
    ],
)
def test_the_key_is_masked_however_an_endpoint_has_escaped_it(sent: str) -> None:
    with ChatServer(usual=sends(f'{{"detail": bad key {sent} here'.encode(), status=400, kind="text/plain")) as server:
        said = str(failure(ChatClient(model_settings(server.url, retries=0), ODD_KEY)))
    assert re.search(rf"bad key \W?{MASK}\W? here$", said)


def test_a_key_that_no_header_can_hold_is_not_quoted() -> None:
    with ChatServer() as server:
        failed = failure(ChatClient(model_settings(server.url), "secret\nkey"))
    assert (failed.cause, "secret" in str(failed), failed.__cause__) == ("unreachable", False, None)
    assert failed.__suppress_context__


def test_texts_of_others_are_one_short_line() -> None:
    assert one_line("a\x1b[31m\r\nb\u2028c\x00", 50) == "a [31m b c"
    assert one_line("x" * 60, 50) == "x" * 50 + "…"
    with ChatServer() as server:
        assert client(server).mask(f"<{KEY}>") == f"<{MASK}>"


def test_an_answer_without_usage_counts_no_tokens_and_odd_usage_none_below_zero() -> None:
    odd = completion("hi", tokens_in=-5, tokens_out=-5)
    with ChatServer(sends(b'{"choices": [{"message": {"content": "hi"}}]}'), sends(odd)) as server:
        asked = client(server)
        assert [ask(asked), ask(asked)] == ["hi", "hi"]
    assert (asked.counts.tokens_in, asked.counts.tokens_out, asked.cost) == (0, 0, 0.0)
