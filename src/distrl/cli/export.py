"""`distrl export`: the policy of a run as a folder for others, with a card that says what it is and how it was measured."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from distrl.errors import UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.runtime.run_folder import RunFolder

Form = Literal["weights", "adapter", "merged"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder, or one of its checkpoints")
    parser.add_argument("out", type=Path, help="a new folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--merged", action="store_true", help="a whole model, with the adapters added to its weights")
    form.add_argument("--adapter", action="store_true", help="the adapters alone (the default where there are some)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.evaluate import load_weights, locate
    from distrl.cli.main import print_json
    from distrl.runtime.assembly import make_policy, prepare_torch

    _refuse_taken(args.out)
    folder, checkpoint = locate(args.run)
    config = _on_the_cpu(folder.config())
    form = _form(config, merged=args.merged, adapter=args.adapter)
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


def _on_the_cpu(config: Config) -> Config:
    from msgspec.structs import replace

    return replace(config, policy=replace(config.policy, device="cpu"))


def _refuse_taken(out: Path) -> None:
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
    with storage_errors(out.parent):
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
    from distrl.cli.model_card import Exported, model_card
    from distrl.runtime.summary import read_summary

    if form == "weights":
        (draft / "model.safetensors").write_bytes(policy.dump())
    else:
        from distrl.policies.vlm.export import export_adapter, export_merged

        (export_adapter if form == "adapter" else export_merged)(policy, draft)
    shutil.copyfile(folder.config_file, draft / "config.toml")
    hashes = {file.name: _hash(file) for file in sorted(draft.glob("*.safetensors"))}
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


def _hash(file: Path) -> str:
    digest = sha256()
    with file.open("rb") as data:
        while part := data.read(2**20):
            digest.update(part)
    return digest.hexdigest()
