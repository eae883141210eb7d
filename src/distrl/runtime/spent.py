"""What a run has used so far, over all its sessions, kept in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from distrl.errors import StoreError


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
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spent)
    except FileNotFoundError:
        return Spent()
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged: {error}",
            expected="what the run wrote there",
            fix=f"remove {path}: the run then counts its time from 0 again",
        ) from error
