"""What the devices of a worker show while they play."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from distrl.config.schema import LatencyConfig
from distrl.devices.base import Capture
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.rollout.worker import Worker
from distrl.telemetry.live import PICTURE_BYTES, DeviceView, DeviceViews, FileScreens, read_views, with_pictures
from distrl.types import Observation, Press
from support.rollouts import HANGS_S, Published, ScriptedPolicy, a_phone, make_parts, until


def test_a_playing_device_shows_its_task_screen_and_last_decision(tmp_path: Path) -> None:
    async def scene() -> list[DeviceViews]:
        worker = Worker(make_parts(tmp_path, ScriptedPolicy(), Published(), [a_phone("phone-0"), a_phone("phone-1")]))
        seen = [worker.shown.views()]
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(HANGS_S):
            await until(
                lambda: worker.counts.episodes >= 2 and all(view.step > 1 for view in worker.shown.views().devices)
            )
            seen.append(worker.shown.views())
            worker.stop()
            await working
        return [*seen, worker.shown.views()]

    before, during, after = asyncio.run(scene())
    assert [view.state for view in before.devices] == ["idle", "idle"]
    assert [view.state for view in after.devices] == ["idle", "idle"]
    for view in during.devices:
        assert (view.state, view.role, view.version) == ("playing", "worker-0", 0)
        assert view.instruction
        assert view.task.split("/")[1] == "train"
        assert view.seen is not None
        assert view.seen.elements
        assert view.seen.recent == ()
        assert view.action in (None, Press("back"))
        assert 1 < view.step <= view.max_steps + 1


class AskingPhone(SimDevice):
    """A phone whose page says what its task asks, as web pages do."""

    async def capture(self, *, screenshot: bool) -> Capture:
        return replace(await super().capture(screenshot=screenshot), instruction="Press the blue button")


def test_what_the_page_asks_is_shown_once_it_is_open(tmp_path: Path) -> None:
    async def scene() -> str:
        phone = AskingPhone("phone-0", SimSettings(latency=LatencyConfig(profile="instant")))
        worker = Worker(make_parts(tmp_path, ScriptedPolicy(), Published(), [phone]))
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(HANGS_S):
            await until(lambda: worker.shown.views().devices[0].step > 1)
            instruction = worker.shown.views().devices[0].instruction
            worker.stop()
            await working
        return instruction

    assert asyncio.run(scene()) == "Press the blue button"


def test_what_is_shown_is_read_as_it_was_and_a_damaged_file_costs_no_other(tmp_path: Path) -> None:
    views = DeviceViews(time_s=3.0, devices=(DeviceView(device="phone-0", role="worker-0", state="idle"),))
    FileScreens(tmp_path, "worker-0").show(views)
    FileScreens(tmp_path, "worker-1").show(views)
    assert read_views(tmp_path) == [views, views]
    (tmp_path / "worker-0.screens").write_bytes(b"damaged")
    assert read_views(tmp_path) == [views]


def test_a_folder_that_is_gone_is_no_error_for_the_worker(tmp_path: Path) -> None:
    FileScreens(tmp_path / "gone", "worker-0").show(DeviceViews(time_s=0.0, devices=()))
    assert read_views(tmp_path / "gone") == []


def test_pictures_take_turns_where_not_all_fit() -> None:
    size = PICTURE_BYTES // 3
    views = [
        DeviceView(device=str(n), role="worker-0", state="playing", seen=Observation(instruction="", screenshot=str(n)))
        for n in range(9)
    ]
    pictures = {str(n): bytes(size) for n in range(9)}
    turns = [
        [view.device for view in with_pictures(views, pictures, first=first) if view.picture] for first in (0, 3, 8)
    ]
    assert turns == [["0", "1", "2"], ["3", "4", "5"], ["0", "1", "8"]]
    assert all(not view.picture for view in with_pictures(views, {}, first=2))
