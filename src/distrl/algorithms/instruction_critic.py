"""The instruction-level critic of DigiRL: how likely a task is to succeed, from the words of its instruction alone.

It belongs to the algorithm and reads plain text, so it works beside every policy. Words are hashed into a fixed number
of rows: no vocabulary has to be made, kept or agreed on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from zlib import crc32

import torch
from torch import Tensor, nn

ROWS = 4096
WIDTH = 32


class InstructionCritic(nn.Module):
    """A bag of words and a small network over it."""

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._words = nn.EmbeddingBag(ROWS, WIDTH, mode="mean")
            self._hidden, self._out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        nn.init.zeros_(self._out.weight)  # at first every instruction is as likely to succeed as to fail
        nn.init.zeros_(self._out.bias)

    def forward(self, instructions: Sequence[str]) -> Tensor:
        """Logit of the chance of success, for each instruction."""
        bags = [rows_of(text) for text in instructions]
        starts = list(accumulate((len(bag) for bag in bags), initial=0))[:-1]
        here = self._out.weight.device
        rows = torch.tensor([row for bag in bags for row in bag], dtype=torch.long).to(here)
        words_BW = self._words(rows, torch.tensor(starts).to(here))
        logit_B: Tensor = self._out(nn.functional.gelu(self._hidden(words_BW))).squeeze(-1)
        return logit_B


@lru_cache(maxsize=16_384)
def rows_of(text: str) -> tuple[int, ...]:
    """The embedding rows of the words of a text."""
    return tuple(crc32(word.encode()) % ROWS for word in re.findall(r"\w+", text.casefold()))
