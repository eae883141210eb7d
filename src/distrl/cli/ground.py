"""`distrl ground`: makes a vision-language model for screens out of a language model."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.extras import need_model_packages, need_training_packages
from distrl.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from distrl.config.schema import Config

TAKES_CONFIG = True
SAY_EVERY_S = 5.0
DAY = 24 * 60
"""In minutes: the most for a stage."""
METRICS = "grounding.jsonl"
"""In the folder that is made: a line for every report."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a TOML file; policy.vlm.path names the folder that is made")
    parser.add_argument(
        "--language", type=Path, required=True, metavar="FOLDER", help="a language model of the Llama architecture"
    )
    from distrl.cli.main import real_number, whole_number

    reading, language = real_number("--reading-minutes", 0, DAY, 4), real_number("--language-minutes", 0, DAY, 6)
    tasks = whole_number("--demonstrations", 1, 1_000_000, 6000)
    width, layers = whole_number("--vision-width", 64, 8192, 512), whole_number("--vision-layers", 1, 256, 6)
    parser.add_argument(
        "--reading-minutes", type=reading, default=4.0, metavar="N", help="of the vision encoder alone; 0: go on with what the folder holds (default 4)"
    )  # fmt: skip
    parser.add_argument(
        "--language-minutes", type=language, default=6.0, metavar="N", help="of the whole model; 0: the vision encoder alone (default 6)"
    )  # fmt: skip
    parser.add_argument(
        "--demonstrations",
        type=tasks,
        default=6000,
        metavar="N",
        help="tasks whose next steps are asked (default 6000); --warm_start.grounding.screens_only adds tasks whose screens alone are seen",
    )
    parser.add_argument(
        "--vision-width", type=width, default=512, metavar="N", help="of the vision encoder (default 512)"
    )
    parser.add_argument(
        "--vision-layers", type=layers, default=6, metavar="N", help="of the vision encoder (default 6)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")


def run(args: argparse.Namespace) -> int:
    need_training_packages()
    from msgspec.structs import replace

    from distrl.cli.main import print_json
    from distrl.config.load import load_config

    config = load_config(args.config, args.overrides)
    need_model_packages(config)
    _check(config, args)
    from distrl.policies.vlm.screen_folder import VisionSize
    from distrl.pretraining.grounding.language_training import Grounding, check_screens, ground
    from distrl.runtime.factory import prepare_torch
    from distrl.runtime.placement import torch_device

    prepare_torch()
    plan = Grounding(
        language=args.language,
        folder=Path(config.policy.vlm.path),
        size=VisionSize(width=args.vision_width, layers=args.vision_layers),
        reading_minutes=args.reading_minutes,
        language_minutes=args.language_minutes,
    )
    check_screens(config, plan.size)
    plan.folder.mkdir(parents=True, exist_ok=True)
    config = replace(config, warm_start=replace(config.warm_start, demonstrations=args.demonstrations))
    done = ground(config, plan, torch_device(config.learner.device, key="learner.device"), Printer(plan.folder))
    result: dict[str, object] = {
        "folder": str(plan.folder),
        "demonstrations": args.demonstrations,
        "screens_only": config.warm_start.grounding.screens_only,
    }
    for name, last in (("reading", done.reading), ("language", done.language)):
        if last is not None:
            result |= {name: {"screens": last.samples, "drawn": last.drawn, "per_s": last.per_s, **last.parts}}
    if args.json:
        print_json(result)
    else:
        print(f"made {plan.folder}\nnext: distrl train {args.config}")
    return 0


def _check(config: Config, args: argparse.Namespace) -> None:
    from distrl.policies.vlm.folder import VLM_FIX, check_model_folder

    if config.policy.kind != "vlm" or not config.policy.vlm.path:
        raise ConfigError(
            f'policy.kind = "{config.policy.kind}" and policy.vlm.path = "{config.policy.vlm.path}"',
            expected="a language model's policy, and the folder to make",
            fix="start from configs/screen-vlm.toml",
        )
    if not args.reading_minutes + args.language_minutes or args.vision_width % 64:
        raise UsageError(
            f"{args.reading_minutes:g} and {args.language_minutes:g} minutes, a width of {args.vision_width}",
            expected="minutes that are not both 0, and a width that 64 divides",
            fix="distrl ground --help",
        )
    if args.language_minutes:
        check_model_folder(str(args.language), "--language", fix=VLM_FIX)


class Printer:
    """`Reporter` of a verb: says every few seconds how far it is, and writes figures into the folder."""

    def __init__(self, folder: Path) -> None:
        self._file, self._started_s, self._said_s, self._said = folder / METRICS, time.monotonic(), -SAY_EVERY_S, ""

    def say(self, what: str) -> None:
        """Print it, if it is new and the last time was a few seconds ago."""
        now_s = time.monotonic()
        if what != self._said and now_s - self._said_s >= SAY_EVERY_S:
            self._said, self._said_s = what, now_s
            self.log(what)

    def alive(self) -> None:
        """Nothing: nobody supervises a verb."""

    def measured(self, values: dict[str, float]) -> None:
        """A line of the metrics file."""
        row = {"time_s": round(time.monotonic() - self._started_s, 2), **{k: round(v, 5) for k, v in values.items()}}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def log(self, what: str) -> None:
        """Print it."""
        print(f"{time.monotonic() - self._started_s:6.1f} s  {what}", file=sys.stderr, flush=True)
