"""What the verbs print: the contract of `--json`, and something a person can read."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest

from distrl import plugins
from distrl.bench.base import BenchOptions, provenance_of, results_file, write_results
from distrl.cli import doctor, tasks
from distrl.cli.doctor import attempt
from distrl.cli.main import main
from distrl.cli.tasks import count_overlap, find_task
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError

TASK = "sim-general/test/00001"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    steps_per_s: float


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_config_show_tells_where_each_value_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--seed", "5", "--json"]) == 0
    shown = last_json(capsys)
    assert shown["config_hash"] != config_hash(Config())
    settings = shown["settings"]
    assert isinstance(settings, dict)
    assert settings["run.seed"] == {"value": 5, "source": "flag", "meaning": settings["run.seed"]["meaning"]}
    assert settings["run.name"]["source"] == "default"


def test_config_show_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert "devices.sim.latency.profile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        (["--tasks.suite", "x"], "distrl tasks list"),
        (["--tasks.max_oracle_steps", "1"], "--tasks.max_oracle_steps"),
        (["--algorithm.kind", "grpo"], "--rollout.group_size 8"),
        (["--devices.sim.faults.fail_device", "phone-3"], "worker-1/phone-71"),
    ],
)
def test_config_show_refuses_what_train_refuses(
    flags: list[str], fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [main([*verb, *flags, "--run.root", str(tmp_path / "runs")]) for verb in (["config", "show"], ["train"])]
    shown = capsys.readouterr()
    said = shown.err.splitlines()
    assert codes == [2, 2]
    assert shown.out == ""
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert fix in said[-1]


def test_doctor_gives_the_contract_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json", "--root", str(tmp_path / "new")])
    checks = last_json(capsys)["checks"]
    assert isinstance(checks, list)
    assert all(set(check) == {"name", "ok", "seen", "fix", "ready"} for check in checks)
    assert [check["name"] for check in checks if not check["ok"]] == []
    assert code == 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_a_failure_with_its_fix_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TORCH", "print('loaded elsewhere')")
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert main(["doctor", "--json", "--root", str(blocker / "runs")]) == 1
    checks = last_json(capsys)["checks"]
    assert isinstance(checks, list)
    assert {check["name"] for check in checks if not check["ok"]} == {"disk", "durable writes", "index"}
    assert all("--root" in check["fix"] and "space" not in check["fix"] for check in checks if not check["ok"])
    assert all(str(blocker) in check["seen"] for check in checks if not check["ok"])


def test_doctor_says_what_a_language_model_would_need_and_does_not_fail_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TORCH", "print('loaded elsewhere')")
    monkeypatch.setattr(doctor, "VLM_PACKAGES", ("msgspec", "no_such_package"))
    assert main(["doctor", "--json", "--root", str(tmp_path)]) == 0
    checks = last_json(capsys)["checks"]
    assert isinstance(checks, list)
    (seen,) = (check["seen"] for check in checks if check["name"] == "vlm packages")
    assert seen.startswith("no no_such_package: needed for policy.kind = vlm alone; ")
    monkeypatch.setattr(doctor, "VLM_PACKAGES", ("msgspec",))
    assert doctor._vlm_packages() == f"msgspec {msgspec.__version__}"


def test_doctor_says_whether_torch_sees_a_gpu() -> None:
    import torch

    sees = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    assert f"{torch.__version__}; sees {sees}" in doctor._torch()


def test_a_probe_that_raises_is_a_failed_check_and_not_a_crash() -> None:
    check = attempt("x", "do this", lambda: str(1 // 0))
    assert (check.ok, check.fix) == (False, "do this")
    assert "division" in check.seen


def test_tasks_show_knows_tasks_and_templates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", TASK]) == 0
    assert find_task(TASK).instruction in capsys.readouterr().out
    assert main(["tasks", "show", find_task(TASK).template, "--json"]) == 0
    tasks = last_json(capsys)["tasks"]
    assert isinstance(tasks, list)
    assert {task["template"] for task in tasks} == {find_task(TASK).template}


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("try settings-ringtone", "try: `distrl tasks show settings-ringtone` names some"),
        ("show sim-start", "try: distrl tasks list --suite sim-start"),
        ("show sim-general/test/99999999", "try: distrl tasks show sim-general/test/00599"),
    ],
)
def test_a_name_of_the_wrong_kind_is_answered_with_what_to_type(
    words: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", *words.split()]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == fix


def test_overlap_counts_an_instance_that_stands_in_two_splits_once() -> None:
    task = find_task(TASK)
    twin = msgspec.structs.replace(task, split="train", instruction=task.instruction.upper())
    assert count_overlap([task, task]) == 0
    assert count_overlap([task, twin, twin]) == 1


def test_bench_says_what_no_seeds_mean_and_refuses_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    assert "0, as without it: the benchmark's own number" in " ".join(capsys.readouterr().out.split())
    assert main(["bench", "sim", "--seeds", "-1"]) == 2
    assert "expected: a whole number from 0 to 1000" in capsys.readouterr().err


def test_results_are_kept_with_what_it_takes_to_repeat_them(tmp_path: Path) -> None:
    result = Figures(steps_per_s=12.5)
    file = results_file(tmp_path / "results", "sim")
    write_results(result, provenance_of("sim", "distrl bench sim", BenchOptions(), result), file)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert {"command", "machine", "seeds", "config_hash", "date", "steps_per_s"} <= found.keys()
    assert found["command"] == "distrl bench sim"
    assert results_file(tmp_path / "results", "sim") == file
    assert [path.name for path in file.parent.iterdir()] == ["sim.json"]


def test_a_quick_measurement_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    result, file = Figures(steps_per_s=12.5), tmp_path / "sim.json"
    write_results(result, provenance_of("sim", "distrl bench sim", BenchOptions(), result), file)
    with pytest.raises(StoreError, match=r"full measurement(?s:.*)--out"):
        results_file(tmp_path, "sim", quick=True)
    write_results(result, provenance_of("sim", "distrl bench sim --quick", BenchOptions(), result), file)
    assert results_file(tmp_path, "sim", quick=True) == results_file(tmp_path, "sim") == file


@pytest.mark.parametrize("text", ['{"bench": "other"}', "{}", "[]", "no json"])
def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "sim.json").write_text(text)
    with pytest.raises(StoreError, match="--out"):
        results_file(tmp_path, "sim")


BROKEN = {
    "raises": "def suite(settings):\n    raise KeyError('token')\n",
    "raises-later": (
        "class suite:\n    name = 'later'\n    def __init__(self, settings): ...\n    def size(self, split): return 1\n"
        "    def task(self, split, index): raise KeyError('token')\n"
    ),
    "is-none": "suite = 3\n",
}


def test_broken_suites_of_other_packages_are_listed_in_one_line_each_and_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    points = []
    for number, (name, text) in enumerate(BROKEN.items()):
        (tmp_path / f"foreign_{number}.py").write_text(text)
        points.append(EntryPoint(name=name, value=f"foreign_{number}:suite", group="distrl.suites"))
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: points if group == "distrl.suites" else [])
    monkeypatch.setattr(
        plugins, "BUILT_IN", {**plugins.BUILT_IN, "suites": {"small": "distrl.tasks.sim.suites:sim_touch"}}
    )
    monkeypatch.setattr(tasks, "_oracle_steps", lambda task, found_as: 1)
    assert main(["tasks", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("sim-touch: ") for line in listed)
    assert [line.partition(": cannot be used: ")[0] for line in listed if "cannot be used" in line] == list(BROKEN)
    assert main(["tasks", "list", "--json"]) == 0
    assert list(last_json(capsys)["broken"]) == list(BROKEN)  # type: ignore[call-overload]
    assert main(["tasks", "show", "no-such-template"]) == 2
