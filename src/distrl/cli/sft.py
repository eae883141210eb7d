"""`distrl sft`: supervised learning from stored episodes, before or between training."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from distrl.cli.extras import need_training_packages
from distrl.cli.trust import add_trust_flag, trust_for, trusted_config
from distrl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.experience.frames import FrameCache
    from distrl.learner.loop import Learner
    from distrl.policies.base import Policy
    from distrl.pretraining.cloning import StoredExamples, Successes
    from distrl.runtime.run_folder import RunFolder

TAKES_CONFIG = True
LOCK_WAIT_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder to go on with, or a TOML file for a new run")
    parser.add_argument(
        "--data", type=Path, action="append", required=True, metavar="RUN", help="a run whose successful episodes to learn from; may be repeated"
    )  # fmt: skip
    add_trust_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    need_training_packages()
    from distrl.runtime.factory import make_policy, prepare_torch
    from distrl.runtime.placement import placement_notices
    from distrl.runtime.run_folder import create_run, open_run

    sources = [open_run(path) for path in args.data]
    found = _successes(sources)
    folder, config = _open(args)
    for text in placement_notices(config):
        print(text, file=sys.stderr)
    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    with ExitStack() as stack, ExitStack() as half_done:
        if folder is not None:
            _hold(folder, stack)
        frames = _frame_cache(config, [folder, *sources] if folder is not None else sources)
        policy = make_policy(config, frames, learning=True)
        examples = _examples(policy, found, config)
        if folder is None:  # not earlier: what cannot be learnt from leaves nothing behind
            folder = create_run(config, now=datetime.now())
            half_done.callback(shutil.rmtree, folder.path, ignore_errors=True)  # such as after Ctrl-C
            _hold(folder, stack)
        learner = _learner(folder, config, policy)
        resumed = learner.resume()
        loss = _clone(policy, examples, config)
        learner.publish()
        learner.save()
        half_done.pop_all()
    result = {
        "run": str(folder.path),
        "examples": len(examples.examples),
        "steps": examples.num_steps,
        "damaged_episodes": len(examples.damaged),
        "loss": loss,
        "policy_version": learner.version,
        "resumed": resumed,
    }
    _tell(result, examples.damaged, as_json=args.json, trust=trust_for(config))
    return 0


def _tell(result: dict[str, Any], damaged: list[str], *, as_json: bool, trust: str) -> None:
    from distrl.cli.main import print_json

    if as_json:
        print_json(result)
        return
    print("learnt {examples} of {steps} steps, loss {loss:.3f}; version {policy_version} of {run}".format(**result))
    if damaged:
        print(f"skipped as damaged: {len(damaged)} episodes, the first because {damaged[0]}")
    print(f"next: distrl train --resume {result['run']}{trust}")


def _open(args: argparse.Namespace) -> tuple[RunFolder | None, Config]:
    """The run to go on with, None for a new one, and its settings: nothing is written yet."""
    from distrl.cli.train import check_model
    from distrl.config.load import load_config, no_such_file
    from distrl.runtime.placement import check_devices
    from distrl.runtime.run_folder import open_run

    if not args.run.exists():
        raise no_such_file(args.run, otherwise="name a run folder to go on with")
    folder = open_run(args.run) if args.run.is_dir() else None
    if folder is not None and args.overrides:
        raise UsageError(
            "a run keeps its own settings", expected="RUN and --data alone", fix="a TOML file makes a new run"
        )
    config = (
        load_config(args.run, args.overrides) if folder is None else trusted_config(folder, trusted=args.trust_code)
    )
    check_model(config)
    check_devices(config)
    return folder, config


def _hold(folder: RunFolder, stack: ExitStack) -> None:
    """Keep everybody else out of the run while `stack` lasts."""
    from distrl.runtime.run_folder import take

    stack.callback(take(folder.lock("supervisor"), wait_s=LOCK_WAIT_S, what=str(folder.path)).release)


def _successes(sources: list[RunFolder]) -> Successes:
    """What the successful episodes of these runs observed and did."""
    from distrl.experience.store import ExperienceStore
    from distrl.pretraining.cloning import read_successes

    with ExitStack() as stack:
        found = read_successes(
            stack.enter_context(ExperienceStore(source.experience, read_only=True)) for source in sources
        )
    if not found.episodes:
        raise _nothing(", ".join(str(source.path) for source in sources), found.damaged)
    return found


def _nothing(where: str, damaged: list[str]) -> StoreError:
    unreadable = f" that can be read; {len(damaged)} are damaged, the first: {damaged[0]}" if damaged else ""
    return StoreError(
        f"{where} holds no successful episode{unreadable}",
        expected="something to imitate",
        fix="name a run that got further: distrl status RUN",
    )


def _examples(policy: Policy[Any], found: Successes, config: Config) -> StoredExamples:
    """What the policy can express of these episodes; an error where that is nothing."""
    from distrl.pretraining.cloning import nothing_expressible, stored_examples

    examples = stored_examples(policy, found)
    if not examples.num_steps:
        raise _nothing("--data", examples.damaged)
    if not examples.examples:
        raise nothing_expressible(examples.num_steps, config.policy, otherwise="--data of a run on other tasks")
    return examples


def _frame_cache(config: Config, runs: list[RunFolder]) -> FrameCache:
    from distrl.experience.frames import FrameCache
    from distrl.runtime.factory import frames_in_memory

    return FrameCache(frames_in_memory(config), _Frames(runs))


def _learner(folder: RunFolder, config: Config, policy: Policy[Any]) -> Learner:
    from distrl.learner.loop import Learner, LearnerParts
    from distrl.runtime.factory import make_algorithm

    transport = folder.transport(config)
    return Learner(
        LearnerParts(
            config=config,
            policy=policy,
            algorithm=make_algorithm(config),
            episodes=transport.episodes,
            weights=transport.weights,
            checkpoints=transport.checkpoints,
            report=_Words(),
        )
    )


def _clone(policy: Policy[Any], examples: StoredExamples, config: Config) -> float:
    from distrl.pretraining.cloning import clone

    words, of = _Words(), f"{len(examples.examples)} of {examples.num_steps} steps"
    return clone(
        policy, examples.examples, config.warm_start, random=Random(config.run.seed),
        report=lambda now: words.doing(f"learning {of}: {now.share:.0%}, loss {now.loss:.3f}"),
    )  # fmt: skip


class _Frames:
    """`FrameReader` over several runs; a reference means the same in all of them."""

    def __init__(self, runs: list[RunFolder]) -> None:
        self._runs = runs

    def get(self, reference: str) -> bytes:
        """The screenshot, from the first run that has it."""
        from distrl.experience.frames import FrameStore

        *others, last = self._runs
        for run in others:
            with suppress(StoreError):
                return FrameStore(run.experience).get(reference)
        return FrameStore(last.experience).get(reference)


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

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        """Nothing is measured here."""
