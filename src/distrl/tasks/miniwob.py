"""MiniWoB++ as a suite: the tasks of the package `miniwob`, on Chromium phones.

Page, instruction, reward and end of an episode are the benchmark's own; a task here is the name of one of its pages and a seed.
The splits share no seed. What it asks is known once its page is open, so the instruction of an unplayed task only names it.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from distrl.config.judging import MiniWobConfig
from distrl.errors import TaskError, closest
from distrl.installing import install
from distrl.tasks.base import check_index
from distrl.types import RewardCheck, Split, Task, WebSetup

DRAG = "needs a drag or a marked text; a finger that moves scrolls"
HOVER = "needs a mouse that hovers, which a finger cannot"
LEFT_OUT = {
    **dict.fromkeys(
        ("drag-box", "drag-circle", "drag-cube", "drag-items", "drag-items-grid", "drag-shapes", "drag-shapes-2",
         "drag-single-shape", "drag-sort-numbers", "draw-circle", "draw-line", "resize-textarea", "highlight-text",
         "highlight-text-2", "text-editor"),
        DRAG,
    ),
    **dict.fromkeys(("hover-shape", "chase-circle"), HOVER),
    **dict.fromkeys(("moving-items", "stock-market", "button-delay"), "asks for the right moment: its screen never rests"),
    **dict.fromkeys(("order-food", "social-media-all", "social-media-some"), "its page draws lots after the seed was used"),
}  # fmt: skip
"""Tasks that the action space cannot express, or whose seed does not fix them, with the reason."""
LONG = {
    "bisect-angle": 8, "click-checkboxes-large": 16, "click-checkboxes-soft": 14, "click-shades": 16, "number-checkboxes": 24,
    "book-flight": 20, "book-flight-nodelay": 20, "choose-date": 30, "choose-date-medium": 15, "choose-date-nodelay": 30,
    "use-spinner": 16, "tic-tac-toe": 8, "click-tab-2-hard": 10, "email-inbox-forward": 12, "terminal": 16,
    "odd-or-even": 10, "search-engine": 12, "guess-number": 20, "sign-agreement": 12, "scroll-text": 14, "daily-calendar": 12,
    "click-scroll-list": 12, "grid-coordinate": 4, "click-test": 3, "click-test-2": 3, "click-button": 4,
}  # fmt: skip
"""Steps that an attempt may take, where that is not `MAX_STEPS`."""
MAX_STEPS = 8
FIRST_SEED: dict[Split, int] = {"train": 0, "tune": 1_000_000, "test": 2_000_000}
"""Seeds count up from here; no split is larger than the distance."""


class MiniWobSuite:
    """Tasks of MiniWoB++; numbers go round the pages, so that any stretch of a split has all of them in it."""

    name = "miniwob"

    def __init__(self, settings: MiniWobConfig | None = None) -> None:
        self._settings = settings or MiniWobConfig()
        known = all_pages()
        for name in self._settings.tasks:
            _check_page(name, known)
        self.pages = self._settings.tasks or tuple(name for name in known if name not in LEFT_OUT)
        """The pages that are played."""

    @cached_property
    def _seeds(self) -> dict[Split, int]:
        settings = self._settings
        return {"train": settings.train_seeds, "tune": settings.test_seeds, "test": settings.test_seeds}

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return len(self.pages) * self._seeds[split]

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split."""
        check_index(self, split, index)
        page, seed = self.pages[index % len(self.pages)], FIRST_SEED[split] + index // len(self.pages)
        return Task(
            id=f"{self.name}/{split}/{index:05d}",
            suite=self.name,
            template=page,
            split=split,
            instruction=f"{page}, seed {seed}",
            setup=WebSetup(url=page, page="miniwob", seed=seed),
            check=RewardCheck(at_least=1.0),
            max_steps=LONG.get(page, MAX_STEPS),
        )


def all_pages() -> list[str]:
    """The names of all pages that the package has; `TaskError` where it is not installed."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise TaskError(
            "the package miniwob is not installed", expected="distrl with its extra [miniwob]",
            fix=f"pip install --no-deps miniwob==1.1.0 (its pages are all that is used), or {install('miniwob')}",
        )  # fmt: skip
    return sorted(path.stem for path in (Path(spec.origin).parent / "html" / "miniwob").glob("*.html"))


def _check_page(name: str, known: list[str]) -> None:
    if name not in known:
        raise TaskError(
            f"MiniWoB++ has no task {name!r}", expected=closest(name, known), fix="mend tasks.miniwob.tasks"
        )
    if name in LEFT_OUT:
        raise TaskError(
            f"the task {name} of MiniWoB++ is left out: {LEFT_OUT[name]}",
            expected=closest(name, [each for each in known if each not in LEFT_OUT]),
            fix="mend tasks.miniwob.tasks",
        )
