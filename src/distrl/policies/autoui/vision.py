"""Screenshots as single vectors: the pooled output of BLIP-2's vision tower, which is not trained.

A vector is made once for each screenshot and kept: it takes 6 KB, and the tower of the published model takes a second on a CPU.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from distrl.policies.vlm.caches import ImageCache

MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Of the images that BLIP-2 was trained on; its folder may say otherwise."""
MOST_VECTORS = 20_000
AT_ONCE = 8
"""Screenshots that go through the tower together."""


class Vision:
    """The frozen tower and the vectors that it made."""

    def __init__(self, tower: Any, facts: Mapping[str, Any], device: torch.device) -> None:
        self._tower, self._device = tower.requires_grad_(False), device
        self.width = int(tower.config.hidden_size)
        self._size = int(tower.config.image_size)
        self._mean = np.array(facts.get("image_mean", MEAN), np.float32)
        self._deviation = np.array(facts.get("image_std", DEVIATION), np.float32)
        self._held: OrderedDict[str, Tensor] = OrderedDict()

    def vectors(self, references: Sequence[str], images: ImageCache) -> Tensor:
        """A vector for each screenshot; an empty reference, for a step without a picture, has zeros."""
        new = [name for name in dict.fromkeys(references) if name and name not in self._held]
        for begin in range(0, len(new), AT_ONCE):
            part = new[begin : begin + AT_ONCE]
            made = self._see([images.image(name) for name in part])
            self._held.update(zip(part, made, strict=True))
        nothing = torch.zeros(self.width)
        found = torch.stack([self._held.get(name, nothing) for name in references])
        for name in references:
            if name in self._held:
                self._held.move_to_end(name)
        while len(self._held) > MOST_VECTORS:
            self._held.popitem(last=False)
        return found.to(self._device)

    @torch.no_grad()
    def _see(self, pictures: Sequence[Image.Image]) -> Tensor:
        pixels_NCHW = torch.stack([self._prepare(picture) for picture in pictures]).to(self._device)
        pooled: Tensor = self._tower(pixel_values=pixels_NCHW).pooler_output
        return pooled.float().cpu()

    def _prepare(self, picture: Image.Image) -> Tensor:
        """As BLIP's image processor: squeezed to a square, bicubic, normalised."""
        square = picture.resize((self._size, self._size), Image.Resampling.BICUBIC)
        pixels_HWC = (np.asarray(square, np.float32) / 255.0 - self._mean) / self._deviation
        return torch.from_numpy(pixels_HWC.transpose(2, 0, 1).copy())
