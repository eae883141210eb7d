"""Episodes and pictures that are durable at a target before the run folder has them, and so before they are acknowledged."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from distrl.errors import StoreBusy, StoreError
from distrl.experience.durable import publish
from distrl.experience.episode_file import decode, encode
from distrl.experience.frames import FrameStore, reference_of, suffix_of
from distrl.experience.store import SUFFIX, ExperienceStore
from distrl.experience.target import Target, verified
from distrl.types import Trajectory

AGAIN_S, LONGEST_AGAIN_S = 0.2, 5.0
"""Between two tries to reach a target that does not answer: each pause twice as long as the one before, up to the second."""
EPISODES, FRAMES = "episodes", "frames"

log = logging.getLogger("distrl.storage")


class StoredElsewhere:
    """What of one run is at a target."""

    def __init__(
        self, target: Target, *, clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._target, self._clock, self._sleep = target, clock, sleep

    def keep(self, trajectory: Trajectory, pictures: Iterable[bytes]) -> None:
        """Have an episode there, its pictures first. Goes on trying while the target does not answer."""
        self.keep_pictures(pictures)
        content = encode(trajectory, created_s=self._clock())
        self._until_there({f"{EPISODES}/{trajectory.id}{SUFFIX}": content})

    def keep_pictures(self, pictures: Iterable[bytes]) -> None:
        """Have pictures there."""
        self._until_there({_name(picture): picture for picture in pictures})

    def picture(self, reference: str) -> bytes:
        """A picture, verified."""
        digest = reference.removeprefix("sha256:")
        for suffix in (".jpg", ".png", ".bin"):
            try:
                picture = self._target.get(f"{FRAMES}/{digest}{suffix}")
            except StoreBusy:
                raise  # it may be there
            except StoreError:
                continue
            if verified(reference, picture):
                return picture
        raise StoreError(f"the frame {reference[:80]} is neither in the run folder nor at {self._target.url}")

    def _until_there(self, files: dict[str, bytes]) -> None:
        pause_s = AGAIN_S
        while files:
            try:
                self._target.put_all(files)
            except StoreBusy as busy:
                if pause_s == AGAIN_S:
                    log.warning("%s; tried again until it answers", busy.seen)
                self._sleep(pause_s)
                pause_s = min(LONGEST_AGAIN_S, 2 * pause_s)
            else:
                return

    def fetch(self, folder: Path) -> tuple[int, int]:
        """Bring what a run folder's store lacks; how many episodes and pictures that were. Its index then knows them."""
        frames, store = FrameStore(folder), ExperienceStore(folder)
        brought = 0
        with store:
            known = {path.name for path in (folder / FRAMES).glob("*/*")}
            for name in self._target.names(FRAMES):
                picture = b"" if name in known else self._target.get(f"{FRAMES}/{name}")
                if picture and _name(picture) == f"{FRAMES}/{name}":  # one that broke off was never acknowledged
                    frames.put(picture)
                    brought += 1
            for name in self._target.names(EPISODES):
                path = store.path(name.removesuffix(SUFFIX))
                if not path.exists():
                    content = self._target.get(f"{EPISODES}/{name}")
                    with suppress(StoreError):  # it broke off, and was never acknowledged
                        decode(content, path)
                        publish(path, content)
            return store.recover(), brought


class FramesElsewhere:
    """`FrameStorage` of a run folder whose pictures are durable at a target first, and found there where the folder has them no more."""

    def __init__(self, frames: FrameStore, elsewhere: StoredElsewhere) -> None:
        self._frames, self._elsewhere = frames, elsewhere

    def put(self, picture: bytes) -> str:
        """Keep a picture; its reference."""
        self._elsewhere.keep_pictures([picture])
        return self._frames.put(picture)

    def get(self, reference: str) -> bytes:
        """A picture, verified."""
        try:
            return self._frames.get(reference)
        except StoreError:
            return self._elsewhere.picture(reference)


def _name(picture: bytes) -> str:
    return f"{FRAMES}/{reference_of(picture).removeprefix('sha256:')}{suffix_of(picture)}"
