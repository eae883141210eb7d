"""Tasks with MobileGym's shape on real Chromium phones: a page of ours with its functions, a package of ours with its classes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.config.judging import MobileGymConfig
from distrl.config.load import load_config
from distrl.config.schema import WebConfig
from distrl.devices.web.browser import Browser
from distrl.devices.web.device import WebDevice
from distrl.devices.web.gym import BRIDGE, Gym
from distrl.devices.web.sites import FolderSite
from distrl.errors import ConfigError, DeviceLost, LossCause, TaskError
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, attempt_of, run_episode, with_verdict
from distrl.rollout.hindsight import as_success_at
from distrl.runtime.trust import code_of
from distrl.tasks.base import RelabelsEpisodes, find_suite, tasks_of
from distrl.tasks.judges import RewardJudge, judge_attempt
from distrl.tasks.mobilegym import MobileGymSuite
from distrl.types import Action, Decision, Finish, Observation, Press, Tap, Task, Trajectory, TypeText, WebEnd
from support.webs import is_running, needs_chromium, tap

FAKE = Path(__file__).parents[1] / "support" / "fake_mobilegym"
LIMITS = EpisodeLimits(history=4, repeat_penalty=0.0)
Script = Callable[[Observation], Action]


def a_suite(url: str = "http://127.0.0.1:1/index.html", folder: Path = FAKE, **settings: object) -> MobileGymSuite:
    return MobileGymSuite(MobileGymConfig(url=url, folder=str(folder), **settings))  # type: ignore[arg-type]


class Here:
    """A phone that shows our page, and the tasks of our package."""

    def __init__(self, site: FolderSite, folder: Path = FAKE) -> None:
        self.url, self.folder = f"{site.origin}/index.html", folder
        settings = WebConfig(allow=(site.origin,), load_s=30.0, call_s=30.0, wait_s=0.05)
        self.browser, self.gym = Browser(settings, name="browser"), Gym(str(folder), "")
        self.devices = [WebDevice(f"test/web-{n}", settings, self.browser, gym=self.gym) for n in range(2)]
        self.device = self.devices[0]

    def task(self, name: str, *, instruction: str = "", **settings: object) -> Task:
        """The first task of this template whose instruction, in English, holds these words."""
        suite = a_suite(self.url, self.folder, **{"language": "en", **settings})
        split = "train" if name in {task.name for task in suite.templates["train"]} else "test"
        found = [task for task in tasks_of(suite, split) if task.template == name]
        wanted = {"wifi": 0, "dark": 1, "sound": 2}
        return next((task for task in found if _draws(task) == wanted.get(instruction)), found[0])

    async def play(self, task: Task, *actions: Action | Script) -> Trajectory:
        """An episode of these actions, judged."""
        left = iter(actions)

        async def decide(seen: Observation) -> tuple[Decision, int]:
            action = next(left, Finish())  # what a cut-off episode is asked last comes to nothing
            chosen = action(seen) if callable(action) else action
            return Decision(action=chosen, choice=(), logp=0.0, entropy=0.0, value=0.0), 0

        tools = EpisodeTools(decide=decide, clock=asyncio.get_running_loop().time)
        played = await run_episode("one", self.device, task, tools, LIMITS)
        assert played.trajectory is not None, played.lost
        verdict = await judge_attempt(RewardJudge(), attempt_of(played.trajectory), deadline_s=5.0)
        return with_verdict(played.trajectory, verdict)


def _draws(task: Task) -> int | None:
    """What our package draws for a task of its switches, by its number."""
    from random import Random

    return ("wifi", "dark", "sound").index(Random(task.setup.seed).choice(("wifi", "dark", "sound")))  # type: ignore[union-attr]


def touch(text: str) -> Script:
    """Tap what says this."""
    return lambda seen: Tap(
        *next(each for each in seen.elements if text in (each.text, each.description)).bounds.centre
    )


def run(work: Callable[[Here], Awaitable[None]], folder: Path = FAKE) -> None:
    async def within() -> None:
        site = FolderSite(FAKE / "page")
        await site.start()
        here = Here(site, folder)
        try:
            async with asyncio.timeout(170):
                await work(here)
        finally:
            for device in here.devices:
                await device.close()
            site.close()

    asyncio.run(within())


# --- which tasks there are --------------------------------------------------------------------------------------------


def test_splits_levels_and_limits_are_the_package_s_own_and_what_cannot_be_loaded_is_named() -> None:
    made = a_suite(instances=3)
    assert {split: made.size(split) for split in ("train", "tune", "test")} == {"train": 15, "tune": 5, "test": 3}  # type: ignore[arg-type]
    assert made.version == "0.1.0"
    assert set(made.left_out) == {"empty.NeedsData"}
    assert "data-that-is-not-there.json" in made.left_out["empty.NeedsData"]
    assert [made.level_of(name) for name in ("demo.TurnOn", "demo.SetName", "demo.Nothing")] == ["L1", "L2", ""]
    tasks = {task.template: task for task in tasks_of(made, "test")}
    assert set(tasks) == {"demo.Counts", "demo.Raises", "demo.Solved"}
    assert tasks["demo.Counts"].max_steps == 11  # 6, and 5 for the form that it is answered in
    assert a_suite(answers="action").task("test", 0).max_steps == 6
    seeds = [task.setup.seed for split in ("train", "tune", "test") for task in tasks_of(made, split)]  # type: ignore[arg-type, union-attr]
    assert len(set(seeds)) == len(seeds)
    assert [made.task("train", n) for n in range(15)] == [a_suite(instances=3).task("train", n) for n in range(15)]
    assert [task.template for task in tasks_of(a_suite(levels=("L2",)), "test")] == ["demo.Solved"]
    assert a_suite(leave_out=("demo.TurnOn", "empty")).left_out == {}


def test_a_wrong_folder_address_name_or_python_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="folder is empty"):
        MobileGymSuite()
    with pytest.raises(TaskError, match="there is no such folder"):
        a_suite(folder=tmp_path / "nowhere")
    with pytest.raises(TaskError, match="has no bench_env/splits") as caught:
        a_suite(folder=tmp_path)
    assert "by its own instructions" in caught.value.fix
    with pytest.raises(ConfigError, match="is no address"):
        a_suite("127.0.0.1:4173")
    with pytest.raises(TaskError, match=r"no task 'demo\.TurnOff'") as unknown:
        a_suite(names=("demo.TurnOff",))
    assert "demo.TurnOn" in unknown.value.expected
    with pytest.raises(ConfigError, match="cannot be used"):
        a_suite(python="/no/such/python")
    (tmp_path / "bench_env" / "splits").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot load .*ModuleNotFoundError") as half:
        a_suite(folder=tmp_path)
    assert "requirements.txt" in half.value.expected


def test_another_version_is_told_and_tried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(FAKE, tmp_path / "clone")
    (tmp_path / "clone" / "package.json").write_text('{"version": "2.0.0"}')
    with caplog.at_level("WARNING", "distrl"):
        assert a_suite(folder=tmp_path / "clone").version == "2.0.0"
    assert "is MobileGym 2.0.0" in caplog.text


def test_where_it_is_is_said_once_and_is_somebody_s_code() -> None:
    config = load_config(None, {
        "tasks.suite": "mobilegym", "tasks.mobilegym.url": "http://127.0.0.1:4173/", "tasks.mobilegym.folder": str(FAKE),
        "tasks.mobilegym.python": sys.executable, "devices.kind": "web", "warm_start.demonstrations": 0,
    })  # fmt: skip
    web = config.devices.web
    assert (web.gym_folder, web.gym_python, web.allow) == (str(FAKE), sys.executable, ("http://127.0.0.1:4173",))
    assert isinstance(find_suite(config.tasks), RelabelsEpisodes)
    assert set(code_of(config)) >= {
        "tasks.mobilegym.folder",
        "tasks.mobilegym.python",
        "devices.web.gym_folder",
        "devices.web.gym_python",
    }


# --- playing them -----------------------------------------------------------------------------------------------------


@needs_chromium
def test_its_own_class_sets_a_task_up_and_judges_it() -> None:
    async def work(here: Here) -> None:
        task = here.task("demo.TurnOn", instruction="dark")
        won = await here.play(task, touch("dark"), Finish())
        assert won.task.instruction == "Turn dark on"
        assert won.steps[0].observation.app == "demo"
        assert won.verdict.success
        assert won.end.device == WebEnd(
            url=here.url, title="a phone", reason="the goal is reached, and nothing else has changed", progress=1.0
        )
        untouched = await here.play(task, Finish())  # and the phone is back at its first state
        assert (untouched.verdict.outcome, untouched.verdict.false_completion) == ("failure", True)
        messy = await here.play(task, touch("dark"), touch("wifi"), Finish())
        assert not messy.verdict.success
        assert messy.verdict.side_effects == ("wifi",)
        silent = await here.play(task, touch("dark"), *[Press(key="enter")] * (task.max_steps - 1))
        assert not silent.verdict.success  # no claim, no success, as in MobileGym

    run(work)


@needs_chromium
def test_what_is_typed_replaces_what_was_there_and_chinese_is_a_text_like_any_other() -> None:
    async def work(here: Here) -> None:
        task = next(task for task in tasks_of(a_suite(here.url), "train") if task.template == "demo.SetName")
        won = await here.play(task, touch("名字"), TypeText("noch"), _typed_from_instruction, Finish())
        assert won.task.instruction.startswith("把名字改成")
        assert won.verdict.success

    run(work)


def _typed_from_instruction(seen: Observation) -> Action:
    return TypeText(seen.instruction.removeprefix("把名字改成"))


@needs_chromium
def test_a_question_is_answered_with_the_claim_or_in_the_form() -> None:
    async def work(here: Here) -> None:
        task = here.task("demo.Counts", answers="action")
        won = await here.play(task, Finish(answer="3"))  # its set-up put three there by a script of its own
        assert won.task.instruction == "How many notes are there?"
        assert won.verdict.success
        assert not (await here.play(task, Finish(answer="2"))).verdict.success
        await here.device.reset(here.task("demo.Counts", answers="form"))
        assert (await here.device.capture(screenshot=False)).instruction.endswith("Then hand the answer in.")
        assert await here.device.tab.evaluate("__SIM__.getState().apps.sheet.submitted", bool) is False

    run(work)


@needs_chromium
def test_a_failure_is_asked_of_other_training_tasks_and_what_held_before_is_none() -> None:
    async def work(here: Here) -> None:
        task = here.task("demo.TurnOn", instruction="dark", hindsight_draws=12)
        failed = await here.play(task, touch("wifi"), Finish())
        fitting = a_suite(here.url).hindsight(max_oracle_steps=0, flip=0.0)
        found = list(fitting(failed))
        assert [(other.template, other.instruction, other.split) for other in found] == [
            ("demo.TurnOn", "Turn wifi on", "train")
        ]
        assert not list(
            fitting(await here.play(task, Finish()))
        )  # nothing was done, and what held anyway is no achievement
        both = await here.play(task, touch("wifi"), touch("sound"), Finish())
        moments = both.end.device.fulfilled  # type: ignore[union-attr]
        assert [(one.instruction, one.steps) for one in moments] == [
            ("Turn wifi on", 1)
        ]  # sound changed what it did not ask for
        first = as_success_at(next(iter(fitting(both))), both, _Repeats(), filter_noops=True)
        assert first is not None
        assert [type(step.decision.action) for step in first.steps] == [Tap, Finish]
        assert first.steps[1].observation.elements == both.steps[1].observation.elements
        unclaimed = await here.play(task, touch("wifi"), touch("sound"), *[Press(key="enter")] * (task.max_steps - 2))
        assert [other.instruction for other in fitting(unclaimed)] == ["Turn wifi on"]
        assert not list(fitting(await here.play(task, touch("dark"), Finish())))  # no failure
        tested = await here.play(here.task("demo.Solved"), touch("dark"), Finish())
        assert tested.verdict.outcome == "failure"
        assert not list(fitting(tested))

    run(work)


@needs_chromium
def test_a_moment_that_fulfils_the_task_itself_is_told_too_and_a_question_with_the_line_that_answers_it() -> None:
    async def work(here: Here) -> None:
        fitting = a_suite(here.url).hindsight(max_oracle_steps=0, flip=0.0)
        task = here.task("demo.TurnOn", instruction="dark", hindsight_draws=1)
        overdone = await here.play(task, touch("dark"), touch("wifi"), Finish())
        assert [other.instruction for other in fitting(overdone)] == ["Turn dark on"]
        asked = here.task("demo.ReadsName", hindsight_draws=1)
        silent = await here.play(asked, Press(key="home"), touch("笔记"), Finish())
        found = [(one.task, one.answer) for one in silent.end.device.fulfilled]  # type: ignore[union-attr]
        assert found == [("demo.ReadsName", "milk the name is nobody")]

    run(work)


class _Repeats:
    """A policy that can express everything."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...]:
        return ()


@needs_chromium
def test_a_set_up_that_fails_costs_that_episode_and_says_why() -> None:
    async def work(here: Here) -> None:
        with pytest.raises(DeviceLost, match=r"FileNotFoundError: notes\.json") as caught:
            await here.device.reset(here.task("demo.Raises"))
        assert caught.value.cause is LossCause.SERVER  # nothing is known against the phone
        won = await here.play(here.task("demo.TurnOn", instruction="wifi"), touch("wifi"), Finish())
        assert won.verdict.success

    run(work)


@needs_chromium
def test_phones_share_one_process_which_is_replaced_when_it_dies_and_gone_at_the_end() -> None:
    pids = []

    async def work(here: Here) -> None:
        tasks = [here.task("demo.TurnOn", instruction=name) for name in ("wifi", "dark")]
        await asyncio.gather(*(device.reset(task) for device, task in zip(here.devices, tasks, strict=True)))
        for device, name in zip(here.devices, ("wifi", "dark"), strict=True):
            await tap(device, name)
            assert (await device.perform(Finish())).reward == 1.0
        process = here.gym._process
        assert process is not None
        pids.append(process.pid)
        process.kill()
        await process.wait()
        with pytest.raises(DeviceLost):  # what it knew of this task is gone
            await here.device.perform(Finish())
        await here.device.reset(tasks[0])
        assert here.gym._process is not None
        pids.append(here.gym._process.pid)

    run(work)
    assert len(set(pids)) == 2
    assert not any(is_running(pid) for pid in pids)


OWNER = """
import subprocess, sys, time
bridge = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print(bridge.pid, flush=True)
time.sleep(600)
"""


def test_code_of_the_package_that_never_ends_ends_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "bench_env").mkdir()
    begun = tmp_path / "begun"
    (tmp_path / "bench_env" / "__init__.py").write_text(f"open({str(begun)!r}, 'w').close()\nwhile True: pass\n")
    command = [sys.executable, "-c", OWNER, str(BRIDGE), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        try:
            wait_for(begun.exists)
            assert is_running(pid)
            owner.kill()
            owner.wait()
            wait_for(lambda: not is_running(pid))
        finally:
            owner.kill()
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@needs_chromium
def test_a_page_without_its_functions_and_one_that_is_not_served_are_faults_that_say_so(tmp_path: Path) -> None:
    async def work(here: Here) -> None:
        (tmp_path / "index.html").write_text("<p>an ordinary page</p>")
        site = FolderSite(tmp_path)
        bare = await site.start()
        settings = WebConfig(allow=(bare, "http://127.0.0.1:9"), load_s=1.0)
        device = WebDevice("test/bare", settings, here.browser, gym=here.gym)
        here.devices.append(device)
        here.url = f"{bare}/index.html"
        with pytest.raises(DeviceLost, match=r"has no __SIM_INPUT__\.tap"):
            await device.reset(here.task("demo.TurnOn"))
        site.close()
        here.url = "http://127.0.0.1:9/"
        with pytest.raises(DeviceLost, match="cannot open"):
            await device.reset(here.task("demo.TurnOn"))
        alone = WebDevice("test/alone", settings, here.browser)
        with pytest.raises(ConfigError, match="gym_folder is empty"):
            await alone.reset(here.task("demo.TurnOn"))

    run(work)


# --- distrl tasks check -----------------------------------------------------------------------------------------------


@needs_chromium
def test_a_check_names_the_tasks_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from support.webs import served

    with served(FAKE / "page") as origin:
        flags = ["--tasks.mobilegym.url", f"{origin}/index.html", "--tasks.mobilegym.folder", str(FAKE)]
        code = main(["tasks", "check", "mobilegym", *flags, "--json", "--write", str(tmp_path / "left.toml")])
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert code == 1
    assert (found["suite"], found["version"], found["usable"]) == ("mobilegym", "0.1.0", 5)
    assert found["levels"] == {"L1": 4, "L2": 1}
    assert {name: why.partition(":")[0] for name, why in found["left_out"].items()} == {
        "demo.Raises": "fails", "demo.Solved": "solved at the start", "demo.StaysOff": "solved at the start", "empty.NeedsData": "cannot be loaded",
    }  # fmt: skip
    assert "demo.Raises: fails: " in said.err
    assert '"demo.Solved",' in (tmp_path / "left.toml").read_text()


def test_a_check_of_simulated_phones_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "check", "sim-start", "--split", "train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["usable"] == 12


def test_a_check_of_an_unknown_suite_and_settings_for_other_verbs_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "check", "mobilegim"]) == 2
    assert "mobilegym" in capsys.readouterr().err
    assert main(["tasks", "list", "--run.seed", "1"]) == 2
    assert "tasks check" in capsys.readouterr().err
