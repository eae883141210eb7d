"""What the adb server says is read as it is meant, and every refusal comes with its fix."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from distrl.devices.android.adb import Adb, AdbConfig, Listed, parse_devices, refusal
from distrl.devices.android.adb_program import find_adb
from distrl.errors import DeviceError
from support.androids import free_port

LONG = """emulator-5554          device product:sdk_gphone64 model:sdk_gphone64_x86_64 device:emu64x transport_id:1
192.168.1.7:5555       offline transport_id:3
R58M12ABC	unauthorized
"""


def test_both_forms_of_the_device_list_are_read() -> None:
    assert parse_devices(LONG) == [
        Listed(serial="emulator-5554", state="device", model="sdk_gphone64_x86_64"),
        Listed(serial="192.168.1.7:5555", state="offline"),
        Listed(serial="R58M12ABC", state="unauthorized"),
    ]
    assert parse_devices("") == []


def test_serials_with_spaces_and_states_of_several_words_are_read() -> None:
    text = """adb-R58 (2)._adb-tls-connect._tcp device product:x model:Pixel_7 device:panther transport_id:3
ZX1G22                 no permissions (missing udev rules? user is in the plugdev group); see [http://developer.android.com/tools/device.html] usb:1-2
my device\tdevice
EMU                    recovery transport_id:7
ODD                    something-new transport_id:8
"""
    assert parse_devices(text) == [
        Listed(serial="adb-R58 (2)._adb-tls-connect._tcp", state="device", model="Pixel_7"),
        Listed(serial="ZX1G22", state="no permissions"),
        Listed(serial="my device", state="device"),
        Listed(serial="EMU", state="recovery"),
        Listed(serial="ODD", state="something-new"),
    ]


@pytest.mark.parametrize(
    ("said", "seen", "fix"),
    [
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set", "has not authorised", "accept"),
        ("device offline", "offline", "reconnect"),
        ("no permissions", "may not open", "udev"),
        ("insufficient permissions for device: user in plugdev group", "may not open", "udev"),
        ("device 'R58' not found", "knows no device", "plug it in"),
        ("closed", "closed", "adb devices"),
    ],
)
def test_a_refusal_says_what_it_means_and_what_to_do(said: str, seen: str, fix: str) -> None:
    error = refusal("R58", said)
    assert seen in error.seen
    assert fix in error.fix
    assert error.exit_code == 3


def test_an_unknown_address_is_to_be_connected() -> None:
    assert refusal("10.0.0.1:5555", "device '10.0.0.1:5555' not found").fix == "adb connect 10.0.0.1:5555"


def test_without_adb_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ANDROID_HOME", raising=False)
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    monkeypatch.setitem(sys.modules, "adbutils", None)
    with pytest.raises(DeviceError, match="apt install adb"):
        find_adb()
    with pytest.raises(DeviceError, match="there is no program 'adb'"):
        asyncio.run(Adb(AdbConfig(port=free_port())).devices())


def test_adb_is_found_in_the_sdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "platform-tools" / "adb"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
    assert find_adb() == str(tool)


def test_adb_is_found_in_the_package_that_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ANDROID_HOME", raising=False)
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    assert find_adb().endswith("adbutils/binaries/adb")


def test_a_server_elsewhere_is_not_started_from_here() -> None:
    config = AdbConfig(host="127.0.0.2", port=free_port())
    with pytest.raises(DeviceError, match="no adb server answers"):
        asyncio.run(Adb(config).devices())
