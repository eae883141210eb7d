"""`make` on a machine without `.venv`: it says what it does, and where it failed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOT_INSTALLED = {"wandb", "trackio"}
"""Experiment trackers: many packages, of which trackio's do not fit the others' pinned versions. Their tests are skipped, and say so."""
PYTHON = """#!/bin/sh
# Stands for Python and for the one in .venv: fails at whatever the test says.
case "$*" in
  *"$FAILS"*) echo "it says why" >&2; exit 9 ;;
  "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
esac
echo "$*" >> done.txt
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fresh clone, as far as the installation looks at it."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def make(folder: Path, fails: str = "nothing") -> subprocess.CompletedProcess[str]:
    """What `make` says and does where something fails."""
    command = ["make", "--no-print-directory", ".venv/.ready", f"PYTHON={folder}/python"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "FAILS": fails}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_stage_of_the_installation_is_announced_and_the_second_time_there_is_none(folder: Path) -> None:
    first = make(folder)
    assert (first.returncode, first.stderr) == (0, "")
    assert [line[:9].strip() for line in first.stdout.splitlines()] == ["== settin", "1 of 3", "2 of 3", "3 of 3"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.findall(r"-e \.\[(.*)\]", (folder / "done.txt").read_text())
    assert [set(names.split(",")) for names in installed] == [set(extras) - NOT_INSTALLED]
    assert "of 3" not in make(folder).stdout


def test_every_extra_stands_on_the_page_of_the_installation() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`[a-z`, ]+) \|", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall("`([a-z]+)`", row)} == set(extras)


@pytest.mark.parametrize(
    ("fails", "at", "fix"),
    [("-m venv", 1, "python3-venv"), ("constraints.txt torch", 2, "what pip says"), ("-e .[", 3, "what pip says")],
)
def test_a_stage_that_fails_is_named_with_the_fix_and_the_next_call_goes_on(
    folder: Path, fails: str, at: int, fix: str
) -> None:
    done = make(folder, fails)
    assert done.returncode != 0
    assert f"failed at {at} of 3" in done.stderr
    assert fix in done.stderr
    assert "it says why" in done.stderr
    assert make(folder).returncode == 0
