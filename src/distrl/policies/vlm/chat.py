"""Renders prompts with the model's own chat template, or with a plain one where it has none.

Templates differ in what they take: a system message or none, content as a list of parts or as one text. Which of these
works is tried out once, with words that must come out again.
"""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import TemplateError

TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What a template raises for messages in a format that it does not take."""
_SYSTEM, _USER = "what to do", "what is seen"
"""Words to try a template with."""


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a prompt, before the chat template."""

    system: str
    text: str
    num_images: int = 0
    """Images, which stand before the text."""


class _MessageFormat(msgspec.Struct, frozen=True):
    """How a template takes its messages."""

    in_parts: bool
    """Content as a list of parts; otherwise as one text."""
    system_apart: bool
    """The system prompt as a message of its own; otherwise in front of the user's."""


class Chat:
    """Renders the prompts of one model."""

    def __init__(self, tokenizer: Any, folder: str, placeholder: str) -> None:
        self._tokenizer, self._placeholder = tokenizer, placeholder
        self._folder, self._template = folder, _own_template(tokenizer) or _legacy_template(Path(folder))
        self._format = self._find_format() if self._template else None
        self._control = _any_of(tokenizer.get_added_vocab())

    @property
    def plain(self) -> bool:
        """Whether the model's own template is missing or of no use."""
        return self._format is None

    @property
    def notices(self) -> list[str]:
        """What the owner of the run should know."""
        if not self.plain:
            return []
        return [
            f"{self._folder} has no chat template that takes our prompts: a plain one is used, which the model may not "
            "know; a chat_template.jinja in that folder would be used instead"
        ]

    def render(self, prompt: ChatPrompt) -> str:
        """The prompt, up to where the answer begins."""
        if self._format is not None:
            return self._apply(prompt, self._format)
        start = self._tokenizer.bos_token or ""
        images = self._placeholder * prompt.num_images
        return f"{start}{prompt.system}\n\n{images}{prompt.text}\n\nAnswer:\n"

    def strip_control_tokens(self, text: str) -> str:
        """`text` from a screen or a user, without anything that the tokenizer takes for a special token.

        Each becomes a space, so that what stands around it cannot join to another one.
        """
        return self._control.sub(" ", text)

    def _find_format(self) -> _MessageFormat | None:
        takes_images = bool(self._placeholder)
        tried = ChatPrompt(system=_SYSTEM, text=_USER, num_images=int(takes_images))
        for in_parts, system_apart in product((takes_images, not takes_images), (True, False)):
            format = _MessageFormat(in_parts, system_apart)
            try:
                said = self._apply(tried, format)
            except TEMPLATE_ERRORS:
                continue
            whole = _SYSTEM in said and _USER in said and (not takes_images or said.count(self._placeholder) == 1)
            if whole and "'type'" not in said:  # a list that was printed as it stands
                return format
        return None

    def _apply(self, prompt: ChatPrompt, format: _MessageFormat) -> str:
        said: str = self._tokenizer.apply_chat_template(
            self._messages(prompt, format),
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return said

    def _messages(self, prompt: ChatPrompt, format: _MessageFormat) -> list[dict[str, Any]]:
        text = prompt.text if format.system_apart else f"{prompt.system}\n\n{prompt.text}"
        parts: list[dict[str, str]] = [*([{"type": "image"}] * prompt.num_images), {"type": "text", "text": text}]
        listed: Any = parts if format.in_parts else self._placeholder * prompt.num_images + text
        system: Any = [{"type": "text", "text": prompt.system}] if format.in_parts else prompt.system
        user = {"role": "user", "content": listed}
        return [{"role": "system", "content": system}, user] if format.system_apart else [user]


def _own_template(tokenizer: Any) -> str | None:
    """The tokenizer's template; of several, the one for ordinary talk."""
    found = tokenizer.chat_template
    template: str | None = found.get("default") if isinstance(found, dict) else found
    return template


def _legacy_template(folder: Path) -> str | None:
    """The template of a folder that was saved with a processor, beside the tokenizer's files."""
    try:
        found = json.loads((folder / "chat_template.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found.get("chat_template") if isinstance(found, dict) else None


def _any_of(words: Any) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
