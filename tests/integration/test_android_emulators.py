"""Emulators: a stand-in for the SDK's program, its console and adb's real program; started, adopted, brought back, stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from distrl.cli import doctor
from distrl.cli.main import main
from distrl.config.kinds import AndroidConfig, EmulatorConfig
from distrl.config.load import load_config
from distrl.devices.android import console
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.device import AndroidDevice, make_devices
from distrl.devices.android.emulator import Emulator
from distrl.devices.android.records import Running, state_folder
from distrl.devices.android.sdk import find_sdk
from distrl.devices.base import Device, Fleet
from distrl.errors import ConfigError, DeviceError, DeviceLost
from support.androids import own_server
from support.fake_emulator import IMAGE, emulator_ports, lay_out_sdk
from support.rollouts import a_task

FIRST_PORT = 5600
"""Beyond what adb servers of other tests look at by themselves."""
Play = Callable[[AndroidConfig, Adb], Awaitable[None]]


@pytest.fixture(scope="module")
def server() -> Iterator[AdbConfig]:
    with emulator_ports(), own_server() as config:
        yield config


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own, and whatever was started there is gone at the end, passed or failed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANDROID_USER_HOME", str(tmp_path / ".android"))
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT", "ANDROID_AVD_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    left = [record for record in records() if record.is_alive]
    for record in left:
        os.killpg(record.pid, signal.SIGKILL)
    assert not left, "emulators were left behind"


def records() -> list[Running]:
    import msgspec

    return [msgspec.json.decode(path.read_bytes(), type=Running) for path in state_folder().glob("*.json")]


def the_settings(
    home: Path, server: AdbConfig, *, avds: dict[str, dict[str, Any]] | None = None, **more: Any
) -> AndroidConfig:
    sdk = lay_out_sdk(home / "sdk", avds=avds)
    emulator = EmulatorConfig(
        avds=tuple(avds or ()), sdk=str(sdk), first_port=FIRST_PORT, boot_s=60.0, arguments=("-accel", "off")
    )
    return AndroidConfig(port=server.port, quiet_s=0.0, wait_s=0.0, call_s=5.0, emulator=replace(emulator, **more))


def play(settings: AndroidConfig, work: Play) -> None:
    async def run() -> None:
        async with asyncio.timeout(180):
            await work(settings, Adb(AdbConfig(port=settings.port)))

    asyncio.run(run())


def history(home: Path, avd: str) -> list[str]:
    return (home / ".android" / "avd" / f"{avd}.avd" / "history").read_text().splitlines()


async def setting_of(adb: Adb, emulator: Emulator) -> str:
    return await adb.check(emulator.serial, "settings get global airplane_mode_on")


def test_two_start_on_pairs_of_their_own_and_stopping_leaves_no_process(home: Path, server: AdbConfig) -> None:
    settings = the_settings(home, server, count=2, image=IMAGE, memory_mb=2048, cores=2)

    async def work(settings: AndroidConfig, adb: Adb) -> None:
        both = [Emulator(f"distrl-{number}", settings, adb) for number in range(2)]
        with socket.create_server(("127.0.0.1", FIRST_PORT + 1)):  # half of the first pair is taken
            serials = await asyncio.gather(*(emulator.start() for emulator in both))
        assert sorted(serials) == [f"emulator-{FIRST_PORT + 2}", f"emulator-{FIRST_PORT + 4}"]
        for emulator in both:
            assert await adb.check(emulator.serial, "getprop ro.serialno") == emulator.avd
            assert await emulator.snapshots() == ["distrl"]
        running = records()
        await asyncio.gather(*(emulator.close() for emulator in both))
        assert not any(record.is_alive for record in running)

    play(settings, work)
    (started, saved) = history(home, "distrl-1")
    for words in ("-no-window -no-audio -no-boot-anim", "-memory 2048 -cores 2 -accel off", "-snapshot distrl"):
        assert words in started
    assert saved == "save distrl"


def test_a_claimed_pair_is_not_taken_and_no_pair_is_an_error(home: Path, server: AdbConfig) -> None:
    settings = the_settings(home, server, avds={"a": {}}, first_port=5682)
    claim = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
    )
    path = str(state_folder() / "port-5682")
    other = subprocess.Popen([sys.executable, "-c", claim, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    async def work(settings: AndroidConfig, adb: Adb) -> None:
        with pytest.raises(DeviceError, match="no pair of ports is free for a from 5682 to 5683") as error:
            await Emulator("a", settings, adb).start()
        assert "emulators list" in error.value.fix

    try:
        assert other.stdout
        other.stdout.readline()
        play(settings, work)
    finally:
        other.communicate()


def test_snapshots_bring_the_state_of_the_phone_back(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        emulator = Emulator("a", settings, adb)
        await emulator.start()
        await adb.check(emulator.serial, "settings put global airplane_mode_on 1")
        await emulator.load_snapshot()  # of its first boot
        assert await setting_of(adb, emulator) == "0"
        await adb.check(emulator.serial, "settings put global airplane_mode_on 7")
        await emulator.save_snapshot()
        await emulator.close()

        again = Emulator("a", settings, adb)
        await again.start()
        assert await setting_of(adb, again) == "7"
        other = Emulator("a", replace(settings, emulator=replace(settings.emulator, snapshot="distr")), adb)
        assert await other.find()
        with pytest.raises(DeviceError, match="has no snapshot 'distr'") as error:
            await other.load_snapshot()
        assert error.value.expected == "one of distrl"
        await again.close()

    play(the_settings(home, server, avds={"a": {}}), work)


def test_one_that_was_killed_is_started_again(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        device = AndroidDevice("a", settings, adb, emulator=Emulator("a", settings, adb))
        await device.reset(a_task())
        (record,) = records()
        os.killpg(record.pid, signal.SIGKILL)
        with pytest.raises(DeviceLost):
            await device.capture(screenshot=True)
        await device.restart()
        await device.reset(a_task())
        assert (await device.capture(screenshot=True)).elements
        assert records()[0].pid != record.pid
        await device.close()

    play(the_settings(home, server, avds={"a": {}}), work)
    assert history(home, "a")[-1] == "load distrl"


def test_losses_in_a_row_meet_stronger_remedies(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        device = AndroidDevice("a", replace(settings, reboot_after=2), adb, emulator=Emulator("a", settings, adb))
        await device.reset(a_task())
        seen = []
        for _ in range(3):
            before = len(history(home, "a"))
            await device.restart()
            seen.append([line.split()[0] for line in history(home, "a")[before:]])
        assert seen == [[], ["load"], ["start"]]
        assert "-no-snapshot-load" in history(home, "a")[-1]
        await device.close()

    play(the_settings(home, server, avds={"a": {}}), work)


def test_a_snapshot_that_does_not_load_ends_in_a_cold_boot(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        emulator = Emulator("a", settings, adb)
        await emulator.start()
        before = records()[0].pid
        await emulator.recover("snapshot")
        assert records()[0].pid != before
        assert "-no-snapshot-load" in history(home, "a")[-1]
        await emulator.close()

    play(the_settings(home, server, avds={"a": {"load_fails": True}}), work)


def test_each_episode_can_begin_with_the_snapshot(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        (device,) = make_devices(settings, Fleet(owner="worker-0", count=4, seed=0, workers=("worker-0",)))
        assert isinstance(device, AndroidDevice)
        assert device.name == "a"
        await device.reset(a_task())
        await device.phone.check("settings put global airplane_mode_on 1")
        await device.reset(a_task())
        assert await device.phone.check("settings get global airplane_mode_on") == "0"
        assert "AdbIME" in await device.phone.check("settings get secure default_input_method")
        await device.close()

    play(the_settings(home, server, avds={"a": {}}, reset="snapshot"), work)


def test_what_runs_is_adopted_and_not_stopped(home: Path, server: AdbConfig) -> None:
    settings = the_settings(home, server, avds={"a": {}})
    words = [find_sdk(settings.emulator).emulator, "-avd", "a", "-port", "5620"]
    theirs = subprocess.Popen(words, env={**os.environ, "ANDROID_ADB_SERVER_PORT": str(server.port)})

    async def work(settings: AndroidConfig, adb: Adb) -> None:
        await adb.devices()
        for _ in range(1200):
            if await adb.state("emulator-5620") == "device":
                break
            await asyncio.sleep(0.05)
        emulator = Emulator("a", settings, adb)
        assert await emulator.start() == "emulator-5620"
        await emulator.recover("reconnect")
        await emulator.recover("cold_boot")  # by a reboot from within
        await emulator.close()
        assert not await emulator.stop()
        assert theirs.poll() is None
        assert not records()

    try:
        play(settings, work)
    finally:
        theirs.kill()
        theirs.wait()


def test_the_last_who_uses_it_stops_it_and_what_is_kept_stays(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        first, second = (Emulator("a", settings, adb) for _ in range(2))
        assert await first.start() == await second.start()
        (record,) = records()
        await first.close()
        assert record.is_alive
        await second.close()
        assert not record.is_alive

        await first.start(keep=True)
        await first.close()
        (kept,) = records()
        assert kept.is_alive
        assert await second.stop()
        assert not kept.is_alive

    play(the_settings(home, server, avds={"a": {}}), work)


def test_one_that_heeds_neither_console_nor_sigterm_is_killed(
    home: Path, server: AdbConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.devices.android.emulator.KILL_S", 0.4)
    monkeypatch.setattr("distrl.devices.android.emulator.TERM_S", 0.2)

    async def work(settings: AndroidConfig, adb: Adb) -> None:
        emulator = Emulator("a", settings, adb)
        await emulator.start()
        (record,) = records()
        os.killpg(record.pid, signal.SIGSTOP)
        await emulator.close()
        assert not record.is_alive

    play(the_settings(home, server, avds={"a": {}}), work)


STARTER = """
import asyncio, os, sys, msgspec
from distrl.cli import doctor
from distrl.cli.main import main
from distrl.config.kinds import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.emulator import Emulator
settings = msgspec.json.decode(sys.argv[1], type=AndroidConfig)
asyncio.run(Emulator("a", settings, Adb(AdbConfig(port=settings.port))).start())
os.kill(os.getpid(), 9)
"""
"""Starts an emulator, and is killed at once."""


def start_and_die(settings: AndroidConfig) -> Running:
    encoded = msgspec.json.encode(settings).decode()
    subprocess.run([sys.executable, "-c", STARTER, encoded], check=False, timeout=120)
    (record,) = records()
    return record


def test_it_outlives_the_process_that_started_it_where_another_uses_it(home: Path, server: AdbConfig) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        user = Emulator("a", settings, adb)
        await user._use()
        record = await asyncio.to_thread(start_and_die, settings)
        await asyncio.sleep(1.2)  # longer than its guardian takes to notice
        assert record.is_alive
        assert await user.start() == f"emulator-{record.port}"
        await user.close()
        assert not record.is_alive

    play(the_settings(home, server, avds={"a": {}}), work)


def test_it_ends_with_the_last_process_that_uses_it_however_that_ends(home: Path, server: AdbConfig) -> None:
    record = start_and_die(the_settings(home, server, avds={"a": {}}))
    until = time.monotonic() + 60
    while record.is_alive and time.monotonic() < until:
        time.sleep(0.02)
    assert not record.is_alive


class TimedByBooting(Emulator):
    """Its time is up once there is nothing but Android to wait for, however long a busy machine takes until then."""

    def __init__(self, avd: str, settings: AndroidConfig, adb: Adb) -> None:
        self._now_s = 0.0
        super().__init__(avd, settings, adb, clock=lambda: self._now_s)

    async def _missing(self) -> str:
        missing = await super()._missing()
        self._now_s += 1000.0 * missing.startswith("Android to boot")
        return missing


@pytest.mark.parametrize(
    ("behaviour", "seen", "fix"),
    [
        ({"boots_s": 9999, "log": "WARNING | slow disk"}, "waits for Android to boot .*log ends: .*slow disk", "a.log"),
        ({"dies": "FATAL | Running multiple emulators with the same AVD"}, "its AVD is in use", "emu kill"),
        ({"dies": "PANIC: Broken AVD system path."}, "its system image is missing", "sdkmanager"),
        ({"dies": "x86_64 emulation currently requires hardware acceleration!"}, "KVM cannot be used", "doctor"),
    ],
)
def test_one_that_does_not_boot_says_why(
    home: Path, server: AdbConfig, behaviour: dict[str, Any], seen: str, fix: str
) -> None:
    async def work(settings: AndroidConfig, adb: Adb) -> None:
        emulator = TimedByBooting("a", settings, adb)
        with pytest.raises(DeviceLost, match=seen) as error:
            await emulator.start()
        assert fix in error.value.fix
        assert len(str(error.value).splitlines()) <= 15
        await emulator.close()

    play(the_settings(home, server, avds={"a": behaviour}), work)


def fleet_of(settings: AndroidConfig, *, worker: int = 0, workers: int = 1) -> list[Device]:
    names = tuple(f"worker-{number}" for number in range(workers))
    return make_devices(settings, Fleet(owner=names[worker], count=8, seed=0, workers=names))


def test_what_no_restart_would_mend_is_said_before_anything_is_played(home: Path, server: AdbConfig) -> None:
    settings = the_settings(home, server, avds={"pixel": {}})

    def refused(**more: Any) -> str:
        with pytest.raises((DeviceError, ConfigError)) as error:
            fleet_of(replace(settings, emulator=replace(settings.emulator, **more)))
        assert error.value.fix
        return str(error.value)

    assert "there is no program 'emulator'" in refused(sdk=str(home / "nowhere"))
    assert "one of pixel" in refused(avds=("pixle",))
    assert "there is no image to make them from" in refused(count=2)
    missing = refused(count=2, image="system-images;android-30;default;x86")
    assert "there is no system image 'system-images;android-30;default;x86'" in missing
    assert IMAGE in missing

    async def work(settings: AndroidConfig, adb: Adb) -> None:
        settings = replace(settings, emulator=replace(settings.emulator, arguments=()))
        for name, fix in (("no-kvm", "--device /dev/kvm"), ("kvm-folder", "gpasswd")):
            (home / "kvm-folder").mkdir(exist_ok=True)
            with pytest.raises(DeviceError, match="cannot be opened") as error:
                await Emulator("pixel", settings, adb, kvm=home / name).start()
            assert fix in error.value.fix

    play(settings, work)
    assert not records()


def test_workers_share_emulators_out_and_evaluations_have_their_own(home: Path, server: AdbConfig) -> None:
    settings = replace(the_settings(home, server, count=4, image=IMAGE), serials=("R58M12ABC",))
    settings = replace(settings, evaluation_serials=("distrl-3",))
    assert [device.name for device in fleet_of(settings, worker=0, workers=2)] == ["R58M12ABC", "distrl-1"]
    assert [device.name for device in fleet_of(settings, worker=1, workers=2)] == ["distrl-0", "distrl-2"]
    tested = make_devices(settings, Fleet(owner="evaluator", count=8, seed=0, purpose="evaluation"))
    assert [device.name for device in tested] == ["distrl-3"]
    assert tested[0].times.boot_s > settings.emulator.boot_s
    assert not records()


def test_what_is_no_console_and_a_missing_token_are_named(home: Path) -> None:
    async def converse(greeting: bytes) -> str:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DeviceError) as error:
            await console.ask(port, "avd name", deadline_s=0.3)
        server.close()
        return str(error.value)

    assert "no greeting" in asyncio.run(converse(b"AMQP\x00\x00\r\nOK\r\n"))
    assert "took over 0.3 s" in asyncio.run(converse(b""))
    assert "wants a token" in asyncio.run(converse(b"Android Console: Authentication required\r\nOK\r\n"))


# --- the command line and the doctor -----------------------------------------------------------------------------------


def emulators(settings: AndroidConfig, *words: str) -> int:
    given = {"port": settings.port, **{f"emulator.{key}": value for key, value in asdict(settings.emulator).items()}}
    flags = [f"--devices.android.{key}={_flag(value)}" for key, value in given.items() if value not in ("", ())]
    return main(["devices", "emulators", *words, *flags])


def _flag(value: object) -> str:
    return json.dumps(value) if isinstance(value, tuple) else str(value)


def test_the_verb_starts_emulators_that_stay_and_stops_them(
    home: Path, server: AdbConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = the_settings(home, server, avds={"other": {}}, count=1, image=IMAGE)
    settings = replace(settings, emulator=replace(settings.emulator, avds=()))
    assert emulators(settings, "start", "--json") == 0
    (record,) = records()
    assert record.is_alive
    assert emulators(settings, "list") == 0
    shown = capsys.readouterr().out
    assert re.search(rf"distrl-0 +{re.escape(f'emulator-{record.port}')} +distrl", shown)
    assert re.search(r"other +does not run", shown)
    assert emulators(settings, "stop", "other") == 3
    assert "other does not run" in capsys.readouterr().err
    assert emulators(settings, "stop") == 0
    assert "distrl-0 is stopped" in capsys.readouterr().out
    assert not record.is_alive


def test_what_did_not_boot_is_not_left_running_by_the_verb(
    home: Path, server: AdbConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = the_settings(home, server, avds={"a": {"boots_s": 99}}, boot_s=1.0)
    assert emulators(settings, "start") == 3
    assert "was not up within 1 s" in capsys.readouterr().err
    assert not any(record.is_alive for record in records())


@pytest.mark.parametrize("name", ["", "../../a", "ünï", "-avd", "9" * 81])
def test_what_is_no_name_of_an_avd_is_refused(
    home: Path, server: AdbConfig, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "emulators", "start", "--devices.android.port", str(server.port), "--", name]) == 2
    assert "is no name of an AVD" in capsys.readouterr().err
    assert not list(home.rglob("*.users"))


def test_the_doctor_names_what_emulators_need(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for probe in (doctor._emulator_program, doctor._android_sdk):
        seen = doctor.attempt("", "", probe)
        assert seen.ok  # whoever has no emulators needs none of it
        assert "there is no program 'emulator'" in seen.seen
        assert not seen.ready
        assert "needed for emulators alone: there is no program" in seen.seen
        assert "; unpack" in seen.seen
    monkeypatch.setenv("ANDROID_HOME", str(lay_out_sdk(home / "sdk", avds={"pixel": {}})))
    assert "35.1.2.0" in doctor.attempt("", "", doctor._emulator_program).seen
    content = doctor.attempt("", "", doctor._android_sdk).seen
    assert IMAGE in content
    assert "AVDs pixel" in content
    assert "/dev/kvm" in doctor.attempt("", "", doctor._kvm).seen
    for ready, told in ((True, {"emulator program", "KVM", "android sdk"}), (False, {"emulator program", "KVM"})):
        monkeypatch.setattr(doctor, "attempt", partial(a_check, ready=ready))  # the others take seconds
        names = {check.name for check in doctor.all_checks(home)}
        assert names & {"emulator program", "KVM", "android sdk"} == told


def a_check(name: str, fix: str, probe: doctor.Probe, *, ready: bool) -> doctor.Check:
    return doctor.Check(name=name, ok=True, seen="", fix="", ready=ready)


def test_the_settings_of_the_page_are_settings(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/android.md").read_text(encoding="utf-8")
    counts = []
    for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        (tmp_path / "a.toml").write_text(block, encoding="utf-8")
        counts.append(load_config(tmp_path / "a.toml", {}).devices.android.emulator.count)
    assert {1, 8} <= set(counts)
