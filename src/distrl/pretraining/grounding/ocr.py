"""OCR as an auxiliary loss: the letters on each square of a screen, and the first letters of the square's name.

`letters` is predicted from the output of the stem, `names` after the vision layers. The heads are dropped after
pretraining. Suffixes as in samples.py, and B images.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.pretraining.grounding.samples import ALPHABET, NAME_LETTERS, SQUARE_LETTERS

NAMED_SQUARES = 160
"""Squares of an image whose names are predicted, at most: those that have one come first."""
BLANK_WEIGHT = 0.1
"""Of squares without letters among the letters: most squares are blank, and that is soon learnt."""
IGNORED = -100
"""Label that counts in no loss."""


class OcrHeads(nn.Module):
    """Predict letters and names from the vectors of squares."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Linear(width, SQUARE_LETTERS * ALPHABET)
        self.names = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, NAME_LETTERS * ALPHABET))

    def terms(
        self,
        seen_BSD: Tensor,
        squares_BSD: Tensor,
        samples: Mapping[str, Tensor],
        generator: torch.Generator,
        *,
        measured: bool,
    ) -> dict[str, Tensor]:
        """Both losses, and with `measured` the shares that were predicted right."""
        with torch.autocast("cuda" if seen_BSD.is_cuda else "cpu", torch.bfloat16, enabled=seen_BSD.is_cuda):
            letter_logits = self.letters(seen_BSD).unflatten(-1, (SQUARE_LETTERS, ALPHABET))
            at_BR, label_BRX = _named_squares(samples, generator)
            picked_BRD = squares_BSD.gather(1, at_BR[..., None].expand(-1, -1, squares_BSD.shape[-1]))
            name_logits = self.names(picked_BRD).unflatten(-1, (NAME_LETTERS, ALPHABET))
        label_BSW = samples["letter"].long()
        weight_BSW = torch.where((label_BSW > 0).any(-1, keepdim=True), 1.0, BLANK_WEIGHT).expand(label_BSW.shape)
        letter_loss = F.cross_entropy(letter_logits.float().flatten(0, 2), label_BSW.flatten(), reduction="none")
        name_loss = F.cross_entropy(name_logits.float().flatten(0, 2), label_BRX.flatten(), ignore_index=IGNORED)
        parts = {
            "letters": (letter_loss * weight_BSW.flatten()).sum() / weight_BSW.sum(),
            "names": name_loss,
        }
        if measured:
            right_BSW, there_BSW = letter_logits.argmax(-1) == label_BSW, label_BSW > 0
            parts["letters_known"] = (right_BSW & there_BSW).sum() / there_BSW.sum().clamp(min=1)
            right_BR = ((name_logits.argmax(-1) == label_BRX) | (label_BRX == IGNORED)).all(-1)
            real_BR = (label_BRX != IGNORED).any(-1)
            parts["names_known"] = (right_BR & real_BR).sum() / real_BR.sum().clamp(min=1)
        return parts


def _named_squares(samples: Mapping[str, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Squares of each image that have a name, drawn at random, and the letters of these names.

    After a name's end one empty letter is to be predicted, and nothing after that.
    """
    name_at_BS = samples["name_at"].long()
    chance_BS = torch.rand(name_at_BS.shape, device=name_at_BS.device, generator=generator)
    at_BR = (chance_BS + (name_at_BS > 0)).topk(min(NAMED_SQUARES, name_at_BS.shape[1]), dim=1).indices
    number_BR = name_at_BS.gather(1, at_BR)
    name_BRX = samples["name"].long().gather(1, number_BR[..., None].expand(-1, -1, NAME_LETTERS))
    over_BRX = F.pad(name_BRX == 0, (1, 0))[..., :-1]
    hidden_BRX = over_BRX | (number_BR == 0)[..., None]
    return at_BR, name_BRX.masked_fill(hidden_BRX, IGNORED)
