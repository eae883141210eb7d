"""Pictures of the dashboard and the report for docs/dashboard.md, taken in Chromium from a run of your own.

    .venv/bin/python docs/.site/screenshots.py RUN          # while it trains, for a fleet that plays

They go to docs/images/dashboard/, as small as PNGs get without a visible loss.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import distrl  # noqa: E402
from distrl.dashboard.report import write_report  # noqa: E402
from distrl.types import Tap  # noqa: E402
from support.browser import Browser, Page, browser  # noqa: E402
from support.dashboards import dashboard  # noqa: E402

OUT = ROOT / "docs" / "images" / "dashboard"
SETTLE_S = 2.5


def main(path: Path) -> None:
    run = distrl.open_run(path)
    episode = telling_step(run)
    pages = {
        "fleet": "/fleet",
        "episodes": "/episodes",
        "episode": episode,
        "learning": "/learning",
        "health": "/health",
        "run": "/settings",
    }
    with dashboard(path.parent) as shown, browser() as chromium:
        for name, rest in {"runs": "", **{name: f"/runs/{run.name}{rest}" for name, rest in pages.items()}}.items():
            for dark in (False, True):
                take(chromium, f"{shown.url}{rest}", f"{name}-dark" if dark else name, dark=dark)
        take(chromium, f"{shown.url}/runs/{run.name}{episode}", "episode-390", width=390, height=844, dark=True)
        compare(chromium, shown.url)
        by_hand(chromium, f"{shown.url}/runs/{run.name}{episode}")
        for dark in (False, True):
            address = f"file://{write_report(path).resolve()}"
            take(chromium, address, "report-dark" if dark else "report", height=1400, dark=dark)


def telling_step(run: distrl.Run) -> str:
    """The address of a touch in a late failure that was chosen among the most others; the list where there is none."""
    failed = [
        row.id for row in run.index(limit=100_000) if not row.success and row.source == "played" and row.steps > 3
    ]
    found = [
        (len(step.decision.runners_up), step.decision.entropy, f"/episodes/{episode.id}/{number}")
        for episode in run.episodes_of(failed[-40:])
        if episode is not None
        for number, step in enumerate(episode.steps, 1)
        if isinstance(step.decision.action, Tap) and step.decision.entropy < 1.0
    ]
    return max(found)[-1] if found else "/episodes"


def compare(chromium: Browser, address: str) -> None:
    """The two newest runs beside each other; nothing where there is one alone."""
    page = chromium.page(width=1280, height=800)
    page.open(address)
    page.until("!!document.querySelector('.runcard')")
    if int(page.run("document.querySelectorAll('.runcard').length")) < 2:
        return
    for number in (1, 2):
        page.click(f".runcard:nth-child({number}) input[type=checkbox]")
    page.click(".head button")
    page.until("document.querySelectorAll('.chart svg').length > 3")
    keep(page, "compare")


def by_hand(chromium: Browser, address: str) -> None:
    """The task of an episode, taken by hand, after two steps."""
    page = chromium.page(width=1280, height=800)
    page.open(address)
    page.until("!!document.querySelector('.head button')")
    page.click(".head button")
    page.until("document.querySelectorAll('.elements button').length > 2")
    for number in (1, 2):
        page.run("document.querySelector('.elements button').click()")
        page.until(f"/^step {number} /.test(document.querySelector('.where').innerText)")
    keep(page, "by-hand")


def take(
    chromium: Browser, address: str, name: str, *, width: int = 1280, height: int = 800, dark: bool = False
) -> None:
    """One page as a picture."""
    page = chromium.page(width=width, height=height, dark=dark)
    page.open(address)
    page.until("!!document.querySelector('h1')")
    keep(page, name)


def keep(page: Page, name: str) -> None:
    """What a page shows, as a small PNG."""
    time.sleep(SETTLE_S)
    path = page.picture(OUT / f"{name}.png")
    Image.open(path).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(
        f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB; errors on the console: {page.errors or []}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
