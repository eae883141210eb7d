"""Decoding with a static key-value cache and one captured CUDA graph per token: the GPU never waits for Python.

The prompt goes through the model once, as it is; its keys and values are copied into buffers of a fixed size. Every
further token is one replay of a graph that embeds, decodes, samples and scores it and moves on to the next position.
On a CPU the same steps run without a graph. Suffixes: B answers, L places of the cache, V vocabulary, A answer tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.policies.vlm.fast_layers import attend_packed
from distrl.policies.vlm.tokens import entropy_of, token_logp

GROUPED = "distrl_grouped"
"""Name of the attention that reads shared keys and values once for all heads that share them."""

CHECK_END_EVERY = 4
"""Tokens between two checks whether all answers have ended: each check waits for the GPU."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled tokens with their log-probabilities and entropies, before any cut at an end token."""

    token_BA: Tensor
    logp_BA: Tensor
    """At the temperature it was sampled with; at 1 where that is 0."""
    entropy_BA: Tensor


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the decoding."""

    num_tokens: int
    temperature: float
    """0: the likeliest token."""
    never: tuple[int, ...] = ()
    """Tokens that no answer may hold, such as an image placeholder."""
    ends: tuple[int, ...] = ()
    """Once every answer holds one of these, no more tokens are made."""


def use_grouped_attention(config: Any) -> None:
    """Make the language model under `config` use the grouped attention."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(GROUPED, attend_grouped)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    config._attn_implementation = GROUPED


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rest: Any
) -> tuple[Tensor, None]:
    """Attention for one new token without repeating keys and values, or for packed sequences; others go the usual way."""
    bounds_W = rest.get("cu_seq_lens_q")
    if bounds_W is not None:
        query_NHD, key_NHD, value_NHD = (x_1HND[0].transpose(0, 1) for x_1HND in (query, key, value))
        mixed_NHD = attend_packed(query_NHD, key_NHD, value_NHD, bounds_W, rest["max_length_q"], causal=True)
        return mixed_NHD[None], None
    if query.shape[2] > 1:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        mixed, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
        return mixed, None
    batch, heads, _, width = query.shape
    together = query.view(batch, key.shape[1], heads // key.shape[1], width)
    mixed = F.scaled_dot_product_attention(together, key, value, attn_mask=attention_mask, scale=rest.get("scaling"))
    return mixed.reshape(batch, 1, heads, width), None


class StaticKeyValues:
    """Keys and values in buffers of a fixed size, written at the place that a tensor names."""

    def __init__(self, shape: tuple[int, int, int, int], layers: int, like: Tensor) -> None:
        self.keys = [like.new_zeros(shape) for _ in range(layers)]
        self.values = [like.new_zeros(shape) for _ in range(layers)]
        self.place_1 = torch.zeros(1, dtype=torch.long, device=like.device)

    def fill(self, cache: Any) -> int:
        """Copy the keys and values of a prompt from a transformers cache; returns its length.

        The rest is zeroed: masked positions are not attended to, but NaN there would spoil the sums even so.
        """
        for keys, values, layer in zip(self.keys, self.values, cache.layers, strict=True):
            length = layer.keys.shape[2]
            for mine, theirs in ((keys, layer.keys), (values, layer.values)):
                mine[:, :, :length].copy_(theirs)
                mine[:, :, length:].zero_()
        return int(length)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write one token's key and value; everything written so far."""
        self.keys[layer].index_copy_(2, self.place_1, key)
        self.values[layer].index_copy_(2, self.place_1, value)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """0, as transformers asks: positions are passed in explicitly."""
        return 0


class Decoder:
    """Makes answers of up to `num_tokens` tokens for batches of one size and prompts up to one length.

    What is sampled comes from `generator`, which is on the model's device; None: from that device's own.
    """

    def __init__(
        self,
        model: Any,
        *,
        batch: int,
        longest_prompt: int,
        decoding: Decoding,
        generator: torch.Generator | None = None,
    ) -> None:
        self._inner, self._head = model.model, model.lm_head
        self._language = getattr(model.model, "language_model", model.model)
        self._decoding, self._generator = decoding, generator
        text = self._language.config
        use_grouped_attention(text)
        weight = self._head.weight
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        places = longest_prompt + decoding.num_tokens
        self._keys = StaticKeyValues((batch, text.num_key_value_heads, places, width), text.num_hidden_layers, weight)
        device, tokens = weight.device, decoding.num_tokens
        self._seen_B11L = torch.zeros(batch, 1, 1, places, dtype=torch.bool, device=device)
        self._token_B = torch.zeros(batch, dtype=torch.long, device=device)
        self._position_B = torch.zeros(batch, dtype=torch.long, device=device)
        self._step_1 = torch.zeros(1, dtype=torch.long, device=device)
        self._never = torch.tensor(decoding.never, dtype=torch.long, device=device)
        self._ends = torch.tensor(decoding.ends, dtype=torch.long, device=device)
        self._yes = torch.ones(batch, 1, 1, 1, dtype=torch.bool, device=device)
        self._out = Answers(
            token_BA=torch.zeros(batch, tokens, dtype=torch.long, device=device),
            logp_BA=torch.zeros(batch, tokens, device=device),
            entropy_BA=torch.zeros(batch, tokens, device=device),
        )
        self._replay: Callable[[], None] | None = None
        self._after_prompt_B: Tensor | None = None

    def _note_positions(self, _: Any, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        """Remember where a prompt ends: with images, positions do not follow from its length."""
        positions = given.get("position_ids")
        if positions is not None and positions.ndim == 3 and positions.shape[-1] > 1:
            self._after_prompt_B = positions.amax(dim=(0, 2)) + 1

    @property
    def batch(self) -> int:
        """Answers made at once."""
        return len(self._token_B)

    @torch.no_grad()
    def answer(self, inputs: dict[str, Tensor], *, rows: int | None = None) -> tuple[Answers, Tensor]:
        """Answers to a left-padded batch of prompts, and the hidden state at the end of each prompt.

        What stands after an end token means nothing. Only the first `rows` answers have to come to their end.
        """
        found = self._read(inputs)
        hidden_BD = found.last_hidden_state[:, -1]
        self._begin(found, inputs["attention_mask"])
        self._choose(self._head(hidden_BD))
        for made in range(1, self._decoding.num_tokens):
            if made % CHECK_END_EVERY == 0 and self._ended(made, rows):
                break
            self._advance()
        return self._out, hidden_BD

    def _ended(self, made: int, rows: int | None) -> bool:
        if not len(self._ends):
            return False
        return bool(torch.isin(self._out.token_BA[:rows, :made], self._ends).any(1).all())

    def _read(self, inputs: dict[str, Tensor]) -> Any:
        """The prompts through the model; a hook that stayed would keep this decoder and its buffers alive."""
        self._after_prompt_B = None
        if "image_grid_thw" not in inputs:
            # The model finds the positions of images itself; without images it would count the padding too.
            inputs = {**inputs, "position_ids": (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)}
        hook = self._language.register_forward_pre_hook(self._note_positions, with_kwargs=True)
        try:
            return self._inner(**inputs, use_cache=True)
        finally:
            hook.remove()

    def _begin(self, found: Any, mask_BL: Tensor) -> None:
        length = self._keys.fill(found.past_key_values)
        self._seen_B11L.zero_()
        self._seen_B11L[:, 0, 0, :length] = mask_BL.bool()
        self._keys.place_1.fill_(length)
        self._step_1.zero_()
        self._position_B.copy_(self._after_prompt_B if self._after_prompt_B is not None else mask_BL.sum(1))

    def _advance(self) -> None:
        if not self._token_B.is_cuda:
            self._token()
            return
        with torch.cuda.device(self._token_B.device):  # graphs and streams otherwise belong to the first GPU
            self._replay = self._replay or self._capture()
            self._replay()

    def _capture(self) -> Callable[[], None]:
        """Capture one token's work; what the warm-up runs changed is put back, the generator's state too."""
        drawn = self._generator.get_state() if self._generator is not None else None
        moving = (self._token_B, self._position_B, self._step_1, self._keys.place_1, self._seen_B11L)
        before = [tensor.clone() for tensor in moving]
        kept = [self._out.token_BA.clone(), self._out.logp_BA.clone(), self._out.entropy_BA.clone()]

        def put_back() -> None:
            for tensor, old in zip((*moving, *msgspec.structs.astuple(self._out)), (*before, *kept), strict=True):
                tensor.copy_(old)

        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._token()
                put_back()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        if self._generator is not None:  # a replay then draws on from wherever the generator stands
            graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, stream=side):
            self._token()
        put_back()
        if self._generator is not None and drawn is not None:
            self._generator.set_state(drawn)
        return graph.replay

    def _token(self) -> None:
        self._seen_B11L.index_copy_(3, self._keys.place_1, self._yes)
        hidden = self._language(
            inputs_embeds=self._language.embed_tokens(self._token_B[:, None]),
            position_ids=self._positions(),
            attention_mask=self._seen_B11L,
            past_key_values=self._keys,
            use_cache=True,
        ).last_hidden_state
        self._keys.place_1.add_(1)
        self._position_B.add_(1)
        self._choose(self._head(hidden[:, 0]))

    def _positions(self) -> Tensor:
        position_B1 = self._position_B[:, None]
        return position_B1.expand(3, -1, -1) if hasattr(self._inner, "language_model") else position_B1

    def _choose(self, logits_BV: Tensor) -> None:
        """Sample the next token, and record it with its log-probability and entropy."""
        temperature = self._decoding.temperature
        logp_BV = token_logp(logits_BV, self._never, temperature or 1.0)
        noisy_BV = logp_BV + _gumbel(logp_BV, self._generator) if temperature else logp_BV
        token_B1 = noisy_BV.argmax(-1, keepdim=True)
        self._token_B.copy_(token_B1[:, 0])
        self._out.token_BA.index_copy_(1, self._step_1, token_B1)
        self._out.logp_BA.index_copy_(1, self._step_1, logp_BV.gather(1, token_B1))
        self._out.entropy_BA.index_copy_(1, self._step_1, entropy_of(logp_BV)[:, None])
        self._step_1.add_(1)


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Noise that turns the likeliest choice into a sample."""
    share = torch.empty_like(like).uniform_(generator=generator)
    return -torch.log(-torch.log(share.clamp(min=1e-20)))
