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
from support.browser import Browser, browser  # noqa: E402
from support.dashboards import dashboard  # noqa: E402

OUT = ROOT / "docs" / "images" / "dashboard"
SETTLE_S = 1.5


def main(path: Path) -> None:
    run = distrl.open_run(path)
    failed = [row for row in run.index(limit=100_000) if not row.success and row.source == "played" and row.steps > 3]
    episode = f"/episodes/{failed[-1].id}/2" if failed else "/episodes"
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
            take(chromium, f"{shown.url}{rest}", name)
        take(chromium, f"{shown.url}/runs/{run.name}/fleet", "fleet-dark", dark=True)
        take(chromium, f"{shown.url}/runs/{run.name}{episode}", "episode-390", width=390, height=844, dark=True)
        take(chromium, f"file://{write_report(path).resolve()}", "report", height=1400)


def take(
    chromium: Browser, address: str, name: str, *, width: int = 1280, height: int = 800, dark: bool = False
) -> None:
    """One page as a picture."""
    page = chromium.page(width=width, height=height, dark=dark)
    page.open(address)
    page.until("!!document.querySelector('h1')")
    time.sleep(SETTLE_S)
    path = page.picture(OUT / f"{name}.png")
    Image.open(path).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(
        f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB; errors on the console: {page.errors or []}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
