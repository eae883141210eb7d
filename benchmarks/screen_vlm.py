"""The results file of a vision-language model for screens: how it was grounded, and what it can do before and after practice.

    python benchmarks/screen_vlm.py FOLDER OUT COMMAND

FOLDER holds grounding-1.jsonl and grounding-2.jsonl (of `distrl ground`, the second of going on), practised/ (a run that began with
the model of the first) and last/ (one that began with the model of the second); summary.json, env.json and evaluations/ are
enough of a run, and config.toml of the first. Writes OUT/screen_vlm.json.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from distrl.bench.base import Machine, Provenance, results_file, write_results
from distrl.errors import DistrlError, UsageError

USAGE = "usage: python benchmarks/screen_vlm.py FOLDER OUT COMMAND"
ANSWERING = ("-ask", "ask-")
"""In the names of templates that want text read out."""
SHOWN = ("letters_known", "names_known", "steps_known", "points_known", "texts_known")
LAST_ROWS = 10
"""Reports at the end of a stage whose means are given: a single one is of one batch."""
Rate = tuple[float, float, float]
"""Value, low, high."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of grounding."""

    seconds: float
    """Of training, without start and compilation."""
    screens: int
    """In batches."""
    drawn: int
    """Different ones."""
    screens_per_s: float
    queries_per_screen: float
    known: dict[str, float]
    """Shares that were right before they were learnt from, means over the last reports."""


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks of sim-start."""

    success: Rate
    tasks: int
    doing: float
    """Of the templates that want something done."""
    answering: float
    """Of those that want text read out."""
    templates: dict[str, float]


class ScreenVlm(msgspec.Struct, frozen=True, kw_only=True):
    """The figures."""

    suite: str
    gpu: str
    reading: Stage
    language: Stage
    language_further: Stage
    grounded: Evaluated
    """After reading and language; on this model, practice began."""
    practised: Evaluated
    grounded_further: Evaluated
    """After both, and language once more."""
    practice_s: float
    practice_episodes: int
    practice_updates: int
    practice_gain_points: float
    practice_gpu_utilisation: float
    practice_device_utilisation: float
    practice_lost_episodes: int
    practice_duplicate_episodes: int


def main() -> int:
    """The command line."""
    try:
        if len(sys.argv) != 4:
            raise UsageError(USAGE)
        folder, out = Path(sys.argv[1]), Path(sys.argv[2])
        write_results(sum_up(folder), _provenance(folder, sys.argv[3]), results_file(out, "screen_vlm"))
    except DistrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def sum_up(folder: Path) -> ScreenVlm:
    """Read everything."""
    first, further = (_rows(folder / f"grounding-{number}.jsonl") for number in (1, 2))
    reading = [row for row in first if "step" not in row and "steps_known" not in row]
    language = [row for row in first if "steps_known" in row]
    summary, last = _read(folder / "practised/summary.json"), folder / "last"
    before, after = (_evaluated(folder / "practised", when) for when in ("before", "after"))
    return ScreenVlm(
        suite=summary["suite"],
        gpu=_read(folder / "practised/env.json")["gpus"],
        reading=_stage(reading),
        language=_stage(language),
        language_further=_stage(further),
        grounded=before,
        practised=after,
        grounded_further=_evaluated(last, "before"),
        practice_s=summary["collect_s"],
        practice_episodes=summary["episodes"],
        practice_updates=summary["updates"],
        practice_gain_points=round(100 * (after.success[0] - before.success[0]), 1),
        practice_gpu_utilisation=summary["gpu_utilisation"],
        practice_device_utilisation=summary["device_utilisation"],
        practice_lost_episodes=summary["lost_episodes"],
        practice_duplicate_episodes=summary["duplicate_episodes"],
    )


def _stage(rows: list[dict[str, Any]]) -> Stage:
    last, end = rows[-1], rows[-LAST_ROWS:]
    known = {name: round(sum(row[name] for row in end) / len(end), 3) for name in SHOWN if name in last}
    return Stage(
        seconds=round(last["samples"] / last["per_s"], 1),
        screens=int(last["samples"]),
        drawn=int(last["drawn"]),
        screens_per_s=round(last["per_s"], 1),
        queries_per_screen=round(last.get("queries_asked", 0.0), 1),
        known=known,
    )


def _evaluated(run: Path, when: str) -> Evaluated:
    found = _read(run / "evaluations" / f"{when}.json")
    templates = {each["template"]: each["success"] for each in found["per_task"]}
    answering = [name for name in templates if any(word in name for word in ANSWERING)]
    doing = [name for name in templates if name not in answering]
    means = (sum(templates[name] for name in some) / len(some) for some in (doing, answering))
    return Evaluated(
        success=(round(found["success"], 4), round(found["low"], 4), round(found["high"], 4)),
        tasks=found["n"],
        doing=round(next(means), 4),
        answering=round(next(means), 4),
        templates=templates,
    )


def _provenance(folder: Path, command: str) -> Provenance:
    env, began_s = _read(folder / "practised/env.json"), _rows(folder / "practised/metrics.jsonl")[0]["time_s"]
    machine = Machine(
        system=f"{env['system']} {env['machine']}",
        processor=env["processor"],
        cores=env["cores"],
        memory_gb=round(env["memory_mb"] / 1024, 1),
        python=env["python"],
    )
    date = datetime.fromtimestamp(began_s, UTC).date().isoformat()
    return Provenance(
        bench="screen_vlm", command=command, machine=machine, seeds=1, config_hash=env["config_hash"], date=date
    )


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
