"""The pixel policy's network: screenshot, instruction and past actions in; action logits and a value out.

A convolutional stem with stride 16 turns the image into squares of 16 × 16. Vision layers (a transformer) attend among
squares; joint layers attend among squares, bytes of the instruction and past actions; heads point at squares and spans.
The stem is what lets it train from random weights: with a linear patch embedding instead, the network stayed at
chance over 267,000 samples, and with the stem it read 88 % of its targets after 600,000.
Suffixes as in features.py, and D width, T tokens, K kinds, H pointing heads, S squares.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.config.schema import PixelConfig
from distrl.policies.pixel.batches import Batch
from distrl.policies.pixel.features import PAST
from distrl.policies.pixel.grammar import KINDS, POINTING, grid_of
from distrl.policies.pointer.grammar import LONGEST_SPAN
from distrl.policies.pointer.words import MAX_WORDS

NEVER = -1e9
"""Logit of what cannot be chosen; finite, so that entropies stay finite."""
LARGE_HEAD, SMALL_HEAD = 64, 32
"""Width of an attention head, where it divides that of the network."""


class Logits(msgspec.Struct, frozen=True, kw_only=True):
    """Unnormalised preferences; what cannot be chosen has `NEVER`."""

    kind_BK: Tensor
    square_BHS: Tensor
    span_BII: Tensor
    """First word by last word."""
    value_B: Tensor


class LayerNorm(nn.LayerNorm):
    """In the precision of what comes in: autocast would turn it to full precision, and move twice as many bytes."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class GroupNorm(nn.GroupNorm):
    """The same over groups of channels. Not over the batch: the result for one image must not depend on others."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
            return F.group_norm(x, self.num_groups, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class Stem(nn.Sequential):
    """Four times a 3 × 3 convolution with stride 2, a second one after each but the first, where pixels are many."""

    def __init__(self, width: int) -> None:
        channels = (width // 8, width // 4, width // 2, width)
        first = nn.Sequential(nn.Conv2d(3, channels[0], 3, stride=2, padding=1), nn.GELU())
        super().__init__(first, *(_block(inside, outside) for inside, outside in pairwise(channels)))


def _block(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        GroupNorm(gcd(8, outside), outside),
        nn.GELU(),
    )


class Block(nn.Module):
    """Pre-norm self-attention and an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // (SMALL_HEAD if width % LARGE_HEAD else LARGE_HEAD)
        self.norm_in, self.norm_mid = LayerNorm(width), LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The tokens after one layer."""
        batch, tokens, width = x_BTD.shape
        qkv = self.qkv(self.norm_in(x_BTD)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        hidden: Tensor = x_BTD + self.down(F.gelu(self.up(self.norm_mid(x_BTD))))
        return hidden


class PixelNetwork(nn.Module):
    """Images and texts in; logits for kinds, squares and spans, and a value out."""

    def __init__(self, config: PixelConfig) -> None:
        super().__init__()
        width, self.num_squares = config.width, grid_of(config).num_squares
        self.stem = Stem(width)
        self.norm_stem = LayerNorm(width)
        self.place = nn.Embedding(self.num_squares + 1, width)
        """Where a square lies; row 0 is nowhere."""
        self.byte, self.byte_place = nn.Embedding(256, width), nn.Embedding(config.text_bytes, width)
        self.word_place = nn.Embedding(MAX_WORDS + 1, width)
        self.past_kind, self.past_place = nn.Embedding(len(KINDS) + 1, width), nn.Embedding(PAST, width)
        self.past_last, self.past_flags = nn.Embedding(MAX_WORDS + 1, width), nn.Linear(2, width)
        self.state = nn.Parameter(torch.zeros(width))
        self.vision = nn.Sequential(*(Block(width) for _ in range(config.vision_layers)))
        self.text = nn.Sequential(*(Block(width) for _ in range(config.text_layers)))
        self.joint = nn.Sequential(*(Block(width) for _ in range(config.joint_layers)))
        self.norm = nn.LayerNorm(width)
        self.kind_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(KINDS)))
        self.value_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self.query = nn.Linear(width, len(POINTING) * width)
        self.square_score = nn.Linear(width, len(POINTING))
        self.first_score, self.last_score = nn.Linear(width, 1), nn.Linear(width, 1)
        self.span_length = nn.Parameter(torch.zeros(LONGEST_SPAN))
        self.apply(_init_weights)
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, picture_BHWC: Tensor, batch: Batch) -> Logits:
        """Images as they were decoded: bytes, colours last."""
        return self.predict(self.encode_image(picture_BHWC, batch.tint_BC)[-1], batch)

    def encode_image(self, picture_BHWC: Tensor, tint_BC: Tensor) -> tuple[Tensor, Tensor]:
        """Each square's vector after the stem, and after the vision layers."""
        with _autocast(picture_BHWC):
            seen_BSD = self._squares(picture_BHWC, tint_BC)
            return seen_BSD, self.vision(seen_BSD)

    def predict(self, squares_BSD: Tensor, batch: Batch) -> Logits:
        """Logits for encoded images, with an instruction and past actions for each of them."""
        # Half precision on a GPU up to the heads, full precision in them: log-probabilities are compared across versions.
        with _autocast(squares_BSD):
            state_B1D = self.state.expand(len(squares_BSD), 1, -1)
            tokens = [state_B1D, squares_BSD, self.text(self._bytes(batch).to(squares_BSD.dtype)), self._past(batch)]
            x_BTD = self.joint(torch.cat([part.to(squares_BSD.dtype) for part in tokens], dim=1))
        return self._heads(self.norm(x_BTD.float()), batch)

    def _squares(self, picture_BHWC: Tensor, tint_BC: Tensor) -> Tensor:
        colours_BHWC = picture_BHWC.float().div_(127.5).sub_(1.0)
        colours_BHWC = colours_BHWC * tint_BC[:, None, None, :3] + tint_BC[:, None, None, 3:]
        # Seen as channels-last without being moved: the colours of a pixel lie side by side already.
        stem_BDHW = self.stem(colours_BHWC.permute(0, 3, 1, 2))
        seen_BSD: Tensor = self.norm_stem(stem_BDHW.flatten(2).transpose(1, 2))
        return seen_BSD + self.place.weight[1:].to(seen_BSD.dtype)

    def _bytes(self, batch: Batch) -> Tensor:
        read: Tensor = self.byte(batch.byte_BL) + self.byte_place.weight + self.word_place(batch.word_BL)
        return read

    def _past(self, batch: Batch) -> Tensor:
        kind, square, first, last, *_ = batch.past_BPC.unbind(-1)
        done = self.past_kind(kind) + self.place(square) + self.word_place(first) + self.past_last(last)
        past: Tensor = done + self.past_flags(batch.past_BPC[..., 4:].to(done.dtype)) + self.past_place.weight
        return past

    def _heads(self, x_BTD: Tensor, batch: Batch) -> Logits:
        text_at, past_at = 1 + self.num_squares, 1 + self.num_squares + batch.byte_BL.shape[1]
        state_BD, squares_BSD, bytes_BLD = x_BTD[:, 0], x_BTD[:, 1:text_at], x_BTD[:, text_at:past_at]
        query_BHD = self.query(state_BD).view(len(state_BD), len(POINTING), -1)
        pointed_BHS = torch.einsum("bhd,bsd->bhs", query_BHD, squares_BSD) / state_BD.shape[-1] ** 0.5
        return Logits(
            kind_BK=self.kind_head(state_BD),
            square_BHS=pointed_BHS + self.square_score(squares_BSD).transpose(1, 2),
            span_BII=self._spans(bytes_BLD, batch),
            # The critic's gradient stops here: its loss would otherwise undo what the policy has learnt.
            value_B=self.value_head(state_BD.detach()).squeeze(-1),
        )

    def _spans(self, bytes_BLD: Tensor, batch: Batch) -> Tensor:
        first_BI = self.first_score(bytes_BLD).squeeze(-1).gather(1, batch.first_BI)
        last_BI = self.last_score(bytes_BLD).squeeze(-1).gather(1, batch.last_BI)
        place_I = torch.arange(first_BI.shape[1], device=first_BI.device)
        gap_II, mask_BI = place_I[None, :] - place_I[:, None], batch.word_mask_BI
        fits_BII = (gap_II >= 0) & (gap_II < LONGEST_SPAN) & mask_BI[:, :, None] & mask_BI[:, None, :]
        length_II = self.span_length[gap_II.clamp(0, LONGEST_SPAN - 1)]
        spans_BII: Tensor = first_BI[:, :, None] + last_BI[:, None, :] + length_II
        return spans_BII.masked_fill(~fits_BII, NEVER)


def _autocast(x: Tensor) -> torch.autocast:
    return torch.autocast("cuda" if x.is_cuda else "cpu", torch.bfloat16, enabled=x.is_cuda)


def _init_weights(module: nn.Module) -> None:
    """First weights: small and normal, so that every layer starts close to the identity."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02 if isinstance(module, nn.Linear) else 0.5)
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
        nn.init.zeros_(module.bias)


def compile_layers(network: nn.Module) -> None:
    """Let torch compile the layers, which are most of the work: one function for all of them, once for each shape."""
    for block in network.modules():
        if isinstance(block, Block):
            block.compile(dynamic=False)


def uncompile_layers(network: nn.Module) -> None:
    """Undo `compile_layers`: compiled layers are made for one batch size."""
    for block in network.modules():
        if isinstance(block, Block):
            block._compiled_call_impl = None
