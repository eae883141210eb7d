"""Learning to read and to point: sheets on the device, the loss on a batch of them, and how much of it is known.

    L = -log pi(next step) - w_p mean over questions log pi(tap on what was named) - w_r (letters + names)

A picture is looked at once and answers several questions. `letters` is the cross-entropy of the letters on each square,
told from what the stem sees of it; `names` that of the first letters of the name that a square goes by, told after
the squares have looked at each other. The heads that tell them are thrown away after cloning. Suffixes as in sheets.py,
and B pictures, K questions that were drawn, M pictures times questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.config.schema import PixelConfig, WarmStartConfig
from distrl.policies.distribution import Spread
from distrl.policies.pixel.batches import Batch
from distrl.policies.pixel.features import TINT
from distrl.policies.pixel.grammar import KINDS, POINTING
from distrl.policies.pixel.network import Logits, PixelNetwork
from distrl.pretraining.grounding.samples import ALPHABET, NAME_LETTERS, SQUARE_LETTERS, fields

READ_SQUARES = 160
"""Squares of a picture whose names are told, at most: those that have one come first."""
BLANK_WEIGHT = 0.1
"""Of squares without letters among the letters: most squares are blank, and that is soon learnt."""
CERTAIN = math.log(0.5)
NOTHING = -100
"""Label that is left out."""


class SheetPool:
    """The newest sheets on a device, in a circle; batches are drawn from all of them."""

    def __init__(self, config: PixelConfig, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self._room = {
            name: torch.empty(capacity, *shape, dtype=_torch_type(str(dtype)), device=device)
            for name, (dtype, shape) in fields(config).items()
        }
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.taken = 0
        """Sheets that have come in so far."""

    def __len__(self) -> int:
        return min(self.taken, self.capacity)

    def put(self, sheets: Mapping[str, Tensor]) -> None:
        """Take a block in; its memory may be used again once this returns."""
        there = self._upload(sheets)
        num = len(there["picture"])
        start = self.taken % self.capacity
        first = min(num, self.capacity - start)
        for name, room in self._room.items():
            room[start : start + first] = there[name][:first]
            room[: num - first] = there[name][first:]
        self.taken += num

    def _upload(self, sheets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self._stream is None:
            return dict(sheets)
        # On a stream of its own, which alone is waited for: the network goes on with the batch before meanwhile.
        with torch.cuda.stream(self._stream):
            there = {name: part.to(self.device, non_blocking=True) for name, part in sheets.items()}
        self._stream.synchronize()
        for part in there.values():
            part.record_stream(torch.cuda.current_stream(self.device))
        return there

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """`count` sheets, any of those at hand."""
        rows = torch.randint(len(self), (count,), device=self.device, generator=generator)
        return {name: room[rows] for name, room in self._room.items()}


class ReadingHeads(nn.Module):
    """Tell letters and names from squares."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Linear(width, SQUARE_LETTERS * ALPHABET)
        self.names = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, NAME_LETTERS * ALPHABET))


class Studied(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one batch, as tensors on the device; shares are of what was asked."""

    total: Tensor
    parts: dict[str, Tensor]


class Study:
    """The exercises of one network."""

    def __init__(self, network: PixelNetwork, pixel: PixelConfig, warm_start: WarmStartConfig, *, seed: int) -> None:
        here = next(network.parameters()).device
        torch.manual_seed(seed)
        self.network, self.heads = network, ReadingHeads(pixel.width).to(here)
        self._jitter, self._config = pixel.jitter, warm_start
        self.generator = torch.Generator(here).manual_seed(seed)

    def parameters(self) -> list[nn.Parameter]:
        """What is learnt: the network, and the heads that nobody needs afterwards."""
        return [*self.network.parameters(), *self.heads.parameters()]

    def on(self, sheets: Mapping[str, Tensor], *, measured: bool = False) -> Studied:
        """The loss on these sheets; with `measured`, also how much of them was known."""
        parts = self._exercise(sheets, measured=measured)
        config = self._config
        reading = parts["letters"] + parts["names"]
        total = parts["step"] + config.pointing_weight * parts["pointing"] + config.reading_weight * reading
        return Studied(total=total, parts={name: part.detach() for name, part in parts.items()})

    def _exercise(self, sheets: Mapping[str, Tensor], *, measured: bool) -> dict[str, Tensor]:
        tint_BC = self._tint(len(sheets["picture"]), sheets["picture"].device)
        seen_BSD, squares_BSD = self.network.look(sheets["picture"], tint_BC)
        which_BK, real_BK = self._which(sheets["questions"])
        batch, choice_MC = self._ask(sheets, which_BK)
        logits = self.network.answer(squares_BSD.repeat_interleave(which_BK.shape[1], 0), batch)
        logp_BK = _spread(logits).logp_of(choice_MC).view(which_BK.shape)
        parts = {
            "step": -logp_BK[:, 0].mean(),
            "pointing": -(logp_BK * real_BK)[:, 1:].sum() / real_BK[:, 1:].sum().clamp(min=1),
        }
        if self._config.reading_weight:
            parts |= self._read(seen_BSD, squares_BSD, sheets, measured=measured)
        else:
            parts |= {"letters": torch.zeros_like(parts["step"]), "names": torch.zeros_like(parts["step"])}
        if measured:
            parts |= _known(logits, choice_MC, sheets, real_BK)
            parts["certain"] = (logp_BK[:, 0] > CERTAIN).float().mean()
        return parts

    def again(self, pool: SheetPool, count: int) -> Callable[[], Tensor]:
        """What practice adds to its loss to go on reading: pointing and reading on `count` sheets, and no next steps."""
        self.heads.requires_grad_(False)
        config = self._config

        def rehearse() -> Tensor:
            sheets = pool.draw(count, self.generator)
            parts = self._exercise(sheets, measured=False)
            return config.pointing_weight * parts["pointing"] + config.reading_weight * (
                parts["letters"] + parts["names"]
            )

        return rehearse

    def _tint(self, count: int, here: torch.device) -> Tensor:
        drawn_BC = torch.rand(count, TINT, device=here, generator=self.generator) * 2 - 1
        plain_C = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]).to(here, non_blocking=True)
        return plain_C + self._jitter * drawn_BC

    def _which(self, questions_B1: Tensor) -> tuple[Tensor, Tensor]:
        """The first question of each sheet and some of its others; which of them there really are."""
        count, here = self._config.questions, questions_B1.device
        others_B1 = (questions_B1.long() - 1).clamp(min=1)
        start_B1 = (torch.rand(len(questions_B1), 1, device=here, generator=self.generator) * others_B1).long()
        order_K = torch.arange(count - 1, device=here)
        which_BK = torch.cat([torch.zeros_like(start_B1), 1 + (start_B1 + order_K) % others_B1], dim=1)
        place_K = torch.arange(count, device=here)
        # Never the same thing twice: a screen with two names has two questions to point.
        return which_BK, (place_K < questions_B1.long())

    def _ask(self, sheets: Mapping[str, Tensor], which_BK: Tensor) -> tuple[Batch, Tensor]:
        rows_B1 = torch.arange(len(which_BK), device=which_BK.device)[:, None]
        text_MCL = sheets["text"][rows_B1, which_BK].flatten(0, 1).long()
        span_MIC = sheets["span"][rows_B1, which_BK].flatten(0, 1).long()
        batch = Batch(
            byte_BL=text_MCL[:, 0],
            word_BL=text_MCL[:, 1],
            first_BI=span_MIC[..., 0],
            last_BI=span_MIC[..., 1],
            word_mask_BI=span_MIC[..., 2] > 0,
            past_BPC=sheets["past"].long().repeat_interleave(which_BK.shape[1], 0),
            tint_BC=text_MCL.new_zeros(0),
        )
        return batch, sheets["choice"][rows_B1, which_BK].flatten(0, 1).long()

    def _read(
        self, seen_BSD: Tensor, squares_BSD: Tensor, sheets: Mapping[str, Tensor], *, measured: bool
    ) -> dict[str, Tensor]:
        with torch.autocast("cuda" if seen_BSD.is_cuda else "cpu", torch.bfloat16, enabled=seen_BSD.is_cuda):
            letter_logits = self.heads.letters(seen_BSD).unflatten(-1, (SQUARE_LETTERS, ALPHABET))
            at_BR, label_BRX = _named_squares(sheets, self.generator)
            picked_BRD = squares_BSD.gather(1, at_BR[..., None].expand(-1, -1, squares_BSD.shape[-1]))
            name_logits = self.heads.names(picked_BRD).unflatten(-1, (NAME_LETTERS, ALPHABET))
        label_BSW = sheets["letter"].long()
        weight_BSW = torch.where((label_BSW > 0).any(-1, keepdim=True), 1.0, BLANK_WEIGHT).expand(label_BSW.shape)
        letter_loss = F.cross_entropy(letter_logits.float().flatten(0, 2), label_BSW.flatten(), reduction="none")
        name_loss = F.cross_entropy(name_logits.float().flatten(0, 2), label_BRX.flatten(), ignore_index=NOTHING)
        parts = {
            "letters": (letter_loss * weight_BSW.flatten()).sum() / weight_BSW.sum(),
            "names": name_loss,
        }
        if measured:
            right_BSW, there_BSW = letter_logits.argmax(-1) == label_BSW, label_BSW > 0
            parts["letters_known"] = (right_BSW & there_BSW).sum() / there_BSW.sum().clamp(min=1)
            told_BR = ((name_logits.argmax(-1) == label_BRX) | (label_BRX == NOTHING)).all(-1)
            real_BR = (label_BRX != NOTHING).any(-1)
            parts["names_known"] = (told_BR & real_BR).sum() / real_BR.sum().clamp(min=1)
        return parts


def _named_squares(sheets: Mapping[str, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Squares of each picture that go by a name, drawn at random, and the letters of these names.

    After a name's end one empty letter is asked for, and nothing after that.
    """
    name_at_BS = sheets["name_at"].long()
    chance_BS = torch.rand(name_at_BS.shape, device=name_at_BS.device, generator=generator)
    at_BR = (chance_BS + (name_at_BS > 0)).topk(min(READ_SQUARES, name_at_BS.shape[1]), dim=1).indices
    number_BR = name_at_BS.gather(1, at_BR)
    name_BRX = sheets["name"].long().gather(1, number_BR[..., None].expand(-1, -1, NAME_LETTERS))
    over_BRX = F.pad(name_BRX == 0, (1, 0))[..., :-1]
    hidden_BRX = over_BRX | (number_BR == 0)[..., None]
    return at_BR, name_BRX.masked_fill(hidden_BRX, NOTHING)


def _spread(logits: Logits) -> Spread:
    return Spread(logits.kind_BK, logits.square_BHS, logits.span_BII)


def _known(logits: Logits, choice_MC: Tensor, sheets: Mapping[str, Tensor], real_BK: Tensor) -> dict[str, Tensor]:
    """Shares of kinds that were right, and of taps that hit the element that was meant."""
    kind_BK, square_BK, _ = (part.view(real_BK.shape) for part in choice_MC.unbind(-1))
    kind_right_BK = logits.kind_BK.argmax(-1).view(real_BK.shape) == kind_BK
    pointed_BK = logits.square_BHS[:, 0].argmax(-1).view(real_BK.shape)
    taps_BK = kind_BK == KINDS.index(POINTING[0])
    element_BS = sheets["element"].long()
    meant_BK = element_BS.gather(1, square_BK.where(taps_BK, torch.zeros_like(square_BK)))
    hit_BK = (element_BS.gather(1, pointed_BK) == meant_BK) & taps_BK
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


def _torch_type(name: str) -> torch.dtype:
    return {"uint8": torch.uint8, "int16": torch.int16}[name]
