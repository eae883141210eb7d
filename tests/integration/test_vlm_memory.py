from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import torch

from distrl.config.schema import VlmConfig
from distrl.policies.vlm.engine import PLACE_STEP, ROOM
from distrl.policies.vlm.fast_generation import FastGenerate
from distrl.policies.vlm.memory import (
    KNOWN,
    Shape,
    adapted_parameters,
    adapter_parameters,
    learner_bytes,
    table,
    worker_bytes,
)
from support.vlms import BODY, seen, tiny_vlm

PAGE = Path(__file__).parents[2] / "docs" / "vlm.md"
SMALL = KNOWN[0]


def test_the_page_shows_the_table_of_the_formula() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(code, {})
    assert "Wait()" in capsys.readouterr().out


def test_adapters_have_as_many_weights_as_the_formula_says() -> None:
    policy = tiny_vlm("text", lora_rank=3)
    count = sum(weights.numel() for name, weights in policy.network.named_parameters() if ".lora_" in name)
    assert adapter_parameters(tiny_shape(), 3) == count


def tiny_shape() -> Shape:
    keys = BODY["num_key_value_heads"] * BODY["hidden_size"] // BODY["num_attention_heads"]
    return Shape(
        name="tiny", parameters=0, words=0, layers=BODY["num_hidden_layers"], hidden=BODY["hidden_size"],
        inner=BODY["intermediate_size"], keys=keys,
    )  # fmt: skip


def test_every_setting_that_is_said_to_save_memory_does() -> None:
    usual = VlmConfig()
    assert learner_bytes(SMALL, VlmConfig(score_batch=1), 1000) < learner_bytes(SMALL, usual, 1000)
    assert learner_bytes(SMALL, usual, 1000) < learner_bytes(SMALL, VlmConfig(gradient_checkpointing=False), 1000)
    assert learner_bytes(SMALL, usual, 1000) < learner_bytes(SMALL, VlmConfig(lora_rank=0), 1000)
    assert learner_bytes(SMALL, usual, 500) < learner_bytes(SMALL, usual, 1000)
    assert worker_bytes(SMALL, VlmConfig(decide_batch=1), 1000) < worker_bytes(SMALL, usual, 1000)
    assert worker_bytes(SMALL, VlmConfig(fast=False), 1000) < worker_bytes(SMALL, usual, 1000)
    assert worker_bytes(SMALL, usual, 1000) < worker_bytes(SMALL, VlmConfig(merge=True), 1000)


def test_the_second_copy_of_merged_weights_is_as_large_as_the_formula_says() -> None:
    policy = tiny_vlm("text", merge=True)
    policy.decide([seen()], temperature=0.0, generator=torch.Generator())
    assert policy._merger is not None
    assert sum(weight.numel() for weight in policy._merger._plain) == adapted_parameters(tiny_shape())


def test_the_cache_of_the_fast_path_is_as_large_as_the_formula_says() -> None:
    """What the formula asks for more with the fast way is the slot to spare, and the room for longer prompts."""
    policy = tiny_vlm("text", generate=FastGenerate(), decide_batch=4, answer_tokens=8)
    policy.decide([seen()], temperature=0.0, generator=torch.Generator())
    assert isinstance(policy._generate, FastGenerate)
    cache = policy._generate.cache
    assert cache is not None
    assert cache.places % PLACE_STEP == 0
    held = 2 * (cache.keys.numel() + cache.values.numel())  # of 2 bytes each on a GPU
    shape, prompt = msgspec.structs.replace(tiny_shape(), inner=0, hidden=0), (cache.places - 8) / ROOM
    assert worker_bytes(shape, VlmConfig(decide_batch=4, answer_tokens=8), prompt) == pytest.approx(held)
