"""A trained policy, ready to play: its weights, tasks and devices, from what `runtime.source` found.

Evaluating, watching and loading from Python all begin here, so that they find the same weights, the same tasks and the same
devices, and refuse the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.config.kinds import Count, Seed
from distrl.config.rules import reads_screenshots
from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.evaluation.evaluate import TEMPERATURE, evaluate, refuse_without_outcomes
from distrl.evaluation.playback import Player
from distrl.evaluation.report import Report, make_report
from distrl.experience.frames import FrameCache
from distrl.learner.checkpoint import from_files
from distrl.learner.update import load_ema
from distrl.policies.base import Policy, notices_of
from distrl.runtime.exported import load_export
from distrl.runtime.factory import FRAMES_IN_MEMORY, make_evaluation, make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.source import Source, check_whole, newest_version
from distrl.tasks.base import find_suite, held_out, held_out_templates
from distrl.tasks.judges import find_judge
from distrl.transport.files import read_checkpoint
from distrl.transport.lease_files import phone_leases
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Split, Task

HOTTEST = 100.0
"""The highest temperature."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with its weights."""

    source: Source
    policy: Policy[Any]
    version: int
    frames: FrameCache
    """Where the policy finds the pictures that it is shown."""


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


def load_weights(policy: Policy[Any], run: RunFolder, checkpoint: Path | None) -> int:
    """Put the weights into `policy` and return their version."""
    if checkpoint is not None:
        found = from_files(read_checkpoint(checkpoint), source=str(checkpoint))
        policy.restore(found.policy, source=str(checkpoint))
        load_ema(policy.network, found.ema)
        return found.state.version
    newest = newest_version(run)
    WeightsFolder(run.weights).load(policy, newest)
    return newest.version


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
    how = replace(
        make_evaluation(config, seed=config.run.seed, frames=frames), leases=phone_leases(config.devices, "evaluate")
    )
    found = evaluate(loaded.policy, tasks, replace(how, beat=lambda count: done(count, len(tasks)), tell=notice))
    refuse_without_outcomes(found)
    unseen = held_out_templates(find_suite(config.tasks))
    return make_report(found, suite=config.tasks.suite, version=loaded.version, unseen=unseen)


def choose_tasks(config: Config, episodes: int, split: Split, notice: Callable[[str], None]) -> list[Task]:
    """The tasks to play; where there are fewer than asked for, people are told how many there are."""
    tasks = held_out(config.tasks, episodes, split)
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


# --- arguments --------------------------------------------------------------------------------------------------------


def check_temperature(value: object) -> None:
    """`UsageError` where no policy can decide at this temperature: NaN, too high, or below 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) <= HOTTEST:
        raise UsageError(
            f"temperature = {value!r:.100} does not fit",
            expected=f"0 (the likeliest action) to {HOTTEST:g}",
            fix=f"temperature={TEMPERATURE:g}",
        )
