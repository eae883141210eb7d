"""`distrl export`: the policy of a run as a folder for others, with a card that says what it is and how it was measured."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from distrl import __version__
from distrl.cli.extras import need_model_packages, need_training_packages
from distrl.cli.trust import add_trust_flag, trusted_config
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError, UsageError
from distrl.evaluation.report import Rate
from distrl.installing import wheel
from distrl.plugins import BUILT_IN

if TYPE_CHECKING:
    from distrl.runtime.run_folder import RunFolder
    from distrl.runtime.summary import Summary

Form = Literal["weights", "adapter", "merged"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder, or one of its checkpoints")
    parser.add_argument("out", type=Path, help="a new folder; with --film, a file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--merged", action="store_true", help="a whole model, with the adapters added to its weights")
    form.add_argument(
        "--episodes", action="store_true", help="the episodes as a Parquet dataset in LeRobot's layout, and no policy"
    )
    form.add_argument(
        "--film",
        metavar="EPISODE",
        help="one stored episode, by its id, as a film (.gif or .mp4) or as a strip of screens (.png)",
    )
    form.add_argument("--adapter", action="store_true", help="the adapters alone (the default where there are some)")
    add_trust_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    if args.episodes:
        return _export_episodes(args)
    if args.film is not None:
        return _export_film(args)
    need_training_packages()
    from distrl.cli.main import print_json
    from distrl.runtime.source import locate, newest_version

    _check_out(args.out)
    folder, checkpoint = locate(args.run)
    config = _on_the_cpu(trusted_config(folder, trusted=args.trust_code))
    need_model_packages(config)
    form = _form(config, merged=args.merged, adapter=args.adapter)
    if checkpoint is None:
        newest_version(folder)
    from distrl.runtime.factory import make_policy, prepare_torch
    from distrl.runtime.playing import load_weights

    prepare_torch()
    policy = make_policy(config)
    version = load_weights(policy, folder, checkpoint)
    _write_whole(args.out, lambda draft: _fill(draft, policy, folder, form=form, version=version))
    files = sorted(file.name for file in args.out.iterdir())
    if args.json:
        print_json({"folder": str(args.out), "form": form, "policy_version": version, "files": files})
    else:
        print(f"version {version} of {folder.name} is in {args.out}: {', '.join(files)}")
    return 0


def _export_episodes(args: argparse.Namespace) -> int:
    """All played episodes and demonstrations, with the screenshots that were kept."""
    from distrl import open_run
    from distrl.cli.extras import need_dataset_packages
    from distrl.cli.main import print_json
    from distrl.experience.dataset import write_dataset

    need_dataset_packages()
    _check_out(args.out)
    found, sizes = open_run(args.run), []
    if not found.index(limit=1):
        raise UsageError(f"{found.path} has no episode", expected="a run with stored episodes", fix="distrl runs list")
    episodes = (one for one in found.episodes(source=None) if one.source != "hindsight")
    _write_whole(args.out, lambda draft: sizes.append(write_dataset(draft, episodes, found.frame, name=found.name)))
    if args.json:
        print_json({"folder": str(args.out), "dataset": sizes[0]})
    else:
        print(f"{sizes[0].episodes} episodes, {sizes[0].steps} steps of {found.name} are in {args.out}")
    return 0


def _export_film(args: argparse.Namespace) -> int:
    """One stored episode, with the screenshots that were kept."""
    from distrl import open_run
    from distrl.cli.main import print_json
    from distrl.dashboard.catalogue import without_verdict_if_cut
    from distrl.evaluation.film import make_gif, make_strip
    from distrl.evaluation.stored_playback import stored_playback
    from distrl.evaluation.video import make_mp4, need_video_package
    from distrl.experience.durable import storage_errors

    makers = {".gif": make_gif, ".mp4": make_mp4, ".png": make_strip}
    make = makers.get(args.out.suffix.lower())
    if make is None:
        raise UsageError(f"{args.out} is no film", expected="a file that ends in .gif, .mp4 or .png", fix=f"distrl export RUN {args.out.with_suffix('.gif')} --film {args.film}")  # fmt: skip
    if make is make_mp4:
        need_video_package()
    run = open_run(args.run)
    playback = stored_playback(without_verdict_if_cut(run.episode(args.film), run.config), run.frame)
    film = make(playback)
    with storage_errors(args.out.parent, flag="the second argument"):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_bytes(film)
    if args.json:
        print_json({"file": str(args.out), "episode": args.film, "steps": len(playback.trajectory.steps), "pictures": bool(playback.screens)})  # fmt: skip
    else:
        drawn = "" if playback.screens else ", drawn from its elements: no screenshots were kept"
        print(f"{args.out}: {len(playback.trajectory.steps)} steps of {args.film}{drawn}")
    return 0


def _on_the_cpu(config: Config) -> Config:
    from msgspec.structs import replace

    return replace(config, policy=replace(config.policy, device="cpu"))


def _check_out(out: Path) -> None:
    """Raise where there is something already, or where nothing can be made."""
    from distrl.experience.durable import refusal_at

    if seen := refusal_at(out):
        raise StoreError(
            f"cannot write {out}: {seen}", expected="a new folder", fix="choose another with the second argument"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty", expected="a new folder", fix=f"distrl export RUN {out}-2")


def _form(config: Config, *, merged: bool, adapter: bool) -> Form:
    if config.policy.kind == "vlm":
        return "merged" if merged or (not adapter and config.policy.vlm.lora_rank == 0) else "adapter"
    if merged or adapter:
        flag = "--merged" if merged else "--adapter"
        raise UsageError(
            f"{flag} is for language models, and this run trained a {config.policy.kind}",
            expected="its weights as they are",
            fix=f"leave {flag} out",
        )
    return "weights"


def _write_whole(out: Path, fill: Callable[[Path], None]) -> None:
    """Fill a draft and give it its name at the end, so that a folder with this name is complete."""
    from distrl.experience.durable import storage_errors

    draft = out.with_name(f".{out.name}.partial")
    with storage_errors(out.parent, flag="the second argument"):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            fill(draft)
            if out.exists():
                out.rmdir()
            draft.rename(out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _fill(draft: Path, policy: Any, folder: RunFolder, *, form: Form, version: int) -> None:
    from distrl.runtime.exported import MANIFEST, WEIGHTS, ExportManifest, hash_file
    from distrl.runtime.summary import read_summary

    if form == "weights":
        (draft / WEIGHTS).write_bytes(policy.dump())
    else:
        from distrl.policies.vlm.export import export_adapter, export_merged

        (export_adapter if form == "adapter" else export_merged)(policy, draft)
    shutil.copyfile(folder.config_file, draft / "config.toml")
    hashes = {str(file.relative_to(draft)): hash_file(file) for file in sorted(draft.rglob("*.safetensors"))}
    manifest = ExportManifest(run=folder.name, form=form, policy_version=version, distrl=__version__, sha256=hashes)
    (draft / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    made = Exported(
        run=folder.name,
        config=folder.config(),
        form=form,
        version=version,
        summary=read_summary(folder),
        sha256=hashes,
        plain_template=getattr(getattr(policy, "chat", None), "plain", False),
    )
    (draft / "README.md").write_text(model_card(made), encoding="utf-8")


# --- the card ---------------------------------------------------------------------------------------------------------


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
    demonstrations = made.config.warm_start.demonstrations
    first = f"before practice, after {demonstrations} demonstrations" if demonstrations else "before training"
    rows = [(first, summary.success_before_rate), ("after training", summary.success_after_rate)]
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
        "algorithm": config.algorithm.kind,
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
    kind, note = made.config.policy.kind, ""
    if made.form == "adapter":
        note = _ADAPTER.format(base=_base(made), rank=made.config.policy.vlm.lora_rank)
    elif made.form == "merged":
        note = "Any server for this family of models takes this folder, for example `vllm serve FOLDER`.\n"
    elif kind not in BUILT_IN["policies"]:
        note = "This policy is no part of `distrl`: the package that has it must be installed too.\n"
    from distrl.runtime.trust import code_of

    model = f" --model models/{_base(made)}" if made.form == "adapter" else ""
    argument = f', model="models/{_base(made)}"' if made.form == "adapter" else ""
    if code_of(made.config):
        model, argument = f"{model} --trust-code", f"{argument}, trust_code=True"
    code = _USE.format(suite=made.config.tasks.suite, model=model, argument=argument)
    return "\n".join(
        ["## Use", "", f"{_needs(made.config)}, where FOLDER is this folder:", code, *([note] if note else [])]
    )


def _needs(config: Config) -> str:
    """What has to be installed to use the policy on such devices."""
    extras = {
        "train": True,
        "vlm": config.policy.kind in ("vlm", "autoui"),
        "android": config.devices.kind == "android",
        "miniwob": config.tasks.suite == "miniwob",
    }
    named = wheel(",".join(name for name, is_used in extras.items() if is_used))
    browser = " and Chromium" if config.devices.kind == "web" else ""
    return f"With `pip install '{named}'`{browser} (`make wheel` builds this file in a clone of distrl, which has all extras)"


_USE = """\

```
distrl watch FOLDER{model} --gif episode.gif
distrl evaluate FOLDER{model} --suite {suite} --episodes 300
```

```python
import distrl

policy = distrl.load_policy("FOLDER"{argument})
env = distrl.make_env(config="FOLDER/config.toml", render_mode="rgb_array")
_, info = env.reset(options={{"split": "test"}})
over = False
while not over:
    _, reward, terminated, truncated, info = env.step(policy.act(info, screenshot=env.render()))
    over = terminated or truncated
print(info["verdict"])
env.close()
```
"""
_ADAPTER = """\
Without distrl:

```
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
