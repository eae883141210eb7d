"""The results file of a vision-language model for screens: how it was grounded, and what it can do before and after practice.

    python benchmarks/screen_vlm.py FOLDER OUT COMMAND

A FOLDER with ground.json (what `distrl ground --json` printed), grounding.jsonl (of the folder that it made) and a run in runs-0/,
runs-1/, … for each seed of practice becomes OUT/screen_practice.json; general-before-0.json, general-after-0.json, … (what `distrl evaluate
--json` printed of the model before and after the practice of a seed, on sim-general) and runs-general/ (a run on sim-general that began with
the model after some more grounding) may lie beside them.

A FOLDER without holds grounding-1.jsonl and grounding-2.jsonl (of `distrl ground`, the second of going on), practised/ (a run that began with
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
from distrl.bench.statistics import newcombe
from distrl.errors import DistrlError, UsageError
from distrl.evaluation.report import wilson
from distrl.tasks.sim.suites import SUITES

USAGE = "usage: python benchmarks/screen_vlm.py FOLDER OUT COMMAND"
ANSWERING = ("-ask", "ask-")
"""In the names of templates that want text read out."""
SHOWN = ("letters_known", "names_known", "steps_known", "points_known", "texts_known")
LAST_ROWS = 10
"""Reports at the end of a stage whose means are given: a single one is of one batch."""
SLOT_S = 10.0
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


class Practice(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of practice."""

    seed: int
    before: Evaluated
    after: Evaluated
    gain_points: float
    seconds: float
    episodes: int
    updates: int
    relabelled: int
    """Failures that became examples of other tasks."""
    gpu_utilisation: float
    """With the other seeds on the same GPU."""
    device_utilisation: float
    lost_episodes: int
    duplicate_episodes: int
    practised: list[tuple[float, float]]
    """Seconds since its first version, and success among recent episodes: a row every ten seconds."""


class General(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks of sim-general; templates are seen where sim-general has training tasks of them."""

    practised: str
    """The suite of grounding and practice."""
    seed: int
    """Of the practice."""
    when: str
    """before or after the practice."""
    success: Rate
    tasks: int
    seen: tuple[float, float, float, int]
    """Success, its interval, and tasks."""
    unseen: tuple[float, float, float, int]


class ScreenPractice(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a model that was shown few next steps, and practised."""

    suite: str
    gpu: str
    demonstrations: int
    """Tasks whose next steps grounding asked."""
    screens_only: int
    """Further tasks, whose screens alone it showed."""
    reading: Stage
    language: Stage
    gain_points: float
    """Mean over the seeds of practice, which all begin with the same grounded model."""
    gain_interval: tuple[float, float]
    """Newcombe's 95 % interval of the difference, in points, with every task counted once, since all seeds play the same ones. That
    before and after are the same tasks too, which would make it narrower, is not used."""
    practice: list[Practice]
    general: list[General]


def main() -> int:
    """The command line."""
    try:
        if len(sys.argv) != 4:
            raise UsageError(USAGE)
        folder, out = Path(sys.argv[1]), Path(sys.argv[2])
        if (folder / "ground.json").is_file():
            runs = _runs(folder)
            kept = _provenance(next(iter(runs.values())), sys.argv[3], bench="screen_practice", seeds=len(runs))
            write_results(sum_up_practice(folder), kept, results_file(out, "screen_practice"))
            return 0
        write_results(sum_up(folder), _provenance(folder / "practised", sys.argv[3]), results_file(out, "screen_vlm"))
    except DistrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def sum_up(folder: Path) -> ScreenVlm:
    """Read everything."""
    first, further = (_rows(folder / f"grounding-{number}.jsonl") for number in (1, 2))
    reading, language = _stages(first)
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


def sum_up_practice(folder: Path) -> ScreenPractice:
    """Read everything of a grounding and of the practices after it."""
    grounded, runs = _read(folder / "ground.json"), _runs(folder)
    reading, language = map(_stage, _stages(_rows(folder / "grounding.jsonl")))
    practice = [_practice(seed, run) for seed, run in runs.items()]
    first = next(iter(runs.values()))
    suite = _read(first / "summary.json")["suite"]
    general = [
        _general(suite, seed, when, file)
        for seed in runs
        for when in ("before", "after")
        if (file := folder / f"general-{when}-{seed}.json").is_file()
    ]
    for run in sorted(path.parent for path in folder.glob("runs-general/*/summary.json")):
        seed = _read(run / "summary.json")["seed"]
        general += [
            _general("sim-general", seed, when, run / f"evaluations/{when}.json") for when in ("before", "after")
        ]
    return ScreenPractice(
        suite=suite,
        gpu=_read(first / "env.json").get("gpus", ""),
        demonstrations=grounded["demonstrations"],
        screens_only=grounded["screens_only"],
        reading=reading,
        language=language,
        gain_points=round(sum(one.gain_points for one in practice) / len(practice), 1),
        gain_interval=_gain_interval(practice),
        practice=practice,
        general=general,
    )


def _runs(folder: Path) -> dict[int, Path]:
    """The finished run of each seed."""
    found = {
        int(path.parts[-3].removeprefix("runs-")): path.parent for path in folder.glob("runs-[0-9]*/*/summary.json")
    }
    if not found:
        raise UsageError(f"{folder} has no finished run in runs-0/", expected="one in runs-0/, runs-1/, …", fix=USAGE)
    return dict(sorted(found.items()))


def _practice(seed: int, run: Path) -> Practice:
    summary, rows = _read(run / "summary.json"), _rows(run / "metrics.jsonl")
    before, after = (_evaluated(run, when) for when in ("before", "after"))
    learnt = [row for row in rows if row["event"] == "learner"]
    began_s = min(row["time_s"] for row in rows if row.get("worker/version", -1) >= 0)
    slots = dict[float, list[float]]()
    for row in rows:
        if row.get("worker/recent"):
            slots.setdefault((row["time_s"] - began_s) // SLOT_S * SLOT_S, []).append(row["worker/success/recent"])
    return Practice(
        seed=seed,
        before=before,
        after=after,
        gain_points=round(100 * (after.success[0] - before.success[0]), 1),
        seconds=summary["collect_s"],
        episodes=summary["episodes"],
        updates=summary["updates"],
        relabelled=int(learnt[-1].get("learner/data/relabelled", 0)) if learnt else 0,
        gpu_utilisation=summary["gpu_utilisation"],
        device_utilisation=summary["device_utilisation"],
        lost_episodes=summary["lost_episodes"],
        duplicate_episodes=summary["duplicate_episodes"],
        practised=[(at, round(sum(shares) / len(shares), 3)) for at, shares in sorted(slots.items())],
    )


def _gain_interval(practice: list[Practice]) -> tuple[float, float]:
    """In points, from the means of the seeds."""
    before, after = (
        sum(getattr(one, when).success[0] for one in practice) / len(practice) for when in ("before", "after")
    )
    low, high = newcombe(before, after, practice[0].after.tasks)
    return round(100 * low, 1), round(100 * high, 1)


def _general(practised: str, seed: int, when: str, file: Path) -> General:
    found = _read(file)
    test_only = {each.name for each in SUITES["sim-general"].templates if each.test_only}
    seen, unseen = (
        _share([row for row in found["per_task"] if (row["template"] in test_only) == held]) for held in (False, True)
    )
    success = (round(found["success"], 4), round(found["low"], 4), round(found["high"], 4))
    return General(
        practised=practised, seed=seed, when=when, success=success, tasks=found["n"], seen=seen, unseen=unseen
    )


def _share(rows: list[dict[str, Any]]) -> tuple[float, float, float, int]:
    """Over the tasks of these templates."""
    n = sum(row["n"] for row in rows)
    rate = wilson(round(sum(row["success"] * row["n"] for row in rows)), n)
    return round(rate.value, 4), round(rate.low, 4), round(rate.high, 4), n


def _stages(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The reports of the reading stage, and those of the language stage, which alone tells the loss of answers."""
    return [row for row in rows if "loss" not in row], [row for row in rows if "points_known" in row]


def _stage(rows: list[dict[str, Any]]) -> Stage:
    last, end = rows[-1], rows[-LAST_ROWS:]
    told = {name: [row[name] for row in end if name in row] for name in SHOWN}
    known = {name: round(sum(shares) / len(shares), 3) for name, shares in told.items() if shares}
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


def _provenance(run: Path, command: str, *, bench: str = "screen_vlm", seeds: int = 1) -> Provenance:
    env, began_s = _read(run / "env.json"), _rows(run / "metrics.jsonl")[0]["time_s"]
    machine = Machine(
        system=f"{env['system']} {env['machine']}",
        processor=env["processor"],
        cores=env["cores"],
        memory_gb=round(env["memory_mb"] / 1024, 1),
        python=env["python"],
    )
    date = datetime.fromtimestamp(began_s, UTC).date().isoformat()
    return Provenance(
        bench=bench, command=command, machine=machine, seeds=seeds, config_hash=env["config_hash"], date=date
    )


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
