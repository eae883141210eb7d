"""LoRA adapters: which layers get them, and merging them into the weights and back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.vlm.adapters import ADAPTER, AdapterMerger, add_adapters, target_names


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.up_proj, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.up_proj(torch.relu(self.q_proj(x))))
        return out


class TwoTowers(nn.Module):
    """A language model beside a vision tower whose layers have the same names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.vision, self.language = Decoder(), Decoder()

    def get_decoder(self) -> nn.Module:
        return self.language

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.language(self.vision(x))
        return out


def adapted(targets: tuple[str, ...] = ("q_proj", "up_proj"), rank: int = 2) -> Any:
    network = add_adapters(TwoTowers(), VlmConfig(lora_rank=rank, lora_targets=targets))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:  # fresh ones are zero
                weights.copy_(torch.randn(weights.shape, generator=generator))
    return network


def test_only_layers_of_the_language_model_get_adapters() -> None:
    names = target_names(TwoTowers(), ("q_proj", "up_proj"))
    assert names == ["language.q_proj", "language.up_proj"]


def test_targets_that_name_no_layer_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="names no layer") as caught:
        target_names(TwoTowers(), ("k_proj", "norm"))
    assert caught.value.fix == "--policy.vlm.lora_targets q_proj,up_proj"


def test_fresh_adapters_change_nothing_and_are_all_that_is_trained() -> None:
    plain = TwoTowers()
    x = torch.randn(3, 6)
    expected = plain(x).detach()
    network = add_adapters(plain, VlmConfig(lora_rank=2, lora_targets=("q_proj",)))
    assert torch.equal(network(x), expected)
    trained = [name for name, weights in network.named_parameters() if weights.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


def test_rank_0_trains_everything_and_adds_nothing() -> None:
    network = add_adapters(TwoTowers().requires_grad_(False), VlmConfig(lora_rank=0))
    assert all(weights.requires_grad for weights in network.parameters())
    assert not any("lora" in name for name, _ in network.named_parameters())


def base_weights(network: nn.Module) -> list[Tensor]:
    return [weights.clone() for name, weights in network.named_parameters() if "base_layer" in name]


def test_merged_weights_answer_like_adapters_and_unmerging_restores_every_bit() -> None:
    network, x = adapted(), torch.randn(4, 6)
    before, apart = base_weights(network), network(x).detach()
    merger = AdapterMerger(network)
    merger.merge()
    assert torch.allclose(network(x), apart, atol=1e-5)
    assert any(not torch.equal(one, other) for one, other in zip(base_weights(network), before, strict=True))
    merger.unmerge()
    assert all(torch.equal(one, other) for one, other in zip(base_weights(network), before, strict=True))
    assert torch.equal(network(x), apart)


def test_merging_twice_is_merging_once_and_new_adapters_replace_the_old_ones() -> None:
    network, x = adapted(), torch.randn(4, 6)
    merger = AdapterMerger(network)
    merger.merge()
    merged = base_weights(network)
    merger.merge()
    assert all(torch.equal(one, other) for one, other in zip(base_weights(network), merged, strict=True))
    with torch.no_grad():
        for module in network.modules():
            if hasattr(module, "lora_B"):
                module.lora_B[ADAPTER].weight.mul_(-1.0)  # type: ignore[operator,union-attr,index]
    merger.merge()
    answers = network(x).detach()
    merger.unmerge()
    assert torch.allclose(answers, network(x), atol=1e-5)


def test_unmerging_what_was_never_merged_changes_nothing() -> None:
    network = adapted()
    before = base_weights(network)
    AdapterMerger(network).unmerge()
    assert all(torch.equal(one, other) for one, other in zip(base_weights(network), before, strict=True))
