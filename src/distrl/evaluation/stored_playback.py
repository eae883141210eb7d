"""An episode with its pictures, and how a stored one gets them back. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distrl.errors import StoreError
from distrl.types import Trajectory


class Playback(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with its pictures."""

    trajectory: Trajectory
    """Judged."""
    screens: tuple[bytes, ...]
    """A picture for each step, and the last screen: JPEG or PNG; empty where the device has no picture."""

    def _repr_html_(self) -> str:
        """The film, where a notebook shows it."""
        from base64 import b64encode

        from distrl.evaluation.film import make_gif

        return f'<img alt="the episode" src="data:image/gif;base64,{b64encode(make_gif(self)).decode()}">'


def stored_playback(episode: Trajectory, frame: Callable[[str], bytes]) -> Playback:
    """A stored episode with the screenshots that were kept; without pictures where one is missing: elements are drawn instead."""
    seen = [step.observation for step in episode.steps]
    references = [one.screenshot for one in (*seen, episode.last or seen[-1])]
    try:
        screens = tuple(frame(reference) for reference in references) if all(references) else ()
    except StoreError:
        screens = ()
    return Playback(trajectory=episode, screens=screens)
