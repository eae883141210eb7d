"""`distrl bench faults`: every case of the fault matrix is tried, and what came of it is compared with what has to.

The cases are data in `fault_cases`: damaged files of a run folder, signals, and faults of the surroundings. `--quick` tries a
sample of them. All of them take an hour or more: parts that are done are kept, and after an interruption the same command goes on with
the others. `python -m distrl.bench.system.faults docs/faults.md` writes the tables of that page anew from the same data.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Event

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.result_cache import ResultCache, cache_for, code_version, write_result
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
    Surrounding,
    file_cases,
    quick_reads,
    signal_cases,
)
from distrl.bench.system.fault_files import SETTINGS, Readers, Tried, make_run, resume_damaged, unlisted
from distrl.bench.system.fault_signals import SignalFigures, run_signals
from distrl.bench.system.fault_surroundings import try_surrounding
from distrl.bench.system.fault_verbs import READERS
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError, UsageError
from distrl.runtime.run_folder import RunFolder

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
    """Roles that were stopped while they trained until `distrl status` called them silent; `distrl bench stalls` measures that."""
    stall_named_slowest_s: float
    """With all else that the bench does meanwhile."""
    wall_s: float
    """Of all parts, of which two groups are tried at the same time."""
    seeds: int
    config_hash: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Cases that are tried one after the other."""

    name: str


class PartResults(msgspec.Struct, frozen=True, kw_only=True):
    """What came of them."""

    results: list[Result]
    named_s: list[float] = []
    """How long each stopped role took to be named."""
    wall_s: float = 0.0


Work = Callable[[], Iterable[Result] | PartResults]
Parts = Iterator[tuple[str, Work]]
"""Parts by name, with what tries them."""


def run(options: BenchOptions) -> FaultFigures:
    """Try the matrix, or the sample of it."""
    cache = None if options.quick else cache_for(options, partial(code_version, whole=True))
    with tempfile.TemporaryDirectory(prefix="distrl-faults-") as folder, ThreadPoolExecutor(1) as beside:
        root, cut = Path(folder), Event()
        try:
            signals = beside.submit(_try, _signals(root, cut, quick=options.quick), cache)
            base = make_run(root)
            with Readers(base.path, root / "copies") as readers:
                files = _try(_files(base, root, readers, quick=options.quick), cache)
            around = _try(_surroundings(base, root, quick=options.quick), cache)
            return summarise([*files, *around, *signals.result()])
        finally:
            cut.set()


def _try(parts: Parts, cache: ResultCache | None) -> list[PartResults]:
    """Try parts, but for those that an earlier call of the same source has tried."""
    return [_try_part(Part(name=name), work, cache) for name, work in parts]


def _try_part(part: Part, work: Work, cache: ResultCache | None) -> PartResults:
    kept = cache and cache.read(part, PartResults)
    if kept:
        return kept
    started_s = time.monotonic()
    done = work()
    found = done if isinstance(done, PartResults) else PartResults(results=list(done))
    found = msgspec.structs.replace(found, wall_s=time.monotonic() - started_s)
    fine = sum(result.fine for result in found.results)
    log_progress(f"faults: {part.name}: {fine} of {len(found.results)} fine, {found.wall_s:.0f} s")
    if cache is not None:
        cache.check_code()
        write_result(cache.write_job_file(part), found)
    return found


def summarise(parts: Sequence[PartResults]) -> FaultFigures:
    """The cases in figures."""
    results = [result for part in parts for result in part.results]
    named_s = [named_s for part in parts for named_s in part.named_s]
    groups = sorted({result.group for result in results})
    counted = Counter((result.group, result.fine) for result in results)
    by_group = {
        name: {"cases": counted[name, True] + counted[name, False], "fine": counted[name, True]} for name in groups
    }
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
        stall_named_slowest_s=round(max(named_s, default=0.0), 2),
        wall_s=round(sum(part.wall_s for part in parts), 1),
        seeds=1,
        config_hash=config_hash(load_config(None, SETTINGS)),
    )


# --- the three groups -------------------------------------------------------------------------------------------------


def _complete(base: RunFolder) -> Result:
    """Whether every file of the run is one that the matrix damages."""
    found = ", ".join(unlisted(base.path))
    return Result(group="files", case="files of the run that no case damages", expected="none", seen=found or "none")


def _files(base: RunFolder, root: Path, readers: Readers, *, quick: bool) -> Parts:
    yield "all files", lambda: [_complete(base)]
    reads = quick_reads() if quick else [case for case in file_cases() if case.verb in READERS]
    for file, cases in groupby(reads, key=lambda case: case.file.file):
        yield f"reading with {file} damaged", partial(_read, readers, list(cases))
    for damage in QUICK_RESUMED if quick else DAMAGES:
        # Of the two right ends that a replaced file may have, the longer one is a whole session: not for the quick form.
        files = [file for file in FILES if not (quick and damage in file.replaced)]
        yield f"resuming with files that are {damage}", partial(_resumed, base, root / "resumed", files, damage)


def _read(readers: Readers, cases: Sequence[FileCase]) -> Iterator[Result]:
    return map(_result, cases, readers.read(cases))


def _resumed(base: RunFolder, copy: Path, files: Sequence[RunFile], damage: Damage) -> Iterator[Result]:
    """Files that stop a resumed run one by one; all those that must not stop it at once, and one by one where they do."""
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


def _surroundings(base: RunFolder, root: Path, *, quick: bool) -> Parts:
    for what, cases in groupby((case for case in SURROUNDINGS if case.quick or not quick), key=lambda case: case.what):
        yield what, partial(_surround, base, root / "surrounding", list(cases))


def _surround(base: RunFolder, root: Path, cases: Sequence[Surrounding]) -> Iterator[Result]:
    for case in cases:
        try:
            seen = try_surrounding(base, root, case)
        except DistrlError as error:
            seen = error.seen
        yield Result(group="surroundings", case=case.name, expected=case.expected, seen=seen)


def _signals(root: Path, cut: Event, *, quick: bool) -> Parts:
    runs = [list(QUICK_SIGNALS)] if quick else [signal_cases(*numbers) for numbers in SIGNAL_RUNS]
    for number, cases in enumerate(runs):
        name = ", ".join(dict.fromkeys(case.signal for case in cases))
        yield f"signals: {name}", partial(_signal, root / f"signals-{number}", cases, cut)


def _signal(root: Path, cases: Sequence[SignalCase], cut: Event) -> PartResults:
    try:
        found = run_signals(root, cases, cut)
    except DistrlError as error:
        if cut.is_set():
            raise
        log_progress(error.seen)
        return PartResults(results=[_signal_result(case, shorten(error.seen)) for case in cases])
    named_s = [done.named_s for done in found.signalled if done.named_s is not None]
    return PartResults(results=_audited(found), named_s=named_s)


def shorten(seen: str) -> str:
    """What happened and the error that was told, without all that a run printed."""
    first, *others = seen.splitlines()
    told = next((line for line in reversed(others) if line.startswith("distrl: ")), "")
    return f"{first[:100]} … {told[:200]}" if others else first[:300]


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
