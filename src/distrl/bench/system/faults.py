"""`distrl bench faults`: every case of the fault matrix is tried, and what came of it is compared with what has to.

The cases are data in `fault_cases`: damaged files of a run folder, signals, and faults of the surroundings. `--quick` tries a
sample of them. `python -m distrl.bench.system.faults docs/faults.md` writes the tables of that page anew from the same data.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.fault_cases import (
    DAMAGES,
    FILES,
    PHASES,
    QUICK_SIGNALS,
    ROLES,
    SIGNAL_RUNS,
    SIGNALS,
    SURROUNDINGS,
    VERBS,
    Damage,
    FileCase,
    Role,
    RunFile,
    Signal,
    SignalCase,
    file_cases,
    quick_reads,
    signal_cases,
)
from distrl.bench.system.fault_files import SETTINGS, Tried, make_run, read_all, resume_damaged, unlisted
from distrl.bench.system.fault_signals import SignalFigures, measure_stalls, run_signals
from distrl.bench.system.fault_surroundings import try_surrounding
from distrl.bench.system.fault_verbs import READERS
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError, UsageError
from distrl.runtime.run_folder import RunFolder

STOPS = 30
"""Stops over which the naming of a silent role is measured; `--quick` has those of its signals."""
MOST_EXCEPTIONS = 2
"""A cell that leaves out so few damages names those instead."""
QUICK_RESUMED: tuple[Damage, ...] = ("flipped",)
"""Damages with which `--quick` resumes runs."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One case and what came of it."""

    group: str
    case: str
    expected: str
    seen: str
    lost: int = 0
    """Good episodes that are gone or changed."""
    doubled: int = 0

    @property
    def fine(self) -> bool:
        """Whether it is as it has to be."""
        return self.seen in self.expected.split(" or ") and not self.lost and not self.doubled

    def __str__(self) -> str:
        return f"{self.case}: {self.seen}, lost {self.lost}, doubled {self.doubled}; expected: {self.expected}"


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The fault matrix in figures."""

    cases: int
    fine: int
    tracebacks: int
    silent: int
    """Commands that did not end in time, or without a word."""
    lost: int
    """Good episodes that are gone or changed."""
    doubled: int
    by_group: dict[str, dict[str, int]]
    """Cases, and how many of them are fine, by group."""
    failed: list[str]
    """The cases that are not fine, each with what was seen."""
    stalls: int
    """Stopped roles whose naming was measured."""
    stall_named_p50_s: float
    """From the stop of a role until `distrl status` calls it silent."""
    stall_named_p99_s: float
    wall_s: float
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> FaultFigures:
    """Try the matrix, or the sample of it."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="distrl-faults-") as folder, ThreadPoolExecutor(1) as beside:
        root = Path(folder)
        hurried = beside.submit(_signals, root, quick=True) if options.quick else None
        base = make_run(root)
        log_progress(f"faults: a run to damage after {time.monotonic() - started_s:.0f} s")
        results = [
            _complete(base),
            *_files(base, root, quick=options.quick),
            *_surroundings(base, root, quick=options.quick),
        ]
        # Alone, so that how soon a role is named is not a matter of what else runs; the quick form is for haste.
        signals, named_s = hurried.result() if hurried else _signals(root, quick=False)
    return summarise([*results, *signals], named_s, time.monotonic() - started_s)


def summarise(results: Sequence[Result], named_s: Sequence[float], wall_s: float) -> FaultFigures:
    """The cases in figures."""
    groups = sorted({result.group for result in results})
    counted = Counter((result.group, result.fine) for result in results)
    by_group = {
        name: {"cases": counted[name, True] + counted[name, False], "fine": counted[name, True]} for name in groups
    }
    p50_s, p99_s = (round(float(np.quantile(named_s or [0.0], share)), 2) for share in (0.5, 0.99))
    return FaultFigures(
        cases=len(results),
        fine=sum(result.fine for result in results),
        tracebacks=sum(result.seen == "traceback" for result in results),
        silent=sum(result.seen in ("silent", "did not end") for result in results),
        lost=sum(result.lost for result in results),
        doubled=sum(result.doubled for result in results),
        by_group=by_group,
        failed=[str(result) for result in results if not result.fine],
        stalls=len(named_s),
        stall_named_p50_s=p50_s,
        stall_named_p99_s=p99_s,
        wall_s=round(wall_s, 1),
        seeds=1,
        config_hash=config_hash(load_config(None, SETTINGS)),
    )


# --- the three groups -------------------------------------------------------------------------------------------------


def _complete(base: RunFolder) -> Result:
    """Whether every file of the run is one that the matrix damages."""
    found = ", ".join(unlisted(base.path))
    return Result(group="files", case="files of the run that no case damages", expected="none", seen=found or "none")


def _files(base: RunFolder, root: Path, *, quick: bool) -> Iterator[Result]:
    reads = quick_reads() if quick else [case for case in file_cases() if case.verb in READERS]
    yield from map(_result, reads, read_all(base.path, root / "copies", reads))
    for damage in QUICK_RESUMED if quick else DAMAGES:
        # Of the two right ends that a replaced file may have, the longer one is a whole session: not for the quick form.
        files = [file for file in FILES if not (quick and damage in file.replaced)]
        yield from _resumed(base, root / "resumed", files, damage)


def _resumed(base: RunFolder, copy: Path, files: Sequence[RunFile], damage: Damage) -> Iterator[Result]:
    """Files that stop a resumed run one by one; all those that must not stop it at once, and one by one where they do."""
    log_progress(f"faults: resuming with files that are {damage}")
    cases = [FileCase(file=file, damage=damage, verb="resume") for file in files]
    together = [case for case in cases if case.expected == "goes on"]
    tried = resume_damaged(base, copy, [case.file for case in together], damage)
    results = [_result(case, tried) for case in together]
    if not all(result.fine for result in results):
        results, together = [], []
    yield from results
    for case in cases:
        if case not in together:
            yield _result(case, resume_damaged(base, copy, [case.file], damage))


def _result(case: FileCase, tried: Tried) -> Result:
    what = f"{case.verb} with {case.file.file} {case.damage}"
    seen = f"changed {', '.join(tried.changed)}" if tried.changed else tried.ended.outcome
    if seen not in case.expected.split(" or "):
        log_progress(f"faults: {what}: {seen}, expected {case.expected}: {(tried.ended.err or tried.ended.out)[-600:]}")
    return Result(group="files", case=what, expected=case.expected, seen=seen, lost=tried.lost)


def _surroundings(base: RunFolder, root: Path, *, quick: bool) -> Iterator[Result]:
    for case in SURROUNDINGS:
        if case.quick or not quick:
            try:
                seen = try_surrounding(base, root / "surrounding", case)
            except DistrlError as error:
                seen = error.seen
            yield Result(group="surroundings", case=case.name, expected=case.expected, seen=seen)


def _signals(root: Path, *, quick: bool) -> tuple[list[Result], list[float]]:
    runs = [list(QUICK_SIGNALS)] if quick else [signal_cases(*numbers) for numbers in SIGNAL_RUNS]
    results, named_s = list[Result](), list[float]()
    for number, cases in enumerate(runs):
        try:
            found = run_signals(root / f"signals-{number}", cases)
        except DistrlError as error:
            results += [_signal_result(case, error.seen) for case in cases]
            continue
        results += _audited(found)
        named_s += [done.named_s for done in found.signalled if done.named_s is not None]
    return results, named_s + ([] if quick else measure_stalls(root / "stalls", STOPS))


def _signal_result(case: SignalCase, seen: str) -> Result:
    return Result(group="signals", case=case.name, expected=case.expected, seen=seen)


def _audited(found: SignalFigures) -> list[Result]:
    """The cases of one run; what the run lost is told with the last of them."""
    results = [_signal_result(done.case, done.seen) for done in found.signalled]
    whole = found.left.finished and found.left.exactly_once
    last = msgspec.structs.replace(
        results[-1],
        seen=results[-1].seen if whole else "a run that is not whole",
        lost=found.left.lost_episodes,
        doubled=found.left.duplicate_episodes,
    )
    return [*results[:-1], last]


# --- the page ---------------------------------------------------------------------------------------------------------

BEGIN, END = "<!-- fault matrix: begin -->\n", "<!-- fault matrix: end -->\n"
"""Between them on the page, everything is written by `tables`."""


def tables() -> str:
    """The matrix for people, in Markdown."""
    files = [f"| `{file.file}` | {file.what} | {' | '.join(_cells(file))} |" for file in FILES]
    signals = [
        f"| {number} | {where} | {' | '.join(_ends(number, role) for role in ROLES)} |"
        for number, where in SIGNALS.items()
    ]
    around = [f"| {case.what} | {case.how} | {case.expected} |" for case in SURROUNDINGS]
    damages = "; ".join(f"*{name}*: {what}" for name, what in DAMAGES.items())
    return "\n".join(
        [
            f"Damages: {damages}. A cell names those with which the verb is refused; with all others it goes on.",
            "`Python` is `distrl.open_run` with all that it reads.",
            "",
            f"| file | what it holds | {' | '.join(VERBS)} |",
            f"|---|---|{'---|' * len(VERBS)}",
            *files,
            "",
            f"Signals, each while a run is {', '.join(PHASES[:-1])} and {PHASES[-1]}:",
            "",
            f"| signal | where it comes from | {' | '.join(ROLES)} |",
            "|---|---|---|---|---|---|",
            *signals,
            "",
            "| surroundings | case | what comes of it |",
            "|---|---|---|",
            *around,
            "",
        ]
    )


def _cells(file: RunFile) -> list[str]:
    cells = [_words(file.refused.get(verb, ())) for verb in VERBS]
    if file.replaced:
        cells[-1] += f"; {_words(file.replaced)}, unless the learner publishes in time"
    return cells


def _words(damages: tuple[Damage, ...]) -> str:
    others = [damage for damage in DAMAGES if damage not in damages]
    if not others:
        return "whatever the damage"
    return f"all but {' and '.join(others)}" if len(others) <= MOST_EXCEPTIONS else ", ".join(damages)


def _ends(number: Signal, role: Role) -> str:
    """What has to come of a signal in every phase, named by phase where phases differ."""
    cases = [case for case in signal_cases(number) if case.role == role]
    runs = [(ends, [case.phase for case in found]) for ends, found in groupby(cases, key=lambda case: case.expected)]
    return runs[0][0] if len(runs) == 1 else "; ".join(f"{', '.join(phases)}: {ends}" for ends, phases in runs)


def rewrite(page: str) -> str:
    """The page with its tables as the data have them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError("the page has no place for the fault matrix", expected=f"{BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(rewrite(file.read_text(encoding="utf-8")), encoding="utf-8")
