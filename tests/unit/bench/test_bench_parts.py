"""Kept parts: an interrupted benchmark goes on, and nothing is ever taken for something else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distrl.bench import parts as parts_module
from distrl.bench.base import BenchOptions
from distrl.bench.parts import Parts, code_version, keep_result, parts_for, read_share, read_sheet, tell_share
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import DistrlError, StoreError


class Job(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    episodes: int = 64


class OtherJob(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    episodes: int = 64


class Result(msgspec.Struct, frozen=True, kw_only=True):
    success: float


JOB = Job(config=load_config(None, {"run.seed": "1"}))


def make(folder: Path, code: str = "one") -> Parts:
    return Parts(folder, code=lambda: code)


def test_a_part_is_found_again_by_a_later_benchmark(tmp_path: Path) -> None:
    parts = make(tmp_path)
    assert parts.read(JOB, Result) is None
    sheet = parts.write_sheet(JOB)
    assert read_sheet(sheet, Job) == JOB
    keep_result(sheet, Result(success=0.5))
    assert make(tmp_path).read(JOB, Result) == Result(success=0.5)


@pytest.mark.parametrize(
    "other",
    [
        Job(config=load_config(None, {"run.seed": "2"})),
        Job(config=load_config(None, {"run.seed": "1", "algorithm.gamma": "0.5"})),
        Job(config=JOB.config, episodes=65),
        OtherJob(config=JOB.config),
    ],
)
def test_the_part_of_another_job_is_not_taken(tmp_path: Path, other: msgspec.Struct) -> None:
    parts = make(tmp_path)
    keep_result(parts.write_sheet(JOB), Result(success=0.5))
    assert parts.read(other, Result) is None
    parts.path(JOB, ".json").rename(parts.path(other, ".json"))
    assert parts.read(other, Result) is None, "not even under its name"


def test_the_part_of_other_code_is_not_taken(tmp_path: Path) -> None:
    first, second = make(tmp_path, "one"), make(tmp_path, "two")
    keep_result(first.write_sheet(JOB), Result(success=0.5))
    assert second.read(JOB, Result) is None
    first.path(JOB, ".json").rename(second.path(JOB, ".json"))
    assert second.read(JOB, Result) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"code": "one"', b"\xff"])
def test_a_damaged_part_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    parts = make(tmp_path)
    parts.path(JOB, ".json").write_bytes(damage)
    assert parts.read(JOB, Result) is None


def test_the_share_that_is_done_is_told_until_it_is_done(tmp_path: Path) -> None:
    parts = make(tmp_path)
    sheet = parts.write_sheet(JOB)
    assert read_share(sheet) == 0.0
    tell_share(sheet, 0.25)
    assert read_share(sheet) == 0.25
    assert read_share(parts.write_sheet(JOB)) == 0.0, "a new attempt begins at nothing"
    tell_share(sheet, 1.0)
    keep_result(sheet, Result(success=0.5))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".job", ".json"]


def test_a_part_can_be_forgotten(tmp_path: Path) -> None:
    parts = make(tmp_path)
    keep_result(parts.write_sheet(JOB), Result(success=0.5))
    parts.forget(JOB)
    assert parts.read(JOB, Result) is None
    parts.forget(JOB)


def test_code_that_changes_on_the_way_ends_the_benchmark(tmp_path: Path) -> None:
    code = "one"
    parts = Parts(tmp_path, code=lambda: code)
    parts.check_code()
    code = "two"
    with pytest.raises(DistrlError, match="changed"):
        parts.check_code()


def test_the_version_of_the_code_is_about_what_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__init__.py", "learner/loop.py", "bench/lab.py", "bench/plots.py", "cli/main.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(parts_module.distrl, "__file__", str(tmp_path / "__init__.py"))
    before = code_version()
    for name in ("bench/plots.py", "cli/main.py"):
        (tmp_path / name).write_text("a = 2\n")
    assert code_version() == before
    for name in ("learner/loop.py", "bench/lab.py"):
        (tmp_path / name).write_text("a = 2\n")
        assert code_version() != before
        before = code_version()


def test_the_modules_that_decide_exist() -> None:
    folder = Path(parts_module.__file__).parent
    assert [name for name in parts_module.DECIDES if not (folder / name).is_file()] == []


def test_parts_stand_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts_for(BenchOptions(out=Path("results")))
    assert Path("results/.parts").is_dir()
    parts_for(BenchOptions())
    assert Path("runs/.parts").is_dir()
    Path("file").touch()
    with pytest.raises(StoreError, match="cannot use"):
        parts_for(BenchOptions(out=Path("file")))
