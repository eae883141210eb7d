"""A model from a local folder: checked first, then loaded from safetensors, never from the network and never from a pickle.

Code that lies in the folder runs only where the configuration says so. Whatever is wrong with a folder is a `ConfigError`
with the fix; transformers' own errors are turned into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.installing import install
from distrl.policies.gpu_memory import free_bytes
from distrl.policies.vlm.folder import check_folder


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A language model and what belongs to it, as transformers has them."""

    network: nn.Module
    config: Any
    tokenizer: Any
    takes_images: bool
    """Whether it takes images."""


def load_model(config: VlmConfig, device: torch.device) -> Model:
    """The model of `config.path`, in evaluation mode on `device`, without dropout."""
    _refuse_without_packages()
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    from distrl.policies.vlm.screen_model import register

    register()
    disable_progress_bar()  # type: ignore[no-untyped-call]
    set_verbosity_error()  # type: ignore[no-untyped-call]
    folder = check_folder(config.path)
    _refuse_too_large(folder, config, device)
    options = _options(config)
    with _config_errors(folder):
        described = AutoConfig.from_pretrained(folder, **options)
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        factory, takes_images = _factory(described, folder)
        network, found = factory.from_pretrained(
            folder, dtype=weights_dtype(config, device), use_safetensors=True, output_loading_info=True, **options
        )
        network = _without_dropout(network).to(device)
    _refuse_gaps(folder, sorted(found["missing_keys"]))
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            f"the tokenizer in {folder} has no end-of-text token",
            expected="an eos_token, by which an answer ends",
            fix=f"name it in {folder / 'tokenizer_config.json'}",
        )
    return Model(network=network, config=described, tokenizer=tokenizer, takes_images=takes_images)


def _refuse_too_large(folder: Path, config: VlmConfig, device: torch.device) -> None:
    """Raise where not even the weights fit into what there is of the GPU, and say which of the known models would."""
    if device.type != "cuda":
        return
    room, weights = free_bytes(device), weights_bytes(folder, weights_dtype(config, device).itemsize)
    if weights <= room:
        return
    from distrl.policies.vlm.memory import GB, KNOWN, least_bytes

    fitting = [shape.name for shape in KNOWN if least_bytes(shape, config) <= room]
    raise ConfigError(
        f"the weights in {folder} take {weights / GB:.1f} GB, and this process may take {room / GB:.1f} GB of {device}",
        expected=f"a model that fits, with some room to work in: {', '.join(fitting) or 'none of those in docs/vlm.md'}",
        fix="take a smaller model, a larger GPU, or --rollout.decide actors, so that workers and evaluator share one copy",
    )


def weights_bytes(folder: Path, item: int) -> int:
    """What the weights in a folder take where each has so many bytes."""
    count = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as held:
            count += sum(prod(held.get_slice(name).get_shape()) for name in held.keys())  # noqa: SIM118
    return item * count


def _refuse_without_packages() -> None:
    missing = [name for name in ("transformers", "peft") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"policy.kind = vlm needs {' and '.join(missing)}",
            expected="distrl with its extra for language models",
            fix=install("train,vlm"),
        )


def load_processor(config: VlmConfig, kind: Literal["image", "whole"]) -> Any:
    """What prepares images for the model of `config.path`: its image processor, or the one for text and images."""
    from transformers import AutoImageProcessor, AutoProcessor

    factory: Any = AutoImageProcessor if kind == "image" else AutoProcessor
    with _config_errors(Path(config.path)):
        return factory.from_pretrained(config.path, backend="pil", **_options(config))


def _options(config: VlmConfig) -> dict[str, Any]:
    return {"trust_remote_code": config.trust_remote_code, "local_files_only": True}


def weights_dtype(config: VlmConfig, device: torch.device) -> torch.dtype:
    """What the weights are kept in: all-weights training keeps float32, into which small steps still fit."""
    return torch.float32 if config.lora_rank == 0 else compute_dtype(config, device)


def compute_dtype(config: VlmConfig, device: torch.device) -> torch.dtype:
    """What the model computes with."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if config.dtype == "bfloat16" else torch.float32


def precision(config: VlmConfig, device: torch.device) -> AbstractContextManager[object]:
    """Computes on `device` with `compute_dtype`, also where the weights, all of them trained, are kept in longer numbers."""
    computes = compute_dtype(config, device)
    if weights_dtype(config, device) == computes:
        return on_gpu(device)
    return _autocast(device, computes)


@contextmanager
def _autocast(device: torch.device, computes: torch.dtype) -> Iterator[None]:
    with on_gpu(device), torch.autocast(device.type, computes):
        yield


def on_gpu(device: torch.device) -> torch.cuda.device:
    """Graphs, streams and Triton's kernels otherwise belong to the first GPU, in every thread anew; nothing on a CPU."""
    return torch.cuda.device(device if device.type == "cuda" else -1)


def _factory(described: Any, folder: Path) -> tuple[Any, bool]:
    """What loads a model of this kind, and whether it takes images."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    own_code = getattr(described, "auto_map", {})
    for factory, takes_images in ((AutoModelForImageTextToText, True), (AutoModelForCausalLM, False)):
        if type(described) in factory._model_mapping or factory.__name__ in own_code:
            return factory, takes_images
    raise ConfigError(
        f"{folder} holds a {described.model_type} model, which cannot answer prompts",
        expected="an image-text-to-text model or a causal language model",
        fix="pick another model",
    )


def _refuse_gaps(folder: Path, missing: list[str]) -> None:
    if missing:
        raise ConfigError(
            f"the weights in {folder} lack {len(missing)} tensors, such as {missing[0]}",
            expected="every tensor that config.json asks for",
            fix="download the folder again, or give it the config.json that belongs to these weights",
        )


def _without_dropout(network: Any) -> nn.Module:
    """Evaluation mode, no dropout, and none of the sampling settings that came with the model.

    The log-probability of an answer must be the same whenever it is computed.
    """
    from transformers import GenerationConfig

    ends = network.generation_config.eos_token_id
    network.generation_config = GenerationConfig(eos_token_id=ends)  # type: ignore[no-untyped-call]
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        _zero_dropout(module)
        if hasattr(module, "config"):
            _zero_dropout(module.config)
    settled: nn.Module = network.eval()
    return settled


def _zero_dropout(owner: object) -> None:
    """Set to 0 whatever share of its numbers or layers a module or configuration drops, by whichever name."""
    for name, value in list(vars(owner).items()):
        if "drop" in name and isinstance(value, float):
            setattr(owner, name, 0.0)


@contextmanager
def _config_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        raise ConfigError(
            f"the model in {folder} cannot be loaded: {str(error).strip().splitlines()[0][:300]}",
            expected="a Hugging Face folder that the installed transformers can read",
            fix=_fix(error),
        ) from error


def _fix(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "take a smaller model, or run fewer processes on this GPU"
    if "trust_remote_code" in str(error):
        return "read the Python files in it, then set policy.vlm.trust_remote_code = true"
    return "download the folder again, or update transformers"
