"""`distrl completion`: what a shell offers, asked of the shell itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from distrl.cli.completion import bash_script, fish_script, list_commands, zsh_script
from distrl.cli.main import VERBS, main
from distrl.config.reference import settings

ASK = """
source /dev/stdin <<'SCRIPT'
{script}
SCRIPT
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_distrl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in ("distrl", *words))
    script = ASK.format(script=bash_script(list_commands()), words=quoted)
    done = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_verbs_actions_flags_settings_and_values() -> None:
    assert offered("") == list(VERBS)
    assert offered("ta") == ["tasks"]
    assert offered("runs", "") == ["list", "show", "prune", "fetch"]
    assert offered("runs", "prune", "--y") == ["--yes"]
    assert offered("evaluate", "--spl") == ["--split"]
    assert offered("evaluate", "--split", "t") == ["test", "tune", "train"]
    assert offered("train", "--run.mi") == ["--run.minutes"]
    assert offered("train", "--algorithm.kind", "p") == ["ppo"]
    assert offered("train", "x.toml", "--tasks.suite", "sim-s") == ["sim-start", "sim-shopping"]
    assert offered("train", "--learner.mode", "") == ["async", "sync"]
    assert offered("train", "--data.hindsight", "f") == ["false"]
    assert offered("evaluate", "--run.mi") == []


def test_every_setting_is_offered_where_settings_are_taken() -> None:
    commands = {command.path: command for command in list_commands()}
    names = {flag.name for flag in commands["train",].flags}
    assert {f"--{key}" for key in settings()} < names
    assert commands["config", "show"].flags[-1] == commands["train",].flags[-1]
    assert not any("." in flag.name for flag in commands["status",].flags)


@pytest.mark.parametrize(("shell", "script"), [("bash", bash_script), ("zsh", zsh_script), ("fish", fish_script)])
def test_a_shell_accepts_its_script(shell: str, script: object) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    text = script(list_commands())  # type: ignore[operator]
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_knows_descriptions_and_values() -> None:
    lines = fish_script(list_commands()).splitlines()
    assert any("-a 'train'" in line and "__fish_use_subcommand" in line for line in lines)
    assert any("-l 'learner.mode' -x -a 'async sync'" in line for line in lines)


def test_the_verb_prints_the_script_and_help_says_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert "complete -o filenames -F _distrl distrl" in capsys.readouterr().out
    assert main(["completion", "--help"]) == 0
    assert "completions/distrl.fish" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
