"""What lies at a path that a person names (a run folder, one of its checkpoints, or an export), with the settings to play it.

Nothing here loads torch, so that a wrong path, a wrong suite and code that is not trusted are refused at once. Weights are read
by `runtime.playing`.
"""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.config.kinds import FewOrNone
from distrl.config.schema import Config
from distrl.errors import StoreError, TaskError, UsageError
from distrl.runtime.exported import ExportManifest, export_config, is_export, read_manifest
from distrl.runtime.run_folder import RunFolder, open_run
from distrl.runtime.trust import refuse_code
from distrl.tasks.base import SPLITS, find_suite, find_task, held_out, unknown_split
from distrl.transport.files import MANIFEST
from distrl.transport.weight_files import WeightsFolder
from distrl.types import PolicyVersion, Split, Task


class TaskChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to play; what is None is as the run had it."""

    suite: str | None = None
    split: Split = "test"
    max_oracle_steps: int | None = None
    """Leave out longer tasks; 0: none."""


AS_TRAINED = TaskChoice()
"""Held-out tasks of the suite that the run was trained on."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a policy comes from, and the settings to play it with."""

    path: Path
    config: Config
    split: Split = "test"
    run: RunFolder | None = None
    checkpoint: Path | None = None
    export: ExportManifest | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return self.run.name if self.run else self.export.run if self.export else self.path.name


def find_source(
    path: Path, choice: TaskChoice = AS_TRAINED, *, model: Path | None = None, trust_code: bool = False
) -> Source:
    """What lies at `path`, with settings for this machine and these tasks; `StoreError` where it is neither run nor export."""
    _check_choice(choice)
    found = _find(path, model)
    if not trust_code:
        refuse_code(found.config, str(path / "config.toml"), unless=() if choice.suite is None else ("tasks.suite",))
    if found.run is not None and found.checkpoint is None:
        newest_version(found.run)  # before libraries are loaded that take seconds
    return replace(found, config=with_tasks(on_this_machine(found.config), choice), split=choice.split)


def _find(path: Path, model: Path | None) -> Source:
    if is_export(path):
        manifest = read_manifest(path)
        return Source(path=path, config=export_config(path, manifest, model=model), export=manifest)
    if model is not None:
        raise UsageError(
            f"{path} is a run, which names its own model",
            expected="--model with an export of adapters",
            fix="leave it out",
        )
    run, checkpoint = locate(path)
    return Source(path=path, config=run.config(), run=run, checkpoint=checkpoint)


def on_this_machine(config: Config) -> Config:
    """A run that had a GPU is evaluated on one where there is one, and else on the CPU."""
    device = "cpu" if config.policy.device == "cpu" else "auto"
    return replace(config, policy=replace(config.policy, device=device))


def with_tasks(config: Config, choice: TaskChoice) -> Config:
    """The run's settings with the tasks that are asked for."""
    name = config.tasks.suite if choice.suite is None else choice.suite
    # Limit and options of another suite would mean something else.
    own, options = (config.tasks.max_oracle_steps, config.tasks.options) if name == config.tasks.suite else (0, {})
    limit = own if choice.max_oracle_steps is None else choice.max_oracle_steps
    chosen = replace(config, tasks=replace(config.tasks, suite=name, max_oracle_steps=limit, options=options))
    find_suite(chosen.tasks)
    return chosen


def choose_task(config: Config, task: str | None, *, split: Split = "test", number: int = 0) -> Task:
    """The task of this id, or number `number` of the split, counted round and within the run's limits."""
    suite = find_suite(config.tasks)
    check_split(split)
    if task is not None:
        check_text("task", task, example=f"{config.tasks.suite}/test/0")
        return find_task(suite, task if "/" in task else f"{config.tasks.suite}/{split}/{task}", config.tasks.suite)
    size = suite.size(split)
    if not size:
        raise TaskError(f"{suite.name} has no {split} tasks", fix="--split train")
    limit = config.tasks.max_oracle_steps
    for index in range(size):
        found = suite.task(split, (number + index) % size)
        if not limit or found.oracle_steps <= limit:
            return found
    return held_out(config.tasks, 1, split)[0]  # which says what is wrong


def locate(path: Path) -> tuple[RunFolder, Path | None]:
    """The run folder, and the checkpoint where one was named."""
    if (path / MANIFEST).exists():
        return open_run(path.resolve().parent.parent), path
    folder = path if path.name == "checkpoints" else path.parent
    if folder.name == "checkpoints" and (folder.parent / "config.toml").is_file():
        raise _no_checkpoint(path, folder)
    return open_run(path), None


def newest_version(run: RunFolder) -> PolicyVersion:
    """The newest version that a run has published; `StoreError` where there is none."""
    newest = WeightsFolder(run.weights).latest()
    if newest is None:
        known = _checkpoints(run.checkpoints)
        raise StoreError(
            f"{run.path} has no published weights" if known else f"{run.path} has published no weights yet",
            expected=f"{run.weights}/latest.json" if known else "a run that got past its warm start",
            fix=f"name a checkpoint instead: {known[-1]}" if known else f"distrl status {run.path}",
        )
    return newest


def _checkpoints(folder: Path) -> list[str]:
    return sorted(str(found.parent) for found in folder.glob(f"[0-9]*/{MANIFEST}"))


def _no_checkpoint(path: Path, folder: Path) -> StoreError:
    known = _checkpoints(folder)
    return StoreError(
        f"{path} is no checkpoint",
        expected=f"one of {', '.join(known)}" if known else "a checkpoint, and this run has saved none yet",
        fix=f"name {known[-1] + ', or ' if known else ''}{folder.parent} for the newest weights",
    )


# --- arguments --------------------------------------------------------------------------------------------------------


def check_whole(name: str, value: object, kind: Any, *, example: int) -> None:
    """`UsageError` where an argument is no whole number within the limits of `kind`, a type of the schema such as `Count`."""
    (limits,) = kind.__metadata__
    if isinstance(value, bool) or not isinstance(value, Integral) or not limits.ge <= int(value) <= limits.le:
        expected = f"a whole number from {limits.ge} to {limits.le}"
        raise UsageError(f"{name} = {value!r:.100} does not fit", expected=expected, fix=f"{name}={example}")


def _check_choice(choice: TaskChoice) -> None:
    check_split(choice.split)
    if choice.suite is not None:
        check_text("suite", choice.suite, example="sim-start")
    if choice.max_oracle_steps is not None:
        check_whole("max_oracle_steps", choice.max_oracle_steps, FewOrNone, example=0)


def check_split(split: object) -> None:
    if split not in SPLITS:
        raise unknown_split(str(split)[:100])


def check_text(name: str, value: object, *, example: str) -> None:
    if not isinstance(value, str):
        raise UsageError(f"{name} = {value!r:.100} does not fit", expected="text", fix=f'{name}="{example}"')
