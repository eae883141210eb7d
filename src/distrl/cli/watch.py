"""`distrl watch`: what was trained plays a task; each step is told as it happens, and filmed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import partial
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.errors import StoreError, UsageError
from distrl.types import Verdict

if TYPE_CHECKING:
    from distrl.evaluation.stored_playback import Playback
    from distrl.runtime.source import Source
    from distrl.types import Decision, Observation, Task

SEEN = 6
"""Texts of a screen that are printed."""
SUFFIX = {"gif": ".gif", "mp4": ".mp4", "strip": ".png"}
"""Of the files that are written: any other file that is named by mistake stays as it is."""
TASK = re.compile(r"((.+/)?(train|tune|test)/)?\d+")
"""What names a task and, where nothing is there, no folder."""
MOST_EPISODES = 1000
"""Of one command: each leaves a film."""


class WatchedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step, as `--json` gives it."""

    app: str
    action: str
    probability: float
    runners_up: dict[str, float]
    """The likeliest other actions in words, with their probabilities; empty where the policy enumerates none."""
    value: float
    valid: bool
    changed: bool


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One episode, as `--json` gives it."""

    task: str
    instruction: str
    ending: str
    verdict: Verdict
    steps: tuple[WatchedStep, ...]
    gif: str = ""
    mp4: str = ""
    strip: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    from distrl.cli.evaluate import add_model_flags, add_source
    from distrl.cli.main import real_number, whole_number

    add_source(parser)
    parser.add_argument("task", nargs="?", help="such as sim-start/test/3, or its number; without it, a held-out one")
    parser.add_argument("--suite", help="which tasks; without it, those that the run was trained on")
    parser.add_argument("--split", choices=("test", "tune", "train"), default="test", help="default: test")
    episodes = whole_number("--episodes", 1, MOST_EPISODES, 1)
    parser.add_argument("--episodes", type=episodes, default=1, metavar="N", help="play so many tasks (default: 1)")
    seed, temperature = whole_number("--seed", 0, 2**32 - 1, 0), real_number("--temperature", 0.0, 100.0, 0.5)
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="chooses the task and the choices (0)")
    parser.add_argument(
        "--temperature", type=temperature, metavar="T", help="0: always the likeliest action (default: 0.5)"
    )
    parser.add_argument("--gif", type=Path, metavar="FILE", help="the film (default: watch.gif in the run folder)")
    parser.add_argument("--mp4", type=Path, metavar="FILE", help="also the film as an MP4 (extra video)")
    parser.add_argument("--strip", type=Path, metavar="FILE", help="also all screens side by side, as a PNG")
    add_model_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    from distrl.cli.evaluate import source_of
    from distrl.cli.main import print_json
    from distrl.runtime.source import TaskChoice, find_source

    if args.run is not None and args.task is None and TASK.fullmatch(str(args.run)) and not args.run.exists():
        args.run, args.task = None, str(args.run)
    _check(args)
    place = source_of(args)
    suite = _suite_of(args.task) if args.suite is None else args.suite
    choice = TaskChoice(suite=suite, split=args.split)
    source = find_source(place, choice, model=args.model, trust_code=args.trust_code)
    outputs = _outputs(source, args)
    tasks = _tasks(source, args)
    from distrl.runtime.factory import prepare_torch

    # After the settings are read: without denormals, msgspec takes 0 for a number above 0.
    prepare_torch()
    watched = _watch(source, tasks, outputs, args)
    if args.json:
        print_json({"run": source.name, "episodes": watched})
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.task is not None and args.episodes > 1:
        raise UsageError("one task was named, and several episodes asked for", fix="leave TASK or --episodes out")


def _suite_of(task: str | None) -> str | None:
    """The suite in the id of a task, where it is one that is found by name or import path, and not by a run alone."""
    from distrl import plugins

    name, slash, _ = (task or "").partition("/")
    return name if name in plugins.names("suites") or (slash and ":" in name) else None


def _tasks(source: Source, args: argparse.Namespace) -> list[Task]:
    from random import Random

    from distrl.runtime.source import choose_task

    first = Random(args.seed).randrange(10**9)
    count = range(args.episodes)
    return [choose_task(source.config, args.task, split=args.split, number=first + index) for index in count]


def _watch(source: Source, tasks: list[Task], outputs: dict[str, Path], args: argparse.Namespace) -> list[Watched]:
    from distrl.cli.main import printable
    from distrl.evaluation.evaluate import TEMPERATURE
    from distrl.evaluation.playback import play
    from distrl.policies.base import notices_of
    from distrl.runtime.playing import load, make_player
    from distrl.tasks.base import id_under

    loaded = load(source)
    for text in notices_of(loaded.policy):
        print(text, file=sys.stderr)
    temperature = TEMPERATURE if args.temperature is None else args.temperature
    player = make_player(loaded, temperature=temperature, seed=args.seed)
    print(f"version {loaded.version} of {source.name}")
    watched = []
    for number, task in enumerate(tasks):
        id = id_under(task, source.config.tasks.suite)
        print(printable(f"\n{id} ({task.template}): {task.instruction}"))
        playback = play(player, task, partial(_tell, task))
        _print_end(playback)
        files = _write(playback, outputs, number if len(tasks) > 1 else None)
        watched.append(_summary(playback, id, files))
    return watched


def _tell(task: Task, number: int, seen: Observation, decision: Decision) -> None:
    from distrl.cli.main import printable
    from distrl.evaluation.film import in_words

    if number == 1 and seen.instruction != task.instruction:  # known once the page of the task is open
        print(printable(f"     task  {seen.instruction}"))
    if seen.recent and not (seen.recent[-1].valid and seen.recent[-1].changed):
        print(f"     {'no effect' if seen.recent[-1].valid else 'invalid: the device refused it'}")
    texts = [" ".join((element.text or element.description).split()) for element in seen.elements]
    shown = [text if len(text) <= 24 else f"{text[:23]}…" for text in dict.fromkeys(filter(None, texts))]
    more = f" · … {len(shown) - SEEN} more" if len(shown) > SEEN else ""
    print(printable(f"{number:3}  sees  {seen.app + ': ' if seen.app else ''}{' · '.join(shown[:SEEN])}{more}"))
    chance = f"{exp(min(0.0, decision.logp)):.0%}, " if decision.choice else ""
    print(printable(f"     does  {in_words(decision.action, seen.elements)}   ({chance}value {decision.value:.2f})"))
    others = [f"{words} {share:.0%}" for words, share in _runners_up(seen, decision).items()]
    print(printable(f"     or    {' · '.join(others)}\n" if others else ""), end="", flush=True)


def _runners_up(seen: Observation, decision: Decision) -> dict[str, float]:
    """The other actions that the policy thought of, by words; what reads alike counts together."""
    from distrl.evaluation.film import in_words

    found: dict[str, float] = {}
    for one in decision.runners_up:
        words = in_words(one.action, seen.elements)
        found[words] = round(found.get(words, 0.0) + exp(one.logp), 4)
    return found


def _print_end(playback: Playback) -> None:
    from distrl.cli.main import printable
    from distrl.evaluation.film import outcome

    trajectory, verdict = playback.trajectory, playback.trajectory.verdict
    print(printable(f"{outcome(verdict)}  ({len(trajectory.steps)} steps, progress {verdict.progress:.0%})"))
    if verdict.false_completion:
        print("false completion: said done, but it is not")
    for effect in verdict.side_effects:
        print(printable(f"side effect: {effect}"))


def _outputs(source: Source, args: argparse.Namespace) -> dict[str, Path]:
    """The files to write; an error now, and not after the episode, where one cannot be written."""
    from distrl.evaluation.video import need_video_package

    found = {"gif": args.gif or _default_gif(source.path)}
    found |= {kind: file for kind, file in (("mp4", args.mp4), ("strip", args.strip)) if file is not None}
    if args.mp4 is not None:
        need_video_package()
    for kind, file in found.items():
        _check_output(f"--{kind}", file)
    if len({file.resolve() for file in found.values()}) < len(found):
        raise UsageError(
            f"--gif and --strip are both {args.strip}",
            expected="two files: the film, and the screens side by side",
            fix=f"--gif {args.strip.with_suffix('.gif')} --strip {args.strip.with_suffix('.png')}",
        )
    for kind, file in found.items():
        if file.suffix.lower() != SUFFIX[kind]:
            right = file.with_suffix(SUFFIX[kind])
            raise UsageError(f"--{kind} {file} ends otherwise than in {SUFFIX[kind]}", fix=f"--{kind} {right}")
    return found


def _check_output(flag: str, file: Path) -> None:
    """`StoreError` where a file cannot be written: nothing is made yet."""
    from distrl.experience.durable import refusal_at

    if seen := refusal_at(file) or ("it is a folder" if file.is_dir() else ""):
        raise StoreError(f"cannot write {file}: {seen}", fix=f"{flag} with a file that you may write")


def _write(playback: Playback, outputs: dict[str, Path], number: int | None) -> dict[str, Path]:
    """Write the pictures; one of several episodes gets its number in the name."""
    from distrl.evaluation.film import make_gif, make_strip
    from distrl.evaluation.video import make_mp4

    makers = {"gif": make_gif, "mp4": make_mp4, "strip": make_strip}
    written = {}
    for kind, path in outputs.items():
        file = path if number is None else path.with_name(f"{path.stem}-{number + 1}{path.suffix}")
        _save(file, makers[kind](playback))
        print(f"{kind}: {file}")
        written[kind] = file
    return written


def _default_gif(folder: Path) -> Path:
    """In the run folder; in the present folder where that cannot be written to."""
    return (folder if os.access(folder, os.W_OK) else Path()) / "watch.gif"


def _save(file: Path, data: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}", fix="name a file that you may write") from None


def _summary(playback: Playback, id: str, files: dict[str, Path]) -> Watched:
    from distrl.evaluation.film import in_words

    trajectory = playback.trajectory
    return Watched(
        task=id,
        instruction=trajectory.task.instruction,
        ending=trajectory.ending.value,
        verdict=trajectory.verdict,
        steps=tuple(
            WatchedStep(
                app=step.observation.app,
                action=in_words(step.decision.action, step.observation.elements),
                probability=round(exp(min(0.0, step.decision.logp)), 4),
                runners_up=_runners_up(step.observation, step.decision),
                value=round(step.decision.value, 4),
                valid=step.valid,
                changed=step.changed,
            )
            for step in trajectory.steps
        ),
        gif=str(files["gif"]),
        mp4=str(files.get("mp4", "")),
        strip=str(files.get("strip", "")),
    )
