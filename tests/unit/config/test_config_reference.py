"""The reference is made from the schema, and the page in docs/ is the reference."""

from __future__ import annotations

from pathlib import Path

from distrl.config.reference import reference, sections, settings

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_every_setting_has_a_meaning_that_ends_in_a_full_stop() -> None:
    assert [key for key, setting in settings().items() if not setting.meaning.endswith((".", ")"))] == []


def test_every_meaning_is_one_line() -> None:
    assert [key for key, setting in settings().items() if "\n" in setting.meaning] == []


def test_every_setting_and_section_stands_in_the_reference() -> None:
    text = reference()
    assert [key for key in settings() if f"| `{key}` |" not in text] == []
    assert [name for name in sections() if f"## `{name}`" not in text] == []


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"
