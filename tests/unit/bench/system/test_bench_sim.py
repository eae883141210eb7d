from __future__ import annotations

from random import Random

import pytest

from distrl.bench.system import sim
from distrl.config.schema import LatencyConfig
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.errors import UsageError
from distrl.rollout.stepping import drive
from distrl.tasks.sim.suites import suite


def test_random_play_takes_the_given_number_of_steps_and_gets_somewhere():
    phone = SimDevice("phone-0", SimSettings(latency=LatencyConfig(profile="instant")))
    drive(phone.reset(suite("sim-general").task("train", 0)))
    seen = set()
    for _ in range(30):
        sim.play_randomly(phone, 1, Random(phone.state.tick))
        seen.add((phone.state.place.app, phone.state.place.screen))
    assert phone.state.tick == 30
    assert len(seen) > 3


def test_the_measurement_reports_what_was_measured(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("PHONES", 60), ("STEPS_PER_TASK", 5), ("FRAMES_PER_PHONE", 1)):
        monkeypatch.setattr(sim, name, value)
    figures = sim.measure(quick=True)
    assert figures.phones == 60
    assert figures.steps_per_s > 300
    assert figures.frames_per_s > 20
    assert 0 < figures.reset_ms < 200
    assert figures.rss_mb > 20


def test_only_an_instant_phone_can_be_driven_at_once():
    phone = SimDevice("phone-0", SimSettings())
    work = phone.reset(suite("sim-general").task("train", 0))
    with pytest.raises(UsageError, match="takes its time"):
        drive(work)

    async def wait() -> None:
        await Pause()

    with pytest.raises(UsageError, match="instant"):
        drive(wait())


class Pause:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield
