"""From a question to the text that a model was trained to answer: its own chat template, or a plain one where it has none.

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

from distrl.policies.vlm.loading import Model

_SYSTEM, _USER = "what to do", "what is seen"
"""Words to try a template with."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked."""

    system: str
    text: str
    num_pictures: int = 0
    """Pictures that stand before the text."""


class _Manner(msgspec.Struct, frozen=True):
    """How a template wants its messages."""

    in_parts: bool
    """Content as a list of parts; otherwise as one text."""
    system_apart: bool
    """The system's words as a message of their own; otherwise before the user's."""


class Chat:
    """Renders questions for one model."""

    def __init__(self, model: Model, folder: str, placeholder: str) -> None:
        self._tokenizer, self._placeholder = model.tokenizer, placeholder
        self._folder, self._template = folder, _own_template(model.tokenizer) or _legacy_template(Path(folder))
        self._manner = self._find_manner() if self._template else None
        self._control = _any_of(model.tokenizer.get_added_vocab())

    @property
    def plain(self) -> bool:
        """Whether the model's own template is missing or of no use."""
        return self._manner is None

    @property
    def notices(self) -> list[str]:
        """What the owner should know."""
        if not self.plain:
            return []
        return [
            f"{self._folder} has no chat template that takes our prompts: a plain one is used, which the model may not "
            "know; a chat_template.jinja in that folder would be used instead"
        ]

    def render(self, question: Question) -> str:
        """The prompt, up to where the answer begins."""
        if self._manner is not None:
            return self._apply(question, self._manner)
        start = self._tokenizer.bos_token or ""
        pictures = self._placeholder * question.num_pictures
        return f"{start}{question.system}\n\n{pictures}{question.text}\n\nAnswer:\n"

    def harmless(self, text: str) -> str:
        """`text` from a screen or a user, without anything that the tokenizer takes for a sign of its own.

        Each becomes a space, so that what stands around it cannot join to another one.
        """
        return self._control.sub(" ", text)

    def _find_manner(self) -> _Manner | None:
        sees = bool(self._placeholder)
        tried = Question(system=_SYSTEM, text=_USER, num_pictures=int(sees))
        for in_parts, system_apart in product((sees, not sees), (True, False)):
            manner = _Manner(in_parts, system_apart)
            try:
                said = self._apply(tried, manner)
            except Exception:  # noqa: S112  # a template may raise anything to say no
                continue
            whole = _SYSTEM in said and _USER in said and (not sees or said.count(self._placeholder) == 1)
            if whole and "'type'" not in said:  # a list that was printed as it stands
                return manner
        return None

    def _apply(self, question: Question, manner: _Manner) -> str:
        said: str = self._tokenizer.apply_chat_template(
            self._messages(question, manner),
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return said

    def _messages(self, question: Question, manner: _Manner) -> list[dict[str, Any]]:
        text = question.text if manner.system_apart else f"{question.system}\n\n{question.text}"
        parts: list[dict[str, str]] = [*([{"type": "image"}] * question.num_pictures), {"type": "text", "text": text}]
        listed: Any = parts if manner.in_parts else self._placeholder * question.num_pictures + text
        system: Any = [{"type": "text", "text": question.system}] if manner.in_parts else question.system
        user = {"role": "user", "content": listed}
        return [{"role": "system", "content": system}, user] if manner.system_apart else [user]


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
