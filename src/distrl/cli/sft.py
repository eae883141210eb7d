"""`distrl sft`: supervised learning from stored episodes, before or between training."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from distrl.cli.extras import need_training_packages
from distrl.cli.trust import add_trust_flag, trust_for, trusted_config
from distrl.errors import StoreError, UsageError
from distrl.types import Verdict

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.experience.frames import FrameCache
    from distrl.experience.index import IndexRow
    from distrl.experience.store import ExperienceStore
    from distrl.learner.loop import Learner
    from distrl.policies.base import Policy
    from distrl.pretraining.cloning import StoredExamples, Successes
    from distrl.runtime.run_folder import RunFolder

TAKES_CONFIG = True
LOCK_WAIT_S = 1.0
CHUNK = 256
"""Episodes that are listed from a store at once."""
LONGEST_REASON = 200
"""Characters of a judge's reason that are told."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, help="a run folder to go on with; for a new run a TOML file, or a ready run by its name"
    )
    parser.add_argument(
        "--data", type=Path, action="append", required=True, metavar="RUN", help="a run whose successful episodes to learn from; may be repeated"
    )  # fmt: skip
    add_trust_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    need_training_packages()
    from distrl.cli.main import print_json
    from distrl.runtime.run_folder import create_run, open_run

    sources = [open_run(path) for path in args.data]
    # Whatever can be refused is refused before torch is loaded, which takes seconds.
    skipped = _skipped_of(sources)
    _refuse_failures(sources, skipped)
    folder, config = _open(args)
    from distrl.runtime.factory import make_policy, prepare_torch
    from distrl.runtime.placement import placement_notices

    found = _successes(sources, skipped)
    for text in placement_notices(config):
        print(text, file=sys.stderr)
    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    with ExitStack() as stack, ExitStack() as half_done:
        if folder is not None:
            _hold(folder, stack)
        frames = _frame_cache(config, [folder, *sources] if folder is not None else sources)
        policy = make_policy(config, frames, learning=True)
        examples = _examples(policy, found, skipped, config)
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
        "failed_episodes": skipped.failed,
        "unknown_episodes": skipped.unknown,
        "loss": loss,
        "policy_version": learner.version,
        "resumed": resumed,
    }
    if args.json:
        print_json(result)
    else:
        _tell(result, examples.damaged, skipped, trust=trust_for(config))
    return 0


def _tell(result: dict[str, Any], damaged: list[str], skipped: SkippedEpisodes, *, trust: str) -> None:
    print("learnt {examples} of {steps} steps, loss {loss:.3f}; version {policy_version} of {run}".format(**result))
    if damaged:
        print(f"skipped as damaged: {len(damaged)} episodes, the first because {damaged[0]}")
    if skipped.failed or skipped.unknown:
        print(f"skipped: {skipped.in_words()}")
    print(f"next: distrl train --resume {result['run']}{trust}")


def _open(args: argparse.Namespace) -> tuple[RunFolder | None, Config]:
    """The run to go on with, None for a new one, and its settings: nothing is written yet."""
    from distrl.cli.train import check_model, check_settings
    from distrl.config.load import find_ready, load_config, no_such_file
    from distrl.runtime.placement import check_devices
    from distrl.runtime.run_folder import open_run
    from distrl.runtime.run_sizes import refuse_pruned

    if not find_ready(args.run).exists():
        raise no_such_file(args.run, otherwise="name a run folder to go on with")
    folder = open_run(args.run) if args.run.is_dir() else None
    if folder is not None:
        refuse_pruned(folder)
    if folder is not None and args.overrides:
        raise UsageError(
            "a run keeps its own settings", expected="RUN and --data alone", fix="a TOML file makes a new run"
        )
    config = (
        load_config(args.run, args.overrides) if folder is None else trusted_config(folder, trusted=args.trust_code)
    )
    if folder is None:  # a run that `distrl train --resume` would refuse is not begun
        check_settings(config)
    check_model(config)
    check_devices(config)
    return folder, config


def _hold(folder: RunFolder, stack: ExitStack) -> None:
    """Keep everybody else out of the run while `stack` lasts."""
    from distrl.runtime.run_folder import take

    stack.callback(take(folder.lock("supervisor"), wait_s=LOCK_WAIT_S, what=str(folder.path)).release)


class SkippedEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes that are not imitated: how often each reason was given."""

    failed_because: Counter[str]
    """Known not to have succeeded."""
    unknown_because: Counter[str]
    """Without an outcome, such as after a device was lost."""

    @property
    def failed(self) -> int:
        """How many are known not to have succeeded."""
        return self.failed_because.total()

    @property
    def unknown(self) -> int:
        """How many have no outcome."""
        return self.unknown_because.total()

    def count(self, verdict: Verdict) -> None:
        """Count one that did not succeed."""
        (self.failed_because if verdict.known else self.unknown_because)[_one_line(verdict.reason)] += 1

    def in_words(self) -> str:
        """How many of each sort, and the reason that came most often."""
        failed = f"{self.failed} that failed{_most_often(self.failed_because)}" if self.failed else ""
        unknown = f"{self.unknown} without an outcome{_most_often(self.unknown_because)}" if self.unknown else ""
        return ", ".join(filter(None, (failed, unknown)))


def _one_line(reason: str) -> str:
    return " ".join(reason.split())[:LONGEST_REASON] or "no reason given"


def _most_often(reasons: Counter[str]) -> str:
    ((reason, count),) = reasons.most_common(1)
    return f" ({reason})" if count == reasons.total() else f" (most often, {count}: {reason})"


def _skipped_of(sources: list[RunFolder]) -> SkippedEpisodes:
    """What of these runs is not imitated; `StoreError` where one of them has no episodes at all."""
    from distrl.experience.store import ExperienceStore, has_index
    from distrl.runtime.run_sizes import pruned_parts

    found = SkippedEpisodes(failed_because=Counter(), unknown_because=Counter())
    for source in sources:
        if not has_index(source.experience):
            pruned = "episodes" in pruned_parts(source)
            raise StoreError(
                f"{source.path} {'was pruned of its episodes' if pruned else 'holds no episodes yet'}",
                expected="a run with successful episodes",
                fix="--data with another run: distrl runs list",
            )
        with ExperienceStore(source.experience, read_only=True) as store:
            _count_failures(store, found)
    return found


def _refuse_failures(sources: list[RunFolder], skipped: SkippedEpisodes) -> None:
    """`StoreError` where no episode succeeded, by the index alone."""
    from distrl.experience.store import ExperienceStore

    for source in sources:
        with ExperienceStore(source.experience, read_only=True) as store:
            if any(row.success for row in _rows(store)):
                return
    raise _nothing(", ".join(str(source.path) for source in sources), [], skipped)


def _count_failures(store: ExperienceStore, found: SkippedEpisodes) -> None:
    for row in _rows(store):
        if row.success:
            continue
        try:
            found.count(store.read(row.id).verdict)
        except StoreError as error:
            found.count(Verdict(outcome="unknown", reason=error.seen))


def _rows(store: ExperienceStore) -> Iterator[IndexRow]:
    seq = 0
    while rows := store.after(seq, CHUNK):
        yield from rows
        seq = rows[-1].seq


def _successes(sources: list[RunFolder], skipped: SkippedEpisodes) -> Successes:
    """What the successful episodes of these runs observed and did."""
    from distrl.experience.store import ExperienceStore
    from distrl.pretraining.cloning import read_successes

    with ExitStack() as stack:
        found = read_successes(
            stack.enter_context(ExperienceStore(source.experience, read_only=True)) for source in sources
        )
    if not found.episodes:
        raise _nothing(", ".join(str(source.path) for source in sources), found.damaged, skipped)
    return found


def _nothing(where: str, damaged: list[str], skipped: SkippedEpisodes) -> StoreError:
    unreadable = f" that can be read; {len(damaged)} are damaged, the first: {damaged[0]}" if damaged else ""
    others = f"; it has {skipped.in_words()}" if skipped.failed or skipped.unknown else ""
    return StoreError(
        f"{where} holds no successful episode{unreadable}{others}",
        expected="something to imitate",
        fix="--data with a run that got further: distrl runs list shows the success of each",
    )


def _examples(policy: Policy[Any], found: Successes, skipped: SkippedEpisodes, config: Config) -> StoredExamples:
    """What the policy can express of these episodes; an error where that is nothing."""
    from distrl.pretraining.cloning import nothing_expressible, stored_examples

    examples = stored_examples(policy, found)
    if not examples.num_steps:
        raise _nothing("--data", examples.damaged, skipped)
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
