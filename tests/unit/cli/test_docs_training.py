"""What the pages on training show works as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from distrl.experience.store import ExperienceStore
from support.lessons import Drawn, gradient, make_lesson
from support.trajectories import TASK, make_trajectory

ROOT = Path(__file__).parents[3]
PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_of(page: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", text_of(page), flags=re.DOTALL)
    return str(code)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading_in_it(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text_of(page)) if "://" not in link]
    for link in links:
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_episodes_of_a_run_are_read_as_the_data_format_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "20260101-000000-sim"
    with ExperienceStore(folder / "experience") as store:
        store.add(make_trajectory())
    (folder / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    run(code_of("docs/data-format.md"))
    assert TASK.instruction in capsys.readouterr().out


def test_the_policy_of_the_page_scores_its_decision_as_it_made_it() -> None:
    names = run(code_of("docs/policies.md"))
    assert names["again"].logp_N.item() == pytest.approx(names["decision"].logp, abs=1e-5)


def test_the_algorithm_of_the_page_raises_successes_and_lowers_failures() -> None:
    lesson = make_lesson(Drawn(reward=[1.0], value=[0.5], success=True), Drawn(reward=[0.0], value=[0.5]))
    run(code_of("docs/algorithms/README.md"))["Reinforce"]().loss(lesson, updates=0).total.backward()
    success, failure = gradient(lesson.logp_BT)[:, 0].tolist()
    assert success < 0 < failure


def test_every_test_that_guards_against_a_defect_exists() -> None:
    rows = re.findall(r"`([a-z_]+/test_[a-z_]+\.py)`: `(test_\w+)`", text_of("docs/algorithms/aride.md"))
    assert len(rows) > 9
    missing = [name for file, name in rows if f"def {name}(" not in text_of(f"tests/unit/{file}")]
    assert missing == []
