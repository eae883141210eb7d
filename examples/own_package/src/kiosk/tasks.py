"""The task suite: instructions for a drinks kiosk, split by their text into training, tuning and test tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from distrl.tasks.base import SPLITS, check_index, split_of
from distrl.types import Check, CustomCheck, CustomSetup, RewardCheck, Split, Task

DRINKS = ("Tea", "Coffee", "Cocoa", "Juice")
SIZES = ("Small", "Medium", "Large")
EXTRAS = ("Milk", "Sugar", "Honey", "Nothing")
ORDERS = (
    "Order a {size} {drink} with {extra}",
    "I would like a {size} {drink} with {extra}, please",
    "A {size} {drink} and {extra} in it",
)
PRICES = ("What does {drink} cost", "Show me the prices: how much is {drink}", "Tell me the price of {drink}")
MAX_STEPS = 12


class SuiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[tasks.options]` of the suite."""

    prices: bool = True
    """Also ask for prices, which the kiosk rewards itself."""


class KioskSuite:
    """`distrl.tasks.base.Suite`: the same number always gives the same task."""

    Settings = SuiteSettings
    name = "kiosk"

    def __init__(self, settings: SuiteSettings) -> None:
        self._tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
        for template, text, setup, check in _all(settings):
            tasks = self._tasks[split := split_of(text)]
            tasks.append(
                Task(
                    id=f"{self.name}/{split}/{len(tasks):05d}",
                    suite=self.name,
                    template=template,
                    split=split,
                    instruction=text,
                    setup=CustomSetup(values=setup),
                    check=check,
                    max_steps=MAX_STEPS,
                )
            )

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return len(self._tasks[split])

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split."""
        check_index(self, split, index)
        return self._tasks[split][index]


def _all(settings: SuiteSettings) -> Iterator[tuple[str, str, dict[str, Any], Check]]:
    """Template, instruction, setup and check of every task."""
    for text, drink, size, extra in product(ORDERS, DRINKS, SIZES, EXTRAS):
        wanted = {"drink": drink, "size": size, "extra": extra, "paid": True}
        yield "order", text.format(drink=drink, size=size, extra=extra).capitalize(), {}, CustomCheck(values=wanted)
    for text, drink in product(PRICES if settings.prices else (), DRINKS):
        yield "price", text.format(drink=drink).capitalize(), {"asked": drink}, RewardCheck(at_least=1.0)
