"""Calls between processes of one machine: answers, hang-ups, and who is there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.runtime.local_inference import (
    LARGEST,
    SocketInference,
    SocketRequests,
    remove_sockets,
    socket_of,
)
from distrl.transport.base import ActorLost

T = TypeVar("T")
HANGS_S = 30.0
ACTOR = "inference-0"


async def backwards(request: bytes) -> bytes:
    return request[::-1]


def called(
    folder: Path,
    work: Callable[[SocketInference], Awaitable[T]],
    answer: Callable[[bytes], Awaitable[bytes]] = backwards,
) -> T:
    """What comes of `work` while an actor answers."""

    async def scene() -> T:
        requests = SocketRequests(socket_of(folder, ACTOR))
        requests.serve(answer)
        asking = SocketInference(folder, (ACTOR, "inference-1"))
        async with asyncio.timeout(HANGS_S):
            while not asking.actors():
                await asyncio.sleep(0.01)
            found = await work(asking)
        assert requests._listening is not None
        requests._listening.cancel()
        return found

    return asyncio.run(scene())


def test_many_calls_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    asked = [bytes([number]) * (1 + 4000 * number) + b"end" for number in range(64)]
    found = called(tmp_path, lambda asking: asyncio.gather(*(asking.ask(ACTOR, one) for one in asked)))
    assert found == [one[::-1] for one in asked]


def test_calls_of_more_phones_than_a_queue_usually_holds_are_not_lost(tmp_path: Path) -> None:
    asked = [str(number).encode() for number in range(400)]
    found = called(tmp_path, lambda asking: asyncio.gather(*(asking.ask(ACTOR, one) for one in asked)))
    assert found == [one[::-1] for one in asked]


def test_only_who_listens_is_known_and_who_is_gone_is_lost(tmp_path: Path) -> None:
    async def work(asking: SocketInference) -> tuple[str, ...]:
        return asking.actors()

    assert SocketInference(tmp_path, (ACTOR,)).actors() == ()
    assert called(tmp_path, work) == (ACTOR,)
    left = socket.socket(socket.AF_UNIX)
    socket_of(tmp_path, ACTOR).unlink(missing_ok=True)
    left.bind(str(socket_of(tmp_path, ACTOR)))
    left.close()  # what a killed process leaves: a socket that nobody listens on
    now_s = [0.0]
    asking = SocketInference(tmp_path, (ACTOR,), clock=lambda: now_s[0])
    assert asking.actors() == (ACTOR,)
    with pytest.raises(ActorLost, match="inference-0 is gone"):
        asyncio.run(asking.ask(ACTOR, b"?"))
    assert asking.actors() == ()  # or whoever asks would try again at once, and for ever
    now_s[0] = 1.0
    assert asking.actors() == (ACTOR,)
    remove_sockets(tmp_path)
    assert asking.actors() == ()


def test_an_actor_that_comes_again_takes_the_place_of_the_one_that_was_killed(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(socket_of(tmp_path, ACTOR)))
    left.close()

    async def work(asking: SocketInference) -> bytes:
        while True:
            try:
                return await asking.ask(ACTOR, b"abc")
            except ActorLost:
                await asyncio.sleep(0.01)

    assert called(tmp_path, work) == b"cba"


def test_who_dies_in_the_middle_of_an_answer_is_lost(tmp_path: Path) -> None:
    async def work(asking: SocketInference) -> None:
        with pytest.raises(ActorLost):
            await asking.ask(ACTOR, b"?")

    async def late(request: bytes) -> bytes:
        raise TimeoutError  # nobody waits any longer

    called(tmp_path, work, late)


def test_an_error_of_the_policy_comes_to_who_asked(tmp_path: Path) -> None:
    async def fails(request: bytes) -> bytes:
        raise DistrlError("the picture is gone")

    async def work(asking: SocketInference) -> None:
        with pytest.raises(DistrlError, match="inference-0 could not answer: the picture is gone") as caught:
            await asking.ask(ACTOR, b"?")
        assert not isinstance(caught.value, ActorLost)

    called(tmp_path, work, fails)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n\r\n", (LARGEST + 1).to_bytes(8, "big"), b"\0" * 7 + b"\5abc"]
)
def test_what_is_no_request_is_hung_up_on_and_others_are_answered(tmp_path: Path, sent: bytes) -> None:
    async def work(asking: SocketInference) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(socket_of(tmp_path, ACTOR)))
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        return await asking.ask(ACTOR, b"abc")

    assert called(tmp_path, work) == b"cba"


def test_a_bug_comes_to_who_asked_and_is_not_asked_for_again_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(request: bytes) -> bytes:
        raise ValueError("no such choice")

    async def work(asking: SocketInference) -> None:
        with pytest.raises(RuntimeError, match="inference-0 could not answer: ValueError: no such choice"):
            await asking.ask(ACTOR, b"?")

    called(tmp_path, work, breaks)
    assert "in breaks" in caplog.text  # the traceback


def test_a_folder_whose_name_is_too_long_is_refused_with_the_way_out(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with pytest.raises(ConfigError, match="too long") as caught:
        SocketRequests(socket_of(deep, ACTOR))  # before it loads anything
    assert "TMPDIR" in caught.value.fix


def test_a_folder_that_is_gone_ends_the_actor_with_the_cause(tmp_path: Path) -> None:
    async def scene() -> None:
        SocketRequests(socket_of(tmp_path / "gone", ACTOR)).serve(backwards)

    with pytest.raises(StoreError, match="cannot use") as caught:
        asyncio.run(scene())
    assert caught.value.fix
