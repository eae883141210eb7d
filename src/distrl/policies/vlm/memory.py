"""Estimates of the GPU memory that a model needs, by a formula: for choosing a GPU, not a measurement.

Counted are the weights, what training adds to each trained weight (gradient, Adam and average: 4, 8 and 4 bytes), what is kept of a
layer under gradient, the caches of keys and values, and the logits. Not counted: the images' own activations (the
vision tower gets no adapters, so nothing of it is kept), fragmentation, captured graphs, and what CUDA itself takes,
about 1 GB. A learner with memory to spare keeps more activations and recomputes less (`scoring`).

    kept of a layer, bytes per token = 20 h + 4 kv + 8 f      in bfloat16: norms, attention, the three products
                                     + 24 h + 4 f             inputs of the adapters, in float32
"""

from __future__ import annotations

import sys

import msgspec

from distrl.config.schema import VlmConfig
from distrl.policies.vlm.engine import PROMPT_TOKENS, ROOM

GB = 1e9


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a model, as its config.json has them."""

    name: str
    parameters: float
    layers: int
    hidden: int
    inner: int
    """`intermediate_size`."""
    keys: int
    """Key heads times their size."""
    words: int
    """Size of the vocabulary."""
    fast: bool = True
    """Whether the fast path supports it."""


KNOWN = (
    Shape(name="SmolLM2-135M (text)", parameters=0.135e9, layers=30, hidden=576, inner=1536, keys=192, words=49152),
    Shape(
        name="SmolVLM2-500M", parameters=0.51e9, layers=32, hidden=960, inner=2560, keys=320, words=49280, fast=False
    ),
    Shape(
        name="SmolVLM2-2.2B", parameters=2.25e9, layers=24, hidden=2048, inner=8192, keys=2048, words=49280, fast=False
    ),
    Shape(name="Qwen3-VL-2B", parameters=2.13e9, layers=28, hidden=2048, inner=6144, keys=1024, words=151936),
    Shape(name="Qwen2.5-VL-3B", parameters=3.75e9, layers=36, hidden=2048, inner=11008, keys=256, words=151936),
    Shape(name="Qwen3-VL-4B", parameters=4.44e9, layers=36, hidden=2560, inner=9728, keys=1024, words=151936),
    Shape(name="Qwen2.5-VL-7B", parameters=8.29e9, layers=28, hidden=3584, inner=18944, keys=512, words=152064),
    Shape(name="Qwen3-VL-8B", parameters=8.77e9, layers=36, hidden=4096, inner=12288, keys=1024, words=151936),
)


def adapter_parameters(shape: Shape, rank: int) -> int:
    """Weights of adapters of that rank on all seven layers of every block."""
    h, f, kv = shape.hidden, shape.inner, shape.keys
    return shape.layers * rank * (2 * (h + h) + 2 * (h + kv) + 3 * (h + f))


def adapted_parameters(shape: Shape) -> int:
    """Weights of those layers themselves."""
    h, f, kv = shape.hidden, shape.inner, shape.keys
    return shape.layers * (2 * h * h + 2 * h * kv + 3 * h * f)


def learner_bytes(shape: Shape, config: VlmConfig, prompt_tokens: int) -> float:
    """What the learner needs on a GPU."""
    tokens = config.score_batch * (prompt_tokens + config.answer_tokens)
    per_layer = tokens * (44 * shape.hidden + 4 * shape.keys + 12 * shape.inner)
    inputs = tokens * 2 * shape.hidden * shape.layers
    kept = inputs + per_layer if config.gradient_checkpointing else per_layer * shape.layers
    logits = 4 * 4 * config.score_batch * (config.answer_tokens + 1) * shape.words
    if config.lora_rank == 0:
        return 20 * shape.parameters + kept + logits
    return 2 * shape.parameters + 20 * adapter_parameters(shape, config.lora_rank) + kept + logits


def worker_bytes(shape: Shape, config: VlmConfig, prompt_tokens: float) -> float:
    """What a worker needs on a GPU: weights, the caches, and the layer that is being computed."""
    fast = config.fast and shape.fast and config.lora_rank > 0
    rows = config.decide_batch + fast  # the fast path has a slot to spare
    tokens = rows * (prompt_tokens + config.answer_tokens)
    cache = rows * ((ROOM if fast else 1.0) * prompt_tokens + config.answer_tokens) * shape.layers * 2 * shape.keys * 2
    passing = (min(tokens, PROMPT_TOKENS) if fast else tokens) * 2 * (6 * shape.hidden + 3 * shape.inner)
    weights = shape.parameters * (2 if config.lora_rank else 4)
    if config.fp8 == "all" and fast:
        weights += shape.parameters
    if config.merge and config.lora_rank:
        weights += 2 * adapted_parameters(shape)
    return weights + cache + passing + 12 * rows * shape.words


def least_bytes(shape: Shape, config: VlmConfig) -> float:
    """What the weights take, and a tenth more to work in."""
    return 1.1 * shape.parameters * (2 if config.lora_rank else 4)


def table(prompt_tokens: int = 1700) -> str:
    """A Markdown table over the known models, in GB."""
    lora, fast, whole = VlmConfig(), VlmConfig(gradient_checkpointing=False), VlmConfig(lora_rank=0)
    head = "| model | worker | learner, LoRA | learner, LoRA, no checkpointing | learner, all weights | a published version |"
    rows = [head, "|---|---|---|---|---|---|"]
    for shape in KNOWN:
        needs = [worker_bytes(shape, lora, prompt_tokens)]
        needs += [learner_bytes(shape, config, prompt_tokens) for config in (lora, fast, whole)]
        version_mb = 4 * adapter_parameters(shape, lora.lora_rank) / 1e6
        rows.append(f"| {shape.name} | {' | '.join(f'{need / GB:.1f}' for need in needs)} | {version_mb:.0f} MB |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
