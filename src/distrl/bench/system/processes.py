"""Processor time and memory of groups of processes and of the whole machine, as Linux counts them, for benchmarks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of processes had used at one moment."""

    at_s: float
    cpu_s: dict[int, float]
    """By process."""
    rss_bytes: int = 0


def sample_of(pids: Iterable[int]) -> Sample:
    """What these processes have used so far; those that are gone are left out."""
    cpu_s, rss_bytes = dict[int, float](), 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):  # it is gone
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            cpu_s[pid] = (int(words[11]) + int(words[12])) / TICKS_PER_S
            rss_bytes += int(words[21]) * os.sysconf("SC_PAGE_SIZE")
    return Sample(at_s=time.time(), cpu_s=cpu_s, rss_bytes=rss_bytes)


def machine() -> Sample:
    """What all processes together have used, and what another machine took of these cores."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]  # idle, and waiting for a disk
    return Sample(at_s=time.time(), cpu_s={0: busy / TICKS_PER_S})


def queued(pids: Iterable[int]) -> Sample:
    """For how long the threads of these processes could have run and waited for a core."""
    waited_s = dict[int, float]()
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("[0-9]*/schedstat"):
            with suppress(OSError, IndexError, ValueError):  # it is gone
                waited_s[int(path.parent.name)] = int(path.read_text(encoding="ascii").split()[1]) / 1e9
    return Sample(at_s=time.time(), cpu_s=waited_s)


def cpu_rate(samples: Sequence[Sample]) -> float:
    """CPU seconds per second of all processes; one that ended or began in between counts for as long as it was seen."""
    used_s = sum(
        max(0.0, later.cpu_s[pid] - earlier.cpu_s[pid])
        for earlier, later in pairwise(samples)
        for pid in earlier.cpu_s.keys() & later.cpu_s.keys()
    )
    return used_s / (samples[-1].at_s - samples[0].at_s) if len(samples) > 1 else 0.0


def parents() -> dict[int, int]:
    """The parent of every process of this machine."""
    found = dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):  # it is gone
            found[int(path.parent.name)] = int(path.read_text().rpartition(") ")[2].split()[1])
    return found


def tree(pid: int, parent_of: Mapping[int, int] | None = None) -> list[int]:
    """A process, all that it has started, and what those have."""
    children = dict[int, list[int]]()
    for child, parent in (parents() if parent_of is None else parent_of).items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:  # which grows
        found += sorted(children.get(one, []))
    return found
