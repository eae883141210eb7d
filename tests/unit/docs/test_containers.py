"""The Dockerfiles keep the rules that linters of containers ask for, and copy what there is."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from pathlib import Path

import pytest

from distrl.cli.main import VERBS

ROOT = Path(__file__).parents[3]
FILES = ("Dockerfile", "Dockerfile.cuda")


def steps(name: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, in order, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for line in lines if line for word, _, rest in [line.partition(" ")]]


def last_stage(name: str) -> list[tuple[str, str]]:
    found = steps(name)
    start = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


@pytest.mark.parametrize("name", FILES)
def test_an_image_has_a_pinned_slim_base_in_two_stages(name: str) -> None:
    bases = [rest.split()[0] for word, rest in steps(name) if word == "FROM"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+", base) for base in bases)


@pytest.mark.parametrize("name", FILES)
def test_an_image_runs_distrl_and_not_as_root(name: str) -> None:
    stage = dict(last_stage(name))
    assert stage["USER"] == "1000:1000"
    assert json.loads(stage["ENTRYPOINT"]) == ["distrl"]
    assert json.loads(stage["CMD"]) == ["--help"]
    assert stage["WORKDIR"] == "/data"


@pytest.mark.parametrize("name", FILES)
def test_an_image_installs_the_pinned_versions_alone(name: str) -> None:
    installs = [rest for word, rest in steps(name) if word == "RUN" and "pip install" in rest]
    assert installs
    assert [line for line in installs if "-c constraints.txt" not in line] == []


@pytest.mark.parametrize("name", FILES)
def test_what_an_image_copies_is_there_and_not_ignored(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copies = [shlex.split(rest)[:-1] for word, rest in steps(name) if word == "COPY" and not rest.startswith("--from")]
    for source in (source for sources in copies for source in sources):
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in let_in), source


def test_the_page_on_installing_starts_the_images_as_they_are_made() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    built = dict(re.findall(r"docker build -t (\S+)(?: -f (\S+))? \.", page))
    started = re.findall(r"^docker run .*? (distrl(?:-\w+)?) (\w+)", page, flags=re.MULTILINE)
    assert {image: file or "Dockerfile" for image, file in built.items()} == dict(
        zip(("distrl", "distrl-cuda"), FILES, strict=True)
    )
    assert {image for image, _ in started} == set(built)
    assert {verb for _, verb in started} <= set(VERBS)
