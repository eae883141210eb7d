"""Pictures of every page of the dashboard and of the report for docs/dashboard.md, taken in Chromium from real runs.

    .venv/bin/python docs/.site/screenshots.py              # trains two runs of a few minutes first
    .venv/bin/python docs/.site/screenshots.py RUN [RUN]    # while the first of them trains; the second is compared with it

Each page is taken light and dark at three widths, as docs/images/dashboard/PAGE-WIDTH[-dark].webp.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import distrl  # noqa: E402
from distrl.dashboard.report import write_report  # noqa: E402
from distrl.types import Tap  # noqa: E402
from support.browser import Browser, Page, browser  # noqa: E402
from support.dashboards import dashboard  # noqa: E402

OUT = ROOT / "docs" / "images" / "dashboard"
SIZES = {390: 844, 1280: 800, 2560: 1440}
SETTLE_S, START_S, END_S = 2.0, 900.0, 3600.0
MINUTES, ENOUGH = 4.0, 150
"""Of the run whose pages are taken, and its episodes before they are."""


def main(runs: list[Path]) -> None:
    if runs:
        take(runs[0], runs[-1])
        return
    with TemporaryDirectory(prefix="screenshots-") as folder:
        with training(Path(folder), "filtered-bc", MINUTES / 3, "--algorithm.kind", "filtered_bc") as first:
            until(first, ENOUGH // 3)
        with training(Path(folder), "phones", MINUTES) as run:
            until(run, ENOUGH)
            take(run, first)


@contextmanager
def training(root: Path, name: str, minutes: float, *flags: str) -> Iterator[Path]:
    """A run of small phones with pictures, once its folder is there; afterwards it has come to its end."""
    command = ["train", "--run.root", str(root), "--run.name", name, "--run.minutes", f"{minutes:g}", "--rollout.keep_screenshots", "true", "--devices.per_worker", "16", "--evaluation.episodes", "60", "--no-view", *flags]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "distrl", *command], stdout=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + START_S
        while not (found := list(root.glob(f"*-{name}/config.toml"))):
            assert process.poll() is None, "the training has ended before it began"
            assert time.monotonic() < until_s, f"the training has not begun within {START_S:g} s"
            time.sleep(0.2)
        yield found[0].parent
        process.wait(END_S)
    finally:
        process.terminate()
        process.wait()


def until(path: Path, episodes: int) -> None:
    """Wait until a run has so many episodes."""
    run, until_s = distrl.open_run(path), time.monotonic() + START_S
    while run.status().episodes < episodes:
        assert time.monotonic() < until_s, f"{run.status().episodes} of {episodes} episodes within {START_S:g} s"
        time.sleep(1.0)


def take(path: Path, other: Path) -> None:
    """All pages of a run, of it beside another one, and its report."""
    run = distrl.open_run(path)
    step = telling_step(run)
    with dashboard(path.parent) as shown, browser() as chromium:
        of_run = f"{shown.url}/runs/{run.name}"
        shoot(chromium, "fleet", f"{of_run}/fleet", "document.querySelectorAll('.tile').length")
        shoot(chromium, "device", f"{of_run}/fleet", "document.querySelectorAll('.tile').length", click=".tile")
        shoot(chromium, "health", f"{of_run}/health", "document.querySelector('table')")
        shoot(chromium, "learning", f"{of_run}/learning", "document.querySelector('.chart svg')")
        shoot(chromium, "episodes", f"{of_run}/episodes", "document.querySelector('a.row')")
        shoot(chromium, "failures", f"{of_run}/episodes?outcome=failure", "document.querySelector('a.row')")
        shoot(chromium, "episode", f"{of_run}{step}", "document.querySelector('.steps a')")
        shoot(chromium, "run", f"{of_run}/settings", "document.querySelector('.figures')")
        shoot(chromium, "runs", shown.url, "document.querySelector('.runcard')")
        shoot(chromium, "compare", f"{shown.url}/compare?a={run.name}&b={other.name}", "document.querySelector('.chart svg')")  # fmt: skip
        by_hand(chromium, f"{of_run}{step}")
        shoot(chromium, "report", f"file://{write_report(path).resolve()}", "document.querySelector('h1')")


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


def shoot(chromium: Browser, name: str, address: str, ready: str, *, click: str = "") -> None:
    """One page in all sizes and both themes."""
    page = chromium.page(width=1280, height=800)
    page.open(address)
    page.until(f"!!({ready})")
    if click:
        page.click(click)
    keep(page, name)


def keep(page: Page, name: str) -> None:
    """What a page shows, in all sizes and both themes; says what is wrong with it."""
    for width, height in SIZES.items():
        page.resize(width, height)
        for dark in (False, True):
            page.theme(dark=dark)
            time.sleep(SETTLE_S)
            path = OUT / f"{name}-{width}{'-dark' if dark else ''}.webp"
            picture = page.picture(path.with_suffix(".png"))
            data = BytesIO()
            Image.open(picture).convert("RGB").save(data, "WEBP", quality=78, method=6)
            picture.unlink()
            path.write_bytes(data.getvalue())
            wide = page.run("document.documentElement.scrollWidth > innerWidth")
            troubles = [*page.errors, *(["wider than the window"] if wide else [])]
            sys.stdout.write(f"{path.relative_to(ROOT)}: {len(data.getvalue()) // 1000} kB {troubles or ''}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
