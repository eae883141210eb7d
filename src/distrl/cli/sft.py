"""`distrl sft`: supervised learning from stored episodes, before or between training."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from distrl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.learner.loop import Learner
    from distrl.policies.base import Policy
    from distrl.runtime.run_folder import RunFolder
    from distrl.types import Action, Observation

TAKES_CONFIG = True
LOCK_WAIT_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder to go on with, or a TOML file for a new run")
    parser.add_argument(
        "--data", type=Path, action="append", required=True, metavar="RUN", help="a run whose successful episodes to learn from; may be repeated"
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.main import print_json
    from distrl.runtime.assembly import prepare_torch
    from distrl.runtime.locks import take
    from distrl.runtime.run_folder import open_run

    sources = [open_run(path) for path in args.data]
    pairs = _pairs(sources)
    folder, config = _open(args)
    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    lock = take(folder.lock("supervisor"), wait_s=LOCK_WAIT_S, what=str(folder.path))
    try:
        learner, policy = _learner(folder, config, sources)
        resumed = learner.resume()
        examples, loss = _clone(policy, pairs, config)
        learner.publish()
        learner.save()
    finally:
        lock.release()
    result = {"run": str(folder.path), "examples": examples, "loss": loss, "policy_version": learner.version}
    if args.json:
        print_json({**result, "resumed": resumed})
    else:
        print(f"learnt {examples} steps, loss {loss:.3f}; version {learner.version} of {folder.path}")
        print(f"next: distrl train --resume {folder.path}")
    return 0


def _open(args: argparse.Namespace) -> tuple[RunFolder, Config]:
    from distrl.config.load import load_config
    from distrl.runtime.placement import check_devices
    from distrl.runtime.run_folder import create_run, open_run

    if args.run.is_dir():
        if args.overrides:
            raise UsageError(
                "a run keeps its own settings", expected="RUN and --data alone", fix="a TOML file makes a new run"
            )
        folder = open_run(args.run)
        config = folder.config()
        check_devices(config)
        return folder, config
    config = load_config(args.run, args.overrides)
    check_devices(config)
    return create_run(config, now=datetime.now()), config


def _pairs(sources: list[RunFolder]) -> list[tuple[Observation, Action]]:
    """What the successful episodes of these runs saw and did."""
    from distrl.experience.store import ExperienceStore
    from distrl.learner.successes import stored_successes, successful_steps

    with ExitStack() as stack:
        stores = [stack.enter_context(ExperienceStore(source.experience)) for source in sources]
        pairs = [pair for store in stores for pair in successful_steps(stored_successes(store))]
    if not pairs:
        raise StoreError(
            f"{', '.join(str(source.path) for source in sources)} holds no successful episode",
            expected="something to imitate",
            fix="name a run that got further: distrl status RUN",
        )
    return pairs


def _learner(folder: RunFolder, config: Config, sources: list[RunFolder]) -> tuple[Learner, Policy[Any]]:
    from distrl.experience.frame_memory import RecentFrames
    from distrl.experience.store import ExperienceStore
    from distrl.learner.checkpoint import CheckpointFolder
    from distrl.learner.demonstrations import camera
    from distrl.learner.loop import Learner, LearnerParts
    from distrl.learner.weights import WeightsFolder
    from distrl.runtime.assembly import frames_at_hand, make_algorithm, make_fitting, make_policy

    sight = RecentFrames(frames_at_hand(config), _Frames([folder, *sources]))
    policy = make_policy(config, sight, learning=True)
    parts = LearnerParts(
        config=config,
        policy=policy,
        algorithm=make_algorithm(config),
        store=ExperienceStore(folder.experience),
        weights=WeightsFolder(folder.weights, keep=config.learner.keep_versions),
        checkpoints=CheckpointFolder(folder.checkpoints),
        report=_Words(),
        fitting=make_fitting(config),
        look=camera(config, sight),
    )
    return Learner(parts), policy


def _clone(policy: Policy[Any], pairs: list[tuple[Observation, Action]], config: Config) -> tuple[int, float]:
    from distrl.learner.warm_start import clone, examples_for

    examples = examples_for(policy, pairs)
    words = _Words()
    loss = clone(
        policy, examples, config.warm_start, random=Random(config.run.seed),
        tell=lambda now: words.doing(f"learning {len(examples)} steps: {now.share:.0%}, loss {now.loss:.3f}"),
    )  # fmt: skip
    return len(examples), loss


class _Frames:
    """The pictures of several runs; a reference means the same in all of them."""

    def __init__(self, runs: list[RunFolder]) -> None:
        self._runs = runs

    def get(self, reference: str) -> bytes:
        """The picture, from the first run that has it."""
        from distrl.experience.frames import FrameStore

        *others, last = self._runs
        for run in others:
            with suppress(StoreError):
                return FrameStore(run.frames).get(reference)
        return FrameStore(last.frames).get(reference)


class _Words:
    """Tells the terminal now and then what is being done."""

    EVERY_S = 5.0

    def __init__(self) -> None:
        self._told_s = time.monotonic()

    def doing(self, what: str) -> None:
        if time.monotonic() - self._told_s >= self.EVERY_S:
            self._told_s = time.monotonic()
            print(what, file=sys.stderr, flush=True)

    def waiting(self, what: str) -> None:
        self.doing(f"waiting for {what}")

    def measured(self, values: dict[str, float]) -> None:
        """Nothing is measured here."""
