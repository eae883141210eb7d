"""Which processor a role computes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrl.config.schema import Config
from distrl.errors import ConfigError

if TYPE_CHECKING:
    import torch


def torch_device(name: str, *, key: str) -> torch.device:
    """The device called `name`; `ConfigError` that names the setting `key` where this machine does not have it."""
    import torch

    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if num_gpus else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= num_gpus:
        build = f"torch {torch.__version__}"
        raise ConfigError(
            f"{key} = {name}, and {build} sees {num_gpus or 'no'} GPU{'s' * (num_gpus != 1)} here",
            expected="a machine with an NVIDIA GPU, its driver, and a torch built for CUDA",
            fix=f"--{key} cpu, or --{key} auto",
        )
    return device


def check_devices(config: Config) -> None:
    """Raise now, before anything is written, where a role would find no processor to compute on."""
    for key, name in (("policy.device", config.policy.device), ("learner.device", config.learner.device)):
        if name.startswith("cuda"):  # torch is loaded only where there is something to ask
            torch_device(name, key=key)


def uses_gpu(config: Config) -> bool:
    """Whether some role may compute on a GPU."""
    return config.policy.kind != "pointer" and {config.policy.device, config.learner.device} != {"cpu"}
