"""What listens on the port of the adb server and is none, or an old one: named, with the fix, and never a traceback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.devices.android.adb import VERSION, Adb, AdbConfig, Listed
from distrl.errors import ConfigError, DeviceError, LossCause

HOSTILE = "\x1b[31m\x9b1mphone"


class Server:
    """Answers each request with what a test says, by the beginning of the request."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers, self.asked = answers, list[str]()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readexactly(int(await reader.readexactly(4), 16))).decode()
        self.asked.append(asked)
        writer.write(next((said for start, said in self._answers.items() if asked.startswith(start)), b""))
        await writer.drain()
        writer.close()

    def devices(self) -> list[Listed]:
        """What a client makes of its list of devices, asked twice."""

        async def scene() -> list[Listed]:
            async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
                adb = Adb(AdbConfig(port=server.sockets[0].getsockname()[1]))
                await adb.devices()
                return await adb.devices()

        return asyncio.run(scene())

    def command(self, *words: str) -> int:
        """The exit code of `distrl devices` with this server."""

        async def scene() -> int:
            async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                return await asyncio.to_thread(main, ["devices", *words, "--devices.android.port", str(port)])

        return asyncio.run(scene())


def listing(text: str) -> bytes:
    data = text.encode()
    return b"OKAY%04x" % len(data) + data


def test_a_server_is_asked_for_its_version_once() -> None:
    server = Server({"host:version": b"OKAY00040029", "host:devices": listing("R58M\tdevice\n")})
    assert [found.serial for found in server.devices()] == ["R58M"]
    assert server.asked == ["host:version", "host:devices-l", "host:devices-l"]


def test_an_old_server_is_refused_by_whatever_talks_to_devices() -> None:
    with pytest.raises(DeviceError, match="speaks version 31") as caught:
        Server({"host:version": b"OKAY0004001f", "host:devices": listing("R58M\tdevice\n")}).devices()
    assert "platform-tools" in caught.value.fix
    assert caught.value.cause is LossCause.SERVER


@pytest.mark.parametrize(
    "version",
    [b"", b"OK", b"OKAY0004zzzz", b"OKAYzzzz0029", b"FAILzzzz", b"HTTP/1.1 400 Bad Request\r\n\r\n<html>", bytes(range(200))],
)  # fmt: skip
def test_what_is_no_adb_server_is_named_with_its_address(version: bytes) -> None:
    with pytest.raises(DeviceError, match=r"127.0.0.1:\d+ does not give the version") as caught:
        Server({"host:version": version}).devices()
    assert "devices.android.port" in caught.value.fix
    assert caught.value.cause is LossCause.SERVER


def test_what_never_answers_is_named_with_its_address_too() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scene() -> tuple[int, DeviceError]:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(DeviceError, match=r"took over 0.05 s") as caught:
                await Adb(AdbConfig(port=port))._ask(VERSION, "the version of the adb server", 0.05)
            return port, caught.value

    port, error = asyncio.run(scene())
    assert f"devices.android.port right? 127.0.0.1:{port} was asked" in error.fix
    assert error.cause is LossCause.SERVER


def test_a_device_s_length_that_is_none_costs_the_device_and_no_traceback() -> None:
    assert (
        Server({"host:transport": b"FAILzzzz", "host:version": b"OKAY00040029"}).command("tap", "R58M", "1", "1") == 3
    )


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request", b"FAILzzzz"])
def test_a_server_that_gives_no_way_to_a_device_is_to_blame_and_not_the_device(answer: bytes) -> None:
    async def scene() -> DeviceError:
        server = Server({"host:transport": answer})
        async with await asyncio.start_server(server._serve, "127.0.0.1", 0) as listening:
            adb = Adb(AdbConfig(port=listening.sockets[0].getsockname()[1]))
            with pytest.raises(DeviceError, match="does not give a way to R58M") as caught:
                await adb.shell("R58M", "true")
            return caught.value

    error = asyncio.run(scene())
    assert error.cause is LossCause.SERVER
    assert "devices.android.port" in error.fix


@pytest.mark.parametrize("verb", ["show", "tap", "check"])
def test_an_old_server_is_named_by_every_command(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    old = Server({"host:version": b"OKAY0004001f"})
    assert old.command(verb, "R58M", *(["1", "1"] if verb == "tap" else [])) == 3
    assert "the adb server speaks version 31" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["abc", "0x10", "70000", "-1", "٣"])
def test_a_port_in_the_environment_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", port)
    with pytest.raises(ConfigError, match="ANDROID_ADB_SERVER_PORT"):
        _ = AdbConfig().address
    assert AdbConfig(port=7).address[1] == 7


def test_what_a_device_says_of_itself_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {"host:version": b"OKAY00040029", "host:devices": listing(f"{HOSTILE}\tdevice model:{HOSTILE}\n")}
    assert Server({**answers, "host:transport": b"FAIL0010" + b"\x1b[2J" + b"x" * 12}).command("list") == 0
    assert Server({**answers, "host:transport": b"FAIL0010" + b"\x1b[2J" + b"x" * 12}).command("check") == 3
    said = capsys.readouterr().out
    assert "phone" in said
    assert not set(said) & {"\x1b", "\x9b"}


def test_the_exit_code_is_3_where_no_adb_server_is_meant(tmp_path: Path) -> None:
    assert Server({"host:version": b"<html>"}).command("show", "R58M", "--out", str(tmp_path / "a.png")) == 3
