"""Calls of other people's code that may not heed their cancellation: devices and judges.

`abandon_on_cancel` runs such a call as a task of its own. Whoever waits for it and is cancelled, by a deadline or at the
end, cancels it and goes on at once. What it does from then on is its own affair: its late answer is discarded, and not
even `asyncio.run` waits for it. How long to wait is the caller's, with `asyncio.timeout`.

A call that never suspends, such as one of a simulated phone without delays, is over without a turn of the event loop, as
if it had been awaited in place. The order in which episodes ask for decisions, and so the numbers of a training with a
fixed seed, depend on that.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task, _unregister_task
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


async def abandon_on_cancel(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """What comes of `work`; it is abandoned where whoever waits here is cancelled."""
    begun, context = _StartedCoroutine(work), copy_context()
    task = asyncio.create_task(begun, name=name, context=context)
    try:
        with _as_current(task):
            # The first step is made here and now, with the hooks that asyncio documents for tasks of other libraries.
            # `Task(eager_start=True)` does the same from Python 3.12 on.
            context.run(begun.begin)
        if not begun.is_over:
            await asyncio.wait({task})
            return task.result()
    finally:
        abandon(task)
    return begun.result()


def abandon(task: asyncio.Task[Any]) -> None:
    """Cancel a task and leave it to itself; nothing where it is over."""
    if task.done():
        return
    task.cancel()
    task.add_done_callback(_discard)
    _unregister_task(task)  # asyncio.run waits for all that are registered, for ever where one does not heed it


def _discard(task: asyncio.Task[Any]) -> None:
    """Nobody wants to know, and asyncio reports errors that nobody has looked at."""
    if not task.cancelled():
        task.exception()


@contextmanager
def _as_current(task: asyncio.Task[Any]) -> Iterator[None]:
    """Let `task` be the current task: a deadline within the first step has to cancel it, not whoever waits for it."""
    loop, waiting = asyncio.get_running_loop(), asyncio.current_task()
    assert waiting is not None
    _leave_task(loop, waiting)
    _enter_task(loop, task)
    try:
        yield
    finally:
        _leave_task(loop, task)
        _enter_task(loop, waiting)


class _StartedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine whose first step is made by `begin`, and the others by a task."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._is_new = True
        self._awaited: Any = None
        self._value: T | None = None
        self.is_over = False
        """Whether the first step was the last."""

    def begin(self) -> None:
        """Make the first step; what it raises is raised here."""
        self.is_over = True
        try:
            self._awaited = self._work.send(None)
            self.is_over = False
        except StopIteration as done:
            self._value = done.value

    def result(self) -> T:
        """What the first step came to, where it was the last."""
        return self._value  # type: ignore[return-value]

    def send(self, value: Any) -> Any:
        """The next step; at first what `begin` has come to wait for."""
        if self.is_over:
            raise StopIteration
        if self._is_new:
            self._is_new = False
            return self._awaited
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Cancelled before the task's first turn: as a task does, cancel what is awaited first."""
        if self.is_over:
            raise StopIteration
        is_new, self._is_new = self._is_new, False
        if is_new and isinstance(self._awaited, asyncio.Future) and self._awaited.cancel():
            return self._awaited
        return self._work.throw(*error)

    def close(self) -> None:
        """End it where it is."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Only for the protocol: a task steps through it with `send` and `throw`."""
        return self._work.__await__()
