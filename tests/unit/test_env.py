"""The Gymnasium environment keeps Gymnasium's contract and judges as everything else does."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import distrl
from distrl.config.schema import NO_PERTURBATIONS
from distrl.env import KINDS, to_action
from distrl.errors import ConfigError, DeviceError, TaskError, UsageError
from distrl.rollout.stepping import EventLoopThread
from distrl.tasks.sim.oracle import Oracle
from distrl.types import Finish, Press, Tap, Task, TypeText, Wait

TEST_TASK = "sim-general/test/00001"
OWN_PACKAGE = Path(__file__).parents[2] / "examples" / "own_package"
KIOSKS = {
    "tasks.suite": "kiosk.tasks:KioskSuite",
    "devices.kind": "kiosk.device:make_kiosks",
    "devices.options.step_s": 0.01,
    "judge.kind": "kiosk.judge:KioskJudge",
}


def kind(name: str, **parts: Any) -> dict[str, Any]:
    return {"kind": KINDS.index(name), **parts}


def test_it_passes_gymnasiums_own_checks_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(distrl.make_env("sim-general", seed=0), skip_render_check=True)


def test_the_oracle_earns_one_and_everyone_else_nothing() -> None:
    env = distrl.make_env("sim-general")
    _, info = env.reset(options={"task": TEST_TASK})
    oracle, total, over = Oracle(info["task"]), 0.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(oracle.act(info["observation"].elements))
        total, over = total + reward, terminated or truncated
    assert terminated
    assert info["verdict"].success
    assert total == 1.0
    env.reset(options={"task": TEST_TASK})
    _, reward, terminated, _, info = env.step(kind("complete"))
    assert terminated
    assert reward == 0.0
    assert info["verdict"].false_completion


def test_running_out_of_steps_truncates_with_a_verdict() -> None:
    env = distrl.make_env("sim-general", seed=1)
    _, info = env.reset()
    limit = info["task"].max_steps
    ends = [env.step(Wait())[2:4] for _ in range(limit)]
    assert ends == [(False, False)] * (limit - 1) + [(False, True)]
    with pytest.raises(UsageError, match="over"):
        env.step(Wait())


def test_random_actions_of_the_space_are_steps_and_never_errors() -> None:
    env = distrl.make_env("sim-general", seed=2)
    env.action_space.seed(2)
    env.reset(options={"split": "tune"})
    for _ in range(300):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        if terminated or truncated:
            assert 0.0 <= info["verdict"].progress <= 1.0
            env.reset(options={"split": "tune"})


def test_the_same_seed_gives_the_same_task_and_another_seed_another() -> None:
    def first(seed: int) -> Task:
        task: Task = distrl.make_env("sim-general", seed=seed).reset()[1]["task"]
        return task

    assert first(3) == first(3)
    assert len({first(seed).id for seed in range(5)}) > 1


def test_a_touch_on_nothing_or_off_the_screen_is_an_invalid_step() -> None:
    env = distrl.make_env("sim-general", seed=0)
    env.reset()
    *_, info = env.step(Tap(0.99, 0.01))
    assert not info["performed"].valid
    *_, info = env.step(Tap(7.0, 0.5))
    assert "outside the screen" in info["performed"].why
    assert [past.valid for past in info["observation"].recent] == [False, False]


def test_a_kept_state_can_be_gone_back_to() -> None:
    env = distrl.make_env("sim-general", seed=0)
    before, info = env.reset()
    kept = env.save_state()
    env.step(Oracle(info["task"]).act(info["observation"].elements))
    assert env.save_state() != kept
    env.load_state(kept)
    assert env.save_state() == kept
    after, *_ = env.step(Wait())
    assert len(after["elements"]) == len(before["elements"])


def test_the_history_is_the_one_that_a_worker_would_show_typed_text_included() -> None:
    env = distrl.make_env("sim-general", seed=0)
    _, info = env.reset()
    env.step(Press("home"))
    *_, info = env.step(TypeText("tea"))
    recent = info["observation"].recent
    assert [(past.action, past.target) for past in recent] == [(Press("home"), ""), (TypeText("tea"), "tea")]


def test_a_state_of_an_episode_that_ended_since_can_be_gone_back_to() -> None:
    env = distrl.make_env("sim-general")
    _, info = env.reset(options={"task": TEST_TASK})
    kept = env.save_state()
    assert env.step(Finish(status="impossible"))[2]
    env.load_state(kept)
    oracle, over, reward = Oracle(info["task"]), False, 0.0
    elements = info["observation"].elements
    while not over:
        _, reward, over, truncated, info = env.step(oracle.act(elements))
        assert not truncated
        elements = info["observation"].elements
    assert reward == 1.0


def test_mappings_become_the_records_that_they_mean() -> None:
    assert to_action(kind("tap", x=np.float32(0.25), y=0.5)) == Tap(0.25, 0.5)
    assert to_action(kind("type", text="hello")) == TypeText("hello")
    assert to_action(kind("home")) == Press("home")
    assert to_action(kind("impossible")) == Finish(status="impossible")
    assert to_action({"kind": "tap", "x": 0.25, "y": 0.5}) == Tap(0.25, 0.5)


def test_the_refusal_of_a_long_action_is_short() -> None:
    with pytest.raises(UsageError) as caught:
        to_action({"kind": "x" * 100_000})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("bad", [{}, {"kind": 99}, {"kind": -1}, {"kind": "tapp"}, {"kind": 0, "x": "left"}, 5])
def test_what_is_no_action_is_refused_with_the_form_that_is(bad: Any) -> None:
    with pytest.raises(UsageError, match="action_space"):
        to_action(bad)


def test_wrong_names_are_refused_before_anything_happens() -> None:
    with pytest.raises(ConfigError, match="sim-general"):
        distrl.make_env("sim-generel")
    with pytest.raises(UsageError, match=r"try: .*rgb_array"):
        distrl.make_env("sim-general", render_mode="human")
    with pytest.raises(UsageError, match=r"(?s)5 is no configuration.*try: "):
        distrl.make_env(config=5)  # type: ignore[arg-type]
    env = distrl.make_env("sim-general")
    with pytest.raises(UsageError, match="reset"):
        env.step(Wait())
    with pytest.raises(UsageError, match=r"try: .*train"):
        env.reset(options={"split": "trian"})
    with pytest.raises(UsageError, match=r"(?s)task.*try: "):
        env.reset(options={"tsk": TEST_TASK})
    with pytest.raises(UsageError, match=r"(?s)task = 5 is no task.*try: .*sim-general/test/00000"):
        env.reset(options={"task": 5})


def test_the_screen_is_drawn_as_an_array_only_where_asked_for() -> None:
    env = distrl.make_env("sim-general", seed=0, render_mode="rgb_array")
    env.reset()
    frame = env.render()
    assert frame is not None
    assert frame.shape == (720, 360, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 0
    plain = distrl.make_env("sim-general", seed=0)
    plain.reset()
    assert plain.render() is None


def test_the_start_page_names_the_kinds_of_actions_by_their_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
    assert ", ".join(f"{number} `{name}`" for number, name in enumerate(KINDS)) in " ".join(page.split())


# --- devices of your own --------------------------------------------------------------------------------------------


@pytest.fixture
def kiosk_env(monkeypatch: pytest.MonkeyPatch) -> Iterator[distrl.PhoneEnv]:
    """An environment on the example's device, which takes its time."""
    monkeypatch.syspath_prepend(OWN_PACKAGE / "src")
    env = distrl.make_env(config=KIOSKS, seed=0)
    yield env
    env.close()


def button(info: dict[str, Any], text: str) -> Tap:
    return Tap(*next(element for element in info["observation"].elements if element.text == text).bounds.centre)


def ordered(env: distrl.PhoneEnv, task: Task, drink: str) -> tuple[float, bool, dict[str, Any]]:
    """What ordering this drink as the task has it comes to."""
    wanted = task.check.values  # type: ignore[union-attr]
    _, info = env.reset(options={"task": task})
    for text in (drink, str(wanted["size"]), str(wanted["extra"]), "Pay"):
        *_, info = env.step(button(info, text))
        assert info["performed"].valid
    _, reward, terminated, _, info = env.step(Finish(status="complete"))
    return reward, terminated, info


def test_a_device_and_a_judge_of_your_own_are_played_by_their_configuration(kiosk_env: distrl.PhoneEnv) -> None:
    tasks = [kiosk_env.suite.task("train", index) for index in range(kiosk_env.suite.size("train"))]
    task = next(one for one in tasks if "drink" in getattr(one.check, "values", {}))
    drink = str(task.check.values["drink"])  # type: ignore[union-attr]
    reward, terminated, info = ordered(kiosk_env, task, drink)
    assert (reward, terminated, info["verdict"].outcome) == (1.0, True, "success")
    other = next(element.text for element in kiosk_env.reset(options={"task": task.id})[1]["observation"].elements[1:]
                 if element.text not in (drink, "Prices"))  # fmt: skip
    reward, terminated, info = ordered(kiosk_env, task, other)
    assert (reward, info["verdict"].outcome) == (0.0, "failure")


def test_such_a_device_is_stepped_inside_an_event_loop_too(kiosk_env: distrl.PhoneEnv) -> None:
    async def play() -> bool:
        _, info = kiosk_env.reset()
        *_, info = kiosk_env.step(button(info, "Prices"))
        return bool(info["performed"].changed)

    assert asyncio.run(play())
    kiosk_env.close()
    kiosk_env.close()


def test_a_suite_of_another_device_is_refused_with_the_setting_that_names_it(kiosk_env: distrl.PhoneEnv) -> None:
    with pytest.raises(TaskError, match=r"(?s)simulated phone does not know.*devices\.kind"):
        distrl.make_env("kiosk.tasks:KioskSuite").reset()


OWN_JUDGES = """
import asyncio
from distrl.types import Verdict


class Looking:
    def __init__(self, settings): ...

    async def judge(self, attempt):
        last = attempt.screens[-1]
        picture = attempt.picture(last.screenshot)[:2] if attempt.picture else b""
        return Verdict(outcome="success", reason=f"{len(attempt.screens)} screens, {len(last.elements) > 0}, {picture!r}")


class Failing:
    def __init__(self, settings): ...

    async def judge(self, attempt):
        raise RuntimeError("the model is gone")


class Late:
    def __init__(self, settings): ...

    async def judge(self, attempt):
        await asyncio.sleep(30.0)
"""


@pytest.mark.parametrize(
    ("judge", "kept", "said"),
    [
        ("Looking", False, "3 screens, True, b''"),
        ("Looking", True, r"3 screens, True, b'\xff\xd8'"),
        ("Failing", False, "the judge failed: RuntimeError: the model is gone"),
        ("Late", False, "the judge took over 0.05 s"),
    ],
)
def test_a_judge_of_your_own_judges_as_in_training(
    judge: str, kept: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_judges.py").write_text(OWN_JUDGES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_judges", raising=False)
    config: dict[str, Any] = {
        "devices.sim.latency.profile": "instant",
        "judge.kind": f"own_judges:{judge}",
        "judge.deadline_s": 0.05 if judge == "Late" else 60.0,
        "rollout.keep_screenshots": kept,
    }
    env = distrl.make_env("sim-start", config=config)
    env.reset(seed=0)
    for action in (Press("home"), Wait(), Finish()):
        _, reward, _, _, info = env.step(action)
    env.close()
    assert info["verdict"].reason == said
    assert reward == float(judge == "Looking")


def test_the_history_is_as_long_as_the_configuration_says() -> None:
    env = distrl.make_env("sim-start", config={"devices.sim.latency.profile": "instant", "rollout.history": 2})
    env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(Press("home"))
    env.close()
    assert len(info["observation"].recent) == 2


def test_a_call_that_never_returns_ends_at_its_deadline_with_a_name() -> None:
    loop = EventLoopThread(name="environment on a stone", deadline_s=1.0)
    with pytest.raises(DeviceError, match="environment on a stone: a call took over 1 s"):
        loop(asyncio.sleep(60.0))
    assert loop(asyncio.sleep(0.0, "alive")) == "alive"
    loop.close()


def test_a_configuration_may_be_a_file_and_a_name_beats_its_suite(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[tasks]\nsuite = "sim-shopping"\n[devices.sim.latency]\nprofile = "instant"\n')
    envs = [distrl.make_env(name, config=tmp_path / "run.toml") for name in (None, "sim-start")]
    assert [env.reset(seed=0)[1]["task"].suite for env in envs] == ["sim-shopping", "sim-start"]
    for env in envs:
        env.close()
    with pytest.raises(UsageError, match=r"devices\.sim\.perturbations"):
        distrl.make_env(config=tmp_path / "run.toml", perturbations=NO_PERTURBATIONS)
