"""The Python API: settings in whatever form, runs read back, what was trained in one's own hands."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest
import torch
from msgspec.structs import replace

import distrl
from distrl import plugins
from distrl.algorithms.ppo import PPO
from distrl.api import resolve
from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import ConfigError, StoreError, UsageError
from distrl.evaluation.stored_playback import Playback
from distrl.runtime.exported import MANIFEST
from distrl.runtime.run_folder import create_run
from distrl.telemetry.events import EventLog
from distrl.types import Observation, Press
from support.trained import NOW, small_run, store_episodes
from support.trajectories import TASK, make_trajectory


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        (None, {"run__minutes": 2, "algorithm__kind": "ppo"}),
        (None, {"run.minutes": 2, "algorithm.kind": "ppo"}),
        ({"run": {"minutes": 2}, "algorithm": {"kind": "ppo"}}, {}),
        ({"run.minutes": 3, "algorithm.kind": "ppo"}, {"run__minutes": 2}),
        (load_config(None, {"algorithm.kind": "ppo"}), {"run__minutes": 2}),
    ],
)
def test_settings_come_as_words_as_tables_or_as_a_config(config: object, overrides: dict[str, object]) -> None:
    found = resolve(config, overrides)  # type: ignore[arg-type]
    assert found == load_config(None, {"run.minutes": 2, "algorithm.kind": "ppo"})


def test_settings_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[run]\nminutes = 2\n")
    assert resolve(str(tmp_path / "my.toml"), {"run__seed": 4}).run == load_config(
        None, {"run.minutes": 2, "run.seed": 4}
    ).run  # fmt: skip
    assert resolve(None, {}) == Config()


def test_a_class_stands_for_its_import_path_unless_nobody_else_can_import_it() -> None:
    assert resolve(None, {"algorithm__kind": PPO}).algorithm.kind == "distrl.algorithms.ppo:PPO"
    with pytest.raises(UsageError, match="cannot import"):
        resolve(None, {"algorithm__kind": lambda settings, context: None})


def test_a_wrong_key_is_answered_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match=r"run\.minutes"):
        resolve(None, {"run__minuts": 2})


def test_every_public_name_is_there_and_listed() -> None:
    assert all(getattr(distrl, name) is not None for name in distrl.__all__)
    assert set(distrl.__all__) <= set(dir(distrl))
    with pytest.raises(AttributeError, match="nothing"):
        distrl.nothing  # noqa: B018


def test_the_episodes_of_a_run_are_filtered_and_come_in_order(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    run = distrl.open_run(folder.path)
    assert list(run.episodes()) == []
    store_episodes(folder, a=True, b=False, c=True, d=True)
    assert [episode.id for episode in run.episodes()] == ["a", "b", "c", "d"]
    assert [episode.id for episode in run.episodes(success=True, last=2)] == ["c", "d"]
    assert [episode.id for episode in run.episodes(success=False)] == ["b"]
    assert len(list(run.episodes(template=TASK.template, task=TASK.id))) == 4
    assert list(run.episodes(source="hindsight")) == []
    assert list(run.episodes(last=0)) == []
    assert run.episode("b").id == "b"
    assert (run.summary, run.name, run.config.policy.pointer.width) == (None, folder.name, 16)
    assert run.status().episodes == 4


def test_the_metrics_of_a_run_are_read_by_role_and_as_a_curve(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    times = iter((10.0, 12.0, 15.0))
    metrics = EventLog(folder.metrics, clock=lambda: next(times))
    for updates in (1, 2):
        metrics.write("learner", role="learner", **{"learner/updates": updates})
    metrics.write("worker", role="worker-1", **{"worker/episodes": 7})
    run = distrl.open_run(folder.path)
    assert run.curve("learner/updates") == [(0.0, 1.0), (2.0, 2.0)]
    assert run.curve("role") == [], "names are no figures"
    assert [len(run.metrics(role)) for role in ("learner", "worker-1", "worker", "evaluator")] == [2, 1, 1, 0]


def test_a_run_and_its_export_are_evaluated_alike(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    assert main(["export", str(folder.path), str(tmp_path / "out")]) == 0
    torch.set_flush_denormal(False)
    of_run, of_export = (distrl.evaluate(path, episodes=6) for path in (folder.path, tmp_path / "out"))
    assert of_run == of_export
    assert (of_run.n, of_run.suite, of_run.policy_version) == (6, "sim-start", 0)


def test_an_evaluation_works_inside_an_event_loop_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    folder, threads = small_run(tmp_path), torch.get_num_threads()

    async def notebook() -> distrl.Report:
        return distrl.evaluate(folder.path, episodes=2)

    assert asyncio.run(notebook()).n == 2
    assert torch.get_num_threads() == threads
    assert 5e-324 * 1.0 > 0.0  # denormals are still numbers: msgspec reads settings with them


def test_a_loaded_policy_plays_an_environment_to_its_end(tmp_path: Path) -> None:
    policy = distrl.load_policy(small_run(tmp_path).path)
    env = distrl.make_env("sim-start", seed=0, render_mode="rgb_array")
    _, info = env.reset(options={"split": "test"})
    over = False
    while not over:
        decision = policy.decide(info, screenshot=env.render(), temperature=0.0)
        assert 0.0 <= decision.value <= 1.0
        _, _, terminated, truncated, info = env.step(decision.action)
        over = terminated or truncated
    assert info["verdict"].known
    assert policy.version == 0
    with pytest.raises(UsageError, match="holds no observation"):
        policy.act({"instruction": "x"})
    assert policy.act(Observation(instruction="Turn the Wi-Fi on")) is not None


def test_a_policy_plays_a_task_of_ones_choice(tmp_path: Path) -> None:
    played = distrl.load_policy(small_run(tmp_path).path).play("sim-start/test/00003")
    assert isinstance(played, Playback)
    assert played.trajectory.task.id == "sim-start/test/00003"
    assert len(played.screens) == len(played.trajectory.steps) + 1


def test_what_the_card_of_an_export_shows_works(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(small_run(tmp_path).path), str(out)]) == 0
    torch.set_flush_denormal(False)
    card = (out / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    exec(code.replace("FOLDER", str(out)), {})
    (commands,) = re.findall(r"```\n(distrl .*?)```", card, flags=re.DOTALL)
    for command in commands.splitlines():
        words = command.replace("FOLDER", str(out)).replace("episode.gif", str(tmp_path / "e.gif")).split()[1:]
        assert main([word if word != "300" else "2" for word in words]) == 0
        torch.set_flush_denormal(False)
    assert (tmp_path / "e.gif").read_bytes().startswith(b"GIF89a")


def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(small_run(tmp_path).path), str(out)]) == 0
    torch.set_flush_denormal(False)
    weights = out / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StoreError, match=r"checksum of model\.safetensors differs"):
        distrl.load_policy(out)
    weights.unlink()
    with pytest.raises(StoreError, match="missing"):
        distrl.load_policy(out)
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps({**manifest, "sha256": {"../x": "0"}}))
    with pytest.raises(StoreError, match="outside of the folder"):
        distrl.load_policy(out)
    (out / MANIFEST).write_text(json.dumps({**manifest, "format": 9}))
    with pytest.raises(StoreError, match="format 9"):
        distrl.load_policy(out)


def test_code_that_a_folder_names_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    folder = small_run(tmp_path, judge__kind="distrl.tasks.judges:AutoJudge")
    run = distrl.open_run(folder.path)
    refused: list[Callable[[], object]] = [
        lambda: distrl.evaluate(folder.path, episodes=1),
        lambda: distrl.load_policy(folder.path),
        lambda: run.evaluate(episodes=1),
        lambda: run.policy(),
        lambda: run.resume(),
        lambda: run.resume(judge__options__floor=1),
    ]
    for call in refused:
        with pytest.raises(UsageError, match="names Python code"):
            call()
    assert distrl.evaluate(folder.path, episodes=1, trust_code=True).n == 1
    assert run.evaluate(episodes=1, trust_code=True).n == 1
    assert distrl.Run(folder, trusted=True).policy().version == 0


@pytest.mark.parametrize("key", sorted({*plugins.SETTING.values()}))
def test_no_setting_of_a_strangers_run_is_executed_by_resume(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_stranger.py").write_text("raise SystemExit('the code of a stranger has run')")
    monkeypatch.syspath_prepend(tmp_path)
    config = load_config(None, {"run.root": str(tmp_path / "runs"), key: "odd_stranger:Thing"})
    run = distrl.open_run(create_run(config, now=NOW).path)
    with pytest.raises(UsageError, match=f"names Python code .*{re.escape(key)} = 'odd_stranger:Thing'"):
        run.resume()
    with pytest.raises(ConfigError, match="the code of a stranger has run"):
        run.resume(trust_code=True)


ORDERS = {
    "distrl first": "import distrl\nimport gymnasium",
    "gymnasium first": "import gymnasium\nimport distrl",
    "only a part of gymnasium": "from gymnasium.spaces import Box\nimport distrl\nimport gymnasium",
    "distrl.env too": "import distrl.env\nimport gymnasium",
}
MAKE = """
import sys
before = [name for name in ("torch", "distrl.env") if name in sys.modules]
assert before == EXPECTED, before
env = gymnasium.make("distrl/sim-start-v0")
print(bool(env.reset(seed=0)[0]["instruction"]), "torch" in sys.modules)
"""


@pytest.mark.parametrize("order", ORDERS)
def test_gymnasium_knows_the_phones_in_a_fresh_process_whoever_is_imported_first(order: str) -> None:
    code = ORDERS[order] + MAKE.replace("EXPECTED", '["distrl.env"]' if "env" in order else "[]")
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True False", "")


def test_importing_distrl_loads_neither_gymnasium_nor_numpy_nor_torch() -> None:
    code = "import distrl, sys; print([n for n in ('torch', 'gymnasium', 'numpy', 'PIL') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("id", ["distrl/sim-start-v0", "distrl.env:distrl/sim-general-v0"])
def test_gymnasium_makes_the_phones_by_id(id: str) -> None:
    env = gymnasium.make(id, render_mode="rgb_array")
    observation, _ = env.reset(seed=3, options={"split": "test"})
    assert observation["instruction"]
    assert env.step(Press("home"))[1] == 0.0
    rendered = env.render()
    assert rendered is not None


def test_the_library_logs_nothing_by_itself_and_events_to_whoever_listens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("distrl").handlers)
    log = EventLog(tmp_path / "supervisor.jsonl")
    with caplog.at_level(logging.INFO, logger="distrl"):
        log.write("died", role="worker-0", why="killed")
        log.write("acknowledged", id="x")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("distrl.events.supervisor", "WARNING")
    assert record.getMessage() == "died role=worker-0 why=killed"


def test_episodes_of_ones_own_are_recorded_as_a_run_and_none_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no episode to record"):
        distrl.record([], run__root=str(tmp_path / "none"))
    twice = [make_trajectory("mine"), make_trajectory("mine")]
    nothing = (([{}], "{} is no episode with an id"), (None, "None is no episode with an id"))
    for wrong, why in ((twice, "several episodes have the id 'mine'"), *nothing):
        with pytest.raises(UsageError, match=why):
            distrl.record(wrong, run__root=str(tmp_path / "none"))  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()
    made = [replace(make_trajectory(f"mine-{number}"), source="demonstration") for number in range(3)]
    run = distrl.record(made, run__root=str(tmp_path))
    assert run.path.name.endswith("-demonstrations")
    assert [episode.id for episode in run.episodes(source="demonstration")] == ["mine-0", "mine-1", "mine-2"]
