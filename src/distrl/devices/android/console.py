"""The console of an Android emulator: lines of text on its even port, answered by OK or KO.

Each command has a connection of its own and a deadline. Where the console asks for its token, the one in the user's home is
sent, and no other file: whatever listens on that port could ask for anything.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from distrl.errors import DeviceError, DeviceLost

LOCAL = "127.0.0.1"
CALL_S = 5.0
TOKEN_FILE = ".emulator_console_auth_token"  # noqa: S105 (a name)
GREETING, NEEDS_TOKEN = "Android Console", "Authentication required"


class Refused(DeviceError):
    """The console said KO."""


async def ask(port: int, command: str, *, home: Path | None = None, deadline_s: float = CALL_S) -> str:
    """What the console answers, without its OK; `Refused` where it says KO, `DeviceLost` where it does not answer."""
    what = f"`{command}` on the console of emulator-{port}"
    try:
        async with asyncio.timeout(deadline_s):
            reader, writer = await asyncio.open_connection(LOCAL, port)
            try:
                await _enter(reader, writer, home or Path.home())
                return await _say(reader, writer, command)
            finally:
                writer.close()
    except TimeoutError:
        raise DeviceLost(f"{what} took over {deadline_s:g} s", fix="the emulator hangs, or is no emulator") from None
    except (OSError, EOFError, ValueError) as error:
        raise DeviceLost(f"{what}: no answer ({error or type(error).__name__})", fix="is the emulator up?") from error


async def _enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, home: Path) -> None:
    """Read the greeting, and show the token where one is asked for."""
    greeting = await _answer(reader, "the greeting")
    if greeting and GREETING not in greeting:
        raise ValueError(f"{greeting[:80]!r} is no greeting of an emulator")
    if NEEDS_TOKEN in greeting:
        await _say(reader, writer, f"auth {_token(home / TOKEN_FILE)}", shown="auth")


async def _say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: str, *, shown: str = "") -> str:
    writer.write(f"{command}\r\n".encode())
    await writer.drain()
    return await _answer(reader, shown or command)


async def _answer(reader: asyncio.StreamReader, command: str) -> str:
    lines: list[str] = []
    while line := (await reader.readline()).decode(errors="replace"):
        line = line.strip()
        if line == "OK" or line.startswith("OK:"):
            return "\n".join(lines)
        if line.startswith("KO"):
            said = line.removeprefix("KO").lstrip(": ") or " ".join(lines)
            raise Refused(f"the emulator's console refused `{command}`: {said[:200]}")
        lines.append(line)
    raise EOFError("it hung up")


def _token(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise DeviceError(
            f"the emulator's console wants a token, and {path} cannot be read: {error.strerror}",
            expected="the file that the emulator writes into the home of whoever starts it",
            fix="run distrl as the user who started the emulator",
        ) from None
