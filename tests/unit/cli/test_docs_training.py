"""What the pages on training show works as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from distrl.algorithms.base import AlgorithmContext
from distrl.config.load import load_config
from distrl.config.reference import flatten, settings
from distrl.config.schema import Config
from distrl.experience.store import ExperienceStore
from distrl.plugins import BUILT_IN
from distrl.tasks.sim.suites import SUITES
from distrl.types import SettingValue
from support.batches import Drawn, gradient, train_batch
from support.trajectories import TASK, make_trajectory

ROOT = Path(__file__).parents[3]
PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
CONFIGS = sorted(page.name for page in (ROOT / "configs").glob("*.toml"))


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
    batch = train_batch(Drawn(reward=[1.0], value=[0.5], success=True), Drawn(reward=[0.0], value=[0.5]))
    algorithm = run(code_of("docs/algorithms/README.md"))["Reinforce"](None, AlgorithmContext())
    algorithm.loss(batch, updates=0).total.backward()
    success, failure = gradient(batch.logp_BT)[:, 0].tolist()
    assert success < 0 < failure


def test_every_test_that_guards_against_a_defect_exists() -> None:
    rows = re.findall(r"`([a-z_]+/test_[a-z_]+\.py)`: `(test_\w+)`", text_of("docs/algorithms/aride.md"))
    assert len(rows) > 9
    missing = [name for file, name in rows if f"def {name}(" not in text_of(f"tests/unit/{file}")]
    assert missing == []


def switches(page: str) -> dict[str, list[str]]:
    """The rows of a page's table of settings: what follows the name, cell by cell."""
    rows = re.findall(r"^\| `(\w+(?:\.\w+)+)` \|(.+)\|$", text_of(page), flags=re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def plain(value: SettingValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


@pytest.mark.parametrize("page", [page for page in PAGES if re.fullmatch(r"docs/algorithms/[a-z_]+\.md", page)])
def test_every_switch_of_an_algorithm_exists_and_has_the_default_that_its_page_names(page: str) -> None:
    named = {name: cells[0] for name, cells in switches(page).items()}
    assert len(named) > 2
    assert [name for name in named if name not in settings()] == []
    assert named == {name: plain(settings()[name].default) for name in named}


def test_the_page_of_aride_leaves_no_setting_of_the_algorithm_or_the_replay_out() -> None:
    ours = {key for key in settings() if key.startswith(("algorithm.aride.", "replay."))}
    assert ours - set(switches("docs/algorithms/aride.md")) == set()


@pytest.mark.parametrize("name", sorted(BUILT_IN["algorithms"]))
def test_the_page_of_an_algorithm_has_every_setting_of_its_table_and_names_it(name: str) -> None:
    page = f"docs/algorithms/{name}.md"
    table = {key for key in settings() if key.startswith(f"algorithm.{name}.")}
    assert table - set(switches(page)) == set()
    assert f"[algorithm.{name}]" in text_of(page)


@pytest.mark.parametrize(("page", "file"), [("aride", "aride-published"), ("ppo", "ppo"), ("grpo", "grpo")])
def test_the_configuration_of_an_algorithm_is_what_its_page_says(page: str, file: str) -> None:
    chosen = flatten(load_config(ROOT / "configs" / f"{file}.toml"))
    cells = {name: cells[1] or cells[0] for name, cells in switches(f"docs/algorithms/{page}.md").items()}
    assert cells == {name: plain(chosen[name]) for name in cells}


@pytest.mark.parametrize("name", [name for name in BUILT_IN["algorithms"] if name != "aride"])
def test_every_other_algorithm_has_a_page_and_a_configuration_that_trains_with_it(name: str) -> None:
    assert f"docs/algorithms/{name}.md" in PAGES
    assert load_config(ROOT / "configs" / f"{name.replace('_', '-')}.toml").algorithm.kind == name


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_that_comes_along_is_read_and_named_in_the_readme(name: str) -> None:
    load_config(ROOT / "configs" / name)
    assert f"`{name}`" in text_of("README.md")


def test_the_suites_are_as_large_as_the_tasks_page_says() -> None:
    said = re.findall(r"^\| `(sim-\w+)`[^|]*\| (\d+) \| (\d+) \|", text_of("docs/tasks.md"), flags=re.MULTILINE)
    have = [(name, len(suite.templates), sum(t.test_only for t in suite.templates)) for name, suite in SUITES.items()]
    assert said == [(name, str(all_of_them), str(for_test)) for name, all_of_them, for_test in have]


def test_the_readme_says_what_the_first_run_trains_on() -> None:
    config, text = Config(), " ".join(text_of("README.md").split())
    num_templates = len(SUITES[config.tasks.suite].templates)
    assert f"`{config.tasks.suite}`, {num_templates} templates" in text
    assert f"{config.warm_start.demonstrations} oracle demonstrations" in text
    assert config.policy.pointer.string_match == ("string-matching prior" in text)
