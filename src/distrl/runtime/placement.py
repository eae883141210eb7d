"""Which processor a role computes on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from distrl.config.schema import Config
from distrl.errors import ConfigError

if TYPE_CHECKING:
    import torch

BFLOAT16 = "import torch; a = torch.ones(128, 128, dtype=torch.bfloat16); assert float(torch.nn.functional.linear(a, a)[0, 0]) == 128"
BFLOAT16_TIMEOUT_S = 120.0
BFLOAT16_FIX = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment"


def torch_device(name: str, *, key: str) -> torch.device:
    """The device called `name`, a GPU with its number; `ConfigError` that names the setting `key` where this machine does not have it."""
    import torch

    if name == "auto":
        name = "cuda" if _num_gpus() else "cpu"
    elif not _is_here(name):
        raise _missing({key: name}, f"--{key} cpu, or --{key} auto")
    device = torch.device(name)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def check_devices(config: Config) -> None:
    """Raise now, before anything is written, where a role would find no processor to compute on, and no browser or phone to drive."""
    if config.devices.kind == "android":
        from distrl.devices.android.device import check_connected

        check_connected(config.devices.android)
    if config.devices.kind == "web":
        from distrl.devices.web.chromium import find_chromium

        find_chromium(config.devices.web.chromium)
        if config.tasks.suite == "webapps" or config.devices.web.apps_folder:
            from distrl.devices.web.apps.packages import check_packages

            check_packages(config.devices.web.apps_folder)
    _check_learner_gpus(config)
    # torch is loaded only where there is something to ask
    missing = {key: name for key, name in _places(config).items() if name.startswith("cuda") and not _is_here(name)}
    if missing:
        fix = " ".join(f"--{key} cpu" for key in missing)
        small = ", or configs/pixel-small.toml, which shows the pixel policy at work on a CPU and learns nothing"
        raise _missing(missing, fix + small * (config.policy.kind == "pixel"))
    if config.policy.kind == "vlm" and config.policy.vlm.dtype == "bfloat16" and not _only_gpus(config):
        _check_bfloat16()


def computes_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices: some virtual machines advertise AMX and end the process (SIGILL) that uses it."""
    done = subprocess.run(
        [sys.executable, "-c", BFLOAT16], capture_output=True, timeout=BFLOAT16_TIMEOUT_S, check=False
    )
    return done.returncode == 0


def _check_bfloat16() -> None:
    if not computes_bfloat16():
        raise ConfigError(
            "policy.vlm.dtype = bfloat16, and a process that multiplies bfloat16 matrices on this CPU dies",
            expected="a CPU that can do what it advertises",
            fix=f"--policy.vlm.dtype float32, or {BFLOAT16_FIX}",
        )


def _only_gpus(config: Config) -> bool:
    return all(name.startswith("cuda") or (name == "auto" and _num_gpus()) for name in _places(config).values())


def _check_learner_gpus(config: Config) -> None:
    num, device = config.learner.gpus, config.learner.device
    if num == 1 or device == "cpu" or num <= (found := _num_gpus()):
        return
    raise ConfigError(
        f"learner.gpus = {num}, and {_build()} sees {found or 'no'} GPU{'s' * (found != 1)} here",
        expected="that many GPUs in the machine on which the learner runs",
        fix=f"--learner.gpus {max(1, found)}",
    )


def placement_notices(config: Config) -> list[str]:
    """What the owner of a run should know of where it computes: that "auto" found no GPU for a policy that wants one."""
    keys = [key for key, name in _places(config).items() if name == "auto"]
    if config.policy.kind == "pointer" or not keys or _num_gpus():
        return []
    wide = config.policy.kind == "vlm" and config.policy.vlm.dtype != "bfloat16"
    return [
        f"{' and '.join(keys)} = auto, and {_build()} sees no GPU here: the {config.policy.kind} policy computes on "
        f"the CPU{' in float32' if wide else ''}, which is slow; `distrl doctor` says what torch sees"
    ]


def uses_gpu(config: Config) -> bool:
    """Whether some role may compute on a GPU."""
    return config.policy.kind != "pointer" and set(_places(config).values()) != {"cpu"}


def _places(config: Config) -> dict[str, str]:
    return {"policy.device": config.policy.device, "learner.device": config.learner.device}


def _is_here(name: str) -> bool:
    import torch

    device = torch.device(name)
    return device.type != "cuda" or (device.index or 0) < _num_gpus()


def _num_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _build() -> str:
    import torch

    return f"torch {torch.__version__}"


def _missing(wanted: dict[str, str], fix: str) -> ConfigError:
    num_gpus = _num_gpus()
    settings = " and ".join(f"{key} = {name}" for key, name in wanted.items())
    return ConfigError(
        f"{settings}, and {_build()} sees {num_gpus or 'no'} GPU{'s' * (num_gpus != 1)} here",
        expected="a machine with an NVIDIA GPU, its driver, and a torch built for CUDA",
        fix=fix,
    )
