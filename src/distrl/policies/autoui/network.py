"""Auto-UI's network: a T5 whose encoder is fused with one image vector, and a value head beside it.

    seen  = attention(hidden, image, image)          one head over the single image vector
    gate  = sigmoid(W [hidden; seen])
    fused = (1 - gate) * hidden + gate * seen        what the decoder attends to

Names of tensors are those of the published checkpoints. Source: Auto-UI (arXiv 2309.11436) and the model that DigiRL's code loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distrl.policies.vlm.generation import Generated, Sampler, Sampling
from distrl.policies.vlm.network import ValueHead
from distrl.policies.vlm.tokens import entropy_of, token_logp

FUSION = ("image_dense", "mha_layer", "gate_dense")
"""What Auto-UI adds to a T5."""
TIED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""In checkpoints these repeat `shared.weight`."""


class AutoUINetwork(nn.Module):
    """What the learner optimises. The model that turns screenshots into vectors is no part of it: it stays as it is."""

    def __init__(self, t5: Any, *, image_width: int, value_width: int, own_head: bool) -> None:
        super().__init__()
        width = t5.config.d_model
        self.t5 = t5
        t5.set_input_embeddings(t5.shared)  # encoder and decoder read the same table
        # Whether the language head has weights of its own is up to the checkpoint: transformers says so of none.
        t5.lm_head.weight = nn.Parameter(t5.shared.weight.detach().clone()) if own_head else t5.shared.weight
        self.image_dense = nn.Linear(image_width, width)
        self.mha_layer = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.gate_dense = nn.Linear(2 * width, width)
        self.value = ValueHead(width, value_width)

    @property
    def scale(self) -> float:
        """Of what the language head reads: the first T5 wants it smaller, T5 1.1 and what is built on it does not."""
        return float(self.t5.config.d_model**-0.5) if self.t5.config.scale_decoder_outputs else 1.0

    def load(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """Take the tensors of a checkpoint; the names of those that it lacks."""
        wanted = {name: tensor for name, tensor in self.named_parameters() if not name.startswith("value.")}
        missing = []
        with torch.no_grad():
            for name, tensor in wanted.items():
                found = tensors.get(name.removeprefix("t5."))
                if found is None or found.shape != tensor.shape:
                    missing.append(name.removeprefix("t5."))
                else:
                    tensor.copy_(found)
        return missing

    def read(self, ids_BL: Tensor, mask_BL: Tensor, image_BF: Tensor) -> Tensor:
        """The prompts, fused with their screenshots: a hidden state for each token."""
        hidden_BLD: Tensor = self.t5.encoder(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
        image_B1D = self.image_dense(image_BF)[:, None]
        seen_BLD, _ = self.mha_layer(hidden_BLD, image_B1D, image_B1D, need_weights=False)
        gate_BLD = torch.sigmoid(self.gate_dense(torch.cat([hidden_BLD, seen_BLD], dim=-1)))
        fused_BLD: Tensor = (1 - gate_BLD) * hidden_BLD + gate_BLD * seen_BLD
        return fused_BLD

    def value_of(self, fused_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """A value logit for each prompt, from the mean of its hidden states."""
        weight_BL1 = mask_BL[..., None].to(fused_BLD.dtype)
        mean_BD = (fused_BLD * weight_BL1).sum(1) / weight_BL1.sum(1).clamp(min=1.0)
        value_B: Tensor = self.value(mean_BD)
        return value_B

    def logits(self, fused_BLD: Tensor, mask_BL: Tensor, said_BA: Tensor) -> Tensor:
        """The logits of what follows each token of the answers, which begin with the start token."""
        out = self.t5.decoder(
            input_ids=said_BA, encoder_hidden_states=fused_BLD, encoder_attention_mask=mask_BL, use_cache=False
        )
        return self._head(out.last_hidden_state)

    def _head(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.t5.lm_head(hidden * self.scale)
        return found

    @property
    def start(self) -> int:
        """The token that every answer begins with, which is no part of it."""
        return int(self.t5.config.decoder_start_token_id or 0)

    @torch.no_grad()
    def answer(self, ids_BL: Tensor, mask_BL: Tensor, image_BF: Tensor, sampling: Sampling) -> Generated:
        """Sample an answer to each prompt."""
        fused_BLD = self.read(ids_BL, mask_BL, image_BF)
        sampler = Sampler(lambda: self.value_of(fused_BLD, mask_BL), sampling)
        token_B1, cache = torch.full((len(ids_BL), 1), self.start, device=ids_BL.device), None
        for _ in range(sampling.answer_tokens):
            out = self.t5.decoder(
                input_ids=token_B1,
                encoder_hidden_states=fused_BLD,
                encoder_attention_mask=mask_BL,
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            token_B1 = sampler(None, self._head(out.last_hidden_state)[:, -1]).argmax(-1, keepdim=True)
            if sampler.is_over:
                break
        return sampler.answered()

    def score(
        self, ids_BL: Tensor, mask_BL: Tensor, image_BF: Tensor, answers: Sequence[tuple[int, ...]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability, entropy and value logit of given answers, with gradient."""
        fused_BLD = self.read(ids_BL, mask_BL, image_BF)
        longest = max(1, max(map(len, answers)))
        said_BA = torch.tensor([[*answer, *[self.start] * (longest - len(answer))] for answer in answers])
        mask_BA = torch.tensor([[at < len(answer) for at in range(longest)] for answer in answers])
        said_BA, mask_BA = said_BA.to(ids_BL.device), mask_BA.to(ids_BL.device)
        before_BA = torch.cat([torch.full_like(said_BA[:, :1], self.start), said_BA[:, :-1]], dim=1)
        never = torch.empty(0, dtype=torch.long, device=ids_BL.device)
        logp_BAV = token_logp(self.logits(fused_BLD, mask_BL, before_BA), never)
        logp_BA = logp_BAV.gather(-1, said_BA[..., None]).squeeze(-1)
        logp_B, entropy_B = (torch.where(mask_BA, x_BA, 0.0).sum(-1) for x_BA in (logp_BA, entropy_of(logp_BAV)))
        return logp_B, entropy_B, self.value_of(fused_BLD, mask_BL)
