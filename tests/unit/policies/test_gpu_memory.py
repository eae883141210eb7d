"""How much of a GPU a process may use, and what is said where a model does not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch._utils import _get_device_index

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies import gpu_memory
from distrl.policies.gpu_memory import allowed_bytes, free_bytes, limit_memory
from distrl.policies.vlm import loading

GPU = torch.device("cuda", 0)
EITHER = pytest.mark.parametrize("device", [GPU, torch.device("cuda")], ids=str)
GB = 10**9


@pytest.fixture
def current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def numbered(device: torch.device) -> int:
    """As torch does it for memory fractions: it refuses a GPU without its number."""
    return _get_device_index(device)


@EITHER
@pytest.mark.usefixtures("current_gpu")
@pytest.mark.parametrize(
    ("free_gb", "fraction", "reserved_gb", "allocated_gb", "left_gb"),
    [
        (60, 1.0, 0, 0, 60),  # others have 20
        (60, 0.25, 0, 0, 20),
        (60, 0.25, 15, 10, 5 + 5),
        (3, 0.25, 15, 10, 3 + 5),  # the GPU itself is nearly full
        (60, 0.25, 20, 20, 0),
    ],
)
def test_what_is_left_is_what_is_free_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
    free_gb: int,
    fraction: float,
    reserved_gb: int,
    allocated_gb: int,
    left_gb: int,
) -> None:
    fractions = {0: fraction}
    properties = SimpleNamespace(total_memory=80 * GB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fractions[numbered(device)])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free_gb * GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved_gb * GB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated_gb * GB)
    assert allowed_bytes(device) == fraction * 80 * GB
    assert free_bytes(device) == left_gb * GB


@EITHER
@pytest.mark.usefixtures("current_gpu")
def test_a_limit_above_what_the_gpu_has_is_refused(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    set_to: list[tuple[float, int]] = []

    def limit(share: float, device: torch.device) -> None:
        set_to.append((share, numbered(device)))

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * GB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limit)
    limit_memory(device, 0.0, key="policy.gpu_memory_gb")
    limit_memory(torch.device("cpu"), 5.0, key="policy.gpu_memory_gb")
    assert set_to == []
    limit_memory(device, 20.0, key="policy.gpu_memory_gb")
    assert set_to == [(0.25, 0)]
    with pytest.raises(ConfigError, match=r"learner.gpu_memory_gb = 81, and a GPU has 80.0 GB"):
        limit_memory(device, 81.0, key="learner.gpu_memory_gb")


@pytest.mark.parametrize(
    ("room_gb", "fitting"), [(30.0, "Qwen2.5-VL-7B"), (10.0, "Qwen2.5-VL-3B"), (0.1, "none of those")]
)
def test_a_gpu_too_small_for_the_weights_says_which_models_would_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, room_gb: float, fitting: str
) -> None:
    for name in ("a", "b"):
        save_file({"x": torch.zeros(3, 5), "y": torch.zeros(7)}, tmp_path / f"{name}.safetensors")
    assert loading.weights_bytes(tmp_path, 2) == 2 * 2 * 22
    monkeypatch.setattr(loading, "free_bytes", lambda device: room_gb * gpu_memory.GB)
    loading._refuse_too_large(tmp_path, VlmConfig(), GPU)
    monkeypatch.setattr(loading, "weights_bytes", lambda folder, item: int(40e9))
    with pytest.raises(ConfigError, match=rf"take 40.0 GB, and this process may take {room_gb:.1f} GB") as caught:
        loading._refuse_too_large(tmp_path, VlmConfig(), GPU)
    assert fitting in caught.value.expected
    assert "--rollout.decide actors" in caught.value.fix
    loading._refuse_too_large(tmp_path, VlmConfig(), torch.device("cpu"))
