"""Work in threads that may never end: a disk or a network that hangs, or code of someone else.

An executor's threads are joined when the process ends, and one that hangs would hold up the end as well. These are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], *, name: str) -> Future[T]:
    """What comes of `work`, done in a thread that nothing waits for, not even the end of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def do() -> None:
        try:
            found = work()
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            done.set_exception(error)
        else:
            done.set_result(found)

    Thread(target=do, name=name, daemon=True).start()
    return done


def beside(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """The same beside an event loop.

    Whoever stops waiting should leave the future as it is (`asyncio.wait`, `asyncio.shield`): it says when the thread
    is done.
    """
    return asyncio.wrap_future(in_thread(work, name=name))


def raise_failure(work: Future[None] | None) -> None:
    """Raise what work that is to go on for ever has ended with; nothing while it goes on."""
    if work is not None and work.done():
        work.result()
