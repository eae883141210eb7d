"""What a run may change between two sessions, and what it may not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.config.reference import options_tables, settings
from distrl.errors import UsageError
from distrl.runtime.resume import FIXED, FREE, adopt, settings_to_resume
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.session import is_over
from distrl.runtime.summary import summarise
from distrl.telemetry.events import read_events
from distrl.transport.base import BudgetUsed
from distrl.types import Value


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has had a session."""
    config = load_config(None, {"run.root": str(tmp_path), "run.seed": 3, "policy.pointer.width": 32})
    made = create_run(config, now=datetime(2026, 5, 4))
    adopt(made, config)
    return made


def edit(run: RunFolder, line: str, new: str) -> None:
    text = run.config_file.read_text()
    assert text.count(f"\n{line}\n") == 1
    run.config_file.write_text(text.replace(f"\n{line}\n", f"\n{new}\n"))


def logged(run: RunFolder) -> list[tuple[Value, Value, Value]]:
    return [(e["key"], e["was"], e["now"]) for e in read_events(run.log("supervisor")) if e["event"] == "setting"]


def test_without_changes_a_run_goes_on_with_its_settings_and_nothing_is_touched(run: RunFolder) -> None:
    before = run.config_file.read_bytes()
    config = settings_to_resume(run, {})
    adopt(run, config)
    assert (config, run.config_file.read_bytes(), logged(run)) == (run.session_config(), before, [])


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("width = 32", "width = 64"),
        ('suite = "sim-start"', 'suite = "sim-general"'),
        ("seed = 3", "seed = 4"),
        ("demonstrations = 50", "demonstrations = 5"),
        ("popup_rate = 0.05", "popup_rate = 0.5"),
    ],
)
def test_an_edit_of_what_cannot_change_is_refused_with_the_way_back(run: RunFolder, line: str, new: str) -> None:
    edit(run, line, new)
    with pytest.raises(UsageError, match="cannot change") as refusal:
        settings_to_resume(run, {})
    assert f"{line} in {run.config_file}" in refusal.value.fix
    edit(run, new, line)
    assert settings_to_resume(run, {}) == run.session_config()


def test_a_flag_that_would_change_what_cannot_change_is_refused_and_the_same_value_is_not(run: RunFolder) -> None:
    with pytest.raises(
        UsageError, match=r"run\.seed was 3 in the last session and is 4 now.*nor can policy\.pointer\.layers"
    ) as refusal:
        settings_to_resume(run, {"run.seed": "4", "policy.pointer.layers": "1", "run.minutes": "9"})
    assert "leave --run.seed out" in refusal.value.fix
    assert settings_to_resume(run, {"run.seed": "3"}) == run.session_config()


def test_what_can_change_is_taken_over_from_the_file_and_from_flags_and_each_change_is_logged(run: RunFolder) -> None:
    edit(run, "learning_rate = 0.003", "learning_rate = 0.0003")
    config = settings_to_resume(run, {"run.minutes": "20", "policy.pointer.word_swap_share": "0"})
    assert logged(run) == []  # another session may still hold the run
    adopt(run, config)
    assert (config.run.minutes, config.learner.learning_rate, config.policy.pointer.word_swap_share) == (
        20.0,
        0.0003,
        0.0,
    )
    assert run.config() == run.session_config() == config
    assert logged(run) == [
        ("run.minutes", 4.9, 20.0),
        ("policy.pointer.word_swap_share", 0.5, 0.0),
        ("learner.learning_rate", 0.003, 0.0003),
    ]
    adopt(run, settings_to_resume(run, {}))
    assert len(logged(run)) == 3


def test_an_edit_during_a_session_does_not_reach_its_roles(run: RunFolder) -> None:
    edit(run, "learning_rate = 0.003", "learning_rate = 0.0003")
    assert run.session_config().learner.learning_rate == 0.003
    assert run.config().learner.learning_rate == 0.0003


def test_before_its_first_session_a_run_has_nothing_to_hold_on_to(run: RunFolder) -> None:
    run.session_file.unlink()
    edit(run, "width = 32", "width = 64")
    assert settings_to_resume(run, {}).policy.pointer.width == 64


def test_everything_that_is_fixed_is_a_setting() -> None:
    known = (*settings(), *(f"{table}." for table in options_tables()))
    assert [name for name in FIXED if not any(key.startswith(name) for key in known)] == []
    assert [key for key in FREE if key not in settings()] == []


def test_a_run_may_move_to_another_processor_and_vary_its_pictures_otherwise_but_not_see_others(tmp_path: Path) -> None:
    flags: dict[str, Value] = {"run.root": str(tmp_path), "policy.kind": "pixel", "rollout.keep_screenshots": True}
    config = load_config(None, flags)
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    moved = {
        "policy.device": "auto",
        "learner.device": "auto",
        "policy.pixel.jitter": "0",
        "policy.pixel.image_cache": "9",
    }
    assert settings_to_resume(run, moved).policy.pixel.image_cache == 9
    for key, value in {
        "policy.pixel.width": "32",
        "devices.sim.screenshot_width": "224",
        "warm_start.samples": "9",
    }.items():
        with pytest.raises(UsageError, match=f"{key} was .* cannot change"):
            settings_to_resume(run, {key: value})


OWN = """
from typing import ClassVar
import msgspec


class Options(msgspec.Struct, frozen=True):
    may_change: ClassVar[tuple[str, ...]] = ("step_s",)
    step_s: float = 1.0
    floor: int = 0


def make(settings: Options, *context): ...
"""


@pytest.mark.parametrize("table", ["devices", "tasks", "judge", "policy"])
def test_options_of_a_plug_in_are_fixed_but_for_those_that_it_says_may_change(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugged_in.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    key = "tasks.suite" if table == "tasks" else f"{table}.kind"
    config = load_config(None, {"run.root": str(tmp_path), key: "plugged_in:make", f"{table}.options.floor": 1})
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    changed = settings_to_resume(run, {f"{table}.options.step_s": "2"}, trust_code=True)
    assert getattr(changed, table).options == {"floor": 1, "step_s": 2}
    with pytest.raises(UsageError, match=rf"{table}\.options\.floor was 1 .* cannot change"):
        settings_to_resume(run, {f"{table}.options.floor": "2"}, trust_code=True)


def test_a_plug_in_that_nobody_trusts_is_not_even_asked_what_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_stranger.py").write_text("raise SystemExit('the code of a stranger has run')")
    monkeypatch.syspath_prepend(tmp_path)
    config = load_config(None, {"run.root": str(tmp_path), "judge.kind": "of_a_stranger:make"})
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    with pytest.raises(UsageError, match="names Python code"):
        settings_to_resume(run, {"judge.options.floor": "2"})


def test_options_of_an_algorithm_of_ones_own_may_change_as_those_of_built_in_ones_do(tmp_path: Path) -> None:
    config = load_config(None, {"run.root": str(tmp_path), "algorithm.kind": "no.where:Mine"})
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    changed = settings_to_resume(run, {"algorithm.options.rate": "2"}, trust_code=True)
    assert changed.algorithm.options == {"rate": 2}


def test_the_command_line_says_so_in_a_few_lines(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run.path), "--tasks.suite", "sim-general"]) == 2
    message = capsys.readouterr().err
    assert "leave --tasks.suite out, or start a new run with `distrl train --tasks.suite sim-general`" in message
    assert (len(message.splitlines()) <= 15, "Traceback" in message) == (True, False)


@pytest.mark.parametrize(
    ("minutes", "episodes", "over"),
    [(0, 0, False), (1, 0, True), (2, 0, False), (0, 50, True), (0, 51, False), (2, 50, True), (1, 51, True)],
)
def test_a_run_is_over_once_either_budget_is_used(minutes: int, episodes: int, over: bool) -> None:
    limits = load_config(None, {"run.minutes": minutes, "run.episodes": episodes}).run
    assert is_over(limits, BudgetUsed(collect_s=60.0), 50) is over


@pytest.mark.parametrize(
    ("minutes", "episodes", "fix"),
    [(1, 0, "--run.minutes 2`"), (0, 50, "--run.episodes 100`"), (1, 50, "--run.minutes 2 --run.episodes 100`")],
)
def test_a_finished_run_is_not_resumed_without_more_of_what_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], minutes: int, episodes: int, fix: str
) -> None:
    config = load_config(None, {"run.root": str(tmp_path), "run.minutes": minutes, "run.episodes": episodes})
    run = create_run(config, now=datetime(2026, 5, 4))
    used = BudgetUsed(collect_s=61.0)
    run.budget.write_bytes(msgspec.json.encode(used))
    run.summary.write_bytes(msgspec.json.encode(replace(summarise(run, config, used), episodes=50)))
    assert main(["train", "--resume", str(run.path), "--learner.learning_rate", "0.01"]) == 2
    assert f"distrl train --resume {run.path} {fix}" in capsys.readouterr().err
