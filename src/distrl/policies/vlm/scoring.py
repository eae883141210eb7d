"""Answers scored under gradient, a part of an update at a time, and what is kept of each part until the backward pass.

The parts of an update wait for one backward pass, which begins with the last. There are two ways to keep little of them:

    by layers    `gradient_checkpointing`: the input of each layer is kept, and every layer computed twice
    by parts     nothing is kept, and the part is computed twice as a whole, pictures too

By layers is the faster way, but what it keeps grows with the update. A part goes both ways, and its layers are then
computed three times, only where the GPU has no room left for what the layers would keep. The last part needs neither
more nor less than its own backward pass does, so nothing of it has to be computed again by parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from distrl.config.schema import VlmConfig
from distrl.policies.nonfinite import Soundness
from distrl.policies.vlm.loading import compute_dtype, precision, weights_dtype
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.room import memory_errors
from distrl.policies.vlm.tokens import Answer, Inputs, Vocabulary, entropy_of, log_chances, on_device

Columns = tuple[Tensor, Tensor, Tensor]
"""Log-probability, entropy and value logit of some answers, on the CPU."""
ROOM_SHARE = 0.25
"""Of a GPU's free memory, what may be kept of all parts: the part at work needs some, and others may share the GPU."""
WORD_BYTES = 8
"""Kept for each word of the vocabulary at each token of an answer: its chance and the logarithm of it."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A few prompts with their answers."""

    inputs: Inputs
    """On the CPU."""
    answers: list[Answer]
    first_B: Tensor | None = None
    """Where each prompt ends, for rows that are closed up; None: all prompts end in one column."""


class Room:
    """Memory for what is kept of parts."""

    def __init__(self, size_bytes: float) -> None:
        self._left = size_bytes

    def take(self, size_bytes: float) -> bool:
        """Whether there was room for so much, which is then taken."""
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True


def room_bytes(device: torch.device) -> float:
    """How much may be kept of the parts of an update; there is no bound but on a GPU."""
    if device.type != "cuda":
        return float("inf")
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return ROOM_SHARE * (torch.cuda.mem_get_info(device)[0] + unused)


class Scorer:
    """Scores answers by one network."""

    def __init__(
        self,
        network: VlmNetwork,
        config: VlmConfig,
        *,
        device: torch.device,
        vocabulary: Vocabulary,
        soundness: Soundness,
    ) -> None:
        self._network, self._config, self._device = network, config, device
        self._vocabulary, self._soundness = vocabulary, soundness
        if config.gradient_checkpointing:
            # There is no dropout, so no state of a generator to bring back.
            network.base.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})

    def score(self, parts: Iterable[Part]) -> Columns:
        """The answers of all parts in their order, with gradient where it is wanted."""
        by_layers, learning = self._config.gradient_checkpointing, torch.is_grad_enabled()
        self._network.train(by_layers and learning)
        room = Room(room_bytes(self._device) if by_layers else 0.0)
        found = []
        for part, after in pairwise(chain(parts, (None,))):
            assert part is not None
            keep = not learning or after is None or room.take(self._kept_bytes(part))
            found.append(self._sound(self._score(part) if keep else self._score_again_later(part)))
        logp_N, entropy_N, value_N = (torch.cat(column) for column in zip(*found, strict=True))
        return logp_N, entropy_N, value_N

    def _kept_bytes(self, part: Part) -> float:
        """What a part keeps by layers."""
        text: Any = self._network.base.config.get_text_config()
        rows, length = part.inputs["input_ids"].shape
        hidden = length * text.hidden_size * text.num_hidden_layers * weights_dtype(self._config, self._device).itemsize
        return float(rows * (hidden + WORD_BYTES * max(map(len, part.answers)) * text.vocab_size))

    def _score_again_later(self, part: Part) -> Columns:
        found: Columns = checkpoint(self._score, part, use_reentrant=False, preserve_rng_state=False)
        return found

    def _score(self, part: Part) -> Columns:
        answers, longest, device = part.answers, max(map(len, part.answers)), self._device
        first_B = None if part.first_B is None else part.first_B.to(device)
        with memory_errors("score_batch", len(answers)), precision(self._config, device):
            inputs = on_device(part.inputs, device, compute_dtype(self._config, device))
            logits_BKV, hidden_BKD = self._network(inputs, keep=longest + 1, first_B=first_B)
            logp_BAV = log_chances(logits_BKV[:, :-1], self._vocabulary.never(device))
            value_B = self._network.value(hidden_BKD[:, 0])
            said = torch.nn.utils.rnn.pad_sequence([torch.tensor(a, dtype=torch.long) for a in answers], True)
            said_BA = said.to(device)
            mask_BA = torch.tensor([[at < len(a) for at in range(longest)] for a in answers], device=device)
            logp_BA = logp_BAV.gather(-1, said_BA[..., None]).squeeze(-1)
            summed = ((x_BA * mask_BA).sum(-1).float().cpu() for x_BA in (logp_BA, entropy_of(logp_BAV)))
            logp_B, entropy_B = summed
        return logp_B, entropy_B, value_B.float().cpu()

    def _sound(self, columns: Columns) -> Columns:
        """The same, cut off from the model where something is no number: it would spoil the whole update."""
        finite_N = torch.stack([column.detach().isfinite() for column in columns]).all(0)
        self._soundness.note(finite_N, "scoring")
        if bool(finite_N.all()):
            return columns
        self._soundness.skipped += int(finite_N.sum())  # the sound ones of the part are lost with them
        # Still something to send a gradient into, so that an update of nothing else does not fail.
        learning = torch.is_grad_enabled()
        cut = (column.detach().nan_to_num(0.0, 0.0, 0.0).requires_grad_(learning) for column in columns)
        logp_N, entropy_N, value_N = cut
        return logp_N, entropy_N, value_N
