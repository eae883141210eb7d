"""Google's adb program: where it is found, and the server that it starts. Whoever talks to that server is in `adb`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil

from distrl.errors import DeviceError, LossCause

PROGRAM = "adb"
START_SERVER_S = 20.0
INSTALL = (
    "install Android's platform-tools (Debian and Ubuntu: apt install adb), or distrl's extra [android], "
    "or give its path as devices.android.adb"
)


async def start_server(program: str, address: tuple[str, int]) -> None:
    """Run `adb start-server` for a server there; `DeviceError` where there is no adb or it fails."""
    host, port = address
    path = find_adb(program)
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            *("-P", str(port), "start-server"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,  # a pipe would be inherited by the server, and never end
        )
    except OSError as error:
        raise does_not_run(path, error) from None
    try:
        async with asyncio.timeout(START_SERVER_S):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        seen = f"`adb start-server` took over {START_SERVER_S:g} s"
        raise DeviceError(seen, fix="adb kill-server", cause=LossCause.SERVER) from None
    if code and not await server_listens(host, port):  # another process may have been quicker
        raise DeviceError(
            f"`adb -P {port} start-server` ended with {code}",
            fix=f"run it yourself: is port {port} taken?",
            cause=LossCause.SERVER,
        )


def find_adb(program: str = PROGRAM) -> str:
    """The path of the adb program, for one that was named of that one alone; `DeviceError` with how to get it."""
    found = shutil.which(program) or (_in_sdk() or _in_package() if program == PROGRAM else "")
    if not found:
        raise DeviceError(f"there is no program {program!r}", expected="the adb program", fix=INSTALL)
    return found


def does_not_run(path: str, error: OSError) -> DeviceError:
    """The error of a program that cannot be started at all."""
    return DeviceError(
        f"{path} does not run: {error.strerror or error}",
        expected="a program for this machine",
        fix="is it one for this processor, and whole? " + INSTALL,
        cause=LossCause.SERVER,
    )


def _in_sdk() -> str:
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        if root := os.environ.get(variable):
            path = os.path.join(root, "platform-tools", "adb")
            if os.access(path, os.X_OK):
                return path
    return ""


def _in_package() -> str:
    """The program that the package adbutils brings along; nothing else of that package is used."""
    spec = importlib.util.find_spec("adbutils")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = os.path.join(folder, "binaries", "adb")
        if os.access(path, os.X_OK):
            return path
    return ""


async def server_listens(host: str, port: int) -> bool:
    """Whether anything answers there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
