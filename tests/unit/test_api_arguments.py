"""The Python API refuses wrong arguments as the verbs do, with what was expected; its signatures are the ones that are stable."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distrl
from distrl.api import resolve
from distrl.errors import DistrlError, UsageError
from distrl.types import Observation
from support.trained import small_run, store_episodes

SIGNATURES = {
    "Run.index": "(self, *, after: 'int' = 0, limit: 'int' = 1000) -> 'list[IndexRow]'",
    "Run.devices": "(self) -> 'list[DeviceViews]'",
    "Run.episodes_of": "(self, ids: 'Iterable[str]') -> 'Iterator[Trajectory | None]'",
    "Run.follow": "(self, role: 'str | None' = None) -> 'EventTail'",
    "Run.newest_events": "(self, role: 'str', *, words: 'Iterable[str]' = ()) -> 'Iterator[dict[str, Value]]'",
    "Run.logs": "(self) -> 'list[str]'",
    "train": "(config: 'Settings' = None, *, watch: 'Callable[[RunSnapshot], None] | None' = None, "
    "progress: 'bool' = True, **overrides: 'Any') -> 'Run'",
    "record": "(episodes: 'Iterable[Trajectory]', config: 'Settings' = None, **overrides: 'Any') -> 'Run'",
    "open_run": "(path: 'str | os.PathLike[str]') -> 'Run'",
    "evaluate": "(source: 'str | os.PathLike[str]', *, suite: 'str | None' = None, episodes: 'int' = 300, "
    "split: 'Split' = 'test', max_oracle_steps: 'int | None' = None, model: 'str | os.PathLike[str] | None' = None, "
    "trust_code: 'bool' = False) -> 'Report'",
    "load_policy": "(source: 'str | os.PathLike[str]', *, model: 'str | os.PathLike[str] | None' = None, "
    "trust_code: 'bool' = False) -> 'TrainedPolicy'",
    "make_env": "(name: 'str | None' = None, *, seed: 'int | None' = None, render_mode: 'str | None' = None, "
    "perturbations: 'PerturbationConfig | None' = None, config: 'Settings' = None) -> 'PhoneEnv'",
    "make_gif": "(playback: 'Playback') -> 'bytes'",
    "make_mp4": "(playback: 'Playback') -> 'bytes'",
    "make_strip": "(playback: 'Playback') -> 'bytes'",
    "Run.status": "(self) -> 'RunStatus'",
    "Run.episodes": "(self, *, success: 'bool | None' = None, template: 'str | None' = None, task: 'str | None' = None, "
    "source: 'Source | None' = 'played', last: 'int | None' = None) -> 'Iterator[Trajectory]'",
    "Run.episode": "(self, id: 'str') -> 'Trajectory'",
    "Run.frame": "(self, reference: 'str') -> 'bytes'",
    "Run.metrics": "(self, role: 'str | None' = None) -> 'list[dict[str, Value]]'",
    "Run.curve": "(self, metric: 'str') -> 'list[tuple[float, float]]'",
    "Run.evaluations": "(self) -> 'dict[str, Report]'",
    "Run.policy": "(self, *, trust_code: 'bool' = False) -> 'TrainedPolicy'",
    "Run.evaluate": "(self, *, suite: 'str | None' = None, episodes: 'int' = 300, split: 'Split' = 'test', "
    "max_oracle_steps: 'int | None' = None, trust_code: 'bool' = False) -> 'Report'",
    "Run.resume": "(self, *, watch: 'Callable[[RunSnapshot], None] | None' = None, progress: 'bool' = True, "
    "trust_code: 'bool' = False, **overrides: 'Any') -> 'Run'",
    "TrainedPolicy.act": "(self, observation: 'Observation | Mapping[str, Any]', *, "
    "screenshot: 'bytes | NDArray[np.uint8] | None' = None, temperature: 'float' = 0.5) -> 'Action'",
    "TrainedPolicy.decide": "(self, observation: 'Observation | Mapping[str, Any]', *, "
    "screenshot: 'bytes | NDArray[np.uint8] | None' = None, temperature: 'float' = 0.5) -> 'Decision'",
    "TrainedPolicy.play": "(self, task: 'str | None' = None, *, seed: 'int' = 0, temperature: 'float' = 0.5) -> 'Playback'",
    "PhoneEnv.reset": "(self, *, seed: 'int | None' = None, options: 'dict[str, Any] | None' = None) "
    "-> 'tuple[PlainObservation, Info]'",
    "PhoneEnv.step": "(self, action: 'PlainAction | Action') -> 'tuple[PlainObservation, float, bool, bool, Info]'",
    "PhoneEnv.render": "(self) -> 'NDArray[np.uint8] | None'",
    "PhoneEnv.close": "(self) -> 'None'",
    "PhoneEnv.save_state": "(self) -> 'bytes'",
    "PhoneEnv.load_state": "(self, state: 'bytes') -> 'None'",
}
PROPERTIES = {"Run": {"path", "name", "config", "summary"}, "TrainedPolicy": {"version", "config"}, "PhoneEnv": set()}


def public_members(owner: type) -> dict[str, object]:
    return {name: found for name, found in vars(owner).items() if not name.startswith("_")}


def test_the_signatures_are_those_that_the_compatibility_page_calls_stable() -> None:
    found = {name: getattr(distrl, name) for name in distrl.__all__ if inspect.isfunction(getattr(distrl, name))}
    for owner in (distrl.Run, distrl.TrainedPolicy, distrl.PhoneEnv):
        members = public_members(owner)
        found |= {f"{owner.__name__}.{name}": one for name, one in members.items() if inspect.isfunction(one)}
        assert {name for name, one in members.items() if isinstance(one, property)} == PROPERTIES[owner.__name__]
    assert {name: str(inspect.signature(one)) for name, one in found.items()} == SIGNATURES


def test_what_a_run_offers_has_the_defaults_of_the_functions_behind_it() -> None:
    for method, function in ((distrl.Run.evaluate, distrl.evaluate), (distrl.Run.policy, distrl.load_policy)):
        own, behind = inspect.signature(method).parameters, inspect.signature(function).parameters
        assert set(own) - {"self"} == set(behind) - {"source", "model"}, "a run names its own model"
        assert all(own[name].default == behind[name].default for name in set(own) - {"self"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> distrl.Run:
    """A run with weights and two episodes."""
    folder = small_run(tmp_path_factory.mktemp("runs"))
    store_episodes(folder, a=True, b=False)
    return distrl.open_run(folder.path)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"split": "zz"}, "one of test, train, tune"),
        ({"split": None}, "one of "),
        ({"episodes": 2.5}, "a whole number from 1 to 1000000000"),
        ({"episodes": 0}, "a whole number from 1 to 1000000000"),
        ({"episodes": 10**30}, "a whole number from 1 to 1000000000"),
        ({"episodes": True}, "a whole number from 1 to 1000000000"),
        ({"episodes": "3"}, "a whole number from 1 to 1000000000"),
        ({"max_oracle_steps": -1}, "a whole number from 0 to 10000"),
        ({"max_oracle_steps": 1.5}, "a whole number from 0 to 10000"),
        ({"suite": 5}, "text"),
        ({"suite": "sim-strt"}, "sim-start"),
    ],
)
def test_evaluate_refuses_what_its_verb_refuses(run: distrl.Run, wrong: dict[str, Any], expected: str) -> None:
    for call in (run.evaluate, lambda **how: distrl.evaluate(run.path, **how)):
        with pytest.raises(UsageError) as caught:
            call(**{"episodes": 1, **wrong})
        assert expected in caught.value.expected
        assert caught.value.fix


def test_numbers_of_numpy_are_numbers(run: distrl.Run) -> None:
    assert run.evaluate(episodes=np.int64(2), max_oracle_steps=np.int32(0)).n == 2  # type: ignore[arg-type]
    assert run.policy().act(Observation(instruction="x"), temperature=np.float32(0.5)) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ({"seed": 10**30}, "seed = 1000000000000000000000000000000 does not fit"),
        ({"seed": -1}, "seed = -1 does not fit"),
        ({"seed": 0.5}, r"seed = 0\.5 does not fit"),
        ({"temperature": -1.0}, r"temperature = -1\.0 does not fit"),
        ({"temperature": float("nan")}, "temperature = nan does not fit"),
        ({"temperature": "hot"}, "temperature = 'hot' does not fit"),
        ({"task": 5}, "task = 5 does not fit"),
        ({"task": "nothing"}, "no task is called 'sim-start/test/nothing'"),
    ],
)
def test_play_refuses_what_watch_refuses(run: distrl.Run, wrong: dict[str, Any], seen: str) -> None:
    with pytest.raises(UsageError, match=seen):
        run.policy().play(**wrong)


@pytest.mark.parametrize("wrong", [-0.1, 100.5, float("inf"), float("nan"), None, True])
def test_no_decision_is_made_at_a_temperature_that_is_none(run: distrl.Run, wrong: Any) -> None:
    policy = run.policy()
    for call in (policy.act, policy.decide):
        with pytest.raises(UsageError, match="temperature = "):
            call(Observation(instruction="x"), temperature=wrong)


@pytest.mark.parametrize("wrong", [None, 5, "screen", [], {"instruction": "x"}, {"observation": 3}])
def test_what_is_no_observation_is_refused_with_the_one_that_is(run: distrl.Run, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"(?s)holds no observation.*try: .*policy\.act\(info\)"):
        run.policy().act(wrong)


@pytest.mark.parametrize("wrong", [b"", b"nothing", "text", 5, np.zeros((2, 2, 9)), [[0]]])
def test_what_is_no_screenshot_is_refused_with_the_one_that_is(run: distrl.Run, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"(?s)is no screenshot.*try: .*env\.render"):
        run.policy().act(Observation(instruction="x"), screenshot=wrong)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"last": -1}, "a whole number from 0 on"),
        ({"last": 2.5}, "a whole number from 0 on"),
        ({"source": "zz"}, "one of demonstration, hindsight, played"),
        ({"success": "yes"}, "True, False or None"),
        ({"template": 3}, "text"),
        ({"task": 3}, "text"),
    ],
)
def test_episodes_that_there_cannot_be_are_refused_at_the_call(
    run: distrl.Run, wrong: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run.episodes(**wrong)
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    "call",
    [
        lambda run: distrl.train(watch=5),
        lambda run: run.resume(watch="x"),
        lambda run: resolve(5, {}),  # type: ignore[arg-type]
        lambda run: resolve({1: 2}, {}),  # type: ignore[dict-item]
        lambda run: distrl.train({"run": {"minutes": 1}, "run.minutes": 2}),
        lambda run: distrl.train(run__minutes=object()),
        lambda run: distrl.train(run__minutes=None),
        lambda run: distrl.train({"run": {"minutes": {"a": 1}}}),
        lambda run: run.resume(run__minuts=2),
    ],
)
def test_training_refuses_what_is_no_setting_before_anything_is_made(
    run: distrl.Run, call: Callable[[distrl.Run], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        call(run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [None, 5, "film"])
@pytest.mark.parametrize("make", [distrl.make_gif, distrl.make_mp4, distrl.make_strip])
def test_what_was_not_played_is_no_film(make: Callable[[Any], bytes], wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"(?s)is no playback.*try: .*play"):
        make(wrong)


@pytest.mark.parametrize(("wrong", "seen"), [(5, "id = 5 does not fit"), ("nothing", "holds no episode nothing")])
def test_an_episode_that_is_not_there_is_refused_by_its_id(run: distrl.Run, wrong: Any, seen: str) -> None:
    with pytest.raises(DistrlError, match=seen):
        run.episode(wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.metrics(role=3),
        lambda run: run.curve(3),
        lambda run: run.curve(None),
        lambda run: distrl.make_env("sim-start", seed=-1),
        lambda run: distrl.make_env("sim-start", seed="x"),
        lambda run: distrl.make_env("sim-start", perturbations=3),
    ],
)
def test_what_would_be_passed_over_in_silence_is_refused(run: distrl.Run, call: Callable[[distrl.Run], object]) -> None:
    with pytest.raises(UsageError) as caught:
        call(run)
    assert caught.value.expected
    assert caught.value.fix
