"""The hub: one actor beside a run folder, through which roles on other machines reach it.

Ray restarts it where it dies, and roles repeat the calls that were under way (`connection`): each of them may be repeated,
since all that counts is durable in the folder before it is answered. A call that is repeated while it is under way, or just
after, is carried out once. Weights go through Ray's object store: a node fetches a version
once, whichever of its roles asks first, and all of them read the same memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import ray
from ray import ObjectRef

from distrl.errors import StoreError
from distrl.transport.ray.service import CLAIMS, STORING, HubService
from distrl.transport.ray.wire import AGAIN, Answer, Broadcast, Caller, failed
from distrl.types import PolicyVersion

T = TypeVar("T")
Place = tuple[str, bytes, list[ObjectRef[np.ndarray]]]
"""An `Answer`, and where in the object store an array is, if it is anywhere."""

FILE_THREADS = 8
"""Calls that work on the folder at the same time."""
LOOK_S = 0.02
"""How often the hub looks whether there is a newer version: the learner may have written it to the folder itself."""
HOLD_S = 2.0
"""How long it holds on to who watches, where nothing changes."""
MOST_KEPT, LONGEST_KEPT = 1000, 4096
"""Answers that are remembered, and the bytes of the longest."""
TIME_STEP_S = 1.0
"""How long a broadcast may be behind with the time that the run has been collecting."""


class Hub:
    """An asyncio actor: it waits for many roles at once, and works on files in threads."""

    def __init__(self, folder: str, metrics: str, keep_versions: int, storage: str = "") -> None:
        self._storage = storage
        self._service = self._make_service(Path(folder), Path(metrics), keep_versions)
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self._watchers = ThreadPoolExecutor(1, thread_name_prefix="watch")
        """Of its own, so that who watches waits for no disk that has much to do."""
        self._storing = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="storing")
        self._claims = ThreadPoolExecutor(1, thread_name_prefix="claims")
        self._calls: dict[str, asyncio.Future[Answer]] = {}
        """Calls under way, by id."""
        self._tries: dict[str, asyncio.Future[Answer]] = {}
        """Of each, the last try, which is told what comes of it."""
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        """Short answers of the latest calls, by id."""
        self._shared: dict[str, ObjectRef[np.ndarray]] = {}
        """Weights in the object store, by checksum: the newest, and version 0 or whatever else was asked for last."""
        self._sharing: dict[str, asyncio.Future[Place]] = {}
        """By checksum, weights that are on their way there: all roles ask for a new version at once."""
        self._broadcast: Broadcast | None = None
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def _make_service(self, folder: Path, metrics: Path, keep_versions: int) -> HubService:
        return HubService(folder, keep_versions=keep_versions, metrics=metrics, storage=self._storage)

    async def ready(self) -> int:
        """Answer, once it can; which process it is."""
        return os.getpid()

    async def call(self, caller: bytes, id: str, name: str, request: bytes) -> Answer:
        """Carry out what a role asks for, once for each id; failures are part of the answer."""
        if id in self._answers:
            return self._answers[id]
        work = self._calls.get(id)
        if work is None:
            pool = self._claims if name in CLAIMS else self._storing if name in STORING else self._files
            work = asyncio.ensure_future(self._in(pool, lambda: self._service.answer(_caller(caller), name, request)))
            self._calls[id] = work
            work.add_done_callback(lambda done: self._keep_answer(id, done))
        return await self._last_try(id, work)

    async def _last_try(self, id: str, work: asyncio.Future[Answer]) -> Answer:
        """What comes of a call; `AGAIN` once it is made again.

        Ray holds only so many calls of an actor at a time, and one that waits for a disk may be made again for hours.
        """
        before, own = self._tries.get(id), asyncio.get_running_loop().create_future()
        if before is not None and not before.done():
            before.set_result(AGAIN)
        self._tries[id] = own
        await asyncio.wait({work, own}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else AGAIN

    def _keep_answer(self, id: str, done: asyncio.Future[Answer]) -> None:
        """Remember a short answer for a while; a long one is worked out again where it is asked for again."""
        del self._calls[id]
        self._tries.pop(id, None)
        if done.cancelled() or done.exception() is not None or len(done.result()[1]) > LONGEST_KEPT:
            return
        self._answers[id] = done.result()
        while len(self._answers) > MOST_KEPT:
            self._answers.popitem(last=False)

    async def weights(self, caller: bytes, version: bytes) -> Place:
        """Where in the object store the weights of a version are."""
        wanted = msgspec.msgpack.decode(version, type=PolicyVersion)
        if wanted.sha256 in self._shared:
            return "", b"", [self._shared[wanted.sha256]]
        if wanted.sha256 not in self._sharing:
            self._sharing[wanted.sha256] = asyncio.ensure_future(self._share(wanted))
        return await asyncio.shield(self._sharing[wanted.sha256])

    async def _share(self, version: PolicyVersion) -> Place:
        places: list[ObjectRef[np.ndarray]] = []
        try:
            kind, data = await self._in(self._files, lambda: self._put(version, places))
        finally:
            del self._sharing[version.sha256]
        if places:
            kept = list(self._shared.items())[-1:]
            self._shared = {**dict(kept), version.sha256: places[0]}
        return kind, data, places

    def _put(self, version: PolicyVersion, places: list[ObjectRef[np.ndarray]]) -> bytes:
        places.append(ray.put(np.frombuffer(self._service.files.weights.read(version), dtype=np.uint8)))
        return b""

    async def watch(self, caller: bytes, known: bytes) -> tuple[str, bytes]:
        """The broadcast, once it is another than the caller knows, or after `HOLD_S`."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        before = msgspec.msgpack.decode(known, type=Broadcast | None)
        until_s = time.monotonic() + HOLD_S
        while not _is_newer(self._broadcast, before) and time.monotonic() < until_s:
            try:
                await asyncio.wait_for(self._changed.wait(), until_s - time.monotonic() + LOOK_S)
            except TimeoutError:
                break
        if self._looking.done():  # the folder cannot be read
            return await self._in(self._watchers, lambda: msgspec.msgpack.encode(self._service.broadcast()))
        return "", msgspec.msgpack.encode(self._broadcast)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            found = await loop.run_in_executor(self._watchers, self._service.broadcast)
            if found != self._broadcast:
                self._broadcast = found
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def _in(self, pool: Executor, work: Callable[[], bytes]) -> Answer:
        try:
            return "", await asyncio.get_running_loop().run_in_executor(pool, work)
        except (StoreError, ValueError) as error:
            return failed(error)


def _caller(data: bytes) -> Caller:
    return msgspec.msgpack.decode(data, type=Caller)


def _is_newer(found: Broadcast | None, known: Broadcast | None) -> bool:
    if found is None:
        return False
    if known is None or found.latest != known.latest:
        return True
    return found.collected_s - known.collected_s >= TIME_STEP_S
