from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.vlm import loading, scoring
from distrl.policies.vlm.loading import compute_dtype, weights_dtype
from support.vlms import seen, tiny_model, tiny_vlm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model, to be spoiled."""
    return Path(shutil.copytree(tiny_model("text"), tmp_path / "model"))


def refused(folder: Path, **settings: Any) -> str:
    """What is said about a folder; it never holds a traceback's worth of lines."""
    with pytest.raises(ConfigError) as caught:
        tiny_vlm("text", path=str(folder), **settings)
    assert len(str(caught.value).splitlines()) <= 5
    return str(caught.value)


def edit(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")


def test_a_folder_that_is_no_model_is_refused_with_the_way_to_get_one(tmp_path: Path) -> None:
    assert "hf download" in refused(tmp_path)
    assert "hf download" in refused(tmp_path / "nowhere")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.vlm\.path"):
        tiny_vlm("text", path="")


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == "peft" else name)
    with pytest.raises(ConfigError, match=r"needs peft\n(.*\n)*.*\[train,vlm\]"):
        tiny_vlm("text")


def test_a_pickle_is_refused_and_never_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    said = refused(folder)
    assert "pytorch_model.bin is a pickle" in said
    assert "save_pretrained" in said


def test_adapters_beside_a_model_are_refused_and_their_pickle_is_never_read(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.bin").write_bytes(b"c__builtin__\neval\n")
    assert "holds adapters" in refused(folder)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder)


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x00" * 64)
    assert "cannot be loaded" in refused(folder)


def test_weights_with_gaps_are_refused_and_not_filled_with_noise(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lack 1 tensors, such as model.layers.1.mlp.up_proj.weight" in refused(folder)


def test_a_model_that_cannot_answer_is_refused(folder: Path) -> None:
    edit(folder, model_type="vit", architectures=["ViTModel"])
    assert "vit model, which cannot answer" in refused(folder)


def test_an_unknown_architecture_is_refused(folder: Path) -> None:
    edit(folder, model_type="never-heard-of")
    assert "update transformers" in refused(folder)


def test_code_in_a_folder_does_not_run_unless_the_configuration_says_so(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(
        f"open({str(ran)!r}, 'w').close()\nfrom transformers import LlamaConfig\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own-code'\n",
        encoding="utf-8",
    )
    edit(folder, model_type="own-code", auto_map={"AutoConfig": "own.OwnConfig"})
    assert "policy.vlm.trust_remote_code" in refused(folder)
    assert not ran.exists()
    refused(folder, trust_remote_code=True)  # it has no model class, but its configuration was read
    assert ran.exists()


def test_a_tokenizer_without_an_end_is_refused(folder: Path) -> None:
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["eos_token"]
    file.write_text(json.dumps(settings), encoding="utf-8")
    assert "end-of-text token" in refused(folder)


def test_a_model_without_images_is_refused_where_screenshots_are_wanted() -> None:
    with pytest.raises(ConfigError, match=r"policy\.vlm\.pictures false"):
        tiny_vlm("text", pictures=True)


def test_numbers_are_short_on_a_gpu_and_long_on_a_cpu_and_long_where_all_weights_are_trained() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert (compute_dtype(VlmConfig(), gpu), compute_dtype(VlmConfig(), cpu)) == (torch.bfloat16, torch.float32)
    assert weights_dtype(VlmConfig(), gpu) == torch.bfloat16
    assert weights_dtype(VlmConfig(lora_rank=0), gpu) == torch.float32
    assert compute_dtype(VlmConfig(dtype="float32"), gpu) == torch.float32
    policy = tiny_vlm("text", dtype="bfloat16")
    kinds = {weights.dtype for weights in policy.network.parameters() if not weights.requires_grad}
    assert kinds == {torch.bfloat16}
    assert {weights.dtype for weights in policy.network.parameters() if weights.requires_grad} == {torch.float32}


def test_a_model_brings_neither_dropout_nor_sampling_settings(folder: Path) -> None:
    edit(folder, attention_dropout=0.5)
    (folder / "generation_config.json").write_text(
        json.dumps(
            {"eos_token_id": [1, 2], "repetition_penalty": 1.5, "temperature": 0.1, "do_sample": True, "top_k": 3}
        )
    )
    policy = tiny_vlm("text", path=str(folder), gradient_checkpointing=True)
    assert policy.vocabulary.ends == (1, 2)
    assert policy.network.base.generation_config.repetition_penalty in (None, 1.0)
    assert {
        module.attention_dropout for module in policy.network.modules() if hasattr(module, "attention_dropout")
    } == {0.0}


@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("opt", {"dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5, "ffn_dim": 96, "word_embed_proj_dim": 64}),
        ("falcon", {"hidden_dropout": 0.5, "attention_dropout": 0.5, "new_decoder_architecture": False}),
    ],
    ids=["asked of each layer", "asked of the configuration"],
)
def test_scores_under_gradient_are_those_without_it_whatever_a_family_calls_its_dropout(
    folder: Path, family: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        scoring, "activation_budget_bytes", lambda device: 0.0
    )  # layers are recomputed, in training mode
    words = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = AutoConfig.for_model(
        family, vocab_size=words, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, eos_token_id=1,
        pad_token_id=0, bos_token_id=0, max_position_embeddings=2048, **body,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    policy = tiny_vlm(path=str(folder), lora_targets=("q_proj", "query_key_value"), gradient_checkpointing=True)
    asked, choices = [policy.encode(seen())] * 3, [(5, 6, 7, 1)] * 3
    with torch.no_grad():
        quiet = policy.score(asked, choices)
    learning = policy.score(asked, choices)
    assert policy.network.training
    torch.testing.assert_close(learning.logp_N.detach(), quiet.logp_N)
    torch.testing.assert_close(learning.entropy_N.detach(), quiet.entropy_N)
