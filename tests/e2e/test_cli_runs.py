"""`distrl train`, `evaluate` and `status` as people use them: a whole small run, and everything one can get wrong."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from distrl.cli.main import main
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from distrl.telemetry.metrics import METRICS
from support.runs import TINY, Training, check_exactly_once, distrl, flags, last_json

# What ARCHITECTURE and RESULTS promise to other programs.
SUMMARY_KEYS = {
    "success_before", "success_after", "episodes", "steps", "wall_s", "policy_version", "device_utilisation",
    "learner_idle_ratio", "staleness_mean", "staleness_max", "lost_episodes", "duplicate_episodes", "restarts",
    "seed", "config_hash",
}  # fmt: skip
REPORT_KEYS = {"success", "low", "high", "n", "policy_version", "per_task"}
FAILING = "worker-1/phone-2"


class Finished:
    """A small run that has come to its end."""

    def __init__(self, root: Path) -> None:
        training = Training.begin(
            root, run__seed=3, devices__sim__faults__fail_device=FAILING, devices__sim__faults__fail_after_steps=6
        )
        self.summary = training.finish()
        self.run = training.run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copy(finished: Finished, tmp_path: Path) -> RunFolder:
    """The same run, to be damaged."""
    return RunFolder(shutil.copytree(finished.run.path, tmp_path / "runs" / "copy"))


@pytest.fixture(autouse=True)
def keep_denormals() -> Iterator[None]:
    """An evaluation does without them; in the same process, msgspec would then take 0 for a number above 0."""
    yield
    torch.set_flush_denormal(False)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of a command that is refused as it should be."""
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    check_refusal(code, shown.err)
    assert shown.out == ""
    return shown.err


def check_refusal(code: int, message: str) -> None:
    assert code in (2, 3)
    assert "Traceback" not in message
    assert 1 <= len(message.splitlines()) <= 15
    assert "try: " in message


# --- a run that goes well


def test_a_run_ends_with_all_its_figures_and_nothing_lost(finished: Finished) -> None:
    summary = finished.summary
    assert summary.keys() >= SUMMARY_KEYS
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["restarts"]) == (0, 0, 0)
    assert summary["episodes"] == check_exactly_once(finished.run) >= 60
    assert summary["seed"] == 3
    assert summary["updates"] > 0
    for when in ("before", "after"):
        rate = summary[f"success_{when}_rate"]
        assert (rate["n"], rate["low"] <= rate["value"] <= rate["high"]) == (10, True)
    assert json.loads(finished.run.summary.read_text()) == summary


def test_a_run_folder_holds_everything_and_no_rubbish(finished: Finished) -> None:
    run = finished.run
    names = {path.name for path in run.path.iterdir()}
    assert names >= {
        "config.toml",
        "env.json",
        "logs",
        "experience",
        "weights",
        "checkpoints",
        "metrics.jsonl",
        "summary.json",
    }
    assert not list(run.path.rglob("*.tmp"))
    assert not list(run.path.rglob("*.partial"))
    assert [path.name for path in run.logs.glob("*.out") if path.stat().st_size] == []  # only bugs write there


def test_what_a_run_measures_is_declared(finished: Finished) -> None:
    lines = read_events(finished.run.metrics)
    names = {name for line in lines for name in line if "/" in name}
    assert {name.partition("/")[0] for name in names} >= {"evaluator"}
    assert {"evaluator/success", "evaluator/version"} <= names & METRICS.keys()


def test_a_phone_that_fails_on_purpose_is_lost_recovers_and_plays_on(finished: Finished) -> None:
    events = read_events(finished.run.log("worker-1"))
    lost = [event for event in events if event["event"] == "device_lost"]
    assert [event["device"] for event in lost] == [FAILING]
    assert "crash" in str(lost[0]["why"])
    assert finished.summary["device_losses"] == 1
    with ExperienceStore(finished.run.experience) as store:
        later = [row.id for row in store.after(0, 1000) if row.created_s > float(lost[0]["time_s"])]
        assert FAILING in {store.read(id).device for id in later}
    shown = distrl("status", finished.run.path).stdout
    assert f"{FAILING} lost" in shown


def test_evaluate_reports_on_a_run_and_on_a_checkpoint(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(finished.run.path), "--suite", "sim-general", "--episodes", "12", "--json"]) == 0
    report = last_json(capsys.readouterr().out)
    assert report.keys() >= REPORT_KEYS
    assert (report["n"], report["policy_version"]) == (12, finished.summary["policy_version"])
    assert sum(row["n"] for row in report["per_task"]) == 12

    newest = max(finished.run.checkpoints.glob("[0-9]*"))
    assert main(["evaluate", str(newest), "--episodes", "6"]) == 0
    assert "on 6 tasks of sim-start" in capsys.readouterr().out


def test_the_same_evaluation_gives_the_same_figures(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for _ in range(2):
        assert main(["evaluate", str(finished.run.path), "--episodes", "10", "--json"]) == 0
        shown.append(last_json(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert shown[0]["success"] == finished.summary["success_after"]


def test_status_tells_of_a_finished_run(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(finished.run.path), "--json"]) == 0
    status = last_json(capsys.readouterr().out)
    assert (status["phase"], status["episodes"]) == ("finished", finished.summary["episodes"])
    assert {role["role"]: role["alive"] for role in status["roles"]} == dict.fromkeys(
        ("evaluator", "learner", "worker-0", "worker-1"), False
    )
    assert set(status["evaluations"]) == {"before", "after"}
    assert main(["status", str(finished.run.path)]) == 0
    assert "finished" in capsys.readouterr().out


# --- everything one can get wrong before a run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run.sed", "3"], "run.seed"),
        (["--run.seed", "many"], "a whole number"),
        (["--devices.per_worker", "0"], "from 1 to 10000"),
        (["--learner.mode", "both"], '"async" or "sync"'),
        (["nowhere.toml"], "nowhere.toml"),
        (["--tasks.suite", "sim-generel"], "sim-general"),
        (["--tasks.suite", "sim-shopping", "--tasks.max_oracle_steps", "1"], "--tasks.max_oracle_steps 0"),
        (["--resume", "nowhere"], "is no run folder"),
        (["--resume", "."], "is no run folder"),
        (["--runs.root", "x"], "run.root"),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_written(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "train", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nsede = 3\n", "run.seed"),
        ("[devices.sim.latency]\ntime_scale = 0\n", "above 0"),
        ("[run]\nseed = true\n", "a whole number"),
        ("[run\n", "not TOML"),
        ("\x00\xff", ""),
    ],
)
def test_a_wrong_file_is_refused(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.toml"
    file.write_bytes(text.encode("latin-1"))
    code = main(["train", str(file), "--run.root", str(tmp_path / "runs")])
    message = capsys.readouterr().err
    assert (code, said in message, "Traceback" in message) == (2, True, False)
    assert not (tmp_path / "runs").exists()


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("a file stands where the folder should be")
    assert "--run.root" in refused(capsys, "train", "--run.root", tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "a file stands where the folder should be"


# --- everything one can get wrong with a run


def test_a_resumed_run_keeps_its_settings(copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "run.seed was 3" in refused(capsys, "train", "--resume", copy.path, "--run.seed", "4")
    assert "keeps its own settings" in refused(capsys, "train", copy.config_file, "--resume", copy.path)


def test_a_finished_run_is_not_resumed(copy: RunFolder, finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.path.rglob("*") if path.is_file()}
    said = refused(capsys, "train", "--resume", copy.path)
    assert "is finished" in said
    assert f"--run.episodes {2 * finished.summary['episodes']}" in said
    assert {path: path.stat().st_mtime_ns for path in copy.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "sim-generel"], "sim-general"),
        (["--episodes", "0"], "from 1 to 1000000000"),
        (["--episodes", "few"], "--episodes"),
        (["--max-oracle-steps", "-1"], "from 0 to 10000"),
        (["--suite", "sim-shopping", "--max-oracle-steps", "1"], "--max-oracle-steps 0"),
        (["--split", "exam"], "test"),
        (["--episode", "3"], "--episodes"),
    ],
)
def test_a_wrong_evaluation_is_refused(
    arguments: list[str], said: str, finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "evaluate", finished.run.path, *arguments)


@pytest.mark.parametrize("verb", ["evaluate", "status"])
def test_what_is_no_run_is_refused(
    verb: str, finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is no run folder" in refused(capsys, verb, tmp_path)
    assert "is no run folder" in refused(capsys, verb, tmp_path / "nowhere")
    near = refused(capsys, verb, f"{finished.run.path}x")
    assert finished.run.name in near
    assert list(tmp_path.iterdir()) == []


def break_settings(run: RunFolder) -> Path:
    run.config_file.write_text("[run]\nsede = 3\n")
    return run.path


def widen(run: RunFolder) -> Path:
    run.config_file.write_text(run.config_file.read_text().replace("width = 16", "width = 32"))
    return run.path


def widen_for_a_checkpoint(run: RunFolder) -> Path:
    widen(run)
    return max(run.checkpoints.glob("[0-9]*"))


def damage_weights(run: RunFolder) -> Path:
    flip(max(run.weights.glob("*.safetensors")))
    return run.path


def damage_pointer(run: RunFolder) -> Path:
    (run.weights / "latest.json").write_text('{"version": ')
    return run.path


def damage_checkpoint(run: RunFolder) -> Path:
    newest = max(run.checkpoints.glob("[0-9]*"))
    flip(newest / "policy.safetensors")
    return newest


def empty_checkpoint(run: RunFolder) -> Path:
    newest = max(run.checkpoints.glob("[0-9]*"))
    (newest / "state.json").write_bytes(b"")
    return newest


def forget_weights(run: RunFolder) -> Path:
    shutil.rmtree(run.weights)
    return run.path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (break_settings, "run.seed"),
        (widen, "another architecture"),
        (widen_for_a_checkpoint, "another architecture"),
        (damage_weights, "checksum"),
        (damage_pointer, "latest.json is damaged"),
        (damage_checkpoint, "checksum"),
        (empty_checkpoint, "damaged"),
        (forget_weights, "has no published weights"),
    ],
)
def test_a_run_that_came_to_harm_is_not_evaluated(
    harm: Callable[[RunFolder], Path], said: str, copy: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "evaluate", harm(copy), "--episodes", "2")


def test_a_run_whose_checkpoints_are_all_damaged_is_not_resumed(copy: RunFolder) -> None:
    enlarge(copy)
    for path in copy.checkpoints.glob("*/policy.safetensors"):
        flip(path)
    done = distrl("train", "--resume", copy.path)
    check_refusal_of_a_role(done, "learner: checkpoint", "is damaged")


def test_a_disk_that_is_full_ends_the_run_with_the_fix_and_not_with_restarts(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    settings: dict[str, Any] = {**TINY, "rollout.workers": 1, "run.root": tmp_path}
    done = distrl("train", *flags(settings), preexec_fn=limit)
    check_refusal_of_a_role(done, "learner: cannot use", "ulimit -f")
    (run,) = (RunFolder(path) for path in tmp_path.iterdir())
    assert [event for event in read_events(run.log("supervisor")) if event["event"] == "died"] == []
    assert not list(run.path.rglob("*.tmp"))


def enlarge(run: RunFolder) -> None:
    """Give a finished run something to go on for."""
    run.config_file.write_text(run.config_file.read_text().replace("episodes = 60", "episodes = 1000"))


def check_refusal_of_a_role(done: subprocess.CompletedProcess[str], *said: str) -> None:
    message = done.stderr[done.stderr.index("distrl: ") :]
    check_refusal(done.returncode, message)
    assert all(words in message for words in said), message


def test_a_run_says_how_it_stands_where_there_is_no_terminal(finished: Finished) -> None:
    command = [sys.executable, "-m", "distrl", "train", "--resume", str(finished.run.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == ""
    assert done.stderr.startswith("distrl: ")
