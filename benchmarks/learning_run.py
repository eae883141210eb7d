"""The results file and the learning curve of one training run.

    python benchmarks/learning_run.py RUN FOLDER NAME COMMAND

reads the run folder (config.toml, env.json, summary.json, metrics.jsonl and evaluations/ are enough of it) and writes
FOLDER/NAME.json, .png and .svg. COMMAND is what the run was started with.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from distrl.bench.base import Machine, Provenance, results_file, write_results
from distrl.bench.plots import Labels, Line, draw_lines, save
from distrl.errors import DistrlError, UsageError
from distrl.evaluation.report import wilson

USAGE = "usage: python benchmarks/learning_run.py RUN FOLDER NAME COMMAND"
NEEDS = ("summary.json", "env.json", "metrics.jsonl", "evaluations/before.json", "evaluations/after.json")
SLOT_S = 10.0
Rows = list[dict[str, Any]]
Rate = tuple[float, float, float]
"""Value, low, high."""


class LearningRun(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of tasks with their 95 % intervals; seconds count from the first published version."""

    suite: str
    success_before: Rate
    success_after: Rate
    gain_points: float
    tasks: int
    """Of the test split, before and after."""
    cloning_s: float
    cloned: dict[str, float]
    """The last metrics of cloning: losses, accuracies and throughput."""
    practice_s: float
    episodes: int
    steps: int
    updates: int
    gpu: str
    gpu_utilisation: float
    """While practising."""
    device_utilisation: float
    learner_idle_ratio: float
    staleness_mean: float
    kept_share: float
    """Share of samples that are kept successes older than the staleness bound."""
    intake_ratio: float
    """Share of the learner's time for reading new episodes."""
    relabelled: int
    """Failures that became examples of other tasks."""
    lost_episodes: int
    duplicate_episodes: int
    evaluated: list[tuple[float, float, float, float, int]]
    """Seconds, success, low, high and tasks: the first and the last on the test split, others on the tuning split."""
    practised: list[tuple[float, float]]
    """Seconds and success among recent episodes, a row every ten seconds."""
    gpu_busy: list[tuple[float, float]]
    """Seconds and utilisation, likewise; what comes before 0 is cloning."""


def main() -> int:
    """The command line."""
    try:
        run, folder, name, command = _arguments(sys.argv[1:])
        report(Path(run), Path(folder), name, command)
    except DistrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _arguments(words: list[str]) -> list[str]:
    """The four of them, the first of which names what there is to read."""
    if len(words) != 4:
        raise UsageError(USAGE)
    missing = [name for name in NEEDS if not (Path(words[0]) / name).is_file()]
    if missing:
        seen = f"{words[0]} has no {', '.join(missing)}"
        raise UsageError(seen, expected="the folder of a finished run", fix=USAGE.removeprefix("usage: "))
    return words


def report(run: Path, folder: Path, name: str, command: str) -> None:
    """Read the run, write the results."""
    summary, env = _read(run / "summary.json"), _read(run / "env.json")
    rows = sorted(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()), key=lambda row: row["time_s"])
    found = sum_up(run, summary, env, rows)
    kept = Provenance(
        bench=name,
        command=command,
        machine=_machine(env),
        seeds=1,
        config_hash=summary["config_hash"],
        date=datetime.fromtimestamp(rows[0]["time_s"], UTC).date().isoformat(),
    )
    write_results(found, kept, results_file(folder, name))
    save(
        draw_lines(_lines(found), Labels(title="Success while practising", x="seconds of practice", y="success")),
        folder,
        name,
    )
    print(f"{found.success_before[0]:.1%} -> {found.success_after[0]:.1%}: {folder / name}.json, .png, .svg")


def sum_up(run: Path, summary: dict[str, Any], env: dict[str, Any], rows: Rows) -> LearningRun:
    """The figures of a finished run."""
    began_s = next((row["time_s"] for row in rows if row.get("worker/version", -1) >= 0), None)
    learnt = next((_figures(row, "learner/") for row in reversed(rows) if row["event"] == "learner"), None)
    if began_s is None or learnt is None:
        raise UsageError(f"{run} never practised", expected="workers that played and a learner that made updates")
    cloned = [row for row in rows if row["event"] == "warm_start"]
    before, after = (_read(run / "evaluations" / f"{which}.json") for which in ("before", "after"))
    busy = [(at, value) for at, value in slots(rows, "gpu/utilisation", began_s)]
    practice_s = summary["collect_s"]
    return LearningRun(
        suite=summary["suite"],
        success_before=_rate(before),
        success_after=_rate(after),
        gain_points=round(100 * (after["success"] - before["success"]), 1),
        tasks=after["n"],
        cloning_s=round(cloned[-1]["warm_start/samples"] / cloned[-1]["warm_start/per_s"], 1) if cloned else 0.0,
        cloned=_figures(cloned[-1], "warm_start/") if cloned else {},
        practice_s=practice_s,
        episodes=summary["episodes"],
        steps=summary["steps"],
        updates=summary["updates"],
        gpu=env.get("gpus", ""),
        gpu_utilisation=round(fmean(value for at, value in busy if 0 <= at < practice_s), 3),
        device_utilisation=summary["device_utilisation"],
        learner_idle_ratio=summary["learner_idle_ratio"],
        staleness_mean=summary["staleness_mean"],
        kept_share=summary["kept_share"],
        intake_ratio=round(learnt.get("intake", 0.0), 4),
        relabelled=int(learnt.get("data/relabelled", 0)),
        lost_episodes=summary["lost_episodes"],
        duplicate_episodes=summary["duplicate_episodes"],
        evaluated=_evaluated(rows, began_s, practice_s),
        # Without those that have not yet come to the end of an episode.
        practised=slots([row for row in rows if row.get("worker/recent")], "worker/success/recent", began_s),
        gpu_busy=busy,
    )


def _figures(row: dict[str, Any], prefix: str) -> dict[str, float]:
    return {key.removeprefix(prefix): round(value, 4) for key, value in row.items() if key.startswith(prefix)}


def slots(rows: Rows, key: str, began_s: float) -> list[tuple[float, float]]:
    """The mean of a metric in every ten seconds."""
    held = defaultdict[float, list[float]](list)
    for row in rows:
        if key in row:
            held[(row["time_s"] - began_s) // SLOT_S * SLOT_S].append(row[key])
    return [(at, round(fmean(values), 3)) for at, values in sorted(held.items())]


def _evaluated(rows: Rows, began_s: float, practice_s: float) -> list[tuple[float, float, float, float, int]]:
    """Each evaluation at the time of its version; a report may repeat the one before it."""
    published = [(row["learner/version"], row["time_s"] - began_s) for row in rows if "learner/version" in row]
    reported = {row["evaluator/version"]: row for row in rows if row.get("evaluator/n")}
    found = []
    for version, row in sorted(reported.items()):
        rate = wilson(round(row["evaluator/success"] * row["evaluator/n"]), row["evaluator/n"])
        at = 0.0 if version == 0 else next((at for other, at in published if other >= version), practice_s)
        found.append(
            (
                round(min(max(at, 0.0), practice_s), 1),
                rate.value,
                round(rate.low, 4),
                round(rate.high, 4),
                row["evaluator/n"],
            )
        )
    return found


def _lines(found: LearningRun) -> list[Line]:
    at, value, low, high, _ = zip(*found.evaluated, strict=True)
    played, success = zip(*found.practised, strict=True)
    return [
        Line(name="tuning tasks, at both ends test", x=at, y=value, low=low, high=high),
        Line(name="in practice", x=played, y=success, low=success, high=success),
    ]


def _rate(evaluation: dict[str, Any]) -> Rate:
    return (evaluation["success"], round(evaluation["low"], 4), round(evaluation["high"], 4))


def _machine(env: dict[str, Any]) -> Machine:
    return Machine(
        system=f"{env['system']} {env['machine']}",
        processor=env["processor"],
        cores=env["cores"],
        memory_gb=round(env["memory_mb"] / 1024, 1),
        python=env["python"],
    )


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
