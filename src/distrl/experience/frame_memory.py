"""Pictures in memory, by the same references as in the frame store.

`RecentFrames` forgets the oldest: for those who look at once and keep nothing. `UnwrittenFrames` forgets nothing that
is not in the store: a worker's devices wait for no disk, and the pictures of an episode are written with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Protocol

from distrl.errors import StoreError
from distrl.experience.frames import FrameStore, reference_of
from distrl.experience.store import Added, ExperienceStore
from distrl.types import Trajectory


class Frames(Protocol):
    """Pictures by reference, such as a `FrameStore`."""

    def get(self, reference: str) -> bytes: ...


class RecentFrames:
    """The newest `capacity` pictures; older ones only from those `behind`, where there are some."""

    def __init__(self, capacity: int, behind: Frames | None = None) -> None:
        self._capacity, self._behind = capacity, behind
        self._held: OrderedDict[str, bytes] = OrderedDict()

    @property
    def num_held(self) -> int:
        """Pictures in memory."""
        return len(self._held)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`, which is at hand until `capacity` newer ones have come."""
        reference = reference_of(picture)
        self._held[reference] = picture
        self._held.move_to_end(reference)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
        return reference

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`; `StoreError` where nobody has them any more."""
        if (picture := self._held.get(reference)) is not None:
            return picture
        if self._behind is not None:
            return self._behind.get(reference)
        raise StoreError(
            f"the picture {reference[:80]!r} is no longer in memory",
            expected=f"one of the newest {self._capacity}",
            fix="look at a picture before so many others are taken",
        )


class UnwrittenFrames:
    """Pictures on their way to the store. Taken on one thread, written on another."""

    def __init__(self, store: FrameStore, *, capacity: int) -> None:
        self._store, self._capacity = store, capacity
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def num_held(self) -> int:
        """Pictures in memory."""
        return len(self._held)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`. Over `capacity` the oldest is written at once: memory is bounded, nothing is lost."""
        reference = reference_of(picture)
        with self._lock:
            self._held[reference] = picture
            oldest = next(iter(self._held)) if len(self._held) > self._capacity else None
        if oldest is not None:
            self.write([oldest])
        return reference

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`, from memory where they are not written yet."""
        picture = self._held.get(reference)
        return self._store.get(reference) if picture is None else picture

    def write(self, references: Iterable[str]) -> None:
        """Put these pictures into the store and let go of them; those that are there already are passed over."""
        for reference in references:
            picture = self._held.get(reference)
            if picture is not None:
                self._store.put(picture)
                # Only now: whoever asks meanwhile finds it in memory or in the store, never in neither.
                with self._lock:
                    self._held.pop(reference, None)


class IllustratedStore:
    """`rollout.worker.Sink` that has the pictures of a trajectory in the store before the trajectory."""

    def __init__(self, episodes: ExperienceStore, frames: UnwrittenFrames) -> None:
        self._episodes, self._frames = episodes, frames

    def add(self, trajectory: Trajectory) -> Added:
        """Make the trajectory durable, its pictures first."""
        seen = [step.observation for step in trajectory.steps] + ([trajectory.last] if trajectory.last else [])
        self._frames.write(dict.fromkeys(observation.screenshot for observation in seen if observation.screenshot))
        return self._episodes.add(trajectory)
