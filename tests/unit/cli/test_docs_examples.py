"""What the docs show works as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from distrl.config.load import load_config
from distrl.tasks.base import tasks_of
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.templates import SimSuite

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/start.md", "docs/tasks.md", "docs/devices.md")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_templates_of_the_tasks_page_are_solved_by_their_oracle() -> None:
    code = "\n".join(blocks("docs/tasks.md", "python"))
    suite = SimSuite("docs", run(code)["templates"], sizes={"train": 6, "tune": 0, "test": 6})
    assert all(play_oracle(task).verdict.success for split in ("train", "test") for task in tasks_of(suite, split))


def test_the_toml_of_the_start_page_is_a_configuration(tmp_path: Path) -> None:
    (text,) = blocks("docs/start.md", "toml")
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    assert load_config(tmp_path / "my.toml").run.name == "quick"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_project_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
