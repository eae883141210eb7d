"""Tiny models with Auto-UI's architecture and random weights: a T5 with fusion layers, and BLIP-2's vision tower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import Blip2Config, Blip2VisionModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from distrl.config.schema import AutoUIConfig
from distrl.policies.autoui.network import AutoUINetwork

IMAGE_WIDTH, VALUE_WIDTH = 24, 16
LOUDER = 1.2
"""Fresh weights say almost the same whatever they see."""
CORPUS = [
    'Action Plan: [DUAL_POINT] ; Action Decision: "action_type": "TYPE", "touch_point": "[-1.0, -1.0]", "typed_text": ""',
    "Previous Actions: Goal: Open the clock and turn on the alarm STATUS_TASK_COMPLETE PRESS_BACK PRESS_HOME PRESS_ENTER",
    "0123456789 .,[]",
]


def make_folders(root: Path, *, v1_1: bool = True) -> AutoUIConfig:
    """Both folders; with `v1_1`, as T5 1.1 has it: gated layers and a language head of its own."""
    torch.manual_seed(0)
    path, vision_path = root / "autoui", root / "blip2"
    path.mkdir()
    vision_path.mkdir()
    vocabulary = _make_tokenizer(path)
    facts: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if v1_1 else {}
    config = T5Config(
        vocab_size=vocabulary, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0, **facts
    )
    t5 = T5ForConditionalGeneration(config)
    network = AutoUINetwork(t5, image_width=IMAGE_WIDTH, value_width=VALUE_WIDTH, own_head=v1_1)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.ndim > 1:
                weights.mul_(LOUDER)
        t5.lm_head.weight.add_(torch.randn_like(t5.lm_head.weight) * 0.1 * v1_1)
    tensors = {
        name.removeprefix("t5."): tensor.detach().clone()
        for name, tensor in network.named_parameters()
        if not name.startswith("value.")
    }
    save_file(tensors, path / "model.safetensors")
    saved = config.to_dict() | facts | {"dropout_rate": 0.1}
    (path / "config.json").write_text(json.dumps(saved, default=str))
    _make_vision(vision_path)
    return AutoUIConfig(path=str(path), vision_path=str(vision_path), value_width=VALUE_WIDTH, answer_tokens=24)


def _make_vision(folder: Path) -> None:
    vision = {
        "hidden_size": IMAGE_WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    config = Blip2Config(vision_config=vision)
    tower = Blip2VisionModel(config.vision_config)
    with torch.no_grad():
        for weights in tower.parameters():
            weights.add_(torch.randn_like(weights) * 0.1)
    save_file(
        {f"vision_model.{name}": tensor for name, tensor in tower.state_dict().items()}, folder / "model.safetensors"
    )
    config.save_pretrained(folder)


def _make_tokenizer(folder: Path) -> int:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS * 5, trainer)
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.save_pretrained(folder)
    return len(tokenizer)
