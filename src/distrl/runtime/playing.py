"""A trained policy, wherever it lies, ready to play: a run folder, one of its checkpoints, or an export.

Evaluating, watching and loading from Python all begin here, so that they find the same weights, the same tasks and the same
devices, and refuse the same arguments. Code that the settings in a folder name (plug-ins, code beside a model) runs only where the
caller trusts it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.config.kinds import Count, FewOrNone, Seed
from distrl.config.rules import reads_screenshots
from distrl.config.schema import Config
from distrl.errors import TaskError, UsageError
from distrl.evaluation.evaluate import TEMPERATURE, evaluate, held_out
from distrl.evaluation.playback import Player
from distrl.evaluation.report import Report, make_report
from distrl.experience.frames import FrameCache
from distrl.policies.base import Policy, notices_of
from distrl.runtime.exported import ExportManifest, export_config, is_export, load_export, read_manifest
from distrl.runtime.factory import FRAMES_IN_MEMORY, make_evaluation, make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.trained import load_weights, locate
from distrl.runtime.trust import refuse_code
from distrl.tasks.base import SPLITS, find_suite, find_task, unknown_split
from distrl.tasks.judges import find_judge
from distrl.types import Split, Task


class TaskChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to play; what is None is as the run had it."""

    suite: str | None = None
    split: Split = "test"
    max_oracle_steps: int | None = None
    """Leave out longer tasks; 0: none."""


HOTTEST = 100.0
"""The highest temperature."""
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


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with its weights."""

    source: Source
    policy: Policy[Any]
    version: int
    frames: FrameCache
    """Where the policy finds the pictures that it is shown."""


def find_source(
    path: Path, choice: TaskChoice = AS_TRAINED, *, model: Path | None = None, trust_code: bool = False
) -> Source:
    """What lies at `path`, with settings for this machine and these tasks; `StoreError` where it is neither run nor export."""
    _check_choice(choice)
    found = _find(path, model)
    if not trust_code:
        refuse_code(found.config, str(path / "config.toml"), unless=() if choice.suite is None else ("tasks.suite",))
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


def load(source: Source) -> Loaded:
    """The policy with its weights."""
    frames = FrameCache(FRAMES_IN_MEMORY)
    policy = make_policy(source.config, frames)
    if source.export is not None:
        version = load_export(policy, source.path, source.export)
    else:
        assert source.run is not None
        version = load_weights(policy, source.run, source.checkpoint)
    return Loaded(source=source, policy=policy, version=version, frames=frames)


def evaluate_source(
    source: Source,
    episodes: int,
    *,
    done: Callable[[int, int], None] = lambda done, of: None,
    notice: Callable[[str], None] = lambda text: None,
) -> Report:
    """Success on held-out tasks; `done` hears how many of how many episodes are over, `notice` what people should know."""
    check_whole("episodes", episodes, Count, example=300)
    config, loaded = source.config, load(source)
    for text in notices_of(loaded.policy):
        notice(text)
    tasks = choose_tasks(config, episodes, source.split, notice)
    # Pictures are taken only for a policy that reads them: drawing them takes most of the time.
    frames = loaded.frames if reads_screenshots(config) else None
    how = make_evaluation(config, seed=config.run.seed, frames=frames)
    found = evaluate(loaded.policy, tasks, replace(how, beat=lambda count: done(count, len(tasks))))
    return make_report(found, suite=config.tasks.suite, version=loaded.version)


def choose_tasks(config: Config, episodes: int, split: Split, notice: Callable[[str], None]) -> list[Task]:
    """The tasks to play; where there are fewer than asked for, people are told how many there are."""
    tasks = held_out(config, episodes, split)
    if len(tasks) < episodes:
        seen = f"--episodes {episodes}: {config.tasks.suite} has {len(tasks)} such {split} tasks"
        notice(f"{seen}, and all of them are played")
    return tasks


def make_player(loaded: Loaded, *, temperature: float = TEMPERATURE, seed: int = 0) -> Player:
    """The policy as a player of single episodes, judged as the run judges."""
    check_temperature(temperature)
    check_whole("seed", seed, Seed, example=0)
    config = loaded.source.config
    return Player(
        policy=loaded.policy,
        version=loaded.version,
        frames=loaded.frames,
        config=config,
        judge=find_judge(config.judge),
        temperature=temperature,
        seed=seed,
    )


def choose_task(config: Config, task: str | None, *, split: Split = "test", number: int = 0) -> Task:
    """The task of this id, or number `number` of the split, counted round and within the run's limits."""
    suite = find_suite(config.tasks)
    _check_split(split)
    if task is not None:
        _check_text("task", task, example=f"{suite.name}/test/0")
        # Of a suite that is named by an import path, the id begins with its own name.
        return find_task(suite, task if "/" in task else f"{suite.name}/{split}/{task}")
    size = suite.size(split)
    if not size:
        raise TaskError(f"{suite.name} has no {split} tasks", fix="--split train")
    limit = config.tasks.max_oracle_steps
    for index in range(size):
        found = suite.task(split, (number + index) % size)
        if not limit or found.oracle_steps <= limit:
            return found
    return held_out(config, 1, split)[0]  # which says what is wrong


# --- arguments --------------------------------------------------------------------------------------------------------


def check_whole(name: str, value: object, kind: Any, *, example: int) -> None:
    """`UsageError` where an argument is no whole number within the limits of `kind`, a type of the schema such as `Count`."""
    (limits,) = kind.__metadata__
    if isinstance(value, bool) or not isinstance(value, Integral) or not limits.ge <= int(value) <= limits.le:
        expected = f"a whole number from {limits.ge} to {limits.le}"
        raise UsageError(f"{name} = {value!r:.100} does not fit", expected=expected, fix=f"{name}={example}")


def check_temperature(value: object) -> None:
    """`UsageError` where no policy can decide at this temperature: NaN, too high, or below 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) <= HOTTEST:
        raise UsageError(
            f"temperature = {value!r:.100} does not fit",
            expected=f"0 (the likeliest action) to {HOTTEST:g}",
            fix=f"temperature={TEMPERATURE:g}",
        )


def _check_choice(choice: TaskChoice) -> None:
    _check_split(choice.split)
    if choice.suite is not None:
        _check_text("suite", choice.suite, example="sim-start")
    if choice.max_oracle_steps is not None:
        check_whole("max_oracle_steps", choice.max_oracle_steps, FewOrNone, example=0)


def _check_split(split: object) -> None:
    if split not in SPLITS:
        raise unknown_split(str(split)[:100])


def _check_text(name: str, value: object, *, example: str) -> None:
    if not isinstance(value, str):
        raise UsageError(f"{name} = {value!r:.100} does not fit", expected="text", fix=f'{name}="{example}"')
