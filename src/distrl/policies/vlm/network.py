"""The model with a value head beside its language head: what the learner optimises."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from distrl.policies.vlm.tokens import Inputs


class ValueHead(nn.Module):
    """Logit of the probability of success, from the hidden state of the last token of a prompt.

    It reads the model and does not bend it: its loss would otherwise undo what the model knows. It starts at 0, an
    even chance.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up, self.out = nn.Linear(size, width), nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_BD: Tensor) -> Tensor:
        inner = torch.nn.functional.gelu(self.up(self.norm(hidden_BD.detach().float())))
        value_B: Tensor = self.out(inner).squeeze(-1)
        return value_B


class VlmNetwork(nn.Module):
    """A language model whose last hidden states can be seen, and its value head."""

    def __init__(self, model: nn.Module, *, value_width: int) -> None:
        super().__init__()
        self.model: Any = model
        head = self.base.get_output_embeddings()
        self.value = ValueHead(head.in_features, value_width).to(head.weight.device)
        self._hidden = torch.empty(0)
        # What the language head reads is the last hidden state, in every family.
        head.register_forward_pre_hook(self._see)

    @property
    def base(self) -> Any:
        """The transformers model, inside its adapters where it has some."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def forward(self, inputs: Inputs, *, keep: int) -> tuple[Tensor, Tensor]:
        """The logits and the hidden states of the last `keep` tokens, under gradient."""
        logits = self.model(**inputs, use_cache=False, logits_to_keep=keep).logits
        return logits[:, -keep:], self.last_hidden()[:, -keep:]

    def last_hidden(self) -> Tensor:
        """The hidden states that the language head read last; they are given away once."""
        seen, self._hidden = self._hidden, torch.empty(0)
        return seen

    def _see(self, head: nn.Module, given: tuple[Tensor, ...]) -> None:
        self._hidden = given[0]
