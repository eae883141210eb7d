"""The page in docs/ is made from the dialects."""

from __future__ import annotations

import re
from pathlib import Path

from distrl.policies.dialects import DIALECTS
from distrl.policies.dialects.reference import PICTURE, SAMPLES, reference

PAGE = Path(__file__).parents[3] / "docs" / "dialects.md"


def test_the_page_is_what_the_dialects_print() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_every_example_of_every_dialect_stands_on_the_page() -> None:
    text = reference()
    said = [each.print(action, PICTURE) for each in DIALECTS.values() for action in SAMPLES.values()]
    assert [words for words in said if words is not None and words not in text] == []


def test_every_format_names_its_sources() -> None:
    sections = re.split(r"^## ", reference(), flags=re.MULTILINE)[2:]
    assert len(sections) == 7
    assert all("\nSources: " in section for section in sections)


def test_the_python_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", reference(), flags=re.DOTALL)
    exec(code, {})
