"""Wrong input of every sort, made from the settings and the parsers of all verbs: exit code 2, a few lines, a fix, no traceback.

A new verb, flag or setting is fed wrong values without an edit here; one that needs arguments has them in `needed`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from distrl.cli.completion import list_commands
from distrl.cli.main import VERBS, main
from distrl.config.reference import settings
from distrl.errors import UsageError
from distrl.plugins import SETTING
from support.trained import small_run, store_episodes
from support.wrong_input import (
    FILES,
    HUGE,
    NO_ANDROID,
    check,
    commands,
    flags,
    needed,
    verbs,
    wrong_arguments,
    wrong_values,
    wrong_words,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that could be played and learnt from."""
    run = small_run(tmp_path_factory.mktemp("runs"))
    store_episodes(run, a=True)
    return str(run.path)


def answer(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main(command)
    except BaseException as error:
        code = f"{type(error).__name__}: {error}"
    shown = capsys.readouterr()
    return check(command, code, shown.out, shown.err)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_wrong_settings_as_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = [["config", "show", *given] for given in flags()] + [["train", *given] for given in flags()[::20]]
    assert len(asked) > 1000
    assert [fault for command in asked if (fault := answer(command, capsys))] == []
    assert list(tmp_path.iterdir()) == []


def test_wrong_settings_of_the_other_verbs_that_take_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, trained: str
) -> None:
    (tmp_path / "my.toml").touch()
    values = [[f"--{s.key}={value}"] for s in settings().values() for value in wrong_values(s)]
    own = [given for given in values if not given[0].startswith(tuple(f"--{key}=" for key in SETTING.values()))]
    asked = [["sft", "my.toml", "--data", trained, *given] for given in values[::30]]
    asked += [
        ["devices", "list", *given, *NO_ANDROID] for given in own[::30] if given[0].split("=")[0] not in NO_ANDROID
    ]
    assert [fault for command in asked if (fault := answer(command, capsys))] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["my.toml"]


@pytest.mark.parametrize("verb", ["train", "config show"])
def test_wrong_files_of_settings(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    faults = []
    for text in FILES.values():
        (tmp_path / "my.toml").write_text(text, encoding="utf-8")
        faults.append(answer([*verb.split(), "my.toml"], capsys))
    assert [fault for fault in faults if fault] == []
    assert [file.name for file in tmp_path.iterdir()] == ["my.toml"]


def test_words_that_are_wrong_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert [fault for command in verbs(tmp_path) if (fault := answer(command, capsys))] == []


def test_every_command_has_its_parser_walked() -> None:
    found = commands()
    assert {name.split()[0] for name in found} == set(VERBS)
    listed = {" ".join(command.path) for command in list_commands()}
    assert found.keys() <= listed
    assert all(any(f"{name} ".startswith(f"{one} ") for name in found) for one in listed - {""})


def test_every_number_of_every_command_has_bounds_and_is_refused_while_it_is_read(tmp_path: Path) -> None:
    taken = []
    for name, parser in commands().items():
        for action in parser._actions:
            if isinstance(action.type, FunctionType):
                taken += [
                    f"{name} {action.dest} {value[:40]}"
                    for value in wrong_words(name, action, tmp_path)
                    if reads(action, value)
                ]
            else:
                assert action.type in (None, Path), f"{name} {action.dest}: {action.type} takes any number"
    assert taken == []


def reads(action: argparse.Action, value: str) -> bool:
    assert callable(action.type)
    try:
        action.type(value)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("name", commands())
def test_wrong_values_of_every_flag_and_word(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, trained: str
) -> None:
    right = needed(trained, tmp_path).get(name, []) + (NO_ANDROID if name.startswith("devices ") else [])
    asked = wrong_arguments(name, commands()[name], right, tmp_path)
    before = sorted(tmp_path.iterdir())
    assert [fault for command in asked if (fault := answer(command, capsys))] == []
    assert sorted(tmp_path.iterdir()) == before  # nothing was written


HEAVY = ("torch", "transformers", "matplotlib", "ray", "pyarrow")
WITHOUT = """
import contextlib, io, json, sys
from distrl.cli.main import main
heavy = set(sys.argv[1:])
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(command)
    if loaded := heavy & sys.modules.keys():
        sys.exit(f"{command} has loaded {loaded}")
"""


def test_wrong_input_is_refused_before_libraries_are_loaded_that_take_seconds(tmp_path: Path, trained: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    asked = verbs(tmp_path)
    for name, parser in commands().items():
        right = needed(trained, tmp_path).get(name, []) + (NO_ANDROID if name.startswith("devices ") else [])
        asked += wrong_arguments(name, parser, right, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *HEAVY], input=json.dumps(asked), capture_output=True, text=True, cwd=elsewhere, timeout=500, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


AS_PROCESSES = [
    ["train", "--devices.per_worker", HUGE],
    ["train", "deep.toml"],
    ["devices", "serve-sim", "--count", "9" * 26],
    ["runs", "prune", "nowhere", "--yes"],
    ["tasks", "show", "zzz"],
    ["zzz"],
]


@pytest.mark.parametrize("command", AS_PROCESSES, ids=lambda command: " ".join(command)[:40])
def test_a_terminal_that_knows_ascii_alone_gets_the_same_answers(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(FILES["brackets"])
    done = subprocess.run(
        [sys.executable, "-m", "distrl", *command],
        capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert check(command, done.returncode, done.stdout, done.stderr) == ""
