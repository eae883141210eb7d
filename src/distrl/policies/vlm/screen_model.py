"""A vision-language model for screens: a small vision encoder in front of a Llama language model, in transformers' terms.

    screenshot --stem--> squares --vision layers--> pairs of neighbours --projection--> embeddings of the language model

The stem is a pyramid of strided convolutions, which is what lets the encoder learn from random weights (plain patch
embeddings stayed at chance); squares are as large as its strides multiply to. Two squares beside each other become one token,
as text runs along lines. A token also gets the embeddings of its row and columns, which begin as those of the letters that the
grid dialect calls them: copying a token's place is then what the language model does with any other word.

`register` makes the classes known to transformers' Auto classes, so that a folder of this kind loads like any other and
without remote code. Suffixes: B images of one size, R rows, C columns, D width, M tokens.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForImageTextToText, LlamaConfig, LlamaModel, PreTrainedConfig
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from distrl.policies.dialects.grid import COLUMNS, ROWS
from distrl.policies.pixel.network import Block, GroupNorm, LayerNorm

MOST_PLACES = 64
"""Rows and columns of squares that have a position, at most."""
PATCHES_PER_TOKEN = 2
"""Neighbours that become one token of the language model."""


class ScreenVisionConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """The size of a vision encoder."""

    model_type = "screen_vision"

    def __init__(
        self, *, width: int = 512, layers: int = 6, strides: tuple[int, ...] = (2, 2, 2, 3), **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.width, self.layers, self.strides = width, layers, list(strides)
        self.patches_per_token = PATCHES_PER_TOKEN

    @property
    def square(self) -> int:
        """Side of a square in pixels."""
        return prod(self.strides)


class ScreenLlamaConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """The whole model."""

    model_type = "screen_llama"
    sub_configs: ClassVar[dict[str, Any]] = {"text_config": LlamaConfig, "vision_config": ScreenVisionConfig}

    def __init__(
        self, *, text_config: Any = None, vision_config: Any = None, image_token_id: int = 0, **rest: Any
    ) -> None:
        self.text_config = _config(LlamaConfig, text_config)
        self.vision_config = _config(ScreenVisionConfig, vision_config)
        self.image_token_id = image_token_id
        super().__init__(**{"tie_word_embeddings": self.text_config.tie_word_embeddings, **rest})


def _config(kind: Any, given: Any) -> Any:
    return given if isinstance(given, kind) else kind(**{**(given or {})})


class Stem(nn.Sequential):
    """Strided 3 × 3 convolutions, a second one after each but the first, where pixels are many."""

    def __init__(self, width: int, strides: list[int]) -> None:
        channels = [max(16, width // 2**power) for power in reversed(range(len(strides)))]
        blocks = [nn.Sequential(nn.Conv2d(3, channels[0], 3, stride=strides[0], padding=1), nn.GELU())]
        for inside, outside, stride in zip(channels, channels[1:], strides[1:], strict=False):
            blocks.append(
                nn.Sequential(
                    nn.Conv2d(inside, outside, 3, stride=stride, padding=1),
                    nn.GELU(),
                    nn.Conv2d(outside, outside, 3, padding=1),
                    GroupNorm(8, outside),
                    nn.GELU(),
                )
            )
        super().__init__(*blocks)


class ScreenEncoder(nn.Module):
    """Images in, embeddings for a language model of width `out` out."""

    def __init__(self, config: ScreenVisionConfig, out: int) -> None:
        super().__init__()
        width, self.square, self.pair = config.width, config.square, config.patches_per_token
        self.stem, self.norm_stem = Stem(width, config.strides), LayerNorm(width)
        self.row, self.column = nn.Embedding(MOST_PLACES, width), nn.Embedding(MOST_PLACES, width)
        self.layers = nn.Sequential(*(Block(width) for _ in range(config.layers)))
        self.norm_out = LayerNorm(self.pair * width)
        self.up, self.down = nn.Linear(self.pair * width, 2 * out), nn.Linear(2 * out, out)
        self.row_name, self.column_name = nn.Embedding(len(ROWS), out), nn.Embedding(len(COLUMNS), out)

    def forward(self, picture_BCHW: Tensor) -> Tensor:
        """The tokens of each image, [B, M, out]."""
        return self.tokens(*self.squares(picture_BCHW)[1:])

    def squares(self, picture_BCHW: Tensor) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """Each square's vector after the stem and after the vision layers, line by line; how many rows and columns there are."""
        stem_BDRC = self.stem(picture_BCHW.contiguous(memory_format=torch.channels_last))
        rows, columns = stem_BDRC.shape[-2:]
        seen_BSD = self.norm_stem(stem_BDRC.flatten(2).transpose(1, 2))
        place_RCD = self.row.weight[:rows, None] + self.column.weight[None, :columns]
        seen_BSD = seen_BSD + place_RCD.flatten(0, 1).to(seen_BSD.dtype)
        return seen_BSD, self.layers(seen_BSD), (rows, columns)

    def tokens(self, squares_BSD: Tensor, size: tuple[int, int]) -> Tensor:
        """Neighbours together, in the language model's width."""
        rows, columns = size
        pairs_BMP = squares_BSD.reshape(len(squares_BSD), rows * columns // self.pair, -1)
        found_BMD: Tensor = self.down(F.gelu(self.up(self.norm_out(pairs_BMP))))
        return found_BMD + self._names(size, found_BMD)

    def _names(self, size: tuple[int, int], like: Tensor) -> Tensor:
        """Embeddings of the rows and columns of the grid dialect, whatever the image's own are."""
        rows, columns = size
        row_R = torch.arange(rows, device=like.device) * len(ROWS) // rows
        column_C = torch.arange(columns, device=like.device) * len(COLUMNS) // columns
        column_MD = self.column_name(column_C).unflatten(0, (columns // self.pair, self.pair)).mean(1)
        name_RMD: Tensor = self.row_name(row_R)[:, None] + column_MD[None]
        return name_RMD.flatten(0, 1).to(like.dtype)

    def pictures(self, pixels_ND: Tensor, rows: int, columns: int) -> Tensor:
        """Patches of images of one size, in groups of 2 × 2, as images again."""
        side = self.square
        split = pixels_ND.view(-1, rows // 2, columns // 2, 2, 2, 3, side, side)
        return split.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(-1, 3, rows * side, columns * side)


@torch.no_grad()
def init_weights(module: Any) -> None:
    """First weights: small and normal, and such that a convolution keeps the size of its input."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    elif isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    elif isinstance(module, nn.GroupNorm | nn.LayerNorm) or type(module).__name__.endswith("RMSNorm"):
        nn.init.ones_(module.weight)
    if getattr(module, "bias", None) is not None:
        nn.init.zeros_(module.bias)


class ScreenLlamaPreTrained(PreTrainedModel):  # type: ignore[no-untyped-call]
    """What both classes below are."""

    config_class = ScreenLlamaConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True

    def _init_weights(self, module: nn.Module) -> None:
        init_weights(module)


class ScreenLlamaModel(ScreenLlamaPreTrained):  # type: ignore[no-untyped-call]
    """The encoder and the language model, without its head."""

    def __init__(self, config: ScreenLlamaConfig) -> None:
        super().__init__(config)
        self.visual = ScreenEncoder(config.vision_config, config.text_config.hidden_size)
        self.language_model = LlamaModel(config.text_config)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """Of the language model."""
        found: nn.Module = self.language_model.embed_tokens
        return found

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Of the language model."""
        self.language_model.embed_tokens = value  # type: ignore[assignment]

    def get_image_features(
        self, pixel_values: Tensor, image_grid_thw: Tensor, **_rest: Any
    ) -> BaseModelOutputWithPooling:
        """The embeddings of each image, one tensor for each, as `pooler_output`."""
        found, at = list[Tensor](), 0
        grids = [(int(rows), int(columns)) for _, rows, columns in image_grid_thw.tolist()]
        while len(found) < len(grids):  # images of one size that follow each other go through together
            rows, columns = grids[len(found)]
            alike = next(
                (n for n, grid in enumerate(grids[len(found) :]) if grid != (rows, columns)), len(grids) - len(found)
            )
            part = pixel_values[at : at + alike * rows * columns].to(self.visual.up.weight.dtype)
            found += self.visual(self.visual.pictures(part, rows, columns)).unbind(0)
            at += len(part)
        return BaseModelOutputWithPooling(pooler_output=tuple(found))  # type: ignore[arg-type]

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **rest: Any,
    ) -> Any:
        """The language model's output for tokens, of which some stand for images."""
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
        here_BL = None if input_ids is None else input_ids == self.config.image_token_id
        if (
            pixel_values is not None and here_BL is not None and bool(here_BL.any())
        ):  # not after the first step of `generate`
            assert image_grid_thw is not None
            features = torch.cat(tuple(self.get_image_features(pixel_values, image_grid_thw).pooler_output or ()))
            inputs_embeds = inputs_embeds.masked_scatter(here_BL[..., None], features.to(inputs_embeds.dtype))
        return self.language_model(inputs_embeds=inputs_embeds, **rest)


class ScreenLlamaForConditionalGeneration(ScreenLlamaPreTrained, GenerationMixin):  # type: ignore[no-untyped-call]
    """The model with its language head."""

    _tied_weights_keys: dict[str, str] = {"lm_head.weight": "model.language_model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: ScreenLlamaConfig) -> None:
        super().__init__(config)
        self.model = ScreenLlamaModel(config)
        self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """Of the language model."""
        found: nn.Module = self.model.get_input_embeddings()
        return found

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Of the language model."""
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        """The language head."""
        found: nn.Module = self.lm_head
        return found

    def get_decoder(self, *_given: Any, **_named: Any) -> nn.Module:
        """The language model."""
        found: nn.Module = self.model.language_model
        return found

    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **rest: Any,
    ) -> CausalLMOutputWithPast:
        """The logits of the last tokens; of all with `logits_to_keep` 0."""
        found = self.model(
            input_ids=input_ids,
            pixel_values=pixel_values,
            image_grid_thw=image_grid_thw,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **rest,
        )
        hidden = found.last_hidden_state
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return CausalLMOutputWithPast(logits=self.lm_head(hidden[:, kept]), past_key_values=found.past_key_values)


@cache
def register() -> None:
    """Let transformers' Auto classes load folders of this kind; again: nothing."""
    AutoConfig.register(ScreenLlamaConfig.model_type, ScreenLlamaConfig)
    AutoModelForImageTextToText.register(ScreenLlamaConfig, ScreenLlamaForConditionalGeneration)
