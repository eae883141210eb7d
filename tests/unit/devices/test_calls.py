"""Calls that may not heed their cancellation: whoever waits for one goes on, and what never suspends costs no turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from distrl.devices.calls import abandon_on_cancel
from support.rollouts import until


class Stubborn:
    """A call that goes on after it was cancelled, until the test lets it answer."""

    def __init__(self) -> None:
        self.num_cancelled, self.answering = 0, asyncio.Event()

    async def call(self) -> str:
        while not self.answering.is_set():
            try:
                await self.answering.wait()
            except asyncio.CancelledError:
                self.num_cancelled += 1
        return "late"


async def at_once() -> str:
    return "an answer"


def test_a_call_that_never_suspends_takes_no_turn_of_the_loop() -> None:
    async def scene() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "the next turn")
        order.append(await abandon_on_cancel(at_once(), name="call"))
        await asyncio.sleep(0)
        return order

    assert asyncio.run(scene()) == ["an answer", "the next turn"]


def test_a_call_that_suspends_gives_its_answer_and_its_error() -> None:
    async def answer() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "an answer"

    async def fail(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ZeroDivisionError("a bug")

    assert asyncio.run(abandon_on_cancel(answer(), name="call")) == "an answer"
    for turns in (0, 1):
        with pytest.raises(ZeroDivisionError, match="a bug"):
            asyncio.run(abandon_on_cancel(fail(turns), name="call"))


def test_a_call_that_does_not_heed_its_cancellation_is_left_at_the_deadline_and_its_late_answer_discarded() -> None:
    async def scene() -> None:
        stubborn, waited = Stubborn(), False
        try:
            async with asyncio.timeout(0.01):
                await abandon_on_cancel(stubborn.call(), name="call")
        except TimeoutError:
            waited = True
        assert (waited, stubborn.num_cancelled) == (True, 0), "it is cancelled, and nobody waits for how it takes that"
        await asyncio.sleep(0)
        assert stubborn.num_cancelled == 1
        stubborn.answering.set()
        await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_the_event_loop_ends_though_an_abandoned_call_never_does() -> None:
    async def scene() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await abandon_on_cancel(Stubborn().call(), name="call")

    began_s = time.monotonic()
    asyncio.run(asyncio.wait_for(scene(), 10.0))
    assert time.monotonic() - began_s < 5.0


def test_a_deadline_inside_a_call_ends_the_call_and_not_whoever_waits_for_it() -> None:
    async def call() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own deadline"
        return "none"

    async def scene() -> tuple[str, int]:
        found = await abandon_on_cancel(call(), name="call")
        task = asyncio.current_task()
        assert task is not None
        return found, task.cancelling()

    assert asyncio.run(scene()) == ("its own deadline", 0)


@pytest.mark.parametrize("wait", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(60.0)])
def test_a_call_that_is_abandoned_in_its_first_turn_still_cleans_up(wait: Callable[[], object]) -> None:
    closed: list[str] = []

    async def call() -> None:
        try:
            await wait()  # type: ignore[misc]
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def scene() -> None:
        calling = asyncio.create_task(abandon_on_cancel(call(), name="call"))
        asyncio.get_running_loop().call_soon(calling.cancel)
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: closed == ["closed"])

    asyncio.run(scene())


def test_a_call_has_one_context_from_its_first_step_to_its_last() -> None:
    var: ContextVar[int] = ContextVar("var", default=0)

    async def call() -> int:
        token = var.set(1)
        await asyncio.sleep(0)
        found = var.get()
        var.reset(token)
        return found

    async def scene() -> tuple[int, int]:
        return await abandon_on_cancel(call(), name="call"), var.get()

    assert asyncio.run(scene()) == (1, 0)
