"""`distrl watch`: every step in words, a film, and a strip."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from PIL import Image

from distrl.cli.main import main
from distrl.evaluation.film import gesture, in_words, make_gif, make_strip, wireframe
from distrl.evaluation.stored_playback import Playback
from distrl.types import Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed, Verdict, Wait
from support.trained import small_run
from support.trajectories import make_trajectory

ASKING = """
from msgspec.structs import replace

from distrl.config.schema import DevicesConfig
from distrl.devices.base import find_devices


class Asking:
    def __init__(self, phone):
        self._phone = phone

    def __getattr__(self, name):
        return getattr(self._phone, name)

    async def capture(self, *, screenshot):
        return replace(await self._phone.capture(screenshot=screenshot), instruction="Press the blue button")


def phones(_settings, fleet):
    return [Asking(phone) for phone in find_devices(DevicesConfig(), fleet)]
"""


@pytest.fixture(autouse=True)
def keep_denormals() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("task", [[], ["sim-start/test/3"], ["test/3"], ["3"]])
def test_without_a_run_the_newest_one_plays_and_is_named(
    task: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newest = small_run(tmp_path / "runs"), small_run(tmp_path / "runs")
    older.path.rename(older.path.with_name("20250101-000000-sim"))
    assert main(["watch", *task, "--root", str(tmp_path / "runs"), "--json"]) == 0
    shown = capsys.readouterr()
    assert f"newest run: {newest.path}" in shown.err
    told = json.loads(shown.out.splitlines()[-1])
    assert told["run"] == newest.name
    if task:
        assert told["episodes"][0]["task"] == "sim-start/test/00003"
    assert (newest.path / "watch.gif").exists()


def test_without_any_run_the_next_command_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("watch", "evaluate", "trace"):
        assert main([verb, "--root", str(tmp_path)]) == 2
        assert "holds no run" in capsys.readouterr().err


def test_an_episode_is_told_filmed_and_laid_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path / "runs")
    strip = tmp_path / "strip.png"
    assert main(["watch", str(run.path), "sim-start/test/00003", "--strip", str(strip), "--json"]) == 0
    said = capsys.readouterr().out.splitlines()
    found = json.loads(said[-1])
    (episode,) = found["episodes"]
    assert episode["task"] == "sim-start/test/00003"
    assert episode["verdict"]["outcome"] in ("success", "failure")
    assert sum(" does " in line for line in said) == len(episode["steps"])
    assert sum(" or   " in line for line in said) == sum(bool(step["runners_up"]) for step in episode["steps"]) > 0
    for step in episode["steps"]:
        assert sum(step["runners_up"].values()) + step["probability"] <= 1.001
    with Image.open(run.path / "watch.gif") as film:
        assert film.n_frames > len(episode["steps"])  # type: ignore[attr-defined]
    with Image.open(strip) as picture:
        assert picture.format == "PNG"


def test_what_the_page_of_a_task_asks_is_told_once_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asking_phones.py").write_text(ASKING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = small_run(tmp_path / "runs", devices__kind="asking_phones:phones")
    assert main(["watch", str(run.path), "sim-start/test/3", "--trust-code"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "blue button" in line] == ["     task  Press the blue button"]


def test_several_episodes_are_several_tasks_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path / "runs")
    gif = tmp_path / "new" / "x.gif"
    assert main(["watch", str(run.path), "--episodes", "2", "--seed", "5", "--gif", str(gif), "--json"]) == 0
    episodes = json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"]
    assert len({episode["task"] for episode in episodes}) == 2
    assert sorted(file.name for file in gif.parent.iterdir()) == ["x-1.gif", "x-2.gif"]


def test_the_same_seed_plays_the_same_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path / "runs")
    told = []
    for _ in range(2):
        assert main(["watch", str(run.path), "--seed", "7", "--gif", str(tmp_path / "a.gif"), "--json"]) == 0
        told.append(capsys.readouterr().out)
        torch.set_flush_denormal(False)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--episodes", "0"], "--episodes"),
        (["sim-start/test/0", "--episodes", "2"], "one task was named"),
        (["sim-start/test/99999999"], "99999999"),
        (["--temperature", "-1"], "--temperature"),
        (["--suite", "sim-strat"], "sim-start"),
        (["--suite", ""], "tasks.suite"),
        (["--seed", "9" * 24], "--seed 0"),
        (["--episodes", "1000000000"], "from 1 to 1000"),
        (["--temperature", "nan"], "from 0 to 100"),
        (["--gif", "x.png", "--strip", "./x.png"], "--gif x.gif --strip x.png"),
        (["--gif", "."], "it is a folder"),
        (["--strip", "/dev/null/x.png"], "cannot write"),
    ],
)
def test_wrong_input_is_answered_with_the_fix(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["watch", str(small_run(tmp_path).path), *words]) == 2
    assert said in capsys.readouterr().err


def test_every_action_has_words_and_is_drawn_on_the_screen() -> None:
    step = make_trajectory().steps[0]
    words = {
        Tap(0.5, 0.25): "tap “Entry 0-2”",
        LongPress(0.5, 0.99): "hold at 0.50, 0.99",
        Swipe(0.5, 0.8, 0.5, 0.2): "swipe up",
        Swipe(0.9, 0.5, 0.1, 0.5): "swipe left",
        TypeText("hello " * 20): f"type “{'hello ' * 5}hel…”",
        Press("back"): "press back",
        Wait(): "wait",
        Finish(): "done",
        Finish(status="impossible"): "impossible",
        Finish(answer="42"): "done: “42”",
        Unparsed("?"): "not understood: “?”",
    }
    screen = wireframe(step.observation)
    for action, expected in words.items():
        assert in_words(action, step.observation.elements) == expected
        assert gesture(screen, action).tobytes() != screen.tobytes()


def test_a_device_without_pictures_is_drawn_from_its_elements() -> None:
    playback = Playback(trajectory=make_trajectory(num_steps=3), screens=())
    film = Image.open(BytesIO(make_gif(playback)))
    assert film.n_frames == 2 * 3 + 1  # type: ignore[attr-defined]


def test_the_strip_shows_repetitions_without_effect_once() -> None:
    trajectory = make_trajectory(num_steps=6)
    stuck = tuple(replace(step, changed=False) for step in trajectory.steps)
    verdict = Verdict(outcome="failure", reason="nothing was done")
    moving, still = (
        Image.open(BytesIO(make_strip(Playback(trajectory=shown, screens=()))))
        for shown in (trajectory, replace(trajectory, steps=stuck, verdict=verdict))
    )
    assert moving.width > still.width
