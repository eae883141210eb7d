"""`distrl devices show web` and the doctor's line, with the real browser and without one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from distrl.cli import doctor
from distrl.cli.main import main
from distrl.tasks.miniwob import LEFT_OUT
from support.webs import needs_chromium

ROOT = Path(__file__).parents[2]


@needs_chromium
def test_show_writes_the_screen_and_its_elements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["devices", "show", "web", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["app"] == "A Chromium phone"
    assert "Tap me" in [each.get("text") for each in shown["elements"]]
    picture = tmp_path / "runs" / "show" / "web.png"  # which git ignores in a clone
    assert Image.open(picture).size == (360, 720)


@needs_chromium
def test_the_doctor_opens_and_taps_a_page() -> None:
    found = doctor.attempt("chromium", "", doctor._chromium)
    assert found.ok
    assert "tapped in" in found.seen


def test_without_chromium_the_doctor_says_how_to_install_it_and_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = doctor.attempt("chromium", "", doctor._chromium)
    assert found.ok
    assert not found.ready
    assert "apt-get install chromium" in found.seen


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["devices", "show", "web", "--devices.web.chromium", "/nowhere/chrome"], 3, "is no program"),
        (["devices", "show", "web", "--url", "file:///etc/passwd"], 2, "no address of a page"),
        (["devices", "show", "web", "--devices.web.allow", "127.0.0.1"], 2, "devices.web.allow"),
        (
            ["train", str(ROOT / "configs/miniwob.toml"), "--devices.web.chromium", "/nowhere/chrome"],
            3,
            "is no program",
        ),
        (["train", str(ROOT / "configs/miniwob.toml"), "--tasks.miniwob.tasks", "click-tap"], 2, "click-tab"),
    ],
)
def test_wrong_input_ends_in_a_few_lines(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == code
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) <= 15
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_the_page_says_of_every_task_that_is_left_out_why() -> None:
    page = (ROOT / "docs/web.md").read_text(encoding="utf-8")
    section = page[page.index("\n## MiniWoB++\n") : page.index("\n## A page that is a phone\n")]
    rows = re.findall(r"^\| ([a-z0-9, -]+) \| (.+) \|$", section, re.M)
    told = {name: why for names, why in rows for name in names.split(", ") if len(why) > 20}
    assert told == LEFT_OUT
