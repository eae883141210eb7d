"""A screen that never rests: picture and elements cannot be of one moment, and whoever looks is told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb
from distrl.devices.android.device import AndroidDevice
from distrl.devices.android.health import check_all
from distrl.devices.serve_sim.android import SimulatedAndroid
from distrl.devices.serve_sim.server import ServedPhone
from distrl.devices.serve_sim.shell import Done
from support.androids import CALM, own_server


class Video(SimulatedAndroid):
    """Each picture is the negative of the one before."""

    negative = False

    def _screencap(self, words: list[str], data: bytes) -> Done:
        raw = super()._screencap(words, data).out
        self.negative = not self.negative
        return Done(raw[:16] + bytes(255 - byte for byte in raw[16:]) if self.negative else raw)


def test_a_mismatch_is_counted_warned_of_once_and_shown_by_check(caplog: pytest.LogCaptureFixture) -> None:
    async def play(port: int, adb: Adb) -> None:
        phone = ServedPhone(Video("video", CALM))
        await phone.start()
        await adb.connect(phone.serial)
        device = AndroidDevice(phone.serial, settings, adb)
        for _ in range(2):
            assert (await device.capture(screenshot=True)).elements
        assert device.mismatched == 2
        (health,) = await check_all(settings, (phone.serial,))
        assert health.ok
        assert "of another moment than the picture" in health.seen
        await adb.disconnect(phone.serial)
        await phone.stop()

    with own_server() as config, caplog.at_level(logging.WARNING, "distrl.devices"):
        settings = AndroidConfig(port=config.port, quiet_s=0.0, call_s=10.0)
        asyncio.run(play(config.port, Adb(config)))
    told = [record for record in caplog.records if "never rests" in record.getMessage()]
    assert len(told) == 2  # by this device, and by that of the check
