"""The documentation site builds without a warning, holds every page, and needs no other site to be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from support.pages import ROOT

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b[^>]*\bhref=\"([^\"]+)\"|url\(([^)]+)\)"
)
MODULES = (
    "algorithms.base", "algorithms.batch", "devices.base", "env", "errors", "policies.base", "policies.weights", "tasks.base",
    "tasks.judges", "transport.base", "types",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it, in another folder."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert {page.with_name("index.html") if page.stem == "README" else page for page in pages} - built == set()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in (*site.rglob("*.html"), *site.rglob("*.css")):
        loaded = [next(filter(None, found)).strip("'\"") for found in LOADED.findall(page.read_text(encoding="utf-8"))]
        assert [link for link in loaded if re.match(r"(?:https?:)?//", link)] == [], page


@pytest.fixture(scope="module")
def reference(site: Path) -> set[str]:
    """Every name that the reference describes."""
    pages = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")]
    return {name for page in pages for name in re.findall(r'id="(distrl[\w.]*)"', page)}


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_holds_this_module(module: str, reference: set[str]) -> None:
    assert f"distrl.{module}" in reference


def test_a_page_of_the_reference_says_in_the_repository_how_to_build_it_and_on_the_site_no_more(site: Path) -> None:
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        built = site / "reference" / f"{page.stem}.html"
        says = f"this page is empty: `make site` builds it (`build/site/reference/{built.name}`)" in page.read_text(
            "utf-8"
        )
        assert says == (page.stem != "README"), page
        assert page.stem == "README" or "this page is empty" not in built.read_text("utf-8"), page


def test_the_reference_holds_every_name_that_the_package_gives(reference: set[str]) -> None:
    names = [name for name in distrl.__all__ if not name.startswith("_")]
    assert [name for name in names if not {f"distrl.{name}", f"distrl.env.{name}"} & reference] == []


def test_links_out_of_docs_lead_to_pages_of_the_site(site: Path) -> None:
    assert 'href="own-package.html"' in (site / "extending.html").read_text(encoding="utf-8")
    assert 'href="extending.html"' in (site / "own-package.html").read_text(encoding="utf-8")
    assert 'href="changes.html"' in (site / "compatibility.html").read_text(encoding="utf-8")


def test_links_within_the_site_lead_to_files(site: Path) -> None:
    for page in site.rglob("*.html"):
        links = re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', page.read_text(encoding="utf-8"))
        inside = [link for link in links if not re.match(r"[a-z]+:|//|/", link)]
        assert [link for link in inside if not (page.parent / link).exists()] == [], page
