"""The card of an exported policy: what it is, how it was trained, what it was measured to do, and how to use it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import msgspec

from distrl import __version__
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.evaluation.report import Rate

if TYPE_CHECKING:
    from distrl.runtime.summary import Summary


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What a card is written from."""

    run: str
    config: Config
    form: Literal["weights", "adapter", "merged"]
    version: int
    summary: Summary | None
    """None: the run has not ended."""
    sha256: dict[str, str]
    """Of each file with weights."""
    plain_template: bool = False
    """The prompts were written without a chat template."""


def model_card(made: Exported) -> str:
    """The card as Markdown with the front matter that model hubs read."""
    sections = [_front(made), _intro(made), _results(made), _training(made), _use(made), _files(made)]
    return "\n".join(sections)


def _front(made: Exported) -> str:
    base = [f"base_model: {_base(made)}"] if made.form != "weights" else []
    library = {"weights": "distrl", "adapter": "peft", "merged": "transformers"}[made.form]
    tags = ["distrl", "phone-agent", "reinforcement-learning", *(["lora"] if made.form == "adapter" else [])]
    return "\n".join(["---", f"library_name: {library}", *base, "tags:", *(f"- {tag}" for tag in tags), "---", ""])


def _intro(made: Exported) -> str:
    policy = made.config.policy
    what = {
        "weights": f"A `{policy.kind}` policy",
        "adapter": f"LoRA adapters for {_base(made)}",
        "merged": f"{_base(made)}, trained further",
    }[made.form]
    return f"# {made.run}\n\n{what}, to operate phones. Trained with distrl {__version__}; version {made.version}.\n"


def _results(made: Exported) -> str:
    summary = made.summary
    if summary is None:
        return "## Results\n\nNot measured: the run had not ended. `distrl evaluate` measures a version.\n"
    rows = [("before training", summary.success_before_rate), ("after training", summary.success_after_rate)]
    lines = [f"| {when} | {_rate(rate)} |" for when, rate in rows]
    other = made.version != summary.policy_version
    note = f"\nThese figures are of version {summary.policy_version}, this folder holds version {made.version}.\n"
    head = f"## Results\n\nSuccess on held-out tasks of `{summary.suite}`, with a 95 % interval:\n\n| | success |\n|---|---|"
    return "\n".join([head, *lines, ""]) + (note if other else "")


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return "not measured"
    return f"{rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}], {rate.n} tasks"


def _training(made: Exported) -> str:
    config, summary = made.config, made.summary
    facts = {
        "algorithm": config.algorithm.name,
        "tasks": config.tasks.suite,
        "devices": config.devices.kind,
        "episodes": summary.episodes if summary else "unknown",
        "updates": summary.updates if summary else "unknown",
        "seed": config.run.seed,
        "configuration": f"`config.toml`, hash `{config_hash(config)}`",
    }
    if config.policy.kind == "vlm":
        facts |= {"dialect": config.policy.vlm.dialect, "adapter rank": config.policy.vlm.lora_rank or "all weights"}
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    said = "\nThe model had no chat template: prompts are plain text.\n" if made.plain_template else ""
    return "\n".join(["## Training", "", "| | |", "|---|---|", *rows, ""]) + said


def _use(made: Exported) -> str:
    if made.form == "weights":
        code = _POINTER.format(kind=made.config.policy.kind)
    elif made.form == "adapter":
        code = _ADAPTER.format(base=_base(made), rank=made.config.policy.vlm.lora_rank)
    else:
        code = "Any server for this family of models takes this folder, for example `vllm serve FOLDER`.\n"
    return f"## Use\n\n{code}"


_POINTER = """\
`model.safetensors` holds the weights that `distrl` reads for `policy.kind = {kind}` with the settings in `config.toml`.
"""
_ADAPTER = """\
```python
from peft import PeftModel
from transformers import AutoModelForImageTextToText  # or AutoModelForCausalLM

base = "models/{base}"  # where you have it, or its id on a hub
model = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base), "FOLDER")
```

Or serve them: `vllm serve models/{base} --enable-lora --lora-modules phone=FOLDER`, with a `--max-lora-rank` of {rank} or
more. `distrl export RUN FOLDER --merged` writes a whole model instead.

`{base}` is the name of the folder that the model was in. Before you publish these files, write the model's id on its hub
into the head of this card and into `adapter_config.json`.
"""


def _files(made: Exported) -> str:
    rows = [f"| `{name}` | `{digest}` |" for name, digest in made.sha256.items()]
    return "\n".join(["## Files", "", "| file | SHA-256 |", "|---|---|", *rows, ""])


def _base(made: Exported) -> str:
    return PurePath(made.config.policy.vlm.path).name
