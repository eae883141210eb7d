"""The losses of grounding pretraining: next step, pointing and OCR, and the pool of samples that they are computed on.

    L = -log pi(next step) - w_p mean over queries log pi(tap on what is named) + w_r (letters + names)

An image is encoded once and serves several queries. `letters` is the cross-entropy of the letters on each square,
predicted from the output of the stem; `names` that of the first letters of the square's name, predicted after the
vision layers. The heads that predict them are dropped after pretraining. Suffixes as in samples.py, and B images,
K queries that were drawn, M images times queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import Tensor, nn

from distrl.config.schema import GroundingConfig, PixelConfig
from distrl.policies.distribution import ActionDistribution
from distrl.policies.pixel.batches import Batch
from distrl.policies.pixel.features import TINT
from distrl.policies.pixel.grammar import KINDS, POINTING
from distrl.policies.pixel.network import Logits, PixelNetwork, compile_layers, uncompile_layers
from distrl.pretraining.grounding.ocr import OcrHeads
from distrl.pretraining.grounding.samples import Fields
from distrl.pretraining.grounding.stream import torch_type

CERTAIN = math.log(0.5)


class SamplePool:
    """The newest samples on a device, in a ring buffer; batches are drawn from all of them."""

    def __init__(self, fields: Fields, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self._memory = {
            name: torch.empty(capacity, *shape, dtype=torch_type(dtype), device=device)
            for name, (dtype, shape) in fields.items()
        }
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.taken = 0
        """Samples that have come in so far."""

    def __len__(self) -> int:
        return min(self.taken, self.capacity)

    def put(self, samples: Mapping[str, Tensor]) -> None:
        """Take a block in; its memory may be used again once this returns."""
        there = self._upload(samples)
        num = len(there["picture"])
        start = self.taken % self.capacity
        first = min(num, self.capacity - start)
        for name, memory in self._memory.items():
            memory[start : start + first] = there[name][:first]
            memory[: num - first] = there[name][first:]
        self.taken += num

    def _upload(self, samples: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self._stream is None:
            return dict(samples)
        # On a stream of its own, which alone is waited for: the network goes on with the batch before meanwhile.
        with torch.cuda.stream(self._stream):
            there = {name: part.to(self.device, non_blocking=True) for name, part in samples.items()}
        self._stream.synchronize()
        for part in there.values():
            part.record_stream(torch.cuda.current_stream(self.device))
        return there

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """`count` samples, drawn from all in the pool."""
        rows = torch.randint(len(self), (count,), device=self.device, generator=generator)
        return {name: memory[rows] for name, memory in self._memory.items()}


class LossTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The loss on one batch and its terms, as tensors on the device."""

    total: Tensor
    parts: dict[str, Tensor]


class GroundingLoss:
    """The pretraining loss of one network."""

    def __init__(self, network: PixelNetwork, pixel: PixelConfig, config: GroundingConfig, *, seed: int) -> None:
        here = next(network.parameters()).device
        torch.manual_seed(seed)
        self.network, self.heads = network, OcrHeads(pixel.width).to(here)
        self._jitter, self._config = pixel.jitter, config
        self.generator = torch.Generator(here).manual_seed(seed)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained: the network, and the OCR heads, which are dropped afterwards."""
        return [*self.network.parameters(), *self.heads.parameters()]

    @property
    def queries(self) -> int:
        """Queries about each screen."""
        return self._config.queries

    def compile(self) -> None:
        """Let torch compile the layers."""
        compile_layers(self.network)

    def uncompile(self) -> None:
        """Undo that."""
        uncompile_layers(self.network)

    def compute(self, samples: Mapping[str, Tensor], *, measured: bool = False) -> LossTerms:
        """The loss on these samples; with `measured`, also the shares that were predicted right."""
        parts = self._terms(samples, measured=measured)
        config = self._config
        reading = parts["letters"] + parts["names"]
        total = parts["step"] + config.pointing_weight * parts["pointing"] + config.reading_weight * reading
        return LossTerms(total=total, parts={name: part.detach() for name, part in parts.items()})

    def _terms(self, samples: Mapping[str, Tensor], *, measured: bool) -> dict[str, Tensor]:
        tint_BC = self._tint(len(samples["picture"]), samples["picture"].device)
        seen_BSD, squares_BSD = self.network.encode_image(samples["picture"], tint_BC)
        which_BK, real_BK = self._which(samples["num_queries"])
        batch, choice_MC = self._batch(samples, which_BK)
        logits = self.network.predict(squares_BSD.repeat_interleave(which_BK.shape[1], 0), batch)
        logp_BK = _distribution(logits).logp_of(choice_MC).view(which_BK.shape)
        parts = {
            "step": -logp_BK[:, 0].mean(),
            "pointing": -(logp_BK * real_BK)[:, 1:].sum() / real_BK[:, 1:].sum().clamp(min=1),
        }
        if self._config.reading_weight:
            parts |= self.heads.terms(seen_BSD, squares_BSD, samples, self.generator, measured=measured)
        else:
            parts |= {"letters": torch.zeros_like(parts["step"]), "names": torch.zeros_like(parts["step"])}
        if measured:
            parts |= _shares_right(logits, choice_MC, samples, real_BK)
            parts["certain"] = (logp_BK[:, 0] > CERTAIN).float().mean()
        return parts

    def auxiliary_loss(self, pool: SamplePool, count: int) -> Callable[[], Tensor]:
        """A loss for the training that follows, so that it does not undo reading: pointing and OCR on `count` samples of the pool."""
        self.heads.requires_grad_(False)
        config = self._config

        def compute() -> Tensor:
            samples = pool.draw(count, self.generator)
            parts = self._terms(samples, measured=False)
            return config.pointing_weight * parts["pointing"] + config.reading_weight * (
                parts["letters"] + parts["names"]
            )

        return compute

    def _tint(self, count: int, here: torch.device) -> Tensor:
        drawn_BC = torch.rand(count, TINT, device=here, generator=self.generator) * 2 - 1
        plain_C = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]).to(here, non_blocking=True)
        return plain_C + self._jitter * drawn_BC

    def _which(self, num_queries_B1: Tensor) -> tuple[Tensor, Tensor]:
        """The first query of each sample and some of its others; which of them really exist."""
        count, here = self._config.queries, num_queries_B1.device
        others_B1 = (num_queries_B1.long() - 1).clamp(min=1)
        start_B1 = (torch.rand(len(num_queries_B1), 1, device=here, generator=self.generator) * others_B1).long()
        order_K = torch.arange(count - 1, device=here)
        which_BK = torch.cat([torch.zeros_like(start_B1), 1 + (start_B1 + order_K) % others_B1], dim=1)
        place_K = torch.arange(count, device=here)
        # No query twice: a screen with two names has two queries to point.
        return which_BK, (place_K < num_queries_B1.long())

    def _batch(self, samples: Mapping[str, Tensor], which_BK: Tensor) -> tuple[Batch, Tensor]:
        rows_B1 = torch.arange(len(which_BK), device=which_BK.device)[:, None]
        text_MCL = samples["text"][rows_B1, which_BK].flatten(0, 1).long()
        span_MIC = samples["span"][rows_B1, which_BK].flatten(0, 1).long()
        batch = Batch(
            byte_BL=text_MCL[:, 0],
            word_BL=text_MCL[:, 1],
            first_BI=span_MIC[..., 0],
            last_BI=span_MIC[..., 1],
            word_mask_BI=span_MIC[..., 2] > 0,
            past_BPC=samples["past"].long().repeat_interleave(which_BK.shape[1], 0),
            tint_BC=text_MCL.new_zeros(0),
        )
        return batch, samples["choice"][rows_B1, which_BK].flatten(0, 1).long()


def _distribution(logits: Logits) -> ActionDistribution:
    return ActionDistribution(logits.kind_BK, logits.square_BHS, logits.span_BII)


def _shares_right(
    logits: Logits, choice_MC: Tensor, samples: Mapping[str, Tensor], real_BK: Tensor
) -> dict[str, Tensor]:
    """Shares of kinds that are right, and of taps that hit the right element."""
    kind_BK, square_BK, _ = (part.view(real_BK.shape) for part in choice_MC.unbind(-1))
    kind_right_BK = logits.kind_BK.argmax(-1).view(real_BK.shape) == kind_BK
    pointed_BK = logits.square_BHS[:, 0].argmax(-1).view(real_BK.shape)
    taps_BK = kind_BK == KINDS.index(POINTING[0])
    element_BS = samples["element"].long()
    target_BK = element_BS.gather(1, square_BK.where(taps_BK, torch.zeros_like(square_BK)))
    hit_BK = (element_BS.gather(1, pointed_BK) == target_BK) & taps_BK
    right_BK = kind_right_BK & (hit_BK | ~taps_BK)
    scrolls_BK = (kind_BK == KINDS.index("down")) | (kind_BK == KINDS.index("up"))
    return {
        "kinds_known": kind_right_BK[:, 0].float().mean(),
        "taps_known": _share(hit_BK[:, 0], taps_BK[:, 0]),
        "steps_known": right_BK[:, 0].float().mean(),
        "points_known": _share(hit_BK[:, 1:], real_BK[:, 1:] & taps_BK[:, 1:]),
        "hidden_known": _share(kind_right_BK, real_BK & scrolls_BK),
    }


def _share(right: Tensor, of: Tensor) -> Tensor:
    return (right & of).sum() / of.sum().clamp(min=1)
