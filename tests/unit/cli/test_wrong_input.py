"""Wrong input of every sort, made from the settings and the verbs: exit code 2, a few lines, a fix, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from distrl.cli.main import VERBS, main
from distrl.config.load import load_config
from distrl.config.reference import Setting, options_tables, sections, settings
from distrl.plugins import SETTING
from distrl.runtime.run_folder import create_run

HUGE = "9" * 30
LONG = "x" * 5000
NUMBERS = ("x", "", "nan", "inf", "-inf", "1e400", "-1e308", "1,5", "½", "0x10", "true", "--", LONG)
PLUGINS = ("zzz", "", "no.such:Thing", "json:", ":", "json:no_such", "os:sep", "ünï", LONG)
TEXTS = {
    "run.name": ("", "Upper", "with space", "../up", "ünï", "-x", LONG),
    "policy.device": ("gpu", "cuda:", "cuda:x", "", "CPU"),
    "learner.device": ("gpu", "cuda:", "cuda:x", "", "CPU"),
    "devices.sim.faults.fail_device": ("phone-0", "worker-0/phone-99999", "worker-9/phone-0", "ünï"),
}
ANY_TEXT = {"run.root", "policy.vlm.path", "policy.vlm.lora_targets", "policy.vlm.dialect"}
"""What takes any text, or is a choice."""


def wrong_values(setting: Setting) -> Iterator[str]:
    """Texts that do not fit a setting."""
    if setting.key in SETTING.values():
        # An empty list of plug-ins, such as of sinks, is a list.
        yield from (name for name in PLUGINS if name or not isinstance(setting.default, tuple))
    elif setting.choices:
        yield from ("zzz", "", setting.choices[0].upper(), f"{setting.choices[0]}x", HUGE)
    elif isinstance(setting.default, bool):
        yield from ("yes", "1", "", "maybe", HUGE)
    elif isinstance(setting.default, int):
        yield from (*NUMBERS, "1.5", "-1", HUGE, f"-{HUGE}", "1" * 5000)
    elif isinstance(setting.default, float):
        yield from NUMBERS
    else:
        yield from TEXTS.get(setting.key, ())


def flags() -> list[list[str]]:
    """Settings as flags: values that do not fit, keys that nobody knows, and keys that are nearly right."""
    values = [[f"--{s.key}={value}"] for s in settings().values() for value in wrong_values(s)]
    near = [[f"--{key[:-2]}{key[-1]}", "1"] for key in settings() if key[:-2] + key[-1] not in settings()]
    alone = [[f"--{section}.no_such", "1"] for section in sections()]
    whole = [[f"--{section}", "1"] for section in sections() if "." in section]
    options = [[f"--{table}.x", "1"] for table in options_tables()]
    together = [
        ["--runtime.heartbeat_s", "20"],
        ["--algorithm.kind", "grpo"],
        ["--policy.kind", "pixel"],
        ["--learner.device", "cuda"],
        ["--minutes", "1"],
        ["--workers", "1"],
        ["--run.seed"],
        ["--seed", HUGE],
        ["--tasks.max_oracle_steps", "1"],
        ["--policy.options.x", "[" * 3000],
    ]
    return [*values, *near, *alone, *whole, *options, *together]


FILES = {
    "empty section name": "[]\n",
    "section cut off": "[run\n",
    "no section": "seed = 3\n",
    "unknown section": "[runn]\nseed = 3\n",
    "near-miss key": "[run]\nsed = 3\n",
    "text for a number": "[run]\nseed = '3'\n",
    "date for a number": "[run]\nseed = 2026-05-04\n",
    "nan": "[run]\nminutes = nan\n",
    "infinite": "[run]\nminutes = inf\n",
    "huge": f"[run]\nseed = {HUGE}\n",
    "thousands of digits": f"[run]\nseed = {'9' * 5000}\n",
    "list for a number": "[run]\nseed = [1, 2]\n",
    "table for a number": "[run.seed]\nx = 1\n",
    "number for a section": "run = 3\n",
    "list of sections": "[[run]]\nseed = 3\n",
    "twice": "[run]\nseed = 1\nseed = 2\n",
    "brackets": "a = " + "[" * 3000,
    "deep tables": f"[run.{'.'.join('a' * 3000)}]\nx = 1\n",
    "deep option": f"[devices.options.{'.'.join('a' * 3000)}]\nx = 1\n",
    "unicode key": "[run]\n'ünï' = 1\n",
    "long key": f"[run]\n{LONG} = 1\n",
    "not TOML": "\x00\x01\x02",
    "JSON": '{"run": {"seed": 3}}',
    "YAML": "run:\n  seed: 3\n",
}


def paths(folder: Path) -> list[str]:
    """Paths at which there is no run and no file of settings."""
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "empty").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.toml").write_bytes(b"\xff\xfe")
    names = ["nowhere", "no/such/folder", "empty", "damaged", "ünï", "binary/below", LONG, " ", "-"]
    return [str(folder), *(str(folder / name) for name in names)]


def verbs(folder: Path) -> list[list[str]]:
    """Verbs with wrong flags, missing words and wrong paths."""
    run = str(create_run(load_config(None, {"run.root": str(folder / "runs")}), now=datetime(2026, 5, 4)).path)
    flagged = [[verb, flag] for verb in VERBS for flag in ("--zzz", "--jsn", "--jsn=1", "--ünï", f"--{LONG}")]
    bare = [["evaluate"], ["export"], ["export", run], ["sft"], ["sft", run], ["tasks"], ["config"], ["bench"]]
    numbers = [
        [*command, value]
        for command in (
            ["evaluate", run, "--episodes"],
            ["evaluate", run, "--max-oracle-steps"],
            ["bench", "replay", "--seeds"],
            ["tasks", "try", "sim-start/test/0", "--agent-seed"],
        )
        for value in ("x", "", "-1", "1.5", "nan", HUGE, "1" * 5000)
    ]
    asked = [
        ["zzz"], [""], ["--zzz"], [LONG], ["tran"], ["config", "zzz"], ["tasks", "zzz"], ["bench", "zzz"],
        ["tasks", "show", "zzz"], ["tasks", "show", ""], ["tasks", "show", "sim-start/test/-1"],
        ["tasks", "show", f"sim-start/test/{HUGE}"], ["tasks", "show", "sim-start/zzz/0"], ["tasks", "show", LONG],
        ["tasks", "list", "--suite", "zzz"], ["tasks", "list", "--suite", ""], ["tasks", "try", "sim-start"],
        ["tasks", "try", "sim-start/test/0", "--agent", "zzz"],
        ["tasks", "try", "sim-start/test/0", "--out", str(folder / "binary")],
        ["evaluate", run, "--suite", "zzz"], ["evaluate", run, "--split", "zzz"], ["evaluate", run],
        ["export", run, run], ["export", run, str(folder / "out")], ["export", run, str(folder / "out"), "--merged"],
        ["train", "--resume", run, "--run.seed", "5"], ["train", "--resume", run, "x.toml"], ["train", "--resume"],
        ["train", "--trust-code"], ["train", "a.toml", "b.toml"], ["sft", run, "--data", run],
    ]  # fmt: skip
    wrong = [
        command
        for path in paths(folder)
        for command in (
            ["evaluate", path], ["export", path, str(folder / "out")], ["status", path], ["train", "--resume", path],
            ["train", path], ["config", "show", path], ["sft", path, "--data", run], ["sft", run, "--data", path],
        )
    ]  # fmt: skip
    return [*flagged, *bare, *numbers, *asked, *wrong]


def check(command: list[str], code: object, out: str, err: str) -> str:
    """What is wrong with an answer; empty: nothing."""
    lines = err.splitlines()
    faults = {
        f"exit code {code}": code != 2,
        f"{len(lines)} lines": not 2 <= len(lines) <= 15,
        f"{len(err)} characters": len(err) > 6000,
        "no fix": not any(line.startswith("try: ") for line in lines),
        "a traceback": "Traceback" in err,
        "something on stdout": out != "",
    }
    found = ", ".join(name for name, holds in faults.items() if holds)
    return f"{[word[:60] for word in command]}: {found}: {err[-300:]}" if found else ""


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
    commands = [["config", "show", *given] for given in flags()] + [["train", *given] for given in flags()[::20]]
    assert len(commands) > 1000
    assert [fault for command in commands if (fault := answer(command, capsys))] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["train", "config show"])
def test_wrong_files_of_settings(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    faults = []
    for text in FILES.values():
        (tmp_path / "my.toml").write_text(text, encoding="utf-8")
        faults.append(answer([*verb.split(), "my.toml"], capsys))
    assert [fault for fault in faults if fault] == []
    assert [file.name for file in tmp_path.iterdir()] == ["my.toml"]


def test_wrong_words_and_paths_of_every_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    commands = verbs(tmp_path)
    assert len(commands) > 150
    assert [fault for command in commands if (fault := answer(command, capsys))] == []


def test_a_sample_as_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(FILES["brackets"])
    sample = [
        ["train", "--devices.per_worker", HUGE], ["train", "--seed", HUGE], ["train", "deep.toml"],
        ["evaluate", "ünï"], ["status", LONG], ["zzz"],
    ]  # fmt: skip
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for command in sample:
        done = subprocess.run(
            [sys.executable, "-m", "distrl", *command],
            capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60, check=False,
        )  # fmt: skip
        assert check(command, done.returncode, done.stdout, done.stderr) == ""
