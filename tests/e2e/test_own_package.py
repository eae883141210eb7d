"""A user's own package (`examples/own_package`) trains, is evaluated and is shown without a line of distrl knowing it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.algorithms.base import Algorithm
from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.devices.base import Device
from distrl.errors import ConfigError, StoreError
from distrl.experience.replay import Sample
from distrl.policies.base import Policy
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, attempt_of, run_episode
from distrl.runtime.factory import make_algorithm, make_devices, make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.source import TaskChoice, with_tasks
from distrl.tasks.base import SPLITS, find_suite, refuse_overlap, tasks_of
from distrl.tasks.judges import find_judge, judge_attempt
from distrl.telemetry.events import read_events
from distrl.types import Action, Decision, Ending, Finish, Observation, Tap, Task, Trajectory, Verdict
from support.batches import Drawn, gradient, train_batch
from support.runs import check_exactly_once, distrl, flags, last_json

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "own_package"
SETTINGS = PACKAGE / "train.toml"
EXTENDING = ROOT / "docs" / "extending.md"
NAMES = {
    "tasks.suite": "kiosk",
    "devices.kind": "kiosk",
    "judge.kind": "kiosk",
    "policy.kind": "kiosk",
    "algorithm.kind": "kiosk-imitation",
}
"""The entry points of the package."""
SHORT = {
    "run.minutes": 0,
    "run.episodes": 40,
    "rollout.workers": 1,
    "devices.per_worker": 4,
    "evaluation.episodes": 8,
    "learner.first_update_episodes": 16,
}


def environment(*folders: Path) -> dict[str, str]:
    """The present environment, where Python also looks into `folders`."""
    paths = [*map(str, folders), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    """The example's settings, where its package can be imported."""
    monkeypatch.syspath_prepend(PACKAGE / "src")
    return load_config(SETTINGS, {"devices.options.step_s": "0"})


# --- the parts -----------------------------------------------------------------------------------------------------


def task_with(config: Config, words: str) -> Task:
    suite = find_suite(config.tasks)
    return next(task for split in SPLITS for task in tasks_of(suite, split) if words in task.instruction)


def play(config: Config, task: Task, *labels: str) -> tuple[Trajectory, Verdict]:
    """Press the buttons with these labels one after the other, then say that it is done; judged."""
    waiting = list(labels)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return Decision(action=press(seen, waiting), choice=(0,), logp=0.0, entropy=0.0, value=0.0), 0

    async def attempt() -> tuple[Trajectory, Verdict]:
        (device, *_) = make_devices(config, "worker-0")
        assert isinstance(device, Device)
        tools = EpisodeTools(decide=decide, clock=lambda: 0.0)
        played = await run_episode("one", device, task, tools, EpisodeLimits(history=4, repeat_penalty=0.0))
        assert played.trajectory is not None
        judged = attempt_of(played.trajectory)
        return played.trajectory, await judge_attempt(find_judge(config.judge), judged, deadline_s=5.0)

    return asyncio.run(attempt())


def press(seen: Observation, waiting: list[str]) -> Action:
    if not waiting:
        return Finish()
    label = waiting.pop(0)
    return Tap(*next(element.bounds.centre for element in seen.elements if element.text == label))


def test_its_splits_share_no_instruction_and_its_options_choose_the_tasks(config: Config) -> None:
    suite = find_suite(config.tasks)
    tasks = [task for split in SPLITS for task in tasks_of(suite, split)]
    refuse_overlap(tasks)
    assert {split: suite.size(split) > 10 for split in SPLITS} == dict.fromkeys(SPLITS, True)
    orders = find_suite(replace(config.tasks, options={"prices": False}))
    assert {task.template for task in tasks} == {"order", "price"}
    assert sum(orders.size(split) for split in SPLITS) == sum(task.template == "order" for task in tasks)


def test_an_order_as_asked_is_a_success(config: Config) -> None:
    task = task_with(config, "Order a large tea with milk")
    played, verdict = play(config, task, "Tea", "Large", "Milk", "Pay")
    assert (verdict.outcome, verdict.reason, played.ending) == ("success", "the order is as asked", Ending.FINISHED)


def test_another_order_is_a_failure_that_says_what_differs(config: Config) -> None:
    task = task_with(config, "Order a large tea with milk")
    _, verdict = play(config, task, "Tea", "Small", "Milk", "Pay")
    assert (verdict.outcome, verdict.reason) == ("failure", "size is Small, asked for Large")
    assert (verdict.progress, verdict.false_completion) == (0.75, True)
    lenient = replace(config, judge=replace(config.judge, options={"ignore": ["size"]}))
    assert play(lenient, task, "Tea", "Small", "Milk", "Pay")[1].success


def test_the_kiosk_itself_ends_and_rewards_a_question_for_a_price(config: Config) -> None:
    task = task_with(config, "What does cocoa cost")
    right, praised = play(config, task, "Prices", "Cocoa")
    wrong, refused = play(config, task, "Prices", "Juice")
    assert (right.ending, right.end.reward, praised.success) == (Ending.ENVIRONMENT, 1.0, True)
    assert (wrong.ending, wrong.end.reward, refused.reason) == (
        Ending.ENVIRONMENT,
        0.0,
        "reward 0 of 1",
    )


def seen_in(config: Config) -> list[Observation]:
    played, _ = play(config, task_with(config, "Order a large tea with milk"), "Tea", "Large", "Milk", "Pay")
    return [step.observation for step in played.steps]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_policy_scores_its_decisions_as_it_made_them(config: Config, temperature: float) -> None:
    policy, seen = make_policy(config), seen_in(config)
    assert isinstance(policy, Policy)
    made = policy.decide(seen, temperature=temperature, generator=torch.Generator().manual_seed(0))
    encoded, choices = [policy.encode(one) for one in seen], [one.choice for one in made]
    together = policy.score([*encoded, encoded[0]], [*choices, ()])
    alone = torch.cat([policy.score([one], [choice]).logp_N for one, choice in zip(encoded, choices, strict=True)])
    torch.testing.assert_close(together.logp_N[:-1], torch.tensor([one.logp for one in made]))
    torch.testing.assert_close(together.logp_N[:-1], alone)
    assert [policy.imitate(one, decision.action) for one, decision in zip(seen, made, strict=True)] == choices
    assert isinstance(made[-1].action, Finish)  # nothing is left to press
    together.logp_N.sum().backward()
    assert all(weights.grad is not None for name, weights in policy.network.named_parameters() if "value" not in name)


def test_the_policys_weights_travel_and_those_of_another_size_are_refused(config: Config) -> None:
    first = make_policy(config)
    second = make_policy(replace(config, run=replace(config.run, seed=1)))
    second.restore(first.dump(), source="first")
    assert all(torch.equal(tensor, second.weights()[name]) for name, tensor in first.weights().items())
    narrow = make_policy(replace(config, policy=replace(config.policy, options={"width": 8})))
    with pytest.raises(StoreError, match="first holds weights of another architecture"):
        narrow.restore(first.dump(), source="first")


def test_the_baseline_follows_each_template_and_unlikely_successes_come_first(config: Config) -> None:
    algorithm: Algorithm = make_algorithm(config)
    won, lost = Drawn(reward=[1.0], value=[0.5], success=True), Drawn(reward=[0.0], value=[0.5])
    batch = replace(train_batch(won, won, lost), templates=("order", "order", "price"))
    for updates in range(100):
        loss = algorithm.loss(batch, updates=updates)
    assert loss.metrics["baseline"] == pytest.approx(2 / 3, abs=0.02)
    loss.total.backward()
    pulled_B = gradient(batch.logp_BT)[:, 0]
    assert (pulled_B[:2] < 0).all()
    assert pulled_B[2] == 0  # a failure is not imitated
    samples: list[Any] = [
        Sample(id=template, item=_Kept(template, success), probability=1.0, weight=1.0, staleness=0)
        for template, success in (("price", True), ("order", True), ("order", False))
    ]
    assert algorithm.priorities(loss, samples) == pytest.approx([1.0, 0.2, 0.05])
    resumed = make_algorithm(config)
    resumed.critic.load_state_dict(algorithm.critic.state_dict())
    assert resumed.priorities(loss, samples) == pytest.approx([1.0, 0.2, 0.05])


class _Kept:
    """What a priority reads of an episode in the replay."""

    def __init__(self, template: str, success: bool) -> None:
        self.template, self.success = template, success


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        ("policy", {"widht": 8}, "policy.options.widht is no setting of kiosk.policy:LabelPolicy"),
        ("policy", {"width": 1}, "policy.options does not fit kiosk.policy:LabelPolicy"),
    ],
)
def test_options_that_it_does_not_know_are_refused(
    config: Config, section: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_policy(replace(config, policy=replace(config.policy, options=options)))


def test_options_of_its_suite_are_not_given_to_another_one(config: Config) -> None:
    own = replace(config, tasks=replace(config.tasks, options={"prices": False}, max_oracle_steps=3))
    same = with_tasks(own, TaskChoice()).tasks
    other = with_tasks(own, TaskChoice(suite="sim-start")).tasks
    assert (same.options, same.max_oracle_steps) == ({"prices": False}, 3)
    assert (other.suite, other.options, other.max_oracle_steps) == ("sim-start", {}, 0)


@pytest.mark.parametrize("code", re.findall(r"```(?:python|toml)\n(.*?)```", EXTENDING.read_text(), flags=re.DOTALL))
def test_what_the_page_on_extending_shows_is_in_the_package(code: str) -> None:
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.toml"), *PACKAGE.parent.glob("*.py")]
    held = "\n".join(path.read_text() for path in files)
    shown = code.strip("\n").split("\n\n\n")
    assert [part for part in shown if part.rstrip() not in held] == []


# --- the package in use --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of the example as it is, found by import path: the package is not installed."""
    root = tmp_path_factory.mktemp("runs")
    env = environment(PACKAGE / "src")
    done = distrl("train", SETTINGS, "--run.root", root, "--run.episodes", 3000, "--json", env=env)
    assert done.returncode == 0, done.stderr
    return RunFolder(next(root.glob("*/config.toml")).parent)


def test_it_learns_from_chance_to_most_tasks_and_loses_nothing(learnt: RunFolder) -> None:
    summary = json.loads(learnt.summary.read_text())
    assert summary["suite"] == "kiosk.tasks:KioskSuite"
    assert summary["success_before"] < 0.25
    assert summary["success_after"] > summary["success_before"] + 0.4
    assert summary["interrupted"] is False
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["restarts"]) == (0, 0, 0)
    assert summary["episodes"] == check_exactly_once(learnt)


def test_the_metric_of_its_algorithm_is_written(learnt: RunFolder) -> None:
    baselines = [line["learner/baseline"] for line in read_events(learnt.metrics) if "learner/baseline" in line]
    assert len(baselines) > 5
    assert baselines[0] < baselines[-1] <= 1.0


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command prints that ends well."""
    assert main([str(word) for word in words]) == 0
    torch.set_flush_denormal(False)  # as in a new process
    return capsys.readouterr().out


@pytest.mark.usefixtures("config")
def test_its_run_is_evaluated_shown_and_exported(
    learnt: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = last_json(said(capsys, "evaluate", learnt.path, "--episodes", 20, "--json", "--trust-code"))
    assert (report["n"], {row["template"] for row in report["per_task"]} <= {"order", "price"}) == (20, True)
    status = said(capsys, "status", learnt.path)
    assert "finished" in status
    assert "without a verdict" not in status
    said(capsys, "export", learnt.path, tmp_path / "out", "--trust-code")
    assert "kiosk.policy:LabelPolicy" in (card := (tmp_path / "out" / "README.md").read_text())
    assert "no part of `distrl`" in card


@pytest.mark.usefixtures("config")
def test_its_run_is_watched_though_a_kiosk_has_no_pictures(
    learnt: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("watch", learnt.path, "--gif", tmp_path / "kiosk.gif", "--strip", tmp_path / "kiosk.png", "--json")
    assert main([str(word) for word in words]) == 2
    assert "names Python code" in capsys.readouterr().err
    (episode,) = last_json(said(capsys, *words, "--trust-code"))["episodes"]
    assert episode["task"].startswith("kiosk.tasks:KioskSuite/test/")
    assert {step["action"].partition(" ")[0] for step in episode["steps"]} <= {"tap", "done"}
    assert (tmp_path / "kiosk.png").stat().st_size > 1000


@pytest.mark.usefixtures("config")
def test_an_evaluation_says_how_many_attempts_have_no_outcome_and_is_refused_where_none_has(
    learnt: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent.py").write_text(
        "from distrl.types import Verdict\n"
        "class Silent:\n"
        "    asked = 0\n"
        "    def __init__(self, settings): ...\n"
        "    async def judge(self, attempt):\n"
        "        self.asked += 1\n"
        "        if self.asked != 2:\n"
        "            raise KeyError('[b]no key')\n"
        "        return Verdict(outcome='success')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = RunFolder(shutil.copytree(learnt.path, tmp_path / "run"))
    settings = run.config_file.read_text().replace("kiosk.judge:KioskJudge", "silent:Silent")
    run.config_file.write_text(settings)
    told = " ".join(said(capsys, "evaluate", run.path, "--episodes", 3, "--trust-code").split())
    why = "the judge failed: KeyError: '[b]no key'"
    assert f"2 attempts have no outcome and count as no success, 2 of them because: {why}" in told
    assert main(["evaluate", str(run.path), "--episodes", "1", "--trust-code"]) == 3
    assert f"none of 1 episodes has an outcome, the first because: {why}" in capsys.readouterr().err


def test_its_run_is_refused_where_the_package_is_not_found(learnt: RunFolder, tmp_path: Path) -> None:
    refused = distrl("evaluate", learnt.path, "--trust-code", env=environment(), cwd=tmp_path)
    assert refused.returncode == 2
    assert "there is no module 'kiosk'" in refused.stderr
    assert len(refused.stderr.splitlines()) <= 15


def test_its_tasks_are_listed_and_shown_by_import_path(
    config: Config, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["tasks", "list", "--suite", config.tasks.suite, "--json"]) == 0
    listed = last_json(capsys.readouterr().out)
    assert (listed["overlap"], listed["suites"]["kiosk"]["templates"]) == (0, 2)
    assert main(["tasks", "show", f"{config.tasks.suite}/test/0"]) == 0
    assert f"{config.tasks.suite}/test/00000" in capsys.readouterr().out
    assert main(["tasks", "try", f"{config.tasks.suite}/test/0", "--out", str(tmp_path / "out")]) == 2
    assert "is no task of simulated phones" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package was installed into, without network."""
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(PACKAGE, folder / "source")  # a build leaves files beside what it builds
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder / "site"), str(source)]
    done = subprocess.run([*pip, *offline], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_an_installed_package_is_found_by_its_entry_points(installed: Path, tmp_path: Path) -> None:
    env = environment(installed)
    chosen = flags({**NAMES, **SHORT, "run.root": tmp_path / "runs"})
    done = distrl("train", SETTINGS, *chosen, "--json", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = last_json(done.stdout)
    assert (summary["suite"], summary["lost_episodes"], summary["restarts"]) == ("kiosk", 0, 0)
    assert summary["episodes"] >= 40
    assert summary["updates"] > 0
    listed = distrl("tasks", "list", "--suite", "kiosk", env=env, cwd=tmp_path).stdout
    assert {"order", "price"} <= {line.partition(" ")[0] for line in listed.splitlines()}
    assert "instances in more than one split: 0" in listed
    (run,) = (tmp_path / "runs").iterdir()
    evaluated = distrl("evaluate", run, "--episodes", 5, "--json", "--trust-code", env=env, cwd=tmp_path)
    assert last_json(evaluated.stdout)["n"] == 5


def test_distrl_itself_does_not_know_the_package_and_the_package_not_the_simulator() -> None:
    own = re.compile(r"\bkiosk\b|own_package", re.IGNORECASE)
    assert [path for path in (ROOT / "src" / "distrl").rglob("*.py") if own.search(path.read_text())] == []
    sources = sorted((PACKAGE / "src").rglob("*.py"))
    assert len(sources) == 6
    assert [path for path in sources if ".sim" in path.read_text()] == []
