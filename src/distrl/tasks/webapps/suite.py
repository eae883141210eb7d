"""The suite `webapps`: tasks on a budget, a mail catcher and a wiki by others, for Chromium phones that run them.

A task is data: what the app holds at its start, and what has to come about. The text of an instruction decides its split, so that no two
splits share one; the number of a task decides the seed that it is drawn from.
"""

from __future__ import annotations

from random import Random

from distrl.config.judging import WebAppsConfig
from distrl.errors import TaskError, closest
from distrl.tasks.base import check_index, split_of
from distrl.tasks.webapps.templates import TEMPLATES, Drawn
from distrl.types import Split, Task

MOST_DRAWS = 2000
"""Draws for one task: an instruction belongs to one split alone, and the smallest has a tenth of them."""


class WebAppsSuite:
    """Numbers go round the templates, so that any stretch of a split has all of them in it."""

    name = "webapps"

    def __init__(self, settings: WebAppsConfig | None = None) -> None:
        self._settings = settings or WebAppsConfig()
        chosen = set(self._settings.templates)
        known = {*TEMPLATES, *(name.partition(".")[0] for name in TEMPLATES)}
        for name in sorted(chosen - known):
            raise TaskError(
                f"webapps has no template {name!r}",
                expected=closest(name, sorted(known)),
                fix="mend tasks.webapps.templates",
            )
        self.templates = [name for name in TEMPLATES if not chosen or chosen & {name, name.partition(".")[0]}]
        """Those that are played."""

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return len(self.templates) * (self._settings.train_seeds if split == "train" else self._settings.test_seeds)

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split."""
        check_index(self, split, index)
        template, turn = self.templates[index % len(self.templates)], index // len(self.templates)
        drawn = draw(template, split, turn)
        return Task(
            id=f"{self.name}/{split}/{index:05d}",
            suite=self.name,
            template=template,
            split=split,
            instruction=drawn.instruction,
            setup=drawn.setup,
            check=drawn.check,
            max_steps=drawn.max_steps,
        )


def draw(template: str, split: Split, turn: int) -> Drawn:
    """Instance number `turn` of a template in a split, always the same."""
    for attempt in range(MOST_DRAWS):
        drawn = TEMPLATES[template](Random(f"{template}/{split}/{turn}/{attempt}"))
        if split_of(drawn.instruction) == split:
            return drawn
    raise TaskError(f"{template} has no instance in the {split} split", fix="give it more names to draw from")
