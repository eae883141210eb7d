"""What a run has used so far, over all its sessions, kept in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Time and restarts."""

    wall_s: float = 0.0
    collect_s: float = 0.0
    """Of that, in which workers were collecting."""
    busy_s: float = 0.0
    """Device time, summed over the devices."""
    restarts: int = 0


def read_spent(path: Path) -> Spent:
    """What had been used when it was last saved; nothing at all for a new run."""
    return msgspec.json.decode(path.read_bytes(), type=Spent) if path.exists() else Spent()
