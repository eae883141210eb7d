"""Checks of a model's folder. Loads no torch: the command line checks before it starts any process."""

from __future__ import annotations

from pathlib import Path

from distrl.config.rules import download, is_hub_id
from distrl.errors import ConfigError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


VLM_FIX = (
    "hf download ORGANISATION/MODEL --local-dir FOLDER, or for SmolLM2 what docs/vlm.md says under "
    '"A small language model"; then policy.vlm.path = FOLDER'
)


def check_folder(path: str) -> Path:
    """The folder of a language model, once its files look right."""
    return check_model_folder(path, "policy.vlm.path", fix=download(path) if is_hub_id(path) else VLM_FIX)


def check_model_folder(path: str, key: str, *, fix: str = "docs/autoui.md says where to get it") -> Path:
    """The folder of a model that the setting `key` names, once its files look right."""
    folder = Path(path)
    if not path or not (folder / "config.json").is_file():
        raise ConfigError(
            f"{key} = {path!r} is no model folder",
            expected="a folder with config.json, a tokenizer and *.safetensors",
            fix=fix,
        )
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(
            f"{folder} holds adapters, which are no model by themselves",
            expected="the folder of a whole model",
            fix="name the model that they belong to, or merge them into it: "
            "PeftModel.from_pretrained(MODEL, ADAPTERS).merge_and_unload().save_pretrained(NEW_FOLDER)",
        )
    if any(folder.glob("*.safetensors")):
        return folder
    pickles = sorted(file.name for pattern in PICKLES for file in folder.glob(pattern))
    if pickles:
        raise ConfigError(
            f"{folder / pickles[0]} is a pickle, which can run code when it is read",
            expected="*.safetensors",
            fix="download the safetensors version, or convert it where you trust its origin: "
            "AutoModel….from_pretrained(FOLDER, use_safetensors=False).save_pretrained(NEW_FOLDER)",
        )
    raise ConfigError(
        f"{folder} holds no weights", expected="*.safetensors beside config.json", fix="finish the download"
    )
