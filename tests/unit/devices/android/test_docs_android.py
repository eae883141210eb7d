"""What docs/android.md shows works as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

from distrl.config.load import load_config
from distrl.tasks.base import SPLITS, Suite, refuse_overlap, tasks_of

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/android.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found
    return found[1]


def test_the_suite_of_the_page_is_a_suite() -> None:
    names: dict[str, type] = {}
    exec(block("python"), names)
    made = names["Phones"]()
    assert isinstance(made, Suite)
    assert made.size("train") > 4
    assert all(made.size(split) for split in SPLITS), "a run refuses a suite without tune or test tasks"
    refuse_overlap(task for split in SPLITS for task in tasks_of(made, split))


def test_the_settings_of_the_page_and_of_the_config_are_settings(tmp_path: Path) -> None:
    found = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    assert len(found) >= 5
    for number, text in enumerate(found):
        (tmp_path / f"{number}.toml").write_text(text, encoding="utf-8")
        load_config(tmp_path / f"{number}.toml", {})
    assert load_config(tmp_path / "0.toml", {}).devices.android.evaluation_serials == ("emulator-5558",)
    assert load_config(ROOT / "configs/android.toml", {}).devices.kind == "android"


def test_the_figures_of_the_page_are_those_that_were_measured() -> None:
    found = json.loads((ROOT / "docs/results/adb.json").read_text(encoding="utf-8"))
    assert f"| tap | {found['tap_ms']:.2f} ms | {found['cli_tap_ms']:.1f} ms |" in PAGE
    taken, by_cli = found["screenshot_ms"], found["cli_screenshot_ms"]
    assert f"| raw screenshot, 10.4 MB | {taken:.0f} ms | {by_cli:.0f} ms |" in PAGE
    assert f"`distrl devices show` takes {found['show_ms'] / 1000:.2f} s once it is loaded" in PAGE
