"""What distrl answers to wrong input, as a person at a terminal gets it: every case is a process of its own.

    .venv/bin/python benchmarks/wrong_input.py FOLDER [NUMBER]

tries NUMBER generated cases over all settings, verbs, flags and words (400; by a seed) beside every fixed one of `tests/support/wrong_input.py`,
and writes FOLDER/wrong_input.json. A right answer: exit code 2 (3 of `devices`), at most 15 lines, a fix, no traceback.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from distrl.bench.base import BenchOptions, provenance_of, results_file, write_results
from distrl.bench.jobs import log_progress
from support.trained import small_run, store_episodes
from support.wrong_input import NO_ANDROID, check, commands, flags, needed, verbs, wrong_arguments

USAGE = "usage: python benchmarks/wrong_input.py FOLDER [NUMBER]"
GENERATED, SEED = 400, 0
DEADLINE_S = 60.0


class WrongInput(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong input is answered."""

    cases: int
    generated: int
    """Of these, drawn from all that the generator makes."""
    possible: int
    """How many it makes."""
    fine: int
    tracebacks: int
    p50_s: float
    """From the start of the process to its end."""
    p99_s: float
    slowest_s: float
    slowest: str
    longest_lines: int
    failed: list[str]
    seeds: int = 1


def main() -> int:
    """Try the cases and write the results file."""
    words = sys.argv[1:]
    if not 1 <= len(words) <= 2 or not (words[1:] or ["1"])[0].isdecimal():
        print(USAGE, file=sys.stderr)
        return 2
    count, out = int(words[1]) if len(words) == 2 else GENERATED, Path(words[0])
    file = results_file(out, "wrong_input")
    with tempfile.TemporaryDirectory(prefix="distrl-wrong-") as folder:
        found = measure(Path(folder), count)
    command = f"python benchmarks/wrong_input.py docs/results {count}"
    write_results(found, provenance_of("wrong_input", command, BenchOptions(), found), file)
    print(f"{found.fine} of {found.cases} fine, 99 % within {found.p99_s} s: {file}")
    return 0 if found.fine == found.cases else 1


def measure(folder: Path, count: int) -> WrongInput:
    """All fixed cases and `count` generated ones, one after the other."""
    run = small_run(folder / "trained")
    store_episodes(run, a=True)
    fixed, possible = verbs(folder), list(generated(str(run.path), folder))
    drawn = Random(SEED).sample(possible, min(count, len(possible)))
    there = folder / "work"
    there.mkdir()
    times_s, faults, lines, tracebacks = list[float](), list[str](), 0, 0
    cases = [*fixed, *drawn]
    for number, command in enumerate(cases):
        started_s = time.monotonic()
        done = ask(command, there)
        times_s.append(time.monotonic() - started_s)
        lines, tracebacks = max(lines, len(done.stderr.splitlines())), tracebacks + ("Traceback" in done.stderr)
        faults += [fault] if (fault := check(command, done.returncode, done.stdout, done.stderr)) else []
        if number % 50 == 49:
            log_progress(f"wrong input: {number + 1} of {len(cases)}, {len(faults)} not as they have to be")
    slowest = int(np.argmax(times_s))
    p50_s, p99_s = (round(float(np.quantile(times_s, share)), 2) for share in (0.5, 0.99))
    return WrongInput(
        cases=len(cases), generated=len(drawn), possible=len(possible), fine=len(cases) - len(faults), tracebacks=tracebacks,
        p50_s=p50_s, p99_s=p99_s, slowest_s=round(times_s[slowest], 2), slowest=" ".join(cases[slowest])[:100].replace(str(folder), "…"),
        longest_lines=lines, failed=[fault.replace(str(folder), "…") for fault in faults],
    )  # fmt: skip


def generated(run: str, folder: Path) -> Iterator[list[str]]:
    """Every case that the generator makes: wrong settings of `train`, and every flag and word of every command."""
    yield from (["train", *given] for given in flags())
    for name, parser in commands().items():
        right = needed(run, folder).get(name, []) + (NO_ANDROID if name.startswith("devices ") else [])
        yield from wrong_arguments(name, parser, right, folder)


def ask(command: list[str], there: Path) -> subprocess.CompletedProcess[str]:
    """What a process says; one that does not end in time has exit code -9."""
    words = [sys.executable, "-m", "distrl", *command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            code = subprocess.run(words, stdout=out, stderr=err, cwd=there, timeout=DEADLINE_S, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -9
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


if __name__ == "__main__":
    sys.exit(main())
