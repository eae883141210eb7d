"""An episode as an MP4 (H.264), with the same frames as its GIF: smaller, in full colour, and with a pause button.

Needs the extra `distrl[video]`, PyAV, which brings its own FFmpeg.
"""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

from distrl.errors import UsageError
from distrl.evaluation.film import frames_of
from distrl.installing import install

if TYPE_CHECKING:
    from distrl.evaluation.stored_playback import Playback

FRAMES_PER_S = 10
"""As often as a frame is shown again while nothing changes: players seek in such a film without trouble."""
QUALITY = "23"
"""Constant rate factor of x264: its default, at which text of screens stays sharp."""


def need_video_package() -> None:
    """`UsageError` where PyAV is not installed."""
    if find_spec("av") is None:
        raise UsageError(
            "an MP4 needs the package av, which is not installed",
            expected="distrl with its extra [video]",
            fix=f"{install('video')}; or a file that ends in .gif",
        )


def make_mp4(playback: Playback) -> bytes:
    """The episode as a film: each screen, then the gesture on it, then the verdict."""
    need_video_package()
    import av
    import numpy as np

    pictures, times_ms = frames_of(playback)
    out = BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FRAMES_PER_S, options={"crf": QUALITY})
        # Two pixels of colour share one value in the format that every player knows, so sides are even.
        stream.width, stream.height = (side - side % 2 for side in pictures[0].size)
        stream.pix_fmt = "yuv420p"
        for picture, time_ms in zip(pictures, times_ms, strict=True):
            even = np.asarray(picture.crop((0, 0, stream.width, stream.height)))
            for _ in range(round(time_ms * FRAMES_PER_S / 1000)):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
    return out.getvalue()
