"""What the pixel policy reads of an observation besides the picture, and how a batch of it becomes tensors.

Every observation has the same number of tokens, empty ones included, so that no attention needs a mask and what is
said of one does not depend on what else is in its batch. Suffixes: B batch, L bytes of the instruction, I words,
P past actions, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.policies.pixel.grammar import KINDS, Grid, to_choice
from distrl.policies.pointer.words import MAX_WORDS, read
from distrl.types import Observation, Past

PAST = 8
"""Past actions that are read, the newest last."""
PAST_COLUMNS = 6
"""Kind, square, first and last word that was typed, each plus one (0: none); whether it was valid; changed anything."""
TINT = 6
"""Three gains and three shifts of the colours."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction as arrays."""

    byte_L: NDArray[np.uint8]
    word_L: NDArray[np.uint8]
    """Which word each byte belongs to, plus one; 0: none."""
    first_I: NDArray[np.int16]
    """Where each word's first byte stands."""
    last_I: NDArray[np.int16]

    @property
    def num_words(self) -> int:
        return len(self.first_I)


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """One observation: the picture as it was sent, the rest as arrays."""

    reference: str
    picture: bytes
    text: Text
    past_PC: NDArray[np.int16]
    tint_C: NDArray[np.float32] | None = None
    """How the colours are shifted; None: not at all."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is read besides the pictures; `word_mask_BI` is true where a word stands."""

    byte_BL: Tensor
    word_BL: Tensor
    first_BI: Tensor
    last_BI: Tensor
    word_mask_BI: Tensor
    past_BPC: Tensor
    tint_BC: Tensor


@lru_cache(maxsize=16_384)
def read_text(instruction: str, num_bytes: int) -> Text:
    """The first `num_bytes` bytes of an instruction and the words that lie wholly within them."""
    data = np.frombuffer(instruction.encode(errors="replace")[:num_bytes], np.uint8)
    byte_L, word_L = np.zeros(num_bytes, np.uint8), np.zeros(num_bytes, np.uint8)
    byte_L[: len(data)] = data
    starts, ends = [], []
    for number, word in enumerate(read(instruction)[:MAX_WORDS]):
        start, end = (len(instruction[:at].encode(errors="replace")) for at in (word.start, word.end))
        if end > num_bytes:
            break
        word_L[start:end] = number + 1
        starts.append(start)
        ends.append(end - 1)
    return Text(byte_L=byte_L, word_L=word_L, first_I=np.array(starts, np.int16), last_I=np.array(ends, np.int16))


def read_past(observation: Observation, grid: Grid, num_words: int) -> NDArray[np.int16]:
    """The newest actions as rows; what a touch hit is left out, since only UI elements would tell."""
    past_PC = np.zeros((PAST, PAST_COLUMNS), np.int16)
    recent = observation.recent[-PAST:]
    for row, past in enumerate(recent, PAST - len(recent)):
        past_PC[row] = _past_row(past, observation, grid, num_words)
    return past_PC


def _past_row(past: Past, observation: Observation, grid: Grid, num_words: int) -> tuple[int, ...]:
    choice = to_choice(past.action, observation, grid, num_words)
    if choice is None:  # typed or answered what this policy cannot say, or no action at all
        said = {"type": "type", "finish": "done"}.get(str(past.action.__struct_config__.tag), "wait")
        return KINDS.index(said) + 1, 0, 0, 0, past.valid, past.changed
    kind, first, last = choice
    name = KINDS[kind]
    square = first + 1 if name in ("tap", "hold") else 0
    typed = (first + 1, last + 1) if name == "type" else (0, 0)
    return kind + 1, square, *typed, past.valid, past.changed


def collate(items: Sequence[Encoded], device: torch.device) -> Batch:
    """A batch on `device`. Where an instruction has no word, an empty one stands for it."""
    texts = [item.text for item in items]
    most = max(1, max(text.num_words for text in texts))
    spans_BIC = np.zeros((len(items), most, 3), np.int16)
    for row, text in enumerate(texts):
        spans_BIC[row, : text.num_words, 0], spans_BIC[row, : text.num_words, 1] = text.first_I, text.last_I
        spans_BIC[row, : max(1, text.num_words), 2] = 1
    # Few transfers: each of them costs more than what it carries.
    text_BCL = _send(np.stack([np.stack([text.byte_L, text.word_L]) for text in texts]), device).long()
    spans = _send(spans_BIC, device).long()
    return Batch(
        byte_BL=text_BCL[:, 0],
        word_BL=text_BCL[:, 1],
        first_BI=spans[..., 0],
        last_BI=spans[..., 1],
        word_mask_BI=spans[..., 2] > 0,
        past_BPC=_send(np.stack([item.past_PC for item in items]), device).long(),
        tint_BC=_send(np.stack([NO_TINT if item.tint_C is None else item.tint_C for item in items]), device),
    )


def draw_tint(jitter: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Gains around 1 and shifts around 0, `jitter` wide either way, of colours between -1 and 1."""
    return (NO_TINT + random.uniform(-jitter, jitter, TINT)).astype(np.float32)


def _send(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # Without waiting: a GPU that is asked to wait here finishes all its work first.
    return torch.from_numpy(array).to(device, non_blocking=True)


NO_TINT: NDArray[np.float32] = np.array([1, 1, 1, 0, 0, 0], np.float32)
