"""The workflows of continuous integration run the same commands as a person, with pinned actions and few rights."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml"))
RIGHTS = {
    ("docs.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("release.yml", "publish"): {"contents": "write"},
}
"""What a job may write, by workflow and job; all others only read."""


@cache
def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(
        re.sub(r"^on:", '"on":', text, flags=re.MULTILINE)
    )  # YAML 1.1 reads on as true
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def test_there_is_a_workflow_for_tests_documentation_and_releases() -> None:
    assert FILES == ["docs.yml", "release.yml", "test.yml"]


@pytest.mark.parametrize("name", FILES)
def test_every_action_is_pinned_to_a_commit_and_says_its_version(name: str) -> None:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    used = re.findall(r"uses: (.+)", text)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("name", FILES)
def test_a_job_has_a_time_limit_and_no_more_rights_than_it_needs(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}
    for job, settings in workflow(name)["jobs"].items():
        assert 0 < settings["timeout-minutes"] <= 60
        assert settings["runs-on"] == "ubuntu-24.04"
        assert settings.get("permissions", {}) == RIGHTS.get((name, job), {})


@pytest.mark.parametrize("name", FILES)
def test_no_checkout_keeps_its_credentials_and_no_text_of_others_reaches_the_shell(name: str) -> None:
    for step in steps(name):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("name", FILES)
def test_what_a_workflow_makes_is_a_target_of_the_makefile(name: str) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    made = [found[1] for step in steps(name) if (found := re.match(r"make (\w+)", step.get("run", "")))]
    assert made
    assert set(made) <= set(targets)


def test_each_workflow_runs_what_its_name_says() -> None:
    runs = {name: [step.get("run", "") for step in steps(name)] for name in FILES}
    assert "make test PYTHON=python" in runs["test.yml"]
    assert "make docs PYTHON=python" in runs["docs.yml"]
    assert {"make test PYTHON=python", "make wheel PYTHON=python"} <= set(runs["release.yml"])
