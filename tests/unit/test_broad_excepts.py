"""What catches everything is rare, and says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "distrl"
MOST = 6
BROAD = {"Exception", "BaseException"}


def broad_excepts() -> Iterator[tuple[str, str]]:
    """The place of each handler that catches everything, alone or in a tuple, and its line."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler):
                caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else BROAD
                if caught & BROAD:
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", text.splitlines()[node.lineno - 1]


def test_few_handlers_catch_everything() -> None:
    assert len(places := [place for place, _ in broad_excepts()]) <= MOST, places


def test_each_of_them_says_why() -> None:
    assert [place for place, line in broad_excepts() if "  # " not in line] == []
