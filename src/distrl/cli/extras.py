"""Which extra of the package a verb, or a function of the Python API, needs: said before anything else is tried."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from distrl.errors import UsageError
from distrl.installing import install

if TYPE_CHECKING:
    from distrl.config.schema import Config

EXTRA_OF = {
    "torch": "train",
    "safetensors": "train",
    "transformers": "vlm",
    "peft": "vlm",
    "accelerate": "vlm",
    "matplotlib": "bench",
    "ray": "ray",
    "miniwob": "miniwob",
    "starlette": "view",
    "uvicorn": "view",
    "pyarrow": "datasets",
    "av": "video",
}
"""The extra of distrl that brings a package."""


def need_training_packages() -> None:
    """`UsageError` where torch or safetensors is not installed; neither is loaded."""
    _need("torch", "safetensors")


def need_model_packages(config: Config) -> None:
    """`UsageError` where this policy is a language model and what it needs is not installed."""
    if config.policy.kind == "vlm":
        _need("transformers", "peft", "accelerate")
    if config.policy.kind == "autoui":
        _need("transformers")


def need_cluster_packages(config: Config) -> None:
    """`UsageError` where this run is for a cluster and Ray is not installed."""
    if config.runtime.kind == "ray":
        _need("ray")


def need_view_packages() -> None:
    """`UsageError` where what the dashboard is served by is not installed."""
    _need("starlette", "uvicorn")


def need_dataset_packages() -> None:
    """`UsageError` where what writes Parquet is not installed."""
    _need("pyarrow")


def missing_package(name: str) -> UsageError:
    """The error for a package that is not installed, with the extra that brings it."""
    extra = EXTRA_OF[name]
    return UsageError(f"{name} is not installed", expected=f"distrl with its extra [{extra}]", fix=install(extra))


def _need(*packages: str) -> None:
    for name in packages:
        try:
            found = find_spec(name)
        except ImportError:
            found = None
        if found is None:
            raise missing_package(name)
