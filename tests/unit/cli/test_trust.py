"""A run folder from anybody runs no code here unless the very command says so."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from distrl import plugins
from distrl.cli import sft
from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.errors import UsageError
from distrl.runtime.factory import make_policy
from distrl.runtime.resume import adopt
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.trust import OTHERS, REMOTE_CODE, code_of
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Value
from support.learners import make_version

STRANGE = "raise SystemExit('the code of a stranger has run')\n"
SETTINGS: dict[str, dict[str, Value]] = {
    "devices.kind": {"devices.kind": "strange:Thing"},
    "tasks.suite": {"tasks.suite": "strange:Thing"},
    "judge.kind": {"judge.kind": "strange:Thing"},
    "policy.kind": {"policy.kind": "strange:Thing"},
    "algorithm.kind": {"algorithm.kind": "strange:Thing"},
    "telemetry.sinks": {"telemetry.sinks": "tensorboard,strange:Thing"},
    "policy.vlm.trust_remote_code": {
        "policy.kind": "vlm",
        "policy.vlm.pictures": False,
        "policy.vlm.path": "model",
        "policy.vlm.trust_remote_code": True,
    },
}


@pytest.fixture(autouse=True)
def _strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that can be imported, and must not be."""
    (tmp_path / "strange.py").write_text(STRANGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("strange", None)


def a_run(root: Path, settings: dict[str, Value]) -> RunFolder:
    config = load_config(None, {"run.root": str(root / "runs"), **settings})
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    return run


def publish(run: RunFolder) -> RunFolder:
    """The run with weights of a policy, which it does not name."""
    weights = WeightsFolder(run.weights)
    weights.publish(make_policy(load_config(None, {"policy.pointer.width": 16})), make_version(0))
    return run


def commands(run: RunFolder, out: Path) -> list[list[str]]:
    path = str(run.path)
    return [["evaluate", path], ["watch", path], ["export", path, str(out)], ["train", "--resume", path]]


def test_every_kind_of_plug_in_is_tried_here() -> None:
    assert set(plugins.SETTING.values()) <= SETTINGS.keys()


@pytest.mark.parametrize("key", SETTINGS)
def test_code_that_a_run_names_is_refused_with_the_flag_as_the_fix(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, SETTINGS[key])
    for command in commands(run, tmp_path / "out"):
        assert main(command) == 2
        message = capsys.readouterr().err
        assert f"names Python code that would run with your rights: {key} = " in message
        assert "with --trust-code" in message
        assert len(message.splitlines()) <= 4
    assert "strange" not in sys.modules


def test_an_entry_points_name_counts_as_code_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path, {"judge.kind": "installed"})
    assert main(["evaluate", str(run.path)]) == 2
    assert "judge.kind = 'installed'" in capsys.readouterr().err


@pytest.mark.parametrize("key", OTHERS)
def test_programs_and_addresses_that_a_run_names_need_as_much_trust(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {
        "devices": {"devices.kind": "android"},
        "judge": {"judge.kind": "model"},
        "tasks": {"tasks.suite": "list"},
        "run": {},
    }
    suites = {"tasks": {"tasks.suite": key.split(".")[1]}}
    kind = {"devices.kind": "web"} if key.startswith("devices.web.") else {**kinds, **suites}[key.partition(".")[0]]
    addresses = {
        "judge.model.url": "http://192.0.2.1/v1",
        "devices.android.host": "192.0.2.1",
        "devices.web.allow": ("http://192.0.2.1",),
        "tasks.mobilegym.url": "http://192.0.2.1/",
        "run.storage": "s3://strange/episodes",
    }
    value = addresses.get(key, "./strange")
    run = a_run(tmp_path, {**kind, key: value})
    for command in commands(run, tmp_path / "out"):
        assert main(command) == 2
        assert f"names {OTHERS[key]}: {key} = " in capsys.readouterr().err
    assert code_of(load_config(None, {**kind})) == {}, "the usual one is no stranger's"
    assert list(code_of(run.config())) == [key]


def test_everything_that_a_run_names_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path, {"policy.kind": "strange:Thing", "devices.kind": "android", "devices.android.adb": "./adb"})
    assert main(["evaluate", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert "names Python code that would run with your rights and a program that would run with your rights: " in said
    assert "policy.kind = 'strange:Thing', devices.android.adb = './adb'" in said


def test_a_sink_that_the_users_own_flag_replaces_is_not_held_against_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, SETTINGS["telemetry.sinks"])
    assert main(["train", "--resume", str(run.path), "--telemetry.sinks", "no_such_sink"]) == 2
    assert "telemetry.sinks = 'no_such_sink' is not known" in capsys.readouterr().err
    assert "strange" not in sys.modules


def test_with_the_flag_the_code_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = publish(a_run(tmp_path, SETTINGS["policy.kind"]))
    for command in commands(run, tmp_path / "out"):
        assert main([*command, "--trust-code"]) == 2
        assert "raised SystemExit: the code of a stranger has run" in capsys.readouterr().err


def test_looking_at_a_run_imports_nothing_that_it_names(tmp_path: Path) -> None:
    run = a_run(tmp_path, SETTINGS["policy.kind"])
    assert main(["status", str(run.path)]) == 0
    assert "strange" not in sys.modules


def test_a_suite_that_the_users_own_flag_replaces_is_not_held_against_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, SETTINGS["tasks.suite"])
    assert main(["evaluate", str(run.path), "--suite", "sim-start"]) == 2
    assert "has published no weights yet" in capsys.readouterr().err


def test_code_that_a_run_names_is_refused_by_sft_too(tmp_path: Path) -> None:
    run = a_run(tmp_path, SETTINGS["policy.kind"])
    with pytest.raises(UsageError, match="names Python code"):
        sft._open(Namespace(run=run.path, overrides={}, trust_code=False))


def test_ones_own_file_and_flags_need_no_flag_of_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--policy.kind", "strange:Thing"]) == 2
    assert "raised SystemExit: the code of a stranger has run" in capsys.readouterr().err
    assert main(["train", "--trust-code"]) == 2
    assert "leave --trust-code out" in capsys.readouterr().err


def test_a_module_in_the_runs_own_folder_is_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = publish(a_run(tmp_path, {"policy.kind": "inside:Thing"}))
    (run.path / "inside.py").write_text(STRANGE)
    assert main(["evaluate", str(run.path), "--trust-code"]) == 2
    assert "there is no module 'inside'" in capsys.readouterr().err


def test_looking_at_the_settings_of_a_run_imports_nothing_that_they_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, SETTINGS["policy.kind"])
    assert main(["config", "show", str(run.config_file)]) == 0
    assert "strange:Thing" in capsys.readouterr().out
    assert "strange" not in sys.modules


def test_the_page_names_every_setting_that_needs_trust() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    assert [key for key in (*plugins.SETTING.values(), REMOTE_CODE, *OTHERS) if f"`{key}`" not in page] == []
