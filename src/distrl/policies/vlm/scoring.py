"""Answers scored under gradient in micro-batches, and which activations are kept until the backward pass.

All micro-batches of an update share one backward pass, which begins with the last. What a micro-batch keeps for it
depends on the memory that is free, with `gradient_checkpointing`:

    all of it          the fastest
    per layer          gradient checkpointing: the input of each layer is kept, and every layer computed twice
    nothing            the micro-batch is computed twice as a whole, images too, and its layers a third time

The last micro-batch is never recomputed as a whole: its own backward pass needs that memory anyway. Without
`gradient_checkpointing` all of the last micro-batch is kept, and nothing of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from distrl.config.schema import VlmConfig
from distrl.policies.gpu_memory import free_bytes
from distrl.policies.nonfinite import NonFiniteGuard
from distrl.policies.oom import vlm_oom_errors
from distrl.policies.vlm.loading import compute_dtype, precision, weights_dtype
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.packed import Packed, answer_scores, hidden_states
from distrl.policies.vlm.tokens import Answer, Inputs, Vocabulary, entropy_of, on_device, token_logp

Kept = Literal["all", "layers", "nothing"]
Columns = tuple[Tensor, Tensor, Tensor]
"""Log-probability, entropy and value logit of some answers, on the CPU."""
KEPT_SHARE = 0.6
"""Of a GPU's free memory, for the activations of all micro-batches: the backward pass needs some, and others may share the GPU."""
WORD_BYTES = 8
"""Kept for each word of the vocabulary at each token of an answer: its chance and the logarithm of it."""


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A few prompts with their answers, scored at once."""

    inputs: Inputs
    """On the CPU."""
    answers: list[Answer]
    first_B: Tensor | None = None
    """Where each prompt ends, for rows that are padded on the right alone; None: all prompts end in one column."""


class ActivationBudget:
    """Memory for the activations that are kept."""

    def __init__(self, size_bytes: float) -> None:
        self._left = size_bytes

    def take(self, size_bytes: float) -> bool:
        """Whether so much was left, which is then taken."""
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True


def activation_budget_bytes(device: torch.device) -> float:
    """How many bytes of activations an update may keep; without bound on a CPU."""
    if device.type != "cuda":
        return float("inf")
    return KEPT_SHARE * free_bytes(device)


class Scorer:
    """Scores answers by one network."""

    def __init__(
        self,
        network: VlmNetwork,
        config: VlmConfig,
        *,
        device: torch.device,
        vocabulary: Vocabulary,
        nonfinite: NonFiniteGuard,
    ) -> None:
        self._network, self._config, self._device = network, config, device
        self._vocabulary, self._nonfinite = vocabulary, nonfinite
        self.kept = Counter[str]()
        """How many micro-batches kept what of their activations."""
        if config.gradient_checkpointing:
            # There is no dropout, so no state of a generator to bring back.
            network.base.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})

    def score(self, batches: Iterable[MicroBatch | Packed]) -> Columns:
        """The answers of all micro-batches in their order, with gradient where it is enabled."""
        budget = ActivationBudget(activation_budget_bytes(self._device) if self._config.gradient_checkpointing else 0.0)
        found = []
        for batch, after in pairwise(chain(batches, (None,))):
            assert batch is not None
            kept = self._keep(batch, budget, last=after is None) if torch.is_grad_enabled() else "all"
            self.kept[kept] += 1
            # Layers are recomputed in training mode alone; there is no dropout, so nothing else depends on it.
            self._network.train(kept != "all" and self._config.gradient_checkpointing)
            found.append(self._finite(self._recomputed(batch) if kept == "nothing" else self._score(batch)))
        logp_N, entropy_N, value_N = (torch.cat(column) for column in zip(*found, strict=True))
        return logp_N, entropy_N, value_N

    def _keep(self, batch: MicroBatch | Packed, budget: ActivationBudget, *, last: bool) -> Kept:
        """What to keep of a micro-batch."""
        if not self._config.gradient_checkpointing:
            return "all" if last else "nothing"
        inputs, everything = self._kept_bytes(batch)
        if budget.take(everything):
            return "all"
        return "layers" if budget.take(inputs) or last else "nothing"

    def _kept_bytes(self, batch: MicroBatch | Packed) -> tuple[float, float]:
        """What a micro-batch keeps: the inputs of its layers, or all."""
        text: Any = self._network.base.config.get_text_config()
        item, h = weights_dtype(self._config, self._device).itemsize, text.hidden_size
        f = getattr(text, "intermediate_size", None) or 4 * h  # not every family names it
        tokens, said = (len(batch.ids_N), 0) if isinstance(batch, Packed) else _padded_size(batch)
        head = float(WORD_BYTES * said * text.vocab_size)
        inputs = tokens * h * text.num_hidden_layers * item
        return inputs + head, tokens * (10 * h + 3 * f) * text.num_hidden_layers * item + head

    def tokens_at_once(self) -> float:
        """Tokens of a packed micro-batch all of whose activations fit into the memory that is free now."""
        text: Any = self._network.base.config.get_text_config()
        item = weights_dtype(self._config, self._device).itemsize
        per_token: int = (10 * text.hidden_size + 3 * text.intermediate_size) * text.num_hidden_layers * item
        return activation_budget_bytes(self._device) / per_token

    def _recomputed(self, batch: MicroBatch | Packed) -> Columns:
        found: Columns = checkpoint(self._score, batch, use_reentrant=False, preserve_rng_state=False)
        return found

    def _score(self, batch: MicroBatch | Packed) -> Columns:
        return self._score_packed(batch) if isinstance(batch, Packed) else self._score_padded(batch)

    def _score_packed(self, batch: Packed) -> Columns:
        device, num_rows = self._device, len(batch.last_B)
        with vlm_oom_errors("score_batch", num_rows), precision(self._config, device):
            hidden_ND = hidden_states(self._network.base, batch, device)
            value_B = self._network.value(hidden_ND[batch.last_B.to(device)])
            head, never = self._network.base.get_output_embeddings(), self._vocabulary.never(device)
            scores = answer_scores(hidden_ND[batch.before_K.to(device)], head, batch.said_K.to(device), never)
            row_K = batch.row_K.to(device)
            sums = (x_K.new_zeros(num_rows).index_add(0, row_K, x_K).cpu() for x_K in scores)
            logp_B, entropy_B = sums
        return logp_B, entropy_B, value_B.float().cpu()

    def _score_padded(self, batch: MicroBatch) -> Columns:
        answers, longest, device = batch.answers, max(map(len, batch.answers)), self._device
        first_B = None if batch.first_B is None else batch.first_B.to(device)
        with vlm_oom_errors("score_batch", len(answers)), precision(self._config, device):
            inputs = on_device(batch.inputs, device, compute_dtype(self._config, device))
            logits_BKV, hidden_BKD = self._network(inputs, keep=longest + 1, first_B=first_B)
            logp_BAV = token_logp(logits_BKV[:, :-1], self._vocabulary.never(device))
            value_B = self._network.value(hidden_BKD[:, 0])
            said = torch.nn.utils.rnn.pad_sequence([torch.tensor(a, dtype=torch.long) for a in answers], True)
            said_BA = said.to(device)
            mask_BA = torch.tensor([[at < len(a) for at in range(longest)] for a in answers], device=device)
            logp_BA = logp_BAV.gather(-1, said_BA[..., None]).squeeze(-1)
            summed = ((x_BA * mask_BA).sum(-1).float().cpu() for x_BA in (logp_BA, entropy_of(logp_BAV)))
            logp_B, entropy_B = summed
        return logp_B, entropy_B, value_B.float().cpu()

    def _finite(self, columns: Columns) -> Columns:
        """The same, detached from the model where something is NaN or infinite: it would spoil the whole update."""
        finite_N = torch.stack([column.detach().isfinite() for column in columns]).all(0)
        self._nonfinite.check(finite_N, "scoring")
        if bool(finite_N.all()):
            return columns
        self._nonfinite.skipped += int(finite_N.sum())  # the finite ones of the micro-batch are lost with them
        # Still something to send a gradient into, so that an update of nothing else does not fail.
        learning = torch.is_grad_enabled()
        cut = (column.detach().nan_to_num(0.0, 0.0, 0.0).requires_grad_(learning) for column in columns)
        logp_N, entropy_N, value_N = cut
        return logp_N, entropy_N, value_N


def _padded_size(batch: MicroBatch) -> tuple[int, int]:
    """Tokens of a padded micro-batch, and those of its answers whose distributions are kept."""
    rows, length = batch.inputs["input_ids"].shape
    return rows * length, rows * max(map(len, batch.answers))
