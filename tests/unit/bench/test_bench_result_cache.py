"""Kept cache: an interrupted benchmark goes on, and nothing is ever taken for something else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.bench import result_cache as cache_module
from distrl.bench.base import BenchOptions
from distrl.bench.result_cache import (
    ResultCache,
    cache_for,
    code_version,
    read_job_file,
    read_progress,
    write_progress,
    write_result,
)
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import DistrlError, StoreError


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    episodes: int = 64


class OtherSpec(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    episodes: int = 64


class Result(msgspec.Struct, frozen=True, kw_only=True):
    success: float


SPEC = Spec(config=load_config(None, {"run.seed": "1"}))


def make(folder: Path, code: str = "one") -> ResultCache:
    return ResultCache(folder, code=lambda: code)


def test_a_result_is_found_by_a_later_benchmark(tmp_path: Path) -> None:
    cache = make(tmp_path)
    assert cache.read(SPEC, Result) is None
    job_file = cache.write_job_file(SPEC)
    assert read_job_file(job_file, Spec) == SPEC
    write_result(job_file, Result(success=0.5))
    assert make(tmp_path).read(SPEC, Result) == Result(success=0.5)


@pytest.mark.parametrize(
    "other",
    [
        Spec(config=load_config(None, {"run.seed": "2"})),
        Spec(config=load_config(None, {"run.seed": "1", "algorithm.aride.gamma": "0.5"})),
        Spec(config=SPEC.config, episodes=65),
        OtherSpec(config=SPEC.config),
    ],
)
def test_the_result_of_another_spec_is_not_returned(tmp_path: Path, other: msgspec.Struct) -> None:
    cache = make(tmp_path)
    write_result(cache.write_job_file(SPEC), Result(success=0.5))
    assert cache.read(other, Result) is None
    cache.path(SPEC, ".json").rename(cache.path(other, ".json"))
    assert cache.read(other, Result) is None, "not even under its name"


def test_the_result_of_other_code_is_not_returned(tmp_path: Path) -> None:
    first, second = make(tmp_path, "one"), make(tmp_path, "two")
    write_result(first.write_job_file(SPEC), Result(success=0.5))
    assert second.read(SPEC, Result) is None
    first.path(SPEC, ".json").rename(second.path(SPEC, ".json"))
    assert second.read(SPEC, Result) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"code": "one"', b"\xff"])
def test_a_damaged_result_is_made_again(tmp_path: Path, damage: bytes) -> None:
    cache = make(tmp_path)
    cache.path(SPEC, ".json").write_bytes(damage)
    assert cache.read(SPEC, Result) is None


def test_the_progress_of_a_run_is_published_until_it_has_a_result(tmp_path: Path) -> None:
    cache = make(tmp_path)
    job_file = cache.write_job_file(SPEC)
    assert read_progress(job_file) == 0.0
    write_progress(job_file, 0.25)
    assert read_progress(job_file) == 0.25
    assert read_progress(cache.write_job_file(SPEC)) == 0.0, "a new attempt starts at 0"
    write_progress(job_file, 1.0)
    write_result(job_file, Result(success=0.5))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".job", ".json"]


def test_a_result_can_be_discarded(tmp_path: Path) -> None:
    cache = make(tmp_path)
    write_result(cache.write_job_file(SPEC), Result(success=0.5))
    cache.discard(SPEC)
    assert cache.read(SPEC, Result) is None
    cache.discard(SPEC)


def test_code_that_changes_on_the_way_ends_the_benchmark(tmp_path: Path) -> None:
    code = "one"
    cache = ResultCache(tmp_path, code=lambda: code)
    cache.check_code()
    code = "two"
    with pytest.raises(DistrlError, match="changed"):
        cache.check_code()


def test_the_version_of_the_code_is_about_what_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__init__.py", "learner/loop.py", "bench/learning/single_process.py", "bench/plots.py", "cli/main.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(cache_module.distrl, "__file__", str(tmp_path / "__init__.py"))
    before = code_version()
    for name in ("bench/plots.py", "cli/main.py"):
        (tmp_path / name).write_text("a = 2\n")
    assert code_version() == before
    for name in ("learner/loop.py", "bench/learning/single_process.py"):
        (tmp_path / name).write_text("a = 2\n")
        assert code_version() != before
        before = code_version()


def test_the_modules_of_the_fingerprint_exist() -> None:
    folder = Path(cache_module.distrl.__file__).parent
    assert [name for name in cache_module.TRAINING if not (folder / name).is_file()] == []


def test_parts_stand_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache_for(BenchOptions(out=Path("results")))
    assert Path("results/.run-cache").is_dir()
    cache_for(BenchOptions())
    assert Path("runs/.run-cache").is_dir()
    Path("file").touch()
    with pytest.raises(StoreError, match="cannot use"):
        cache_for(BenchOptions(out=Path("file")))


# --- damage -----------------------------------------------------------------------------------------------------------


def cached(tmp_path: Path, success: float = 0.5) -> tuple[ResultCache, Path]:
    """A cache with one result, and the file of that result."""
    cache = make(tmp_path)
    write_result(cache.write_job_file(SPEC), Result(success=success))
    return cache, cache.path(SPEC, ".json")


def test_a_result_that_was_cut_short_anywhere_is_made_again(tmp_path: Path) -> None:
    cache, file = cached(tmp_path)
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        assert cache.read(SPEC, Result) is None
    file.write_bytes(whole)
    assert cache.read(SPEC, Result) == Result(success=0.5)


@pytest.mark.parametrize("result", [b"{}", b'{"success": "half"}', b"[0.5]", b"null"])
def test_a_result_of_another_shape_is_made_again(tmp_path: Path, result: bytes) -> None:
    cache, file = cached(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'{"success":0.5}', result))
    assert cache.read(SPEC, Result) is None


def test_a_result_whose_spec_was_edited_is_made_again(tmp_path: Path) -> None:
    cache, file = cached(tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"episodes":64', b'"episodes":65'))
    assert cache.read(SPEC, Result) is None


@pytest.mark.parametrize("progress", [b"", b"half", b"\xff", b"0.5 0.6"])
def test_a_progress_file_that_cannot_be_read_counts_as_nothing_done(tmp_path: Path, progress: bytes) -> None:
    job_file = make(tmp_path).write_job_file(SPEC)
    job_file.with_suffix(cache_module.PROGRESS).write_bytes(progress)
    assert read_progress(job_file) == 0.0


def test_a_new_result_replaces_a_damaged_one(tmp_path: Path) -> None:
    cache, file = cached(tmp_path)
    file.write_bytes(b"damaged")
    write_result(cache.write_job_file(SPEC), Result(success=0.75))
    assert cache.read(SPEC, Result) == Result(success=0.75)


# --- several writers --------------------------------------------------------------------------------------------------


def test_a_reader_beside_many_writers_sees_a_whole_result_or_none(tmp_path: Path) -> None:
    cache = make(tmp_path)
    job_file = cache.write_job_file(SPEC)
    possible = [Result(success=number / 8) for number in range(8)]

    def write(number: int) -> list[Result | None]:
        seen = []
        for _ in range(10):
            write_result(job_file, possible[number])
            seen.append(make(tmp_path).read(SPEC, Result))
        return seen

    with ThreadPoolExecutor(8) as pool:
        seen = [one for found in pool.map(write, range(8)) for one in found]
    assert None not in seen, "after a first result there always is one"
    assert all(one in possible for one in seen)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".job", ".json"], "no draft is left"


def test_two_processes_that_make_the_same_run_leave_one_result(tmp_path: Path) -> None:
    job_file = make(tmp_path).write_job_file(SPEC)
    code = (
        "import sys, msgspec; from pathlib import Path; from distrl.bench.result_cache import write_result\n"
        "Result = msgspec.defstruct('Result', [('success', float)])\n"
        "for _ in range(20): write_result(Path(sys.argv[1]), Result(float(sys.argv[2])))"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(job_file), share]) for share in ("0.25", "0.5")]
    assert [process.wait() for process in started] == [0, 0]
    assert make(tmp_path).read(SPEC, Result) in (Result(success=0.25), Result(success=0.5))


def test_results_of_two_versions_of_the_code_are_kept_beside_each_other(tmp_path: Path) -> None:
    old, new = make(tmp_path, "old"), make(tmp_path, "new")
    for cache, success in ((old, 0.25), (new, 0.75)):
        write_result(cache.write_job_file(SPEC), Result(success=success))
    assert old.read(SPEC, Result) == Result(success=0.25)
    assert new.read(SPEC, Result) == Result(success=0.75)
    new.discard(SPEC)
    assert old.read(SPEC, Result) == Result(success=0.25)


def test_results_that_were_copied_from_another_machine_are_found(tmp_path: Path) -> None:
    _, file = cached(tmp_path / "there", success=0.25)
    here = make(tmp_path / "here")
    assert here.read(SPEC, Result) is None
    shutil.copy(file, tmp_path / "here")
    assert here.read(SPEC, Result) == Result(success=0.25)


# --- paths and fingerprints -------------------------------------------------------------------------------------------


def test_every_file_of_a_run_has_the_same_name_before_its_suffix(tmp_path: Path) -> None:
    cache = make(tmp_path)
    stems = {cache.path(SPEC, suffix).name.removesuffix(suffix) for suffix in (".json", ".job", ".log", ".run")}
    assert len(stems) == 1
    assert stems.pop().startswith("spec-")
    assert cache.write_job_file(SPEC) == cache.path(SPEC, ".job")


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=20, unique=True))
def test_no_two_specs_share_a_file(episodes: list[int]) -> None:
    specs = [Spec(config=SPEC.config, episodes=number) for number in episodes]
    with TemporaryDirectory() as folder:
        cache = make(Path(folder))
        assert len({cache.path(spec, ".json") for spec in specs}) == len(specs)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up copy of the package, whose fingerprint is taken."""
    for name in ("__init__.py", "learner/loop.py", "bench/base.py", *cache_module.TRAINING, "cli/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(cache_module.distrl, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


@pytest.mark.parametrize("name", ["__init__.py", "learner/loop.py", *cache_module.TRAINING])
def test_a_change_of_training_code_changes_the_fingerprint(package: Path, name: str) -> None:
    before = code_version()
    (package / name).write_text("a = 2\n")
    assert code_version() != before
    (package / name).write_text("a = 1\n")
    assert code_version() == before, "it depends on the content alone"


@pytest.mark.parametrize("name", ["bench/base.py", "bench/learning/methods.py", "cli/train.py", "cli/deep/er.py"])
def test_a_change_of_other_code_does_not(package: Path, name: str) -> None:
    before = code_version()
    (package / name).parent.mkdir(parents=True, exist_ok=True)
    (package / name).write_text("a = 2\n")
    assert code_version() == before


def test_a_new_file_a_lost_one_and_a_renamed_one_change_the_fingerprint_and_data_does_not(package: Path) -> None:
    seen = [code_version()]
    (package / "learner" / "words.txt").write_text("no code")
    assert code_version() == seen[-1]
    (package / "learner" / "more.py").write_text("b = 1\n")
    seen.append(code_version())
    (package / "learner" / "more.py").rename(package / "learner" / "other.py")
    seen.append(code_version())
    (package / "learner" / "loop.py").unlink()
    seen.append(code_version())
    assert len(set(seen)) == 4


def test_the_fingerprint_of_the_real_package_is_stable() -> None:
    assert code_version() == code_version()
    assert len(code_version()) == 16
