"""Text of any content reaches the phone's shell as one word, and what cannot be typed is named."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable
from random import Random

import pytest

from distrl.devices.android.quoting import LONGEST_TEXT, CannotType, Typing, clearing_command, quote, typing_commands
from distrl.devices.serve_sim.android import _spaces
from distrl.devices.serve_sim.shell import tokens_of

WITH_KEYBOARD = Typing(adb_keyboard=True)
HOSTILE = "'\"\\$`;&|<>(){}[]*?~#!=%- \t\n\r\u00e9\u4e2d\U0001f600\u200b"
FRAGMENTS = ["'; touch broken; '", "$(touch broken)", "`touch broken`", "\\'", "%s", "&& exit 1", "-n", "--", "\n"]
SHELL = 'input() { printf "%s\\0" "$@"; }; am() { printf "%s\\0" "$@"; }\n'


def random_texts(count: int) -> Iterable[str]:
    random = Random(7)
    for _ in range(count):
        kind = random.random()
        letters = HOSTILE if kind < 0.5 else [chr(random.randrange(1, 0xD800)) for _ in range(8)] + list(HOSTILE)
        text = "".join(random.choice(letters) for _ in range(random.randrange(0, 24)))
        yield text + random.choice(FRAGMENTS) * (random.random() < 0.3) + text[:3]


def words_of_dash(script: str) -> list[str]:
    """What a real shell makes of a script: every word that a command got."""
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True, timeout=60)
    assert not done.stderr
    return done.stdout.decode().split("\0")[:-1]


def test_none_of_10_000_random_strings_breaks_out_of_the_quoting_of_a_real_shell(tmp_path: object) -> None:
    texts = list(random_texts(10_000))
    script = SHELL + "\n".join(f"input {quote(text)}" for text in texts)
    assert words_of_dash(script) == texts


def test_commands_that_type_random_strings_carry_them_whole_through_a_real_shell() -> None:
    texts = [text for text in random_texts(2000) if text]
    script = SHELL + "\n".join(
        command for text in texts for command in [*typing_commands(text, WITH_KEYBOARD), "am end"]
    )
    groups = "\0".join(words_of_dash(script)).split("end")
    sent = [group.split("\0msg\0")[-1].strip("\0") for group in groups[:-1]]
    assert [base64.b64decode(text).decode() for text in sent] == texts


def test_printable_text_is_typed_as_it_is_even_where_it_looks_like_an_escaped_space() -> None:
    random = Random(3)
    texts = [
        "%s",
        "100%s off",
        "%%s",
        "a b",
        " %s %",
        "s%" * 150,
        *(t for t in random_texts(3000) if t.isprintable() and t.isascii() and t),
    ]
    texts += ["".join(random.choice("%s ") for _ in range(random.randrange(1, 12))) for _ in range(500)]
    for text in texts:
        typed = ""
        for command in typing_commands(text, Typing()):
            program, verb, argument = tokens_of(command)
            assert (program, verb) == ("input", "text")
            assert len(argument) <= 3 * LONGEST_TEXT
            typed += _spaces(argument)
        assert typed == text


def test_lines_and_tabs_become_keys() -> None:
    assert typing_commands("a\nb\t", Typing()) == [
        "input text 'a'",
        "input keyevent 66",
        "input text 'b'",
        "input keyevent 61",
    ]


@pytest.mark.parametrize("text", ["café", "中文", "\U0001f600", "a\x07b"])
def test_a_character_without_a_key_is_named_with_the_way_out(text: str) -> None:
    with pytest.raises(CannotType, match="ADBKeyBoard"):
        typing_commands(text, Typing())


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_shell_can_take_is_refused_by_every_keyboard(text: str) -> None:
    for typing in (Typing(), WITH_KEYBOARD):
        with pytest.raises(CannotType):
            typing_commands(text, typing)


def test_a_field_is_emptied_by_as_many_keys_as_it_holds_characters() -> None:
    assert clearing_command(3, Typing()) == "input keyevent 123 67 67 67"
    assert clearing_command(0, Typing()) == ""
    assert clearing_command(0, WITH_KEYBOARD) == "am broadcast -a ADB_CLEAR_TEXT"
