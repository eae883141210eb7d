"""The routes of an attempt by hand: the only part of the dashboard that does something.

`Guard` lets a POST in from pages of this dashboard alone. What is begun is looked up by name among the runs that are listed; an attempt
is known by a random id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from distrl import Config, plugins
from distrl.dashboard.run_list import RunList
from distrl.dashboard.security import LONGEST_BODY, WRITES
from distrl.dashboard.teleoperation import Attempt, Attempts
from distrl.errors import TaskError, UsageError
from distrl.tasks.base import find_suite, find_task
from distrl.types import Finish, LongPress, Press, Swipe, Tap, Task, TypeText, Wait

T = TypeVar("T", "Begin", "Act")


class Begin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which task of which run: that of an episode, or one by its id."""

    run: str
    task: str = ""
    episode: str = ""


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done on the screen of this step."""

    step: int
    action: Tap | LongPress | Swipe | TypeText | Press | Wait | Finish


class TeleoperationRoutes:
    """Answers about attempts."""

    def __init__(self, runs: RunList, attempts: Attempts) -> None:
        self._runs, self._attempts = runs, attempts

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route(WRITES, self.begin, methods=["POST"]),
            Route(f"{WRITES}/{{id}}", self.show),
            Route(f"{WRITES}/{{id}}/picture", self.picture),
            Route(f"{WRITES}/{{id}}/act", self.act, methods=["POST"]),
            Route(f"{WRITES}/{{id}}/again", self.again, methods=["POST"]),
            Route(f"{WRITES}/{{id}}/keep", self.keep, methods=["POST"]),
            Route(f"{WRITES}/{{id}}/leave", self.leave, methods=["POST"]),
        ]

    async def begin(self, request: Request) -> Response:
        """A phone at the start of a task."""
        asked = await _body(request, Begin)

        def work() -> object:
            opened = self._runs.open(asked.run)
            task = opened.run.episode(asked.episode).task if asked.episode else _task_of(opened.run.config, asked.task)
            return self._attempts.take(task, opened.run.config).show()

        return _json(await asyncio.to_thread(work))

    async def show(self, request: Request) -> Response:
        """How an attempt stands."""
        return await self._answer(request, lambda _: None)

    async def picture(self, request: Request) -> Response:
        """What its device shows now."""
        attempt = self._attempts.get(request.path_params["id"])
        picture = await asyncio.to_thread(attempt.picture)
        if not picture:
            return PlainTextResponse("no picture\n", status_code=404)
        return Response(picture, media_type="image/png" if picture.startswith(b"\x89PNG") else "image/jpeg")

    async def act(self, request: Request) -> Response:
        """Carry out one action."""
        asked = await _body(request, Act)
        return await self._answer(request, lambda attempt: attempt.act(asked.step, asked.action))

    async def again(self, request: Request) -> Response:
        """The same task from its start, on another phone."""
        attempt = self._attempts.get(request.path_params["id"])
        return _json(await asyncio.to_thread(lambda: self._attempts.again(attempt).show()))

    async def keep(self, request: Request) -> Response:
        """Store it as a demonstration."""
        return await self._answer(request, self._attempts.keep)

    async def leave(self, request: Request) -> Response:
        """Give the phone back."""
        await asyncio.to_thread(self._attempts.leave, request.path_params["id"])
        return _json({})

    async def _answer(self, request: Request, work: Callable[[Attempt], object]) -> Response:
        def locked() -> object:
            attempt = self._attempts.get(request.path_params["id"])
            with attempt.lock:
                work(attempt)
                return attempt.show()

        return _json(await asyncio.to_thread(locked))


def _task_of(config: Config, id: str) -> Task:
    """A task of a run's suite, where that is a built-in one: nothing else that a run folder names is loaded here."""
    if config.tasks.suite not in plugins.BUILT_IN["suites"]:
        raise TaskError(
            f"{config.tasks.suite} is no built-in suite", expected="an episode of the run: its page offers the task too"
        )
    return find_task(find_suite(config.tasks), id)


async def _body(request: Request, kind: type[T]) -> T:
    """What a page sent; `UsageError` where it is no such thing."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LONGEST_BODY:
            raise UsageError("this request is too long", expected=f"at most {LONGEST_BODY} bytes")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(f"this request does not fit: {error}") from None


def _json(found: object) -> Response:
    return Response(msgspec.json.encode(found), media_type="application/json")
