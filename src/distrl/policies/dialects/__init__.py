"""Dialects: the text formats in which vision-language models write actions. Here they are by name; a module each."""

from __future__ import annotations

from distrl.errors import UsageError, closest
from distrl.policies.dialects.aitw import AitwDialect
from distrl.policies.dialects.android_world import AndroidWorldDialect
from distrl.policies.dialects.base import Dialect
from distrl.policies.dialects.brief import BriefDialect
from distrl.policies.dialects.grid import GridDialect
from distrl.policies.dialects.plain_json import JsonDialect
from distrl.policies.dialects.qwen import QwenDialect
from distrl.policies.dialects.ui_tars import UiTarsDialect

DIALECTS: dict[str, Dialect] = {
    each.name: each
    for each in (
        JsonDialect(),
        AitwDialect(),
        QwenDialect("qwen2.5_vl", absolute=True),
        QwenDialect("qwen3_vl", absolute=False),
        UiTarsDialect("ui_tars", absolute=False),
        UiTarsDialect("ui_tars_1.5", absolute=True),
        AndroidWorldDialect(),
        BriefDialect(),
        GridDialect(),
    )
}


def dialect(name: str) -> Dialect:
    """The dialect of that name; any other name is an error that says what there is."""
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name!r}", expected=closest(name, DIALECTS), fix="see docs/dialects.md")
    return DIALECTS[name]
