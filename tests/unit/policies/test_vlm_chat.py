"""Chat templates: the message format is found by trial, and nothing from a screen steers the tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError

from distrl.policies.vlm.chat import Chat, ChatPrompt

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|im_", "<image>")
PROMPT = ChatPrompt(system="be brief", text="tap something", num_images=0)
Messages = list[dict[str, Any]]


class TinyTokenizer:
    """The part of a tokenizer that a chat needs; its template is a Python function."""

    bos_token: str | None = None

    def __init__(self, apply: Callable[[Messages], str] | None = None, *, template: Any = "own") -> None:
        self._apply, self.chat_template = apply, template if apply else None
        self.given = list[Any]()

    def get_added_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(SPECIAL)}

    def apply_chat_template(self, messages: Messages, *, chat_template: Any, **_: Any) -> str:
        self.given.append(chat_template)
        assert self._apply is not None
        return self._apply(messages)


def chat(tokenizer: TinyTokenizer, *, placeholder: str = "", folder: str = "/none") -> Chat:
    return Chat(tokenizer, folder, placeholder)


def joined(messages: Messages) -> str:
    """A template for plain text."""
    return "".join(f"[{message['role']}]{message['content'] + ''}" for message in messages)


def in_parts(messages: Messages) -> str:
    """A template for lists of parts, with images."""
    return "".join(
        f"[{m['role']}]" + "".join("<image>" if part["type"] == "image" else part["text"] for part in m["content"])
        for m in messages
    )


def test_a_text_template_gets_plain_messages_with_a_system_role() -> None:
    assert chat(TinyTokenizer(joined)).render(PROMPT) == "[system]be brief[user]tap something"


def test_a_template_for_images_gets_parts_with_the_images_first() -> None:
    rendered = chat(TinyTokenizer(in_parts), placeholder="<image>").render(
        ChatPrompt(system="be brief", text="tap something", num_images=2)
    )
    assert rendered == "[system]be brief[user]<image><image>tap something"


@pytest.mark.parametrize("error", [TemplateError("no system role"), KeyError("x"), TypeError("list"), ValueError("y")])
def test_a_template_that_refuses_a_system_role_gets_it_inside_the_users_message(error: Exception) -> None:
    def strict(messages: Messages) -> str:
        if messages[0]["role"] == "system":
            raise error
        return joined(messages)

    assert chat(TinyTokenizer(strict)).render(PROMPT) == "[user]be brief\n\ntap something"


def test_a_template_that_prints_a_list_as_it_stands_is_not_given_lists() -> None:
    rendered = chat(TinyTokenizer(lambda messages: "".join(str(m["content"]) for m in messages))).render(PROMPT)
    assert rendered == "be brieftap something"


def test_a_template_that_loses_the_system_prompt_counts_as_none_and_the_owner_is_told() -> None:
    forgetful = chat(TinyTokenizer(lambda messages: "hello"), folder="/models/odd")
    assert forgetful.plain
    (notice,) = forgetful.notices
    assert "/models/odd" in notice
    assert forgetful.render(PROMPT) == "be brief\n\ntap something\n\nAnswer:\n"


def test_a_plain_prompt_begins_with_the_models_own_start_token_and_holds_its_images() -> None:
    tokenizer = TinyTokenizer()
    tokenizer.bos_token = "<s>"
    rendered = chat(tokenizer, placeholder="<image>").render(ChatPrompt(system="a", text="b", num_images=2))
    assert rendered == "<s>a\n\n<image><image>b\n\nAnswer:\n"


def test_a_missing_package_is_not_mistaken_for_a_template_that_refuses() -> None:
    def missing(messages: Messages) -> str:
        raise ImportError("apply_chat_template requires jinja2")

    with pytest.raises(ImportError, match="jinja2"):
        chat(TinyTokenizer(missing))


@pytest.mark.parametrize(
    ("content", "found"),
    [('{"chat_template": "legacy"}', True), ("[1, 2]", False), ("not json", False), ('{"other": 1}', False)],
)
def test_a_template_that_was_saved_beside_the_processor_is_used_where_it_can_be_read(
    tmp_path: Path, content: str, found: bool
) -> None:
    (tmp_path / "chat_template.json").write_text(content)
    tokenizer = TinyTokenizer(joined, template=None)
    assert chat(tokenizer, folder=str(tmp_path)).plain is not found
    assert set(tokenizer.given) == ({"legacy"} if found else set())


def test_of_several_templates_the_default_one_is_used() -> None:
    tokenizer = TinyTokenizer(joined, template={"default": "talk", "tool_use": "tools"})
    chat(tokenizer)
    assert set(tokenizer.given) == {"talk"}


@given(st.lists(st.sampled_from([*SPECIAL, "<|im_sta", "rt|>", "a", " ", "<ima", "ge>", "é"]), max_size=12))
def test_no_special_token_is_left_however_it_is_cut_up(pieces: list[str]) -> None:
    cleaned = chat(TinyTokenizer(joined)).strip_control_tokens("".join(pieces))
    assert not any(token in cleaned for token in SPECIAL)


@given(st.text("abc <|>\n", max_size=40).filter(lambda text: not any(token in text for token in SPECIAL)))
def test_other_text_stays_as_it_is(text: str) -> None:
    assert chat(TinyTokenizer(joined)).strip_control_tokens(text) == text
