"""From the bytes of a screenshot to pixels. Loads no torch: processes that draw demonstrations use it too."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Size = tuple[int, int]
"""Width and height in pixels."""


def decode(picture: bytes, size: Size) -> NDArray[np.uint8] | None:
    """The pixels of a JPEG or PNG at `size`, colours last; None where it cannot be decoded."""
    try:
        file = Image.open(BytesIO(picture), formats=("JPEG", "PNG"))
        file.draft("RGB", size)  # a JPEG that is far too large is decoded at a fraction of its size
        image = file if file.mode == "RGB" else file.convert("RGB")
        return np.asarray(
            image if image.size == size else image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2)
        )
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
