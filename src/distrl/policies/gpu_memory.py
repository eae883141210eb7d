"""How much of a GPU a process may use: what is free, or what `policy.gpu_memory_gb` and `learner.gpu_memory_gb` allow.

A GPU that several processes share is divided by these settings; otherwise the first one keeps what it finds.
"""

from __future__ import annotations

import torch

from distrl.errors import ConfigError

GB = 1e9


def limit_memory(device: torch.device, gigabytes: float, *, key: str) -> None:
    """Let this process take no more than that of a GPU; 0: whatever is free."""
    if device.type != "cuda" or not gigabytes:
        return
    total = torch.cuda.get_device_properties(device).total_memory
    if gigabytes * GB > total:
        raise ConfigError(
            f"{key} = {gigabytes:g}, and {torch.cuda.get_device_name(device)} has {total / GB:.1f} GB",
            expected="no more than the GPU has",
            fix=f"--{key} 0, which takes what is free",
        )
    torch.cuda.set_per_process_memory_fraction(gigabytes * GB / total, _with_index(device))


def allowed_bytes(device: torch.device) -> float:
    """What this process may take of a GPU, all in all."""
    total = torch.cuda.get_device_properties(device).total_memory
    return float(torch.cuda.get_per_process_memory_fraction(_with_index(device)) * total)


def free_bytes(device: torch.device) -> float:
    """What this process can still take of a GPU, with what it has reserved and does not use."""
    reserved = torch.cuda.memory_reserved(device)
    unused = reserved - torch.cuda.memory_allocated(device)
    return min(float(torch.cuda.mem_get_info(device)[0]), max(0.0, allowed_bytes(device) - reserved)) + unused


def _with_index(device: torch.device) -> torch.device:
    """The GPU itself: torch's memory fractions, unlike the rest of it, take no "cuda" that leaves open which one."""
    return device if device.index is not None else torch.device(device.type, torch.cuda.current_device())
