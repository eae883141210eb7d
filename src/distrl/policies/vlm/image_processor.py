"""Image processors of the model families: the placeholder of an image in the prompt, and the image tensors beside it.

Two layouts are written out here, because transformers' own processors for them need packages for video that nobody
needs for screenshots: a grid of patches (Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what is built on them) and tiles with an
overview (SmolVLM, Idefics3). Any other model is left to the processor in its folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from math import ceil, sqrt
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.vlm.caches import image_threads
from distrl.policies.vlm.loading import Model, load_processor

Size = tuple[int, int]
"""Width and height in pixels."""
MAX_ASPECT_RATIO = 100
"""Longest side over shortest, beyond which an image is squeezed: the families refuse 200."""


class UnpaddedInputs(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of prompts as a model takes them, before padding."""

    ids: Sequence[Sequence[int]]
    images: dict[str, Tensor] = {}
    """Inputs of the model that hold the images of all prompts."""
    per_token: dict[str, list[list[int]]] = {}
    """Further inputs of the model with a number for each token."""


class ImageProcessor(Protocol):
    """Turns prompts and their images into inputs of a model."""

    @property
    def placeholder(self) -> str:
        """What stands for an image in a prompt."""

    def processed_size(self, size: Size) -> Size:
        """The size at which the model gets an image of `size`: dialects that count pixels count these."""

    def process(self, prompts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> UnpaddedInputs:
        """The prompts, each with the images that its placeholders stand for."""


def make_image_processor(model: Model, config: VlmConfig) -> ImageProcessor | None:
    """The image processor of a model; None where it gets no screenshots."""
    if not config.pictures:
        return None
    if not model.takes_images:
        raise ConfigError(
            f"the {model.config.model_type} model in {config.path} takes no images",
            expected="a model for images and text, or UI elements alone",
            fix="--policy.vlm.pictures false",
        )
    processor, max_pixels = load_processor(config, "image"), config.image_max_pixels
    if hasattr(processor, "merge_size") and hasattr(processor, "patch_size"):
        return PatchProcessor(model, processor, max_pixels)
    if hasattr(processor, "max_image_size") and hasattr(processor, "do_image_splitting"):
        return TileProcessor(model, processor, max_pixels)
    return GenericProcessor(model, load_processor(config, "whole"), max_pixels)


def within(size: Size, max_pixels: int) -> Size:
    """`size` scaled down to `max_pixels` and less stretched than `MAX_ASPECT_RATIO`."""
    width, height = (min(side, MAX_ASPECT_RATIO * other) for side, other in (size, size[::-1]))
    scale = min(1.0, sqrt(max_pixels / (width * height)))
    return max(1, int(width * scale)), max(1, int(height * scale))


class PatchProcessor:
    """Patches in a grid, a token for every few of them; the image may have any size that these divide."""

    def __init__(self, model: Model, processor: Any, max_pixels: int) -> None:
        self._tokenizer, self._processor, self._max_pixels = model.tokenizer, processor, max_pixels
        self._patch, self._merge = int(processor.patch_size), int(processor.merge_size)
        self._unit: int = self._patch * self._merge
        vision = getattr(model.config, "vision_config", None)
        self._patches_per_token: int = getattr(vision, "patches_per_token", self._merge**2)
        # In bytes, 0 to 255.
        self._scale = tuple(
            torch.tensor(given) / processor.rescale_factor for given in (processor.image_mean, processor.image_std)
        )
        self._scale_on = cache(lambda device: tuple(given.to(device) for given in self._scale))
        self._token_id: int = model.config.image_token_id
        self._token: str = model.tokenizer.convert_ids_to_tokens(self._token_id)
        self._typed = "mm_token_type_ids" in inspect.signature(model.network.forward).parameters
        edges = (getattr(model.config, f"vision_{end}_token_id", None) for end in ("start", "end"))
        start, end = ("" if edge is None else model.tokenizer.convert_ids_to_tokens(edge) for edge in edges)
        self.placeholder = f"{start}{self._token}{end}"

    def processed_size(self, size: Size) -> Size:
        """The nearest size in whole units, within the budget."""
        width, height = (max(1, round(side / self._unit)) for side in within(size, self._max_pixels))
        while width * height > max(1, self._max_pixels // self._unit**2):
            width, height = (width - 1, height) if width >= height else (width, height - 1)
        return width * self._unit, height * self._unit

    def process(self, prompts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> UnpaddedInputs:
        """The prompts, each with the images that its placeholders stand for."""
        found = self.patches([image for row in images for image in row])
        return msgspec.structs.replace(self.fill(prompts, found["image_grid_thw"]), images=found)

    def patches(self, images: Sequence[Image.Image], device: torch.device | None = None) -> dict[str, Tensor]:
        """The patches of some images, `pixel_values`, and the grid in which those of each lie, `image_grid_thw`.

        Numbers as the processor in the folder makes them; computed on `device`, where bytes travel instead of floats.
        """
        return self.patches_of(self.pixels(images), device)

    def pixels(self, images: Sequence[Image.Image]) -> list[Tensor]:
        """The images as the model gets them, [H, W, 3] in bytes; scaled at the same time."""
        return list(image_threads().map(_pixels, images, [self.processed_size(image.size) for image in images]))

    def patches_of(self, shown: Sequence[Tensor], device: torch.device | None = None) -> dict[str, Tensor]:
        """What `patches` gives, from the images' `pixels`."""
        on = device or torch.device("cpu")
        alike = len({pixels.shape for pixels in shown}) == 1
        patches = (
            [self._rows(torch.stack(list(shown)).to(on))] if alike else [self._rows(one[None].to(on)) for one in shown]
        )
        grids = [self._grid((width, height)) for height, width, _ in (pixels.shape for pixels in shown)]
        return {"pixel_values": torch.cat(patches), "image_grid_thw": torch.tensor(grids)}

    def grid(self, size: Size) -> tuple[int, int, int]:
        """How many patches deep, high and wide an image of `size` becomes."""
        return self._grid(self.processed_size(size))

    def _grid(self, processed: Size) -> tuple[int, int, int]:
        return 1, processed[1] // self._patch, processed[0] // self._patch

    def _rows(self, pixels_BHWC: Tensor) -> Tensor:
        """Images of one size as rows of patches, in groups of those that become one token."""
        size, merge, (count, height, width, _) = self._patch, self._merge, pixels_BHWC.shape
        mean, std = self._scale_on(pixels_BHWC.device)
        scaled_BHWC = (pixels_BHWC.float() - mean) / std
        split = scaled_BHWC.view(count, height // size // merge, merge, size, width // size // merge, merge, size, 3)
        rows = split.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, 3, 1, size * size)
        # A still image is as many equal frames as the model takes at once.
        patches: Tensor = rows.expand(-1, -1, self._processor.temporal_patch_size, -1).flatten(1)
        return patches

    def fill(self, prompts: Sequence[str], grids: Tensor) -> UnpaddedInputs:
        """The prompts with as many placeholders as their images have tokens; without the images."""
        counts = iter([int(grid.prod()) // self._patches_per_token for grid in grids])
        texts = [_fill(prompt, self._token, lambda: self._token * next(counts)) for prompt in prompts]
        return self.filled(tokenize(self._tokenizer, texts))

    def filled(self, ids: Sequence[Sequence[int]]) -> UnpaddedInputs:
        """Prompts that were filled before, from their tokens."""
        kinds = [[int(id == self._token_id) for id in row] for row in ids]
        return UnpaddedInputs(ids=ids, per_token={"mm_token_type_ids": kinds} if self._typed else {})


class TileProcessor:
    """Square tiles in rows and columns, and the whole image once more as one tile."""

    def __init__(self, model: Model, processor: Any, max_pixels: int) -> None:
        self._tokenizer, self._processor, self._max_pixels = model.tokenizer, processor, max_pixels
        self._tile: int = processor.max_image_size["longest_edge"]
        self._longest = max(1, processor.size["longest_edge"] // self._tile)
        vision = model.config.vision_config
        self._tokens_per_tile = (vision.image_size // vision.patch_size) ** 2 // model.config.scale_factor**2
        self.placeholder: str = model.tokenizer.convert_ids_to_tokens(model.config.image_token_id)
        self._around = getattr(model.tokenizer, "fake_image_token", "<fake_token_around_image>")
        self._overview = getattr(model.tokenizer, "global_image_token", "<global-img>")

    def processed_size(self, size: Size) -> Size:
        """As it is, within the budget: every tile is as large as the others, whatever was on it."""
        return within(size, self._max_pixels)

    def process(self, prompts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> UnpaddedInputs:
        """The prompts, each with the images that its placeholders stand for."""
        cut = [[self._cut(image) for image in row] for row in images]
        words = iter([self._words(tiles) for row in cut for tiles in row])
        texts = [_fill(prompt, self.placeholder, lambda: next(words)) for prompt in prompts]
        rows = [torch.cat([tiles["pixel_values"][0] for tiles in row]) for row in cut]
        return UnpaddedInputs(ids=tokenize(self._tokenizer, texts), images=_stack_tiles(rows))

    def _cut(self, image: Image.Image) -> Any:
        image = image.resize(within(image.size, 2**30))
        edge = {"longest_edge": self._tile * self._tiles_along(image.size)}
        return self._processor(images=[[image]], size=edge, return_row_col_info=True, return_tensors="pt")

    def _tiles_along(self, size: Size) -> int:
        """Tiles on the longest side: as many as the budget and the model's own limit allow."""
        ratio, budget = min(size) / max(size), max(1, self._max_pixels // self._tile**2)
        return max((n for n in range(1, self._longest + 1) if n * ceil(n * ratio) <= budget), default=1)

    def _words(self, tiles: Any) -> str:
        rows, columns = tiles["rows"][0][0], tiles["cols"][0][0]
        content = self.placeholder * self._tokens_per_tile
        grid = "".join(
            "".join(f"{self._around}<row_{row}_col_{column}>{content}" for column in range(1, columns + 1)) + "\n"
            for row in range(1, rows + 1)
        )
        return (grid and f"{grid}\n") + f"{self._around}{self._overview}{content}{self._around}"


class GenericProcessor:
    """Whatever the processor in the model's folder does."""

    def __init__(self, model: Model, processor: Any, max_pixels: int) -> None:
        self._processor, self._max_pixels = processor, max_pixels
        named = getattr(processor, "image_token", None)
        id = getattr(model.config, "image_token_id", getattr(model.config, "image_token_index", None))
        self.placeholder: str = named or model.tokenizer.convert_ids_to_tokens(id)

    def processed_size(self, size: Size) -> Size:
        """As it is, within the budget."""
        return within(size, self._max_pixels)

    def process(self, prompts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> UnpaddedInputs:
        """The prompts, each with the images that its placeholders stand for."""
        shown = [[image.resize(self.processed_size(image.size)) for image in row] for row in images]
        made = self._processor(
            text=list(prompts), images=shown, padding=True, return_tensors="pt", add_special_tokens=False
        )
        found = {name: value for name, value in made.items() if isinstance(value, Tensor)}
        here, shape = found.pop("attention_mask").bool(), found["input_ids"].shape
        flat = {name: found.pop(name) for name in list(found) if found[name].shape == shape}
        rows = {name: [row[mask].tolist() for row, mask in zip(grid, here, strict=True)] for name, grid in flat.items()}
        return UnpaddedInputs(ids=rows.pop("input_ids"), images=found, per_token=rows)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of finished prompts, to which nothing is added."""
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return ids


def _pixels(image: Image.Image, size: Size) -> Tensor:
    scaled = image if image.size == size else image.resize(size)
    return torch.from_numpy(np.array(scaled))


def _fill(prompt: str, placeholder: str, words: Callable[[], str]) -> str:
    """`prompt` with every placeholder replaced by the next `words()`."""
    first, *rest = prompt.split(placeholder)
    return first + "".join(words() + part for part in rest)


def _stack_tiles(rows: list[Tensor]) -> dict[str, Tensor]:
    """The tiles of all prompts as one tensor; what a prompt has less than another is zero and marked as such."""
    values = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real_BN = torch.arange(values.shape[1])[None] < torch.tensor([len(row) for row in rows])[:, None]
    mask = real_BN[:, :, None, None].expand(-1, -1, *values.shape[-2:])
    return {"pixel_values": values, "pixel_attention_mask": mask.long()}
