"""The interface of benchmarks, their names, and their results files.

A benchmark is a module with `run(options) -> Struct`, named in `BENCHES`; the fields of the struct are the names in the
published results. Results are written to `<folder>/<name>.json` together with what it takes to repeat them.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import msgspec

from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError, UsageError, closest

QUICK = "--quick"
BENCHES = {
    "ablation": "learning.ablation",
    "adb": "system.adb",
    "android": "system.android",
    "android_faults": "system.android_faults",
    "collection": "system.collection",
    "collection_sourced": "system.collection_sourced",
    "efficiency": "learning.efficiency",
    "faults": "system.faults",
    "first_run": "system.first_run",
    "fixed_seed": "learning.fixed_seed",
    "judge": "system.judge",
    "judge_cost": "learning.judge_cost",
    "judge_load": "system.judge_load",
    "kills": "system.kills",
    "miniwob": "learning.miniwob",
    "mobilegym": "learning.mobilegym",
    "quoting": "system.quoting",
    "ray": "system.ray_training",
    "ray_faults": "system.ray_faults",
    "ray_weights": "system.ray_weights",
    "replay": "system.replay",
    "scale": "system.scale",
    "sim": "system.sim",
    "staleness": "learning.staleness",
    "stalls": "system.stalls",
    "success": "learning.success",
    "timed_tuning": "learning.timed_tuning",
    "tuning": "learning.tuning",
    "view": "system.view",
    "vlm": "vlm.speed",
    "vlm_48gb": "vlm.vlm_48gb",
    "vlm_run": "vlm.vlm_run",
    "web": "system.web",
    "web_kills": "system.web_kills",
    "weights": "system.weights",
}
"""By the name on the command line, the module below `distrl.bench`; none is imported before it is asked for."""


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `distrl bench`."""

    quick: bool = False
    """A shorter measurement with wider error."""
    seeds: int = 0
    """Repetitions with different seeds; 0: the benchmark's own number."""
    out: Path | None = None
    """Folder for the results file and plots; None: write nothing."""


class Bench(Protocol):
    """What a benchmark's module defines."""

    def run(self, options: BenchOptions) -> msgspec.Struct:
        """Measure, and return the values for the results file."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a measurement, without anything that identifies the computer."""

    system: str
    processor: str
    cores: int
    memory_gb: float
    python: str


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a results file holds besides the results: all that is needed to repeat them."""

    bench: str
    command: str
    machine: Machine
    seeds: int
    config_hash: str
    date: str


def names() -> list[str]:
    """Every benchmark there is, in alphabetical order."""
    return sorted(BENCHES)


def check_name(name: str) -> None:
    """Raise where no benchmark has this name, with the others; none is loaded."""
    if name not in BENCHES:
        raise UsageError(f"no benchmark is called {name!r}", expected=closest(name, names()), fix="distrl bench --help")


def find(name: str) -> Bench:
    """The benchmark with this name, or an error that names the others."""
    check_name(name)
    return cast(Bench, import_module(f"distrl.bench.{BENCHES[name]}"))


def machine() -> Machine:
    """This machine, as in a results file."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=num_cores(),
        memory_gb=round(memory_bytes() / 2**30, 1),
        python=platform.python_version(),
    )


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of the machine; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or "unknown")


def results_file(folder: Path, name: str, *, quick: bool = False) -> Path:
    """The file for the results of `name` in `folder`; raises where it holds something else, or would lose a full measurement."""
    file = folder / f"{name}.json"
    _check_folder(folder)
    if not file.exists():
        return file
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        holds, whole = str(found.get("bench", "something else")), QUICK not in found.get("command", "").split()
    except (OSError, ValueError, AttributeError):
        holds, whole = "something else", True
    if holds != name:
        raise StoreError(
            f"{file} holds {holds}, not results of {name}", expected="a folder of its own", fix="another --out"
        )
    if quick and whole:
        raise StoreError(
            f"{file} holds a full measurement, which a quick one would replace",
            expected="a folder of its own",
            fix="another --out",
        )
    return file


def _check_folder(folder: Path) -> None:
    """Create the folder, or raise before a long measurement whose results could not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use {folder}: {error.strerror}", expected="a folder", fix="another --out") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written to", expected="a folder of yours", fix="another --out")


def write_results(result: msgspec.Struct, provenance: Provenance, file: Path) -> None:
    """Write the results and what it takes to repeat them, whole or not at all."""
    whole = {**msgspec.to_builtins(provenance), **msgspec.to_builtins(result)}
    fresh = file.with_suffix(".json.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        raise StoreError(
            f"cannot write {file}: {error.strerror}", fix="give --out a folder that you may write to"
        ) from None


def provenance_of(name: str, command: str, options: BenchOptions, result: msgspec.Struct) -> Provenance:
    """What is written beside `result`."""
    return Provenance(
        bench=name,
        command=command,
        machine=machine(),
        seeds=getattr(result, "seeds", max(1, options.seeds)),
        config_hash=getattr(result, "config_hash", config_hash(Config())),
        date=datetime.now(UTC).date().isoformat(),
    )
