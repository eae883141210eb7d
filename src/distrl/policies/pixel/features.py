"""An observation as arrays: screenshot, instruction and past actions. Loads no torch: data workers use it too.

Every observation has the same number of tokens, empty ones included, so that no attention needs a mask and the result
for one does not depend on what else is in its batch. Suffixes: L bytes of the instruction, I words, P past actions,
C columns.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from distrl.policies.pixel.grammar import KINDS, Grid, to_choice
from distrl.policies.pointer.words import MAX_WORDS, read
from distrl.types import Observation, Past

PAST = 8
"""Past actions that are read, the newest last."""
PAST_COLUMNS = 6
"""Kind, square, first and last word that was typed, each plus one (0: none); whether it was valid; changed anything."""
TINT = 6
"""Three gains and three shifts of the colours."""
NO_TINT: NDArray[np.float32] = np.array([1, 1, 1, 0, 0, 0], np.float32)
Size = tuple[int, int]
"""Width and height in pixels."""


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
        """Words that lie wholly within the bytes that are read."""
        return len(self.first_I)


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """One observation: the screenshot still encoded, the rest as arrays."""

    reference: str
    image: bytes
    text: Text
    past_PC: NDArray[np.int16]
    tint_C: NDArray[np.float32] | None = None
    """Colour jitter; None: none."""


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
    """The newest actions as rows. What a touch hit is not among them, since only UI elements would tell."""
    past_PC = np.zeros((PAST, PAST_COLUMNS), np.int16)
    recent = observation.recent[-PAST:]
    for row, past in enumerate(recent, PAST - len(recent)):
        past_PC[row] = _past_row(past, observation, grid, num_words)
    return past_PC


def _past_row(past: Past, observation: Observation, grid: Grid, num_words: int) -> tuple[int, ...]:
    choice = to_choice(past.action, observation, grid, num_words)
    if choice is None:  # typed or answered what this policy cannot express, or no action at all
        said = {"type": "type", "finish": "done"}.get(str(past.action.__struct_config__.tag), "wait")
        return KINDS.index(said) + 1, 0, 0, 0, past.valid, past.changed
    kind, first, last = choice
    name = KINDS[kind]
    square = first + 1 if name in ("tap", "hold") else 0
    typed = (first + 1, last + 1) if name == "type" else (0, 0)
    return kind + 1, square, *typed, past.valid, past.changed


def draw_tint(jitter: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Colour jitter: gains around 1 and shifts around 0, `jitter` wide either way, of colours between -1 and 1."""
    return (NO_TINT + random.uniform(-jitter, jitter, TINT)).astype(np.float32)


def decode(image: bytes, size: Size) -> NDArray[np.uint8] | None:
    """The pixels of a JPEG or PNG at `size`, colours last; None where it cannot be decoded."""
    try:
        file = Image.open(BytesIO(image), formats=("JPEG", "PNG"))
        file.draft("RGB", size)  # a JPEG that is far too large is decoded at a fraction of its size
        rgb = file if file.mode == "RGB" else file.convert("RGB")
        return np.asarray(rgb if rgb.size == size else rgb.resize(size, Image.Resampling.BILINEAR, reducing_gap=2))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
