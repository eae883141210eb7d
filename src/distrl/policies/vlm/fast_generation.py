"""Fast generation: `fast_layers` and `fast_decode` together, for Qwen-VL and plain language models on a GPU.

A decoder is made for a batch size and a longest prompt, and captures its graph once. Batches are filled up to a power
of two with one-token prompts, and prompt lengths rounded up, so that a handful of decoders serve all requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from distrl.policies.vlm.fast_decode import Answers, Decoder, Decoding
from distrl.policies.vlm.fast_layers import fuse_layers, fuse_vision, is_packed_attention, restore_layers
from distrl.policies.vlm.generation import Generated, Sampling
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.tokens import Inputs

PROMPT_STEP = 128
"""Longest prompts are rounded up to a multiple of this."""
MOST_DECODERS = 8
"""Each holds a cache and a graph of its own."""
CACHES = 2
"""All these caches together are at most so many times as large as the largest: enough for one of every power of two below."""
SCALED_LOGITS = ("logits_scaling", "logit_scale", "final_logit_softcapping")
"""Settings of models that do more to a hidden state than their language head does."""


def supports(model: Any) -> bool:
    """Whether the fast path works for `model`: one with Qwen-VL's packed vision tower, or a language model without images.

    Its layers must all attend to everything before them and do the same work for every token, without experts to choose
    from; nothing may come after its language head.
    """
    inner: Any = getattr(model, "model", None)
    language: Any = getattr(inner, "language_model", inner)
    built = all(hasattr(language, part) for part in ("layers", "embed_tokens", "norm")) and hasattr(model, "lm_head")
    if not built or not all(hasattr(getattr(layer, "self_attn", None), "k_proj") for layer in language.layers):
        return False
    if any(name.rpartition(".")[2] == "experts" for name, _ in language.named_modules()):
        return False
    text = language.config
    kinds = getattr(text, "layer_types", None)
    plain = set(kinds) == {"full_attention"} if kinds else not getattr(text, "sliding_window", None)
    unscaled = not any(getattr(text, name, None) for name in SCALED_LOGITS)
    return plain and unscaled and (language is inner or any(map(is_packed_attention, model.modules())))


def speed_up(model: Any) -> Callable[[], None]:
    """Give `model` its fast forward passes, for workers and for the learner; call the result to undo it."""
    text = getattr(model.model, "language_model", model.model).config
    attention = text._attn_implementation
    fuse_layers(model)
    fuse_vision(model)

    def undo() -> None:
        restore_layers(model)
        text._attn_implementation = attention

    return undo


class FastGenerate:
    """`generation.Generate` with static caches and captured graphs, for a model that went through `speed_up`."""

    def __init__(self) -> None:
        self._decoders: dict[tuple[int, int, Decoding], Decoder] = {}
        self._generator: torch.Generator | None = None
        """On the model's device, and used here alone: other code may draw from torch's own."""

    def __call__(self, network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated:
        rows, length = inputs["input_ids"].shape
        decoding = Decoding(
            num_tokens=sampling.answer_tokens,
            temperature=sampling.temperature,
            never=sampling.vocabulary.forbidden,
            ends=sampling.vocabulary.ends,
        )
        batch = 1 << (rows - 1).bit_length()
        # Draws are made on the GPU, and start each batch where the worker's generator says.
        self._generator = self._generator or torch.Generator(inputs["input_ids"].device)
        self._generator.manual_seed(int(torch.randint(2**62, (1,), generator=sampling.generator)))
        decoder = self._decoder(network.base, batch, -(-length // PROMPT_STEP) * PROMPT_STEP, decoding)
        answers, hidden_BD = decoder.answer(fill_up(inputs, batch, sampling.vocabulary.padding), rows=rows)
        return gather(answers, network.value(hidden_BD), rows, sampling.vocabulary.ends)

    def clear(self) -> None:
        """Free all decoders and their caches."""
        self._decoders.clear()

    def _decoder(self, model: Any, batch: int, longest: int, decoding: Decoding) -> Decoder:
        """One that is large enough and not twice too large, new if need be; those used longest ago are freed for it."""
        fitting = (key for key in self._decoders if key[::2] == (batch, decoding) and longest <= key[1] <= 2 * longest)
        key = min(fitting, default=(batch, longest, decoding))
        found = self._decoders.pop(key, None)
        if found is None:
            self._free_for(_places(key))
            found = Decoder(model, batch=batch, longest_prompt=longest, decoding=decoding, generator=self._generator)
        self._decoders[key] = found
        return found

    def _free_for(self, places: int) -> None:
        while self._decoders:
            sizes = [places, *map(_places, self._decoders)]
            if len(sizes) <= MOST_DECODERS and sum(sizes) <= CACHES * max(sizes):
                return
            del self._decoders[next(iter(self._decoders))]


def _places(key: tuple[int, int, Decoding]) -> int:
    """Tokens that the cache of a decoder holds."""
    batch, longest, decoding = key
    return batch * (longest + decoding.num_tokens)


def fill_up(inputs: Inputs, batch: int, padding: int) -> Inputs:
    """The same prompts and as many prompts of one token as the batch lacks; images stay as they are."""
    rows, length = inputs["input_ids"].shape
    if rows == batch:
        return inputs
    filled = {}
    for name, tensor in inputs.items():
        per_token = tensor.shape[:2] == (rows, length)
        more = tensor.new_full((batch - rows, length), padding if name == "input_ids" else 0) if per_token else None
        filled[name] = tensor if more is None else torch.cat([tensor, more])
    filled["attention_mask"][rows:, -1] = 1
    return filled


def gather(answers: Answers, value_logit_B: Tensor, rows: int, ends: tuple[int, ...]) -> Generated:
    """The answers up to their end tokens, with their sums."""
    token_BA, logp_BA, entropy_BA = (
        tensor[:rows].cpu() for tensor in (answers.token_BA, answers.logp_BA, answers.entropy_BA)
    )
    ended_BA = torch.isin(token_BA, torch.tensor(ends))
    # An end token belongs to its answer; what comes after it does not.
    said_BA = (ended_BA.cumsum(1) - ended_BA.long()) == 0
    logp_B, entropy_B = ((x_BA.where(said_BA, torch.zeros(()))).sum(1) for x_BA in (logp_BA, entropy_BA))
    value_B = value_logit_B[:rows].float().cpu()
    return Generated(
        answers=[
            tuple(token for token, said in zip(row, here, strict=True) if said)
            for row, here in zip(token_BA.tolist(), said_BA.tolist(), strict=True)
        ],
        logp_B=logp_B,
        entropy_B=entropy_B,
        value_logit_B=value_B,
        finite_B=logp_B.isfinite() & entropy_B.isfinite() & value_B.isfinite(),
    )
