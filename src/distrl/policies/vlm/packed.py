"""Packed scoring: all prompts and answers of a micro-batch in one row, without padding, under gradient.

For the models of the fast path. Three things make it faster than rows that are padded to one length:

    attention      a variable-length kernel over the sequences that lie one after the other
    images         the features of a frozen vision tower, computed once for each screenshot (`ImageFeatures`)
    vocabulary     log-probability and entropy in portions; nothing as wide as the vocabulary is kept for the backward pass

Suffixes: N tokens of all sequences, B sequences, K answer tokens, V vocabulary, D width.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.policies.gpu_memory import allowed_bytes
from distrl.policies.vlm.image_processor import UnpaddedInputs
from distrl.policies.vlm.tokens import NEVER, Answer, pad

VOCABULARY_ROWS = 256
"""Answer tokens whose logits exist at the same time: 156 MB in float32 for 152,000 words."""


FEATURE_SHARE = 0.05
"""Of a GPU's memory, for the features of screenshots: 7 GB of an H200, some 5,000 screenshots of 338 tokens."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """One screenshot as the language model gets it."""

    features: Tensor
    grid: Tensor
    """How many patches deep, high and wide, on the CPU."""
    deepstack: tuple[Tensor, ...] = ()
    """What Qwen3-VL adds to the first layers."""

    @property
    def num_bytes(self) -> int:
        """Of GPU memory."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.features, *self.deepstack))

    def alone(self) -> Image:
        """The same in memory of its own: those of a batch are views of one tensor, which each of them keeps whole."""
        deepstack = tuple(map(_alone, self.deepstack))
        return msgspec.structs.replace(self, features=_alone(self.features), deepstack=deepstack)


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts with their answers as one row of tokens, on the CPU."""

    ids_N: Tensor
    positions: Tensor
    """[1, N], or [3, 1, N] for a model that numbers the tokens of images in three dimensions."""
    bounds: tuple[int, ...]
    """Where each sequence begins, and the end of the last."""
    last_B: Tensor
    """The last token of each prompt."""
    said_K: Tensor
    """The tokens of all answers."""
    before_K: Tensor
    """The token before each of them, whose hidden state it is scored from."""
    row_K: Tensor
    """The sequence that it belongs to."""
    images: tuple[Image, ...] = ()
    """Of all prompts, in order; on the device."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(end - start for start, end in pairwise(self.bounds))


def pack(unpadded: UnpaddedInputs, answers: Sequence[Answer], base: Any, images: Sequence[Image] = ()) -> Packed:
    """Prompts and answers one after the other, with the positions that `base` gives their tokens."""
    if images:
        grids = {"image_grid_thw": torch.stack([image.grid for image in images])}
        unpadded = msgspec.structs.replace(unpadded, images=grids)
    rows = [(*prompt, *answer) for prompt, answer in zip(unpadded.ids, answers, strict=True)]
    bounds = tuple(accumulate(map(len, rows), initial=0))
    prompt_B = torch.tensor([len(prompt) for prompt in unpadded.ids])
    said_B = torch.tensor([len(answer) for answer in answers])
    last_B = torch.tensor(bounds[:-1]) + prompt_B - 1
    place_K = torch.cat([torch.arange(len(answer)) for answer in answers])
    return Packed(
        ids_N=torch.tensor(list(chain.from_iterable(rows))),
        positions=_positions(unpadded, answers, base, bounds),
        bounds=bounds,
        last_B=last_B,
        said_K=torch.tensor(list(chain.from_iterable(answers)), dtype=torch.long),
        before_K=last_B.repeat_interleave(said_B) + place_K,
        row_K=torch.arange(len(rows)).repeat_interleave(said_B),
        images=tuple(images),
    )


def _positions(unpadded: UnpaddedInputs, answers: Sequence[Answer], base: Any, bounds: Sequence[int]) -> Tensor:
    """Those that the model would find itself for each sequence alone."""
    number = getattr(base.model, "get_rope_index", None)
    if number is None or not unpadded.images:
        counted_1N = torch.cat([torch.arange(end - start) for start, end in pairwise(bounds)])[None]
        return counted_1N if number is None else counted_1N.expand(3, 1, -1)
    padded = pad(unpadded, answers, 0)
    known = inspect.signature(number).parameters
    found_3BL, _ = number(**{name: tensor for name, tensor in padded.items() if name in known})
    positions_31N: Tensor = found_3BL[:, padded["attention_mask"].bool()][:, None]
    return positions_31N


def _alone(tensor: Tensor) -> Tensor:
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def feature_bytes(device: torch.device) -> float:
    """How much memory the features of screenshots may take: a share of what there is of a GPU, or 1 GB elsewhere."""
    return FEATURE_SHARE * allowed_bytes(device) if device.type == "cuda" else 1e9


class ImageFeatures:
    """What a frozen vision tower makes of a screenshot, kept on its device: those used last, within a number of bytes."""

    def __init__(self, capacity_bytes: float) -> None:
        self._capacity, self._size = capacity_bytes, 0
        self._kept: OrderedDict[str, Image] = OrderedDict()

    def __contains__(self, reference: str) -> bool:
        return reference in self._kept

    def get(self, reference: str) -> Image | None:
        """The features of a screenshot; None where they have to be computed."""
        if reference in self._kept:
            self._kept.move_to_end(reference)
        return self._kept.get(reference)

    def put(self, reference: str, features: Image) -> None:
        """Keep features, and forget those used longest ago for them; too large ones are not kept."""
        if features.num_bytes > self._capacity:
            return
        self._size += features.num_bytes
        self._kept[reference] = features.alone()
        while self._size > self._capacity and self._kept:
            self._size -= self._kept.popitem(last=False)[1].num_bytes

    def clear(self) -> None:
        """Forget all: the tower has changed."""
        self._kept.clear()
        self._size = 0


def image_features(base: Any, pixels: Tensor, grids: Tensor) -> list[Image]:
    """The features of some images, each on its own."""
    found = base.model.get_image_features(pixels, grids)
    each = found.pooler_output
    sizes = [len(features) for features in each]
    layers = [
        layer if isinstance(layer, tuple) else layer.split(sizes) for layer in getattr(found, "deepstack_features", ())
    ]
    stacks = list(zip(*layers, strict=True)) if layers else [()] * len(each)
    return [
        Image(features=one, grid=grid, deepstack=tuple(stack))
        for one, grid, stack in zip(each, grids.cpu(), stacks, strict=True)
    ]


def hidden_states(base: Any, packed: Packed, device: torch.device) -> Tensor:
    """The last hidden state of every token, [N, D]."""
    language = getattr(base.model, "language_model", base.model)
    ids_N = packed.ids_N.to(device)
    embedded = language.embed_tokens(ids_N)
    more: dict[str, Any] = {}
    if packed.images:
        here_N = ids_N == base.config.image_token_id
        features = torch.cat([image.features for image in packed.images])
        embedded = embedded.masked_scatter(here_N[:, None], features.to(embedded.dtype))
        stacks = list(zip(*(image.deepstack for image in packed.images), strict=True))
        if stacks:
            more = {"visual_pos_masks": here_N[None], "deepstack_visual_embeds": [torch.cat(stack) for stack in stacks]}
    bounds = torch.tensor(packed.bounds, dtype=torch.int32, device=device)
    found = language(
        inputs_embeds=embedded[None],
        position_ids=packed.positions.to(device),
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),  # of four dimensions: taken as it is
        use_cache=False,
        cu_seq_lens_q=bounds,
        max_length_q=packed.longest,
        **more,
    )
    hidden_ND: Tensor = found.last_hidden_state[0]
    return hidden_ND


def answer_scores(hidden_KD: Tensor, head: Any, said_K: Tensor, never_X: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each token and entropy of its distribution, in float32; the tokens `never_X` have probability 0."""
    scores: tuple[Tensor, Tensor] = _AnswerScores.apply(hidden_KD, head.weight, said_K, never_X)  # type: ignore[no-untyped-call]
    return scores


class _AnswerScores(torch.autograd.Function):
    """Keeps the hidden states alone, and computes the logits again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, said_K: Tensor, never_X: Tensor) -> Any:
        ctx.save_for_backward(hidden_KD, weight_VD, said_K, never_X)
        parts = zip(_portions(hidden_KD), _portions(said_K), strict=True)
        found = [_scores(hidden, said, weight_VD, never_X)[:2] for hidden, said in parts]
        logp, entropy = zip(*found, strict=True)
        return torch.cat(logp), torch.cat(entropy)

    @staticmethod
    def backward(ctx: Any, logp_grad_K: Tensor, entropy_grad_K: Tensor) -> Any:
        hidden_KD, weight_VD, said_K, never_X = ctx.saved_tensors
        parts = zip(*map(_portions, (hidden_KD, said_K, logp_grad_K, entropy_grad_K)), strict=True)
        found = [_hidden_gradient(a, b, c, d, weight_VD, never_X) for a, b, c, d in parts]
        return torch.cat(found), None, None, None


def _portions(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, VOCABULARY_ROWS)


def _scores(hidden_KD: Tensor, said_K: Tensor, weight_VD: Tensor, never_X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits_KV = (hidden_KD @ weight_VD.T).float().index_fill_(-1, never_X, NEVER)
    logp_KV = torch.log_softmax(logits_KV, dim=-1)
    logp_K = logp_KV.gather(-1, said_K[:, None])[:, 0]
    return logp_K, -(logp_KV.exp() * logp_KV).sum(-1), logp_KV


def _hidden_gradient(
    hidden_KD: Tensor, said_K: Tensor, logp_grad_K: Tensor, entropy_grad_K: Tensor, weight_VD: Tensor, never_X: Tensor
) -> Tensor:
    """d logp / d logit = [said] - p; d entropy / d logit = -p (log p + entropy)."""
    _, entropy_K, logp_KV = _scores(hidden_KD, said_K, weight_VD, never_X)
    scale_KV = logp_grad_K[:, None] + entropy_grad_K[:, None] * (logp_KV + entropy_K[:, None])
    grad_KV = logp_KV.exp().mul_(scale_KV).neg_()
    grad_KV.scatter_add_(-1, said_K[:, None], logp_grad_K[:, None])
    return grad_KV.to(hidden_KD.dtype) @ weight_VD
