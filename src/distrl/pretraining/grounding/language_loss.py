"""The loss of a vision-language model's grounding: OCR first, then answers to queries behind each screen.

    reading stage     L = letters + names                                     (the vision encoder alone)
    language stage    L = -mean log p(answer token) + w_r (letters + names)   (everything)

A screen and its queries are one sequence: the head that all prompts share, with the image inside, then the queries, each
of which attends to the head and to itself, at the positions that it would have alone. So every query gets what it would get
in a prompt of its own, and the image is encoded once. Suffixes as in language_samples.py, and B screens, S squares, T tokens
of a sequence, P tokens of the head, V vocabulary, H heads, W width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.config.schema import GroundingConfig
from distrl.policies.pixel.network import compile_layers, uncompile_layers
from distrl.pretraining.grounding.language_samples import POINT, READ, ROW_TOKENS, STEP
from distrl.pretraining.grounding.losses import LossTerms
from distrl.pretraining.grounding.ocr import OcrHeads

JITTER = 0.1
"""Colour jitter: gains around 1 and shifts around 0, so wide either way."""
ALIGNED = 8
"""Kernels for masked attention want sequences of a multiple of this."""
MASKED = -1e9


class ReadingLoss:
    """The reading stage: OCR on what a vision encoder makes of screens."""

    queries = 1

    def __init__(self, encoder: Any, *, width: int, seed: int) -> None:
        self._device = next(encoder.parameters()).device
        torch.manual_seed(seed)
        self.encoder, self.heads = encoder, OcrHeads(width).to(self._device)
        self.generator = torch.Generator(self._device).manual_seed(seed)

    def parameters(self) -> Sequence[nn.Parameter]:
        """The encoder's, and those of the OCR heads, which are dropped afterwards."""
        return [*self.encoder.parameters(), *self.heads.parameters()]

    def compute(self, samples: Mapping[str, Tensor], *, measured: bool) -> LossTerms:
        """The OCR loss on these samples."""
        with autocast(self._device):
            seen_BSD, squares_BSD, _ = self.encoder.squares(self.pictures(samples["picture"]))
        parts = self.heads.terms(seen_BSD, squares_BSD, samples, self.generator, measured=measured)
        return _terms(parts["letters"] + parts["names"], parts)

    def pictures(self, picture_BHWC: Tensor) -> Tensor:
        """Images as the image processor makes them, with other colours each time."""
        drawn_BC = torch.rand(len(picture_BHWC), 6, device=self._device, generator=self.generator) * 2 - 1
        tint_BC = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], device=self._device) + JITTER * drawn_BC
        plain_BCHW = picture_BHWC.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)
        return plain_BCHW * tint_BC[:, :3, None, None] + tint_BC[:, 3:, None, None]

    def compile(self) -> None:
        """Let torch compile the vision layers."""
        compile_layers(self.encoder)

    def uncompile(self) -> None:
        """Undo that."""
        uncompile_layers(self.encoder)


class LanguageLoss:
    """The language stage, of a whole model whose prompts begin with the tokens `head`."""

    queries = 1

    def __init__(self, model: Any, head: Sequence[int], config: GroundingConfig, *, seed: int) -> None:
        self.model, self._config = model, config
        self._reading = ReadingLoss(model.model.visual, width=model.config.vision_config.width, seed=seed)
        self._device, self.generator = self._reading._device, self._reading.generator
        self._head_P = torch.tensor(head, device=self._device)
        self._never = torch.tensor([model.config.image_token_id], device=self._device)
        self._image_P = self._head_P == self._never
        self._layer: Callable[..., Tensor] = decoder_layer

    def parameters(self) -> Sequence[nn.Parameter]:
        """All of the model's, and those of the OCR heads."""
        return [*self.model.parameters(), *self._reading.heads.parameters()]

    def compile(self) -> None:
        """Let torch compile the layers of encoder and language model."""
        self._reading.compile()
        self._layer = torch.compile(decoder_layer, dynamic=False)

    def uncompile(self) -> None:
        """Undo that."""
        self._reading.uncompile()
        self._layer = decoder_layer

    def compute(self, samples: Mapping[str, Tensor], *, measured: bool) -> LossTerms:
        """The loss on these samples."""
        visual = self.model.model.visual
        with autocast(self._device):
            seen_BSD, squares_BSD, size = visual.squares(self._reading.pictures(samples["picture"]))
            image_BMD = visual.tokens(squares_BSD, size)
            logits_BAV = self.answer_logits(image_BMD, samples)
        weight_BA = samples["weight"].float()
        loss_BA = F.cross_entropy(
            logits_BAV.float().flatten(0, 1), samples["target"].long().flatten(), reduction="none"
        )
        answers = (loss_BA.view_as(weight_BA) * weight_BA).sum() / weight_BA.sum()
        parts = self._reading.heads.terms(seen_BSD, squares_BSD, samples, self.generator, measured=measured)
        if measured:
            parts |= shares_right(logits_BAV, samples)
        total = answers + self._config.reading_weight * (parts["letters"] + parts["names"])
        return _terms(total, {"step": answers, **parts})

    def answer_logits(self, image_BMD: Tensor, samples: Mapping[str, Tensor]) -> Tensor:
        """The logits from which each answer token is to be predicted; none for the image's token, which no answer may hold."""
        language, count = self.model.model.language_model, len(image_BMD)
        head_BPD = language.embed_tokens(self._head_P).to(image_BMD.dtype).expand(count, -1, -1)
        head_BPD = head_BPD.masked_scatter(self._image_P[None, :, None], image_BMD)
        asked_BRD = language.embed_tokens(samples["token"].long()).to(image_BMD.dtype)
        x_BTD = self._padded(torch.cat([head_BPD, asked_BRD], dim=1))
        position_BT, bias_B1RT = self._positions(samples), self._bias(samples, x_BTD.dtype)
        rotation = tuple(part[:, None].to(x_BTD.dtype) for part in language.rotary_emb(x_BTD, position_BT))
        for layer in language.layers:
            x_BTD = self._layer(x_BTD, *rotation, bias_B1RT, len(self._head_P), *weights_of(layer))
        where_BA = (samples["where"].long() + len(self._head_P))[..., None].expand(-1, -1, x_BTD.shape[-1])
        hidden_BAD = rms_norm(x_BTD.gather(1, where_BA), language.norm.weight, language.norm.variance_epsilon)
        logits_BAV: Tensor = self.model.lm_head(hidden_BAD)
        return logits_BAV.index_fill(-1, self._never, MASKED)

    def _padded(self, x_BTD: Tensor) -> Tensor:
        return F.pad(x_BTD, (0, 0, 0, -x_BTD.shape[1] % ALIGNED))

    def _positions(self, samples: Mapping[str, Tensor]) -> Tensor:
        head_P = torch.arange(len(self._head_P), device=self._device)
        asked_BR = samples["position"].long() + len(self._head_P)
        whole_BT = torch.cat([head_P.expand(len(asked_BR), -1), asked_BR], dim=1)
        return F.pad(whole_BT, (0, -whole_BT.shape[1] % ALIGNED))

    def _bias(self, samples: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
        """0 where a token behind the head attends to another, and `MASKED` elsewhere: to the head, to its own query, and to nothing later."""
        segment_BR, head = samples["segment"].long(), len(self._head_P)
        segment_BR = F.pad(segment_BR, (0, -(head + ROW_TOKENS) % ALIGNED))
        same_BRR = segment_BR[:, :, None] == segment_BR[:, None, :]
        sees_BRT = F.pad(same_BRR & torch.ones_like(same_BRR[0]).tril(), (head, 0), value=True)
        bias_BRT = torch.zeros(sees_BRT.shape, dtype=dtype, device=self._device).masked_fill_(~sees_BRT, MASKED)
        return bias_BRT[:, None]


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU, full precision elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def weights_of(layer: Any) -> tuple[Any, ...]:
    """What `decoder_layer` computes with, of one layer of a Llama."""
    attention, mlp = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight, attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight,
        attention.o_proj.weight, layer.post_attention_layernorm.weight, mlp.gate_proj.weight, mlp.up_proj.weight,
        mlp.down_proj.weight, attention.head_dim, layer.input_layernorm.variance_epsilon,
    )  # fmt: skip


def decoder_layer(
    x_BTD: Tensor, cos_B1TW: Tensor, sin_B1TW: Tensor, bias_B1RT: Tensor, head: int, norm_in: Tensor, query: Tensor, key: Tensor,
    value: Tensor, out: Tensor, norm_mid: Tensor, gate: Tensor, up: Tensor, down: Tensor, width: int, eps: float,
) -> Tensor:  # fmt: skip
    """One layer of a Llama: the first `head` tokens attend causally, the others under a mask. One function for all layers, so that it is compiled once."""
    inner = rms_norm(x_BTD, norm_in, eps)
    query_BHTW, key_BHTW, value_BHTW = (_heads(inner, weight, width) for weight in (query, key, value))
    group = query_BHTW.shape[1] // key_BHTW.shape[1]
    key_BHTW = _rotated(key_BHTW, cos_B1TW, sin_B1TW).repeat_interleave(group, 1)
    query_BHTW, value_BHTW = _rotated(query_BHTW, cos_B1TW, sin_B1TW), value_BHTW.repeat_interleave(group, 1)
    query_BHPW, key_BHPW, value_BHPW = (part[:, :, :head] for part in (query_BHTW, key_BHTW, value_BHTW))
    bias_BHRT = bias_B1RT.expand(-1, query_BHTW.shape[1], -1, -1)
    mixed = [
        F.scaled_dot_product_attention(query_BHPW, key_BHPW, value_BHPW, is_causal=True),
        F.scaled_dot_product_attention(query_BHTW[:, :, head:], key_BHTW, value_BHTW, attn_mask=bias_BHRT),
    ]
    x_BTD = x_BTD + _linear(torch.cat(mixed, dim=2).transpose(1, 2).flatten(2), out)
    inner = rms_norm(x_BTD, norm_mid, eps)
    return x_BTD + _linear(F.silu(_linear(inner, gate)) * _linear(inner, up), down)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As Llama's: in full precision, and back."""
    full = x.float()
    return weight.to(x.dtype) * (full * torch.rsqrt(full.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


def _heads(x_BTD: Tensor, weight: Tensor, width: int) -> Tensor:
    return _linear(x_BTD, weight).view(*x_BTD.shape[:-1], -1, width).transpose(1, 2)


def _rotated(x_BHTW: Tensor, cos_B1TW: Tensor, sin_B1TW: Tensor) -> Tensor:
    left, right = x_BHTW.chunk(2, dim=-1)
    return x_BHTW * cos_B1TW + torch.cat([-right, left], dim=-1) * sin_B1TW


def shares_right(logits_BAV: Tensor, samples: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Shares of queries whose answer is right to the last token, by kind; and how many queries a screen had."""
    there_BA = samples["weight"] > 0
    wrong_BA = (logits_BAV.argmax(-1) != samples["target"].long()) & there_BA
    query_BA, kind_BA = samples["query"].long(), samples["kind"].long()
    most = ROW_TOKENS // 8
    zeros_BQ = torch.zeros(len(query_BA), most, device=query_BA.device)
    errors_BQ = zeros_BQ.scatter_add(1, query_BA, wrong_BA.float())
    tokens_BQ = zeros_BQ.scatter_add(1, query_BA, there_BA.float())
    kind_BQ = zeros_BQ.scatter_add(1, query_BA, kind_BA.float() * there_BA) / tokens_BQ.clamp(min=1)
    found = {"queries_asked": (tokens_BQ > 0).float().sum(1).mean()}
    for name, kind in (("steps_known", STEP), ("points_known", POINT), ("texts_known", READ)):
        of_BQ = (tokens_BQ > 0) & (kind_BQ.round() == kind)
        found[name] = ((errors_BQ == 0) & of_BQ).sum() / of_BQ.sum()  # NaN where there is none: left out of means
    return found


def _terms(total: Tensor, parts: dict[str, Tensor]) -> LossTerms:
    return LossTerms(total=total, parts={name: part.detach() for name, part in parts.items()})
