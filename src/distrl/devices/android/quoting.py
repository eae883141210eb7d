"""Text of any content on its way to a phone's shell: quoting that cannot be broken out of, and how text is typed.

`adb shell` hands one string to the phone's `sh`. Whatever others wrote goes through `quote` before it becomes part of
it. `input text` types what the phone's virtual keyboard has keys for, which is printable ASCII, and reads "%s" as a
space. Everything else is typed by ADBKeyBoard, an input method that takes Base64, where that is installed.
"""

from __future__ import annotations

import base64
import re

import msgspec

ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
ENTER, TAB, DELETE, MOVE_END = 66, 61, 67, 123
"""Key codes of Android."""
LONGEST_TEXT = 200
"""Characters for one `input text`: each becomes two key events, and very long ones are known to lose some."""
LONGEST_MESSAGE = 3000
"""Characters for one broadcast."""
TYPED = re.compile(r"[ -~]+|\n|\t|[^ -~\n\t]")


class CannotType(ValueError):
    """A character that there is no way to type on this phone."""


class Typing(msgspec.Struct, frozen=True, kw_only=True):
    """How text gets into a focused field."""

    adb_keyboard: bool = False
    """Whether ADBKeyBoard is the phone's input method."""


def quote(text: str) -> str:
    """One word for the phone's shell, whatever `text` holds; `CannotType` for what no shell can take."""
    if "\0" in text:
        raise CannotType("a NUL cannot be part of a shell command")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CannotType(f"{text[error.start]!r} is half a character") from None
    return "'" + text.replace("'", "'\\''") + "'"


def typing_commands(text: str, typing: Typing) -> list[str]:
    """The commands that type `text` where the cursor is; `CannotType` names the first character that cannot be typed."""
    quote(text)
    return _broadcasts(text) if typing.adb_keyboard else list(_key_presses(text))


def clearing_command(held: int, typing: Typing) -> str:
    """The command that empties a field of `held` characters; empty: there is nothing to do."""
    if typing.adb_keyboard:
        return "am broadcast -a ADB_CLEAR_TEXT"
    return f"input keyevent {MOVE_END} {' '.join([str(DELETE)] * held)}" if held else ""


def _broadcasts(text: str) -> list[str]:
    parts = [text[begin : begin + LONGEST_MESSAGE] for begin in range(0, len(text), LONGEST_MESSAGE)]
    return [f"am broadcast -a ADB_INPUT_B64 --es msg {base64.b64encode(part.encode()).decode()}" for part in parts]


def _key_presses(text: str) -> list[str]:
    commands: list[str] = []
    for part in TYPED.findall(text):
        if part in "\n\t":
            commands.append(f"input keyevent {ENTER if part == chr(10) else TAB}")
        elif not (part.isascii() and part.isprintable()):
            raise CannotType(
                f"{part!r} cannot be typed by `input text`, which has keys for ASCII alone: install ADBKeyBoard "
                "(com.android.adbkeyboard) on the phone"
            )
        else:
            commands += [f"input text {quote(piece.replace(' ', '%s'))}" for piece in _pieces(part)]
    return commands


def _pieces(text: str) -> list[str]:
    """Parts of printable text such that none holds "%s", which `input text` would take for a space, nor is too long."""
    found = []
    for piece in re.split(r"(?<=%)(?=s)", text):
        found += [piece[begin : begin + LONGEST_TEXT] for begin in range(0, len(piece), LONGEST_TEXT)]
    return found
