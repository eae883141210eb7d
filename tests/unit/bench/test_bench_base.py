"""The names of benchmarks, what each promises to report, and the files that hold results."""

from __future__ import annotations

import json
import os
import platform
import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from distrl.bench.base import (
    BENCHES,
    BenchOptions,
    Machine,
    Provenance,
    find,
    machine,
    memory_bytes,
    names,
    num_cores,
    provenance_of,
    results_file,
    write_results,
)
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError, UsageError

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
TRAINING_RUNS = {"pixel", "screen_practice", "screen_vlm", "smollm2", "smollm2_600", "smollm2_general"}
"""Results files of whole trainings, which no `distrl bench` writes."""
SCRIPTS = {"wrong_input"}
"""Results files of a script in benchmarks/ of that name."""
PROMISED = {
    "scale": {"devices", "trajectories_per_s", "learner_wait_ratio", "rss_mb", "ms_per_trajectory"},
    "sim": {"steps_per_s", "frames_per_s", "phones", "rss_mb", "reset_ms"},
    "collection": {
        "devices", "workers", "schemes", "speedup_vs_digirl_sync", "speedup_vs_tuned_sync", "device_utilisation",
    },
    "efficiency": {"target_success", "wall_s", "speedup_vs_digirl_sync", "low", "high", "seeds"},
    "success": {
        "iqm", "relative_vs_digirl", "relative_low", "relative_high", "relative_vs_async_digirl",
        "relative_vs_async_filtered_bc", "seeds", "test_tasks", "budget",
    },
    "ablation": {"iqm"},
    "fixed_seed": {"cases", "episodes", "made_on", "config_hash"},
    "staleness": {"bounds", "corrected", "uncorrected"},
    "judge": {"n", "accuracy", "false_positive_rate", "false_negative_rate", "unknown"},
    "replay": {"inserts_per_s", "samples_per_s", "rss_mb", "torchrl_samples_per_s"},
    "weights": {"size_mb", "workers", "p50_s", "p95_s", "runtime"},
    "vlm": {
        "model", "batch", "decisions_per_s", "stock_decisions_per_s", "train_samples_per_s",
        "stock_train_samples_per_s", "matrix_rate_share", "max_logprob_difference",
    },
    "vlm_run": {
        "model", "phones", "decisions_per_s", "samples_per_s", "gpu_utilisation", "device_utilisation", "staleness_mean",
        "episode_to_gradient_s",
    },
}  # fmt: skip
"""By benchmark, the keys that other programs read."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    speed: float
    names: list[str] = []


class SeededFigures(Figures, frozen=True, kw_only=True):
    seeds: int
    config_hash: str


MACHINE = Machine(system="Linux x86_64", processor="a processor", cores=2, memory_gb=8.0, python="3.11.7")
PROVENANCE = Provenance(
    bench="sim", command="distrl bench sim", machine=MACHINE, seeds=1, config_hash="abc", date="2026-01-01"
)


def figures_of(name: str) -> Any:
    """The record that a benchmark returns."""
    return get_type_hints(import_module(f"distrl.bench.{BENCHES[name]}").run)["return"]


@pytest.mark.parametrize("name", names())
def test_every_benchmark_is_a_module_with_a_run_that_takes_options_and_returns_a_record(name: str) -> None:
    run = find(name).run
    assert list(signature(run).parameters) == ["options"]
    assert issubclass(figures_of(name), msgspec.Struct)


@pytest.mark.parametrize("name", PROMISED)
def test_every_benchmark_reports_the_keys_that_other_programs_read(name: str) -> None:
    assert set(figures_of(name).__struct_fields__) >= PROMISED[name]


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_every_kept_results_file_is_of_a_benchmark_and_can_be_read_with_its_record(file: Path) -> None:
    found = json.loads(file.read_bytes())
    assert found["bench"] == file.stem
    assert {"command", "machine", "seeds", "config_hash", "date"} <= found.keys()
    msgspec.convert(found, Provenance)
    if file.stem in TRAINING_RUNS:
        return
    if file.stem in SCRIPTS:
        assert found["command"].split()[:2] == ["python", f"benchmarks/{file.stem}.py"]
        return
    assert found["command"].split()[:3] == ["distrl", "bench", file.stem]
    needed = {field.encode_name for field in msgspec.structs.fields(figures_of(file.stem)) if field.required}
    assert needed <= found.keys()
    msgspec.convert(found, figures_of(file.stem))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_every_benchmark_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"distrl bench ([a-z_0-9]+)", page.read_text(encoding="utf-8")))
    assert named <= set(names())


def test_the_page_of_results_names_every_file_and_no_other() -> None:
    named = set(re.findall(r"\]\((\w+)\.json\)", (RESULTS / "README.md").read_text(encoding="utf-8")))
    assert named == {file.stem for file in RESULTS.glob("*.json")}


def test_names_are_sorted_and_a_wrong_one_is_answered_with_the_closest() -> None:
    assert names() == sorted(set(names()))
    with pytest.raises(UsageError, match="no benchmark is called 'sucess'") as caught:
        find("sucess")
    assert "success" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_of_the_package_is_not_a_benchmark() -> None:
    for name in ("base", "learning.success", "learning", "jobs", "", "__init__"):
        with pytest.raises(UsageError):
            find(name)


# --- the machine ------------------------------------------------------------------------------------------------------


def test_the_machine_is_described_without_its_name() -> None:
    found = machine()
    assert found.cores == num_cores() >= 1
    assert found.memory_gb == round(memory_bytes() / 2**30, 1)
    assert found.python == platform.python_version()
    assert platform.node() not in str(msgspec.to_builtins(found)) or not platform.node()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin processes")
def test_only_the_cores_that_this_process_may_use_are_counted() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert num_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


# --- results files ----------------------------------------------------------------------------------------------------


def test_results_are_written_with_what_it_takes_to_repeat_them(tmp_path: Path) -> None:
    file = results_file(tmp_path / "new" / "folder", "sim")
    write_results(Figures(speed=1.5, names=["größer"]), PROVENANCE, file)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert list(found) == ["bench", "command", "machine", "seeds", "config_hash", "date", "speed", "names"]
    assert found["machine"]["cores"] == 2
    assert "größer" in file.read_text(encoding="utf-8"), "readable, not escaped"
    assert [path.name for path in file.parent.iterdir()] == ["sim.json"], "no draft is left"


def test_what_a_record_says_of_its_seeds_and_settings_is_what_the_file_says(tmp_path: Path) -> None:
    result = SeededFigures(speed=1.0, seeds=5, config_hash="abcabc")
    found = provenance_of("sim", "distrl bench sim", BenchOptions(seeds=3), result)
    assert (found.seeds, found.config_hash) == (5, "abcabc")
    write_results(result, found, tmp_path / "sim.json")
    assert json.loads((tmp_path / "sim.json").read_bytes())["seeds"] == 5


@pytest.mark.parametrize(("asked", "seeds"), [(0, 1), (1, 1), (4, 4)])
def test_a_record_without_seeds_has_as_many_as_were_asked_for(asked: int, seeds: int) -> None:
    found = provenance_of("sim", "distrl bench sim", BenchOptions(seeds=asked), Figures(speed=1.0))
    assert (found.seeds, found.config_hash) == (seeds, config_hash(Config()))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)


def test_a_new_measurement_replaces_an_earlier_one_of_the_same_name(tmp_path: Path) -> None:
    for speed in (1.0, 2.0):
        write_results(Figures(speed=speed), PROVENANCE, results_file(tmp_path, "sim"))
    assert json.loads((tmp_path / "sim.json").read_bytes())["speed"] == 2.0


def test_a_quick_measurement_replaces_a_quick_one_and_never_a_full_one(tmp_path: Path) -> None:
    quick = msgspec.structs.replace(PROVENANCE, command="distrl bench sim --quick")
    write_results(Figures(speed=1.0), quick, results_file(tmp_path, "sim", quick=True))
    write_results(Figures(speed=2.0), quick, results_file(tmp_path, "sim", quick=True))
    write_results(Figures(speed=3.0), PROVENANCE, results_file(tmp_path, "sim"))
    with pytest.raises(StoreError, match="full measurement"):
        results_file(tmp_path, "sim", quick=True)
    assert json.loads((tmp_path / "sim.json").read_bytes())["speed"] == 3.0


@pytest.mark.parametrize("content", ['{"bench": "weights"}', "[]", "not json", '{"other": 1}', ""])
def test_a_file_of_something_else_is_never_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "sim.json").write_text(content)
    for quick in (False, True):
        with pytest.raises(StoreError, match="not results of sim"):
            results_file(tmp_path, "sim", quick=quick)
    assert (tmp_path / "sim.json").read_text() == content


def test_a_folder_that_is_a_file_is_refused_before_the_measurement(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out"):
        results_file(tmp_path / "file", "sim")
    with pytest.raises(StoreError, match="cannot write"):
        write_results(Figures(speed=1.0), PROVENANCE, tmp_path / "file" / "sim.json")
