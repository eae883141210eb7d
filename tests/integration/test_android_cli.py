"""`distrl devices`, the doctor's lines and `distrl bench adb`, with the real adb program and simulated phones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from distrl.bench.base import BenchOptions
from distrl.bench.system import adb as bench
from distrl.cli import doctor
from distrl.cli.devices import picture_path
from distrl.cli.main import main
from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.device import check_connected
from distrl.devices.android.health import adb_version
from distrl.devices.android.sdk import Sdk
from distrl.devices.serve_sim.android import AndroidSettings, SimulatedAndroid
from distrl.devices.serve_sim.lock import SLEEP
from distrl.devices.serve_sim.server import FaultSettings, ServedPhone
from distrl.errors import DeviceError
from support.androids import CALM, connected, free_port, own_server


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def with_phones(
    config: AdbConfig, count: int, work: Callable[[list[ServedPhone]], None], *, settings: AndroidSettings = CALM
) -> None:
    """Serve phones in this loop while `work`, which has loops of its own, runs in a thread."""

    async def run() -> None:
        async with connected(config, count, settings=settings) as (_, phones):
            await asyncio.to_thread(work, phones)

    asyncio.run(run())


def devices(config: AdbConfig, *words: str) -> int:
    return main(["devices", *words, "--devices.android.port", str(config.port)])


def test_list_show_check_and_tap(config: AdbConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(phones: list[ServedPhone]) -> None:
        first, second = (phone.serial for phone in phones)
        assert devices(config, "list", "--json") == 0
        listed = _last_json(capsys)["devices"]
        assert {device["serial"] for device in listed} == {first, second}

        assert devices(config, "show", first, "--out", str(tmp_path / "a.png"), "--json") == 0
        shown = _last_json(capsys)
        assert Image.open(tmp_path / "a.png").size == (360, 720)
        assert shown["app"].endswith("launcher")
        assert len(shown["elements"]) > 8

        assert devices(config, "tap", first, "45", "140") == 0
        assert phones[0].android.state.place.app != "launcher"

        assert devices(config, "check", "--json") == 0
        assert [health["ok"] for health in _last_json(capsys)["devices"]] == [True, True]

    with_phones(config, 2, work)


def test_a_bad_device_is_named_with_its_fix_and_the_others_are_checked(
    config: AdbConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(phones: list[ServedPhone]) -> None:
        assert devices(config, "check", phones[0].serial, "R58M12ABC", "--json") == 3
        found = {health["serial"]: health for health in _last_json(capsys)["devices"]}
        assert found[phones[0].serial]["ok"]
        assert "knows no device" in found["R58M12ABC"]["seen"]
        assert "plug it in" in found["R58M12ABC"]["fix"]

    with_phones(config, 1, work)


def test_a_locked_phone_is_named_with_its_fix_by_every_command(
    config: AdbConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(config.port))

    def work(phones: list[ServedPhone]) -> None:
        serial = phones[0].serial
        phones[0].android.lock.lock("secure")
        place = phones[0].android.state.place
        for words in (("show", serial, "--out", str(tmp_path / "a.png")), ("tap", serial, "45", "140")):
            assert devices(config, *words) == 3
            said = capsys.readouterr().err
            assert f"{serial} is locked" in said
            assert "try: unlock it, and set its screen lock to None" in said
        assert phones[0].android.state.place is place

        for elements in ("true", "false"):
            assert devices(config, "check", "--json", "--devices.android.elements", elements) == 3
            found = {health["serial"]: health for health in _last_json(capsys)["devices"]}
            assert (found[serial]["seen"], found[serial]["ok"]) == (f"{serial} is locked", False)
            assert "screen lock to None" in found[serial]["fix"]
            assert found[phones[1].serial]["ok"]

        told = {check.name: check for check in doctor._android()}
        assert not told[f"device {serial}"].ok
        assert told[f"device {phones[1].serial}"].ok

    with_phones(config, 2, work)


def test_a_phone_that_is_offline_is_reconnected_by_every_command(config: AdbConfig, tmp_path: Path) -> None:
    def restarted(phone: ServedPhone, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.run_coroutine_threadsafe(phone.restart(), loop).result(30)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with connected(config, faults=FaultSettings(restart_s=0.2)) as (_, (phone,)):
            for words in (("tap", phone.serial, "45", "140"), ("show", phone.serial, "--out", str(tmp_path / "a.png"))):
                await asyncio.to_thread(restarted, phone, loop)
                assert await asyncio.to_thread(devices, config, *words) == 0

    asyncio.run(run())


def test_a_tap_beside_the_screen_is_refused(config: AdbConfig, capsys: pytest.CaptureFixture[str]) -> None:
    def work(phones: list[ServedPhone]) -> None:
        assert devices(config, "tap", phones[0].serial, "10", "720") == 2
        assert "below 720 pixels" in capsys.readouterr().err
        assert devices(config, "tap", phones[0].serial, "10", "719") == 0

    with_phones(config, 1, work)


def test_a_screen_that_is_off_is_turned_on_by_a_check(config: AdbConfig, capsys: pytest.CaptureFixture[str]) -> None:
    def work(phones: list[ServedPhone]) -> None:
        phones[0].android.lock.press(SLEEP)
        assert devices(config, "check") == 0
        assert not phones[0].android.lock.asleep

    with_phones(config, 1, work)


def test_a_device_that_is_not_there_ends_with_3_and_few_lines(
    config: AdbConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("show", "R58M12ABC"), ("tap", "R58M12ABC", "1", "1"), ("check",)):
        assert devices(config, *words) == 3
        said = capsys.readouterr().err
        assert "try: " in said
        assert len(said.splitlines()) <= 15


def test_the_doctor_tries_each_device(config: AdbConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(config.port))

    def work(phones: list[ServedPhone]) -> None:
        phones[0].next_fault = "drop"
        server, *devices = doctor._android()
        assert server.ok
        assert f"port {config.port}, version 1.0." in server.seen
        bad, good = (next(one for one in devices if one.name == f"device {phone.serial}") for phone in phones)
        assert not bad.ok
        assert bad.fix
        assert good.ok
        assert "tapped in" in good.seen

    with_phones(config, 2, work)
    assert "platform-tools" not in doctor.attempt("adb", "", doctor._adb).seen
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port := free_port()))
    assert f"none on port {port}" in next(doctor._android()).seen


def test_what_the_doctor_says_is_never_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    doctor._print_table([doctor.Check(name="emulator program", ok=True, seen="x", fix="", ready=False)])
    assert "not ready" in capsys.readouterr().out
    command = "sdkmanager-'system-images;android-34;google_apis_playstore;x86_64'-and-more"
    doctor._print_table([doctor.Check(name="adb", ok=False, seen="x", fix=command)])
    told = capsys.readouterr().out
    assert command in "".join(told.split())
    assert "…" not in told


@pytest.mark.parametrize(
    ("serial", "name"), [("127.0.0.1:6100", "127.0.0.1-6100.png"), ("../../evil\n", "-..-evil-.png")]
)
def test_a_picture_stays_in_the_folder_whatever_a_device_calls_itself(serial: str, name: str) -> None:
    assert picture_path(serial) == Path("runs", "show", name)


def test_the_numbers_on_a_picture_are_of_the_size_that_tap_takes(
    config: AdbConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(phones: list[ServedPhone]) -> None:
        assert devices(config, "show", phones[0].serial, "--out", str(tmp_path / "a.png")) == 0
        assert Image.open(tmp_path / "a.png").size == (720, 1440)
        line = next(line for line in capsys.readouterr().out.splitlines() if line.endswith("Settings"))
        _, _, x, y, *_ = line.split()
        assert devices(config, "tap", phones[0].serial, x, y) == 0
        assert phones[0].android.state.place.app == "settings"

    with_phones(config, 1, work, settings=replace(CALM, width_px=720))


def test_without_adb_the_doctor_says_what_it_is_needed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ANDROID_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "adbutils", None)
    seen = doctor.attempt("adb", "", doctor._adb)
    assert seen.ok
    assert "devices.kind = android alone" in seen.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_sim_serves_until_it_is_told_to_end(config: AdbConfig, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "distrl", "devices", "serve-sim", "--count", "2", "--first-port", "0", "--connect"]
    command += ["--json", "--width", "360", "--devices.android.port", str(config.port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout
        serials = next(json.loads(line) for line in process.stdout if line.startswith("{"))["serials"]
        assert len(serials) == 2
        for serial in serials:
            assert asyncio.run(Adb(config).check(serial, "getprop ro.distrl.simulated")) == "1"
        process.send_signal(number)
        assert "faults injected: none" in process.communicate(timeout=60)[0]
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_wrong_sizes_and_taken_ports_are_refused(config: AdbConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert devices(config, "serve-sim", "--width", "1080", "--height", "1080") == 2
    assert "--width 1080 --height 2160" in capsys.readouterr().err

    def work(phones: list[ServedPhone]) -> None:
        assert devices(config, "serve-sim", "--first-port", str(phones[0].port)) == 2
        assert "--first-port 0" in capsys.readouterr().err

    with_phones(config, 1, work)


def test_the_benchmark_measures_client_and_command_line() -> None:
    with own_server():
        figures = bench.run(BenchOptions(quick=True))
    assert 0 < figures.tap_ms < figures.cli_tap_ms
    assert figures.screenshot_ms > 0
    assert figures.cli_screenshot_ms > 0
    assert figures.n == 20


def _last_json(capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_an_adb_that_is_named_and_not_there_is_an_error_and_no_other_is_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--devices.android.adb", "/no/such/adb", "--devices.android.port", str(free_port())]
    assert main(["devices", "list", *flags]) == 3
    said = capsys.readouterr().err
    assert "there is no program '/no/such/adb'" in said
    assert "try: " in said


@pytest.mark.parametrize(
    ("content", "why"),
    [("no program", "Exec format error"), ("#!/bin/sh\nexit 3\n", "ended with 3"), ("#!/bin/sh\n", "no adb server")],
)
def test_an_adb_that_does_not_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, why: str
) -> None:
    """Such as one for another processor."""
    program = tmp_path / "adb"
    program.write_text(content)
    program.chmod(0o755)
    flags = ["--devices.android.adb", str(program), "--devices.android.port", str(free_port())]
    assert main(["devices", "list", *flags]) == 3
    said = capsys.readouterr().err
    assert why in said
    assert "try: " in said
    with pytest.raises(DeviceError):
        adb_version(AndroidConfig(adb=str(program)))
    sdk = Sdk(root=tmp_path, emulator=str(program), avdmanager="")
    with pytest.raises(DeviceError):
        asyncio.run(sdk.version())


def test_a_run_none_of_whose_phones_is_known_does_not_begin(
    config: AdbConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--devices.kind", "android", "--run.root", str(tmp_path / "runs"), "--no-view"]
    settings += ["--devices.android.serials", '["R58M12ABC", "R58M12DEF"]']
    assert main(["train", *settings, "--devices.android.port", str(config.port)]) == 3
    said = capsys.readouterr().err
    assert "adb knows no device 'R58M12ABC'" in said
    assert "plug it in" in said
    assert not (tmp_path / "runs").exists()
    for may_come in ("R58M12ABC,127.0.0.1:1", "127.0.0.1:1"):  # whoever is connected to over TCP
        check_connected(AndroidConfig(port=config.port, serials=tuple(may_come.split(","))))


@pytest.mark.parametrize("authorised", [True, False])
def test_a_run_without_a_phone_that_can_be_used_does_not_begin(
    config: AdbConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], authorised: bool
) -> None:
    settings = ["--devices.kind", "android", "--run.root", str(tmp_path / "runs"), "--no-view"]

    def work(phones: list[ServedPhone]) -> None:
        assert main(["train", *settings, "--devices.android.port", str(config.port)]) == 3

    async def run() -> None:
        phone = ServedPhone(SimulatedAndroid("shy", CALM))
        phone.authorised = False
        await phone.start()
        await Adb(config).connect(phone.serial)
        await asyncio.to_thread(work, [phone])
        await Adb(config).disconnect(phone.serial)
        await phone.stop()

    if authorised:
        work([])
    else:
        asyncio.run(run())
    said = capsys.readouterr().err
    assert "adb knows no device that can be used" in said
    assert ("unauthorized" in said) == (not authorised)
    assert not (tmp_path / "runs").exists()
