"""The command line: fast help, short errors with the fix, the right exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from distrl.cli import config as config_verb
from distrl.cli import train
from distrl.cli.main import VERBS, Parser, main, split_overrides
from distrl.errors import ConfigError, DeviceLost, DistrlError, RoleCrashed, UsageError

HEAVY = ("torch", "numpy", "PIL", "gymnasium", "rich")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    code = f"""
import sys
from distrl.cli.main import main
main(["--help"])
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    began = time.perf_counter()
    done = run_python(code)
    took_s = time.perf_counter() - began
    assert done.stdout.splitlines()[-1] == "[]"
    assert took_s < 2.0  # 0.1 s here: the rest is room for a busy machine


def test_importing_the_package_is_light() -> None:
    done = run_python(f"import sys, distrl; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert done.stdout.strip() == "[]"


def test_every_verb_is_a_module_with_the_two_functions() -> None:
    missing = [verb for verb in VERBS if find_spec(f"distrl.cli.{verb}") is None]
    assert missing == []


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "distrl", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("distrl ")


def test_no_verb_shows_the_overview_and_counts_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["trian"], "train"),
        (["config", "shw"], "show"),
        (["config", "show", "--jsn"], "one of --json"),
        (["config", "show", "--sed", "3"], "one of --seed"),
        (["config", "show", "--run.sed", "3"], "one of run.seed"),
        (["config", "show", "--run.seed"], "needs a value"),
        (["config", "show", "--run.seed", "--json"], "needs a value"),
        (["config", "reference", "--run.seed", "3"], "distrl config show"),
        (["config", "show", "nowhere.toml"], "nowhere.toml"),
        (["config", "show", "--algorithm.kind", "reinforce"], "one of aride, digirl, filtered_bc, grpo, ppo"),
        (["doctor", "--jso"], "one of --json"),
        (["doctor", "--run.seed", "3"], "has no flag --run.seed"),
        (["bench", "nothing"], "no benchmark"),
        (["bench", "nothing", "--seeds", "x"], "--seeds"),
        (["tasks", "list", "--suite", "sim-generel"], "sim-general"),
        (["tasks", "show", "sim-general/test/999999"], "999999"),
        (["tasks", "show", "settings-ringtoon"], "settings-ringtone"),
        (["tasks", "try", "nonsense"], "sim-general"),
        (["tasks", "try", "sim-general/test/1", "--agent", "me"], "hand"),
    ],
)
def test_wrong_input_ends_in_a_few_lines_with_the_fix(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    message = capsys.readouterr().err
    assert said in message
    assert len(message.splitlines()) <= 15
    assert "Traceback" not in message


def test_a_training_that_would_compare_nothing_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {"algorithm.kind": "grpo"}
    with pytest.raises(ConfigError, match="group_size is 1") as caught:
        train._open(argparse.Namespace(resume=None, config=None, overrides=asked))
    assert "--rollout.group_size 8" in caught.value.fix
    assert list(tmp_path.iterdir()) == []
    asked["rollout.group_size"] = "2"
    _, config = train._open(argparse.Namespace(resume=None, config=None, overrides=asked))
    assert config.rollout.group_size == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("u"), 2),
        (DeviceLost("d"), 3),
        (RoleCrashed("r"), 4),
        (DistrlError("f"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(config_verb, "run", fail)
    assert main(["config", "show"]) == code


def test_a_reader_that_has_left_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "distrl", "--help"]  # short, so that it is written only when flushed
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_are_told_from_the_other_flags() -> None:
    words = [
        "my.toml",
        "--run.seed",
        "-1",
        "--json",
        "--devices.sim.latency.profile=instant",
        "--seed=4",
        "--",
        "--a.b",
        "c",
    ]
    assert split_overrides(words) == (
        {"run.seed": "4", "devices.sim.latency.profile": "instant"},
        ["my.toml", "--json", "--", "--a.b", "c"],
    )


def test_abbreviated_flags_are_not_guessed() -> None:
    parser = Parser(prog="x", allow_abbrev=False)
    parser.add_argument("--resume")
    with pytest.raises(UsageError, match="--resume"):
        parser.parse_args(["--res", "run"])
