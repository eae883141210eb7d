"""How a policy gets at the picture that an observation refers to."""

from __future__ import annotations

from typing import Protocol

from distrl.errors import StoreError


class Pictures(Protocol):
    """Encoded screenshots by reference: the frame store of a run, or the newest ones in memory."""

    def get(self, reference: str) -> bytes:
        """The picture behind `reference`, JPEG or PNG; `StoreError` where it is malformed, unknown or damaged."""


class NoPictures:
    """For those who never look."""

    def get(self, reference: str) -> bytes:
        """Refuse."""
        raise StoreError(
            f"nobody has kept the picture {reference[:80]!r}",
            expected="a source of pictures for a policy that looks at them",
            fix="pass `pictures` to make_policy: a FrameStore or RecentFrames",
        )
