"""The results file and the learning curve of one training run, or of one for each of several seeds.

    python benchmarks/learning_run.py RUN… FOLDER NAME COMMAND

reads the run folders (config.toml, env.json, summary.json, metrics.jsonl and evaluations/ are enough of them) and writes
FOLDER/NAME.json, .png and .svg. COMMAND is what the runs were started with. Of several, each but the last may also be the results
file of a single run that was measured before.
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
from distrl.bench.statistics import newcombe
from distrl.errors import DistrlError, UsageError
from distrl.evaluation.report import wilson
from distrl.tasks.sim.suites import SUITES

USAGE = "usage: python benchmarks/learning_run.py RUN… FOLDER NAME COMMAND"
NEEDS = ("summary.json", "env.json", "metrics.jsonl", "evaluations/before.json", "evaluations/after.json")
SLOT_S = 10.0
Rows = list[dict[str, Any]]
Rate = tuple[float, float, float]
"""Value, low, high."""
Share = tuple[float, float, float, int]
"""Value, low, high, tasks."""


class LearningRun(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of tasks with their 95 % intervals; seconds count from the first published version."""

    suite: str
    seed: int
    success_before: Rate
    success_after: Rate
    gain_points: float
    tasks: int
    """Of the test split, before and after."""
    seen_templates_before: Share
    """Of templates that training has."""
    seen_templates_after: Share
    unseen_templates_before: Share
    """Of templates for test alone; not in every suite."""
    unseen_templates_after: Share
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


class LearningRuns(msgspec.Struct, frozen=True, kw_only=True):
    """One run for each seed, on the same test tasks."""

    suite: str
    tasks: int
    success_before: float
    """Means over the seeds."""
    success_after: float
    gain_points: float
    gain_interval: tuple[float, float]
    """Newcombe's 95 % interval, in points, with every task counted once, since all seeds have the same ones."""
    runs: list[dict[str, Any]]
    """The figures of each, with its date and the hash of its settings."""


def main() -> int:
    """The command line."""
    try:
        *runs, folder, name, command = _arguments(sys.argv[1:])
        report([Path(run) for run in runs], Path(folder), name, command)
    except DistrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _arguments(words: list[str]) -> list[str]:
    """Those before the last three name what there is to read."""
    if len(words) < 4:
        raise UsageError(USAGE)
    *earlier, last = map(Path, words[:-3])
    for run in (*(path for path in earlier if path.suffix != ".json"), last):
        missing = [name for name in NEEDS if not (run / name).is_file()]
        if missing:
            seen = f"{run} has no {', '.join(missing)}"
            raise UsageError(seen, expected="the folder of a finished run", fix=USAGE.removeprefix("usage: "))
    return words


def report(runs: list[Path], folder: Path, name: str, command: str) -> None:
    """Read the runs, write the results."""
    last, config_hash, date = _read_run(runs[-1])
    found = [_measured(path) if path.suffix == ".json" else _told(*_read_run(path)) for path in runs]
    kept = Provenance(
        bench=name,
        command=command,
        machine=_machine(_read(runs[-1] / "env.json")),
        seeds=len(found),
        config_hash=config_hash,
        date=date,
    )
    write_results(last if len(found) == 1 else together(found), kept, results_file(folder, name))
    labels = Labels(title="Success while practising", x="seconds of practice", y="success")
    save(draw_lines(_lines(found), labels), folder, name)
    for one in found:
        rates = f"{one['success_before'][0]:.1%} -> {one['success_after'][0]:.1%}"
        print(f"{one['suite']}, seed {one['seed']}: {rates}: {folder / name}.json, .png, .svg")


def _read_run(run: Path) -> tuple[LearningRun, str, str]:
    """The figures of a run folder, the hash of its settings, and its date."""
    summary, env = _read(run / "summary.json"), _read(run / "env.json")
    rows = sorted(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()), key=lambda row: row["time_s"])
    date = datetime.fromtimestamp(rows[0]["time_s"], UTC).date().isoformat()
    return sum_up(run, summary, env, rows), summary["config_hash"], date


def _told(figures: LearningRun, config_hash: str, date: str) -> dict[str, Any]:
    return {**msgspec.structs.asdict(figures), "config_hash": config_hash, "date": date}


def _measured(file: Path) -> dict[str, Any]:
    """Those of the results file of a single run; files that name no seed are of seed 0."""
    found = _read(file)
    if found.get("seeds") != 1 or "success_after" not in found:
        raise UsageError(f"{file} holds no single run", expected="a results file of one", fix=USAGE)
    return {"seed": 0} | {key: value for key, value in found.items() if key not in ("bench", "machine", "seeds")}


def together(found: list[dict[str, Any]]) -> LearningRuns:
    """The figures of one run for each seed."""
    first = found[0]
    alike = {(one["suite"], one["tasks"]) for one in found}
    if len(alike) > 1 or len({one["seed"] for one in found}) < len(found):
        seen = ", ".join(f"{one['suite']} with {one['tasks']} tasks, seed {one['seed']}" for one in found)
        raise UsageError(seen, expected="one suite, the same test tasks, and a run for each seed", fix=USAGE)
    before, after = (fmean(one[f"success_{when}"][0] for one in found) for when in ("before", "after"))
    low, high = newcombe(before, after, first["tasks"])
    return LearningRuns(
        suite=first["suite"],
        tasks=first["tasks"],
        success_before=round(before, 4),
        success_after=round(after, 4),
        gain_points=round(100 * (after - before), 1),
        gain_interval=(round(100 * low, 1), round(100 * high, 1)),
        runs=found,
    )


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
        seed=summary["seed"],
        success_before=_rate(before),
        success_after=_rate(after),
        gain_points=round(100 * (after["success"] - before["success"]), 1),
        tasks=after["n"],
        **{
            f"{which}_templates_{when}": _share(evaluation, summary["suite"], unseen=which == "unseen")
            for which in ("seen", "unseen")
            for when, evaluation in (("before", before), ("after", after))
        },
        cloning_s=round(cloned[-1]["warm_start/samples"] / cloned[-1]["warm_start/per_s"], 1) if cloned else 0.0,
        cloned=_figures(cloned[-1], "warm_start/") if cloned else {},
        practice_s=practice_s,
        episodes=summary["episodes"],
        steps=summary["steps"],
        updates=summary["updates"],
        gpu=env.get("gpus", ""),
        gpu_utilisation=round(fmean([value for at, value in busy if 0 <= at < practice_s] or [0.0]), 3),
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


def _share(evaluation: dict[str, Any], suite: str, *, unseen: bool) -> Share:
    """Success on the tasks of templates that training has, or has not."""
    held_out = {each.name for each in SUITES[suite].templates if each.test_only} if suite in SUITES else set()
    rows = [row for row in evaluation["per_task"] if (row["template"] in held_out) == unseen]
    n = sum(row["n"] for row in rows)
    rate = wilson(round(sum(row["success"] * row["n"] for row in rows)), n)
    return round(rate.value, 4), round(rate.low, 4), round(rate.high, 4), n


def _lines(found: list[dict[str, Any]]) -> list[Line]:
    """Two curves for each run that has them."""
    lines = []
    for one in found:
        seed = f", seed {one['seed']}" if len(found) > 1 else ""
        if one.get("evaluated"):
            at, value, low, high, _ = zip(*one["evaluated"], strict=True)
            lines.append(Line(name=f"tuning tasks, at both ends test{seed}", x=at, y=value, low=low, high=high))
        if one.get("practised"):
            played, success = zip(*one["practised"], strict=True)
            lines.append(Line(name=f"in practice{seed}", x=played, y=success, low=success, high=success))
    return lines


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
