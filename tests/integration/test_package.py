"""The wheel works where there is no clone: it is built, laid into an empty folder and used from another one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from distrl import __version__
from support.pages import ROOT
from support.runs import TINY, flags, last_json

CONFIGS = sorted(file.name for file in (ROOT / "configs").glob("*.toml"))


def run(*command: object, **options: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=180, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files of the clone, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel alone; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def distrl(installed: Path, place: Path, *arguments: object) -> str:
    """The installed command, started in `place`."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return run(sys.executable, installed / "bin" / "distrl", *arguments, cwd=place, env=environment)


def test_the_wheel_holds_the_package_and_the_ready_configurations_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "distrl").rglob("*.py")}
    pages = {
        str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "distrl" / "dashboard" / "static").rglob("*.*")
    }
    assert pages <= set(names)
    assert {*modules, "distrl/py.typed", *(f"distrl/configs/{name}" for name in CONFIGS)} <= set(names)
    assert [name for name in names if not name.startswith(("distrl/", "distrl-"))] == []
    assert [name for name in names if "__pycache__" in name] == []


def test_the_page_on_installing_names_the_wheel(wheel: Path) -> None:
    assert f'"{wheel.name}[train]"' in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_the_installed_command_says_its_version_and_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert distrl(installed, tmp_path, "--version") == f"distrl {__version__}\n"
    where = run(
        sys.executable,
        "-c",
        "import distrl; print(distrl.__file__)",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert Path(where.strip()).parent == installed / "distrl"


@pytest.mark.parametrize("name", ["first-run", "configs/first-run.toml", "first-run.toml"])
def test_a_ready_configuration_is_found_by_name_in_any_folder(name: str, installed: Path, tmp_path: Path) -> None:
    shown = last_json(distrl(installed, tmp_path, "config", "show", name, "--json"))
    assert shown["settings"]["devices.sim.faults.fail_device"]["source"] == "file"


def test_the_installed_command_trains_a_ready_configuration(installed: Path, tmp_path: Path) -> None:
    settings = {
        **TINY,
        "run.episodes": 16,
        "evaluation.episodes": 4,
        "devices.sim.faults.fail_device": "worker-0/phone-1",
    }
    summary = last_json(distrl(installed, tmp_path, "train", "first-run", *flags(settings), "--json"))
    assert summary["episodes"] >= 16
    assert list(tmp_path.glob("runs/*/summary.json"))
