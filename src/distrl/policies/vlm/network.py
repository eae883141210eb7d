"""The model with a value head beside its language head: what the learner optimises."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from distrl.policies.vlm.tokens import Inputs


class ValueHead(nn.Module):
    """Logit of the probability of success, from the hidden state of the last token of a prompt.

    Its gradient stops at the hidden state: its loss would otherwise undo what the model knows. It starts at 0, a
    probability of one half.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up, self.out = nn.Linear(size, width), nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_BD: Tensor) -> Tensor:
        """A value logit for each hidden state."""
        inner = torch.nn.functional.gelu(self.up(self.norm(hidden_BD.detach().float())))
        value_B: Tensor = self.out(inner).squeeze(-1)
        return value_B


class VlmNetwork(nn.Module):
    """A language model whose last hidden states can be read, and its value head."""

    def __init__(self, model: nn.Module, *, value_width: int) -> None:
        super().__init__()
        self.model: Any = model
        head = self.base.get_output_embeddings()
        self.value = ValueHead(head.in_features, value_width).to(head.weight.device)
        self._hidden = torch.empty(0)
        self._places_BK: Tensor | None = None
        # What the language head reads is the last hidden state, in every family.
        head.register_forward_pre_hook(self._capture_hidden)

    @property
    def base(self) -> Any:
        """The transformers model, inside its adapters where it has some."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def forward(self, inputs: Inputs, *, keep: int, first_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logits and the hidden states of `keep` tokens, under gradient: the last, or those from `first_B` on."""
        if first_B is None:
            logits = self.model(**inputs, use_cache=False, logits_to_keep=keep).logits
            return logits[:, -keep:], self.last_hidden()[:, -keep:]
        places_BK = first_B[:, None] + torch.arange(keep, device=first_B.device)
        self._places_BK = places_BK.clamp(max=inputs["input_ids"].shape[1] - 1)
        try:
            return self.model(**inputs, use_cache=False).logits, self.last_hidden()
        finally:
            self._places_BK = None

    def last_hidden(self) -> Tensor:
        """The latest input of the language head; it can be taken once."""
        hidden, self._hidden = self._hidden, torch.empty(0)
        return hidden

    def _capture_hidden(self, head: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Keep the input of the language head; where only some positions are wanted, the head gets no others."""
        hidden, places_BK = given[0], self._places_BK
        self._hidden = hidden if places_BK is None else hidden.gather(1, _along(places_BK, hidden))
        return None if places_BK is None else (self._hidden, *given[1:])


def _along(places_BK: Tensor, hidden_BLD: Tensor) -> Tensor:
    return places_BK[..., None].expand(-1, -1, hidden_BLD.shape[-1])
