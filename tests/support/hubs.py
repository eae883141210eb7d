"""Hubs that a test can reach into, in a module that Ray's processes can import."""

from __future__ import annotations

from pathlib import Path

from distrl.transport.ray.hub import Hub
from distrl.transport.ray.service import HubService

KEEP = 3
"""Versions, as in `support.transport_contract`, which loads torch."""


class MovableHub(Hub):
    """A hub that serves one folder after another, on the clock of the test: a new actor for each test would cost a second."""

    ahead_s = 0.0

    def _make_service(self, folder: Path, metrics: Path, keep_versions: int) -> HubService:
        clock = lambda: 1000.0 + self.ahead_s  # noqa: E731
        return HubService(folder, keep_versions=keep_versions, metrics=metrics, clock=clock)

    async def move(self, folder: str) -> None:
        self.ahead_s = 0.0
        self._service = self._make_service(Path(folder), Path(folder) / "metrics.jsonl", KEEP)

    async def set_clock(self, now_s: float) -> None:
        self.ahead_s = now_s - 1000.0
