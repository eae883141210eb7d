"""Fast generation for Qwen-VL and plain language models on a GPU: `engine`, over the fast layers of `fast_text`.

Prompts wait in the order in which they came, and join the answers that are under way as soon as a slot is free. One that
needs longer slots than there are, or begins otherwise than the others, waits until those under way have ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from distrl.policies.vlm.engine import Engine, Finished, Prompt
from distrl.policies.vlm.fast_layers import fuse_layers, fuse_vision, is_packed_attention, restore_layers
from distrl.policies.vlm.fast_text import FastText, KeyValues, computes, text_of
from distrl.policies.vlm.generation import Generated
from distrl.policies.vlm.grouped_attention import fuse_attention
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.tokens import Vocabulary

SCALED_LOGITS = ("logits_scaling", "logit_scale", "final_logit_softcapping")
"""Settings of models that do more to a hidden state than their language head does."""


def supports(model: Any) -> bool:
    """Whether the fast path works for `model`: one with Qwen-VL's packed vision tower, our own for screens, or a language model.

    Its layers must all attend to everything before them and be of a family that `fast_text` computes; nothing may come
    after its language head.
    """
    inner: Any = getattr(model, "model", None)
    language: Any = getattr(inner, "language_model", inner)
    built = all(hasattr(language, part) for part in ("layers", "embed_tokens", "norm")) and hasattr(model, "lm_head")
    if not built or not computes(model):
        return False
    text = language.config
    kinds = getattr(text, "layer_types", None)
    plain = set(kinds) == {"full_attention"} if kinds else not getattr(text, "sliding_window", None)
    unscaled = not any(getattr(text, name, None) for name in SCALED_LOGITS)
    plain_images = type(getattr(inner, "visual", None)).__name__ == "ScreenEncoder"
    packed_images = any(map(is_packed_attention, model.modules()))
    return plain and unscaled and (language is inner or plain_images or packed_images)


def speed_up(model: Any) -> Callable[[], None]:
    """Give `model` its fast forward passes, for workers and for the learner; call the result to undo it."""
    text = text_of(model).config
    attention = text._attn_implementation
    fuse_layers(model)
    fuse_vision(model)
    fuse_attention(model)

    def undo() -> None:
        restore_layers(model)
        text._attn_implementation = attention

    return undo


class FastGenerate:
    """Answers prompts with one network; new ones may come while others are answered."""

    def __init__(self, *, fp8: bool = False) -> None:
        self._fp8 = fp8
        self._text: FastText | None = None
        self._engine: Engine | None = None
        self._waiting: OrderedDict[int, Prompt] = OrderedDict()
        self._prefix: tuple[int, ...] = ()

    def open(self, network: VlmNetwork, vocabulary: Vocabulary, *, slots: int, answer_tokens: int) -> None:
        """Answer with this network from now on, so many at once."""
        self._text = self._text or FastText(network.base, fp8=self._fp8)
        self._engine = Engine(network, self._text, vocabulary, slots=slots, answer_tokens=answer_tokens)

    @property
    def is_open(self) -> bool:
        """Whether prompts can be answered."""
        return self._engine is not None

    @property
    def cache(self) -> KeyValues | None:
        """Keys and values of the answers under way."""
        return None if self._engine is None else self._engine.cache

    def ask(self, prompts: Mapping[int, Prompt], *, prefix: Sequence[int] = ()) -> None:
        """Let prompts wait for their turn, each by a ticket of its own; `prefix` is what they all begin with."""
        self._waiting.update(prompts)
        self._prefix = tuple(prefix)

    def advance(self) -> list[Finished]:
        """Let those join that can, and make one more token of every answer under way; the answers that are over."""
        engine = self._engine
        assert engine is not None, "open() comes first"
        joining: dict[int, Prompt] = {}
        while self._waiting and len(joining) < engine.num_free:
            ticket, prompt = next(iter(self._waiting.items()))
            if not engine.fits(prompt, self._prefix):
                break
            joining[ticket] = self._waiting.pop(ticket)
        if joining:
            engine.join(joining, prefix=self._prefix)
        return engine.advance()

    def clear(self) -> None:
        """Give up what is under way, and free caches and graphs."""
        self._waiting.clear()
        if self._engine is not None:
            self._engine.clear()

    def close(self) -> None:
        """As `clear`, until it is opened again."""
        self.clear()
        self._engine = None


def generated(found: Sequence[Finished]) -> Generated:
    """The answers, as other ways of generation give them."""
    logp_B, entropy_B, value_B = (
        torch.tensor([getattr(one, name) for one in found]) for name in ("logp", "entropy", "value_logit")
    )
    return Generated(
        answers=[one.answer for one in found],
        logp_B=logp_B,
        entropy_B=entropy_B,
        value_logit_B=value_B,
        finite_B=logp_B.isfinite() & entropy_B.isfinite() & value_B.isfinite(),
    )
