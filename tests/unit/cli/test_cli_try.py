"""`distrl tasks try`: the oracle, chance and a person all play, and every screen is drawn."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from distrl.cli.episode import Quit, parse, read_action
from distrl.cli.main import main
from distrl.cli.tasks import find_task
from distrl.errors import UsageError
from distrl.tasks.sim.oracle import play_oracle
from distrl.types import Bounds, Finish, LongPress, Press, Swipe, Tap, TypeText, UiElement, Wait

TASK = "sim-general/test/00001"
ELEMENTS = (
    UiElement(bounds=Bounds(0.0, 0.0, 1.0, 0.2), text="Title"),
    UiElement(bounds=Bounds(0.0, 0.2, 0.5, 0.4), text="Button", clickable=True),
)


def test_the_oracle_succeeds_and_leaves_a_picture_of_every_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "try", TASK, "--out", str(tmp_path / "new" / "folder"), "--json"]) == 0
    out = capsys.readouterr().out
    steps = len(play_oracle(find_task(TASK)).actions)
    pictures = sorted((tmp_path / "new" / "folder").iterdir())
    assert len(pictures) == steps + 1
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert json.loads(out.splitlines()[-1])["verdict"]["outcome"] == "success"
    assert "→ tap" in out


def test_pictures_of_an_earlier_episode_are_gone_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("step-07.png", "step-99.png", "holiday.png", "step-by-step.png"):
        (tmp_path / name).write_bytes(b"old")
    assert main(["tasks", "try", TASK, "--agent", "random", "--out", str(tmp_path)]) == 0
    left = {file.name for file in tmp_path.iterdir() if file.read_bytes() == b"old"}
    assert left == {"holiday.png", "step-by-step.png"}


def test_chance_plays_too_and_failing_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "try", TASK, "--agent", "random", "--perturbed", "--out", str(tmp_path)]) == 0
    assert "progress" in capsys.readouterr().out


def test_a_person_plays_through_a_pipe_and_mistakes_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("tapp 1\ntap 99\nhelp\n\nswipe up\ndone\n"))
    assert main(["tasks", "try", TASK, "--agent", "hand", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "'tapp' is no action" in out
    assert "a number from 1 to" in out
    assert "false completion" in out


def test_the_end_of_the_input_ends_the_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("wait\n"))
    assert main(["tasks", "try", TASK, "--agent", "hand", "--out", str(tmp_path)]) == 0
    assert "no success after 1 steps" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["tasks", "try", TASK, "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err


def test_what_is_typed_becomes_the_action_that_it_means() -> None:
    assert parse("tap 2", ELEMENTS) == Tap(*ELEMENTS[1].bounds.centre)
    assert parse(" hold 1 ", ELEMENTS) == LongPress(*ELEMENTS[0].bounds.centre)
    assert parse("type  two words", ELEMENTS) == TypeText("two words")
    assert parse("Back", ELEMENTS) == Press("back")
    assert parse("wait", ELEMENTS) == Wait()
    assert parse("done 14 GB", ELEMENTS) == Finish(answer="14 GB")
    assert parse("impossible", ELEMENTS) == Finish(status="impossible")
    upwards = parse("swipe up", ELEMENTS)
    assert isinstance(upwards, Swipe)
    assert upwards.to_y < upwards.y


@pytest.mark.parametrize(
    "line", ["", "?", "tap", "tap 0", "tap 3", "tap x", "tap ²", "type", "swipe", "swipe away", "fly"]
)
def test_what_means_nothing_is_explained(line: str) -> None:
    with pytest.raises(UsageError):
        parse(line, ELEMENTS)


def test_a_touch_of_nothing_is_asked_about_with_its_own_word() -> None:
    with pytest.raises(UsageError) as caught:
        parse("hold", ELEMENTS)
    assert (caught.value.seen, caught.value.fix) == ("hold what?", "hold 1")


def test_quitting_works_in_either_way() -> None:
    def no_more(prompt: str) -> str:
        raise EOFError

    with pytest.raises(Quit):
        read_action(ELEMENTS, lambda prompt: "quit")
    with pytest.raises(Quit):
        read_action(ELEMENTS, no_more)
