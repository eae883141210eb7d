"""Work beside the event loop that may never end: a disk that hangs, or code of a suite.

An executor's threads are joined when the process ends, and one that hangs would hold up the end as well. These are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def beside(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """What comes of `work`, done in a thread that nothing waits for, not even the end of the process.

    Whoever stops waiting should leave the future as it is (`asyncio.wait`, `asyncio.shield`): it says when the thread
    is done.
    """
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
    return asyncio.wrap_future(done)
