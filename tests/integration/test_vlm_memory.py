from __future__ import annotations

import re
from pathlib import Path

import pytest

from distrl.config.schema import VlmConfig
from distrl.policies.vlm.memory import KNOWN, Shape, adapter_parameters, learner_bytes, table, worker_bytes
from support.vlms import BODY, tiny_vlm

PAGE = Path(__file__).parents[3] / "docs" / "vlm.md"
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
    keys = BODY["num_key_value_heads"] * BODY["hidden_size"] // BODY["num_attention_heads"]
    tiny = Shape(
        name="tiny", parameters=0, words=0, layers=BODY["num_hidden_layers"], hidden=BODY["hidden_size"],
        inner=BODY["intermediate_size"], keys=keys,
    )  # fmt: skip
    assert adapter_parameters(tiny, 3) == count


def test_every_setting_that_is_said_to_save_memory_does() -> None:
    usual = VlmConfig()
    assert learner_bytes(SMALL, VlmConfig(score_batch=1), 1000) < learner_bytes(SMALL, usual, 1000)
    assert learner_bytes(SMALL, usual, 1000) < learner_bytes(SMALL, VlmConfig(gradient_checkpointing=False), 1000)
    assert learner_bytes(SMALL, usual, 1000) < learner_bytes(SMALL, VlmConfig(lora_rank=0), 1000)
    assert learner_bytes(SMALL, usual, 500) < learner_bytes(SMALL, usual, 1000)
    assert worker_bytes(SMALL, VlmConfig(decide_batch=1), 1000) < worker_bytes(SMALL, usual, 1000)
