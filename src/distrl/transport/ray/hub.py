"""The hub: one actor beside a run folder, through which roles on other machines reach it.

Ray restarts it where it dies and repeats the calls that were under way: each of them may be repeated, since all that
counts is durable in the folder before it is answered. Weights go through Ray's object store: a node fetches a version
once, whichever of its roles asks first, and all of them read the same memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import ray
from ray import ObjectRef

from distrl.errors import StoreError
from distrl.transport.ray.service import CLAIMS, HubService
from distrl.transport.ray.wire import Answer, Broadcast, Caller, failed
from distrl.types import PolicyVersion

T = TypeVar("T")

FILE_THREADS = 8
"""Calls that work on the folder at the same time."""
LOOK_S = 0.02
"""How often the hub looks whether there is a newer version: the learner may have written it to the folder itself."""
HOLD_S = 2.0
"""How long it holds on to who watches, where nothing changes."""
TIME_STEP_S = 1.0
"""How long a broadcast may be behind with the time that the run has been collecting."""


class Hub:
    """An asyncio actor: it waits for many roles at once, and works on files in threads."""

    def __init__(self, folder: str, metrics: str, keep_versions: int) -> None:
        self._service = self._make_service(Path(folder), Path(metrics), keep_versions)
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self._watchers = ThreadPoolExecutor(1, thread_name_prefix="watch")
        """Of its own, so that who watches waits for no disk that has much to do."""
        self._claims = ThreadPoolExecutor(1, thread_name_prefix="claims")
        self._shared: dict[str, ObjectRef[np.ndarray]] = {}
        """Weights in the object store, by checksum: the newest, and version 0 or whatever else was asked for last."""
        self._broadcast: Broadcast | None = None
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def _make_service(self, folder: Path, metrics: Path, keep_versions: int) -> HubService:
        return HubService(folder, keep_versions=keep_versions, metrics=metrics)

    async def ready(self) -> int:
        """Answer, once it can; which process it is."""
        return os.getpid()

    async def call(self, caller: bytes, name: str, request: bytes) -> Answer:
        """Carry out what a role asks for; failures are part of the answer."""
        pool = self._claims if name in CLAIMS else self._files
        return await self._in(pool, lambda: self._service.answer(_caller(caller), name, request))

    async def weights(self, caller: bytes, version: bytes) -> tuple[str, bytes, list[ObjectRef[np.ndarray]]]:
        """Where in the object store the weights of a version are."""
        wanted = msgspec.msgpack.decode(version, type=PolicyVersion)
        kind, data = await self._in(self._files, lambda: self._share(wanted))
        return kind, data, [] if kind else [self._shared[wanted.sha256]]

    def _share(self, version: PolicyVersion) -> bytes:
        if version.sha256 not in self._shared:
            data = self._service.files.weights.read(version)
            made = ray.put(np.frombuffer(data, dtype=np.uint8))
            kept = list(self._shared.items())[-1:]
            self._shared = {**dict(kept), version.sha256: made}
        return b""

    async def watch(self, caller: bytes, known: bytes) -> tuple[str, bytes]:
        """The broadcast, once it is another than the caller knows, or after `HOLD_S`."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        before = msgspec.msgpack.decode(known, type=Broadcast | None)
        until_s = time.monotonic() + HOLD_S
        while not _is_newer(self._broadcast, before) and time.monotonic() < until_s:
            try:
                await asyncio.wait_for(asyncio.shield(self._next_change()), until_s - time.monotonic() + LOOK_S)
            except TimeoutError:
                break
        if self._looking.done():  # the folder cannot be read
            return await self._in(self._watchers, lambda: msgspec.msgpack.encode(self._service.broadcast()))
        return "", msgspec.msgpack.encode(self._broadcast)

    async def _next_change(self) -> None:
        await self._changed.wait()

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
