"""The command line: fast help, short errors with the fix, the right exit codes."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.cli import config as config_verb
from distrl.cli import train
from distrl.cli.main import VERBS, Parser, main, split_overrides
from distrl.config.load import load_config
from distrl.errors import ConfigError, DeviceLost, DistrlError, RoleCrashed, UsageError
from distrl.evaluation.report import make_report, wilson
from distrl.runtime.run_folder import create_run
from distrl.runtime.session import Session
from distrl.runtime.summary import summarise
from distrl.transport.base import BudgetUsed
from support.pages import ROOT
from support.summaries import a_summary
from support.trajectories import make_trajectory

HEAVY = ("torch", "numpy", "PIL", "gymnasium", "rich")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_run_whose_end_is_missing_something_exits_with_4_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = replace(a_summary(), cut_off="the evaluator was cut off: it did not end in time")
    monkeypatch.setattr(train, "_stop_politely", lambda session: None)  # Ctrl-C stays that of the tests
    monkeypatch.setattr(Session, "train", lambda self: lacking)
    assert main(["train", "--run.root", str(tmp_path), "--json"]) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out.splitlines()[-1])["cut_off"] == lacking.cut_off
    assert "has not come to its end: the evaluator was cut off" in shown.err
    assert "distrl train --resume" in shown.err
    monkeypatch.setattr(Session, "train", lambda self: a_summary())
    assert main(["train", "--run.root", str(tmp_path), "--json"]) == 0


def test_a_resumed_run_says_in_which_settings_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path), "run.minutes": "3"}), now=datetime(2026, 5, 4))
    monkeypatch.setattr(train, "_stop_politely", lambda session: None)  # Ctrl-C stays that of the tests
    monkeypatch.setattr(Session, "train", lambda self: a_summary())
    resume = ["train", "--resume", str(run.path), "--no-view"]
    assert main([*resume, "--policy.pointer.width", "64"]) == 0
    assert "resuming; no setting differs\n" in capsys.readouterr().err
    assert main([*resume, "--run.minutes", "4", "--rollout.workers", "1"]) == 0
    assert "resuming; run.minutes = 4.0 (was 3.0), rollout.workers = 1 (was 2)\n" in capsys.readouterr().err


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    code = f"""
import sys
from distrl.cli.main import main
main(["--help"])
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    before_s = cpu_of_children_s()
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "[]"
    assert cpu_of_children_s() - before_s < 2.0  # 0.1 s here, whatever else the machine does


def cpu_of_children_s() -> float:
    """The processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_help_of_a_training_names_the_ready_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    names = ", ".join(sorted(file.stem for file in (ROOT / "configs").glob("*.toml")))
    assert "".join(names.split()) in "".join(shown.split())


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
        (["resume", "runs/a b"], "try: distrl train --resume 'runs/a b'"),
        (["train", "run.minutes=2"], "try: --run.minutes 2"),
        (["config", "show", "ppo", "run.name=a b"], "try: --run.name 'a b'"),
        (["config", "shw"], "show"),
        (["config", "show", "--jsn"], "one of --json"),
        (["config", "show", "--sed", "3"], "one of --seed"),
        (["config", "show", "--run.sed", "3"], "one of run.seed"),
        (["config", "show", "--minutes", "3"], "one of --run.minutes, --warm_start.minutes"),
        (["train", "--workers", "3"], "one of --rollout.workers"),
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
        (["tasks", "try", "x/test/1", "--tasks.suite", "a:b"], "try: distrl tasks try a:b/test/00000"),
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
        train._open(argparse.Namespace(resume=None, config=None, overrides=asked, trust_code=False))
    assert "--rollout.group_size 8" in caught.value.fix
    assert list(tmp_path.iterdir()) == []
    asked["rollout.group_size"] = "2"
    _, config = train._open(argparse.Namespace(resume=None, config=None, overrides=asked, trust_code=False))
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


@pytest.mark.parametrize("command", [["tasks", "show", "sim-start/test/0"], ["config", "show"], ["train", "--ünï"]])
def test_a_terminal_that_knows_few_letters_is_no_error(command: list[str]) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "distrl", *command], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if command[0] == "train" else 0)


def test_json_keeps_every_letter_on_a_terminal_that_knows_few() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "distrl", "config", "show", "--json", "--run.root", "ünï"],
        capture_output=True, text=True, env=env, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["settings"]["run.root"]["value"] == "ünï"


def test_a_run_that_was_stopped_before_it_had_weights_is_not_sent_to_be_evaluated(tmp_path: Path) -> None:
    config = load_config(None, {"run.root": str(tmp_path)})
    run = create_run(config, now=datetime(2026, 5, 4))
    summary = summarise(run, config, BudgetUsed(), interrupted=True)
    said = train._closing(replace(summary, policy_version=-1), run)
    assert "no version yet" in said
    assert "version -1" not in said
    assert f"evaluate {run.path}" not in said
    assert f"train --resume {run.path}" in said
    assert f"evaluate {run.path}" in train._closing(replace(summary, policy_version=0), run)


def test_attempts_without_an_outcome_are_told_beside_the_success_that_they_lower(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    rates = {"success_before_rate": wilson(30, 100), "success_after_rate": wilson(60, 100)}
    said = train._closing(replace(a_summary(), **rates, unknown_after=12), run).splitlines()
    assert said[0].endswith("on 100 held-out tasks, after 50 demonstrations")
    assert said[1].endswith("on 100 held-out tasks; 12 without an outcome count as no success")


def test_a_run_that_was_evaluated_ends_with_its_success_by_template(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    assert "by template" not in train._closing(a_summary(), run)
    run.evaluations.mkdir()
    for name, success in (("before", False), ("after", True)):
        report = make_report([make_trajectory(success=success)], suite="sim-start", version=0)
        (run.evaluations / f"{name}.json").write_bytes(msgspec.json.encode(report))
    assert "  wifi      1 task      0% → 100%" in train._closing(a_summary(), run).splitlines()
    (run.evaluations / "before.json").write_bytes(b"damaged")
    assert "  wifi      1 task    100%" in train._closing(a_summary(), run).splitlines()


def test_without_demonstrations_none_are_told_of(tmp_path: Path) -> None:
    run = create_run(
        load_config(None, {"run.root": str(tmp_path), "warm_start.demonstrations": "0"}), now=datetime(2026, 5, 4)
    )
    said = train._closing(replace(a_summary(), success_before_rate=wilson(30, 100)), run).splitlines()
    assert said[0].endswith("on 100 held-out tasks")


def test_counts_that_nobody_knows_are_not_shown_as_none(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    unknown = replace(a_summary(), lost_episodes=None, unacknowledged_episodes=None, device_losses=None)
    said = train._closing(unknown, run)
    assert "lost episodes not known, doubled 0, restarts 0, phones lost and recovered not known" in said
    assert "None" not in said


def test_the_next_commands_of_a_run_with_plug_ins_carry_the_flag_that_they_need(tmp_path: Path) -> None:
    config = load_config(None, {"run.root": str(tmp_path), "judge.kind": "my.module:Judge"})
    run = create_run(config, now=datetime(2026, 5, 4))
    summary = replace(summarise(run, config, BudgetUsed(), interrupted=True), policy_version=3)
    said = train._closing(summary, run).splitlines()
    assert sum("--trust-code" in line for line in said if "train --resume" in line or " evaluate " in line) == 2


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


def test_a_reader_that_has_gone_is_no_failure_of_a_table(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    command = [sys.executable, "-m", "distrl", "status", str(run.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as errors:
        assert (process.wait(60.0), errors.read()) == (0, b"")


def test_a_folder_in_the_place_of_a_file_is_named_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    run.budget.mkdir()
    assert main(["status", str(run.path)]) == 2
    assert "try: move that folder away: a file belongs there" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["runs"], ["export"], ["tasks", "try", "sim-start/test/0", "--agent", "nobody"]])
def test_what_argparse_refuses_does_not_name_distrl_twice(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"distrl: {words[0]}")
