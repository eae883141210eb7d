from __future__ import annotations

from statistics import mean, median

import pytest

from distrl.config.schema import LatencyConfig
from distrl.devices.sim.latency import Latency


def emulator(device: str = "phone-0", seed: int = 0, **changes: float) -> Latency:
    plain = {"time_scale": 1.0, "stall_rate": 0.0, "slow_machine_share": 0.0}
    return Latency(LatencyConfig(profile="emulator", **(plain | changes)), device=device, seed=seed)


def actions(latency: Latency, count: int = 20_000) -> list[float]:
    return [latency.action_s() for _ in range(count)]


def test_an_instant_phone_takes_no_time_over_anything():
    latency = Latency(LatencyConfig(profile="instant", stall_rate=1.0), device="phone-0", seed=0)
    assert [latency.reset_s(), latency.action_s(), latency.screenshot_s(), latency.outage_s()] == [0.0] * 4


def test_the_same_name_and_seed_give_the_same_delays_and_others_do_not():
    first = actions(emulator(), 50)
    assert first == actions(emulator(), 50)
    assert first != actions(emulator(device="phone-1"), 50)
    assert first != actions(emulator(seed=1), 50)


def test_actions_have_a_median_of_1_4_and_a_mean_of_2_seconds_and_a_heavy_tail():
    times = actions(emulator())
    assert median(times) == pytest.approx(1.4, rel=0.05)
    assert mean(times) == pytest.approx(2.0, rel=0.05)
    assert sorted(times)[int(0.99 * len(times))] > 6 * median(times)


def test_a_reset_takes_about_five_seconds_and_a_screenshot_a_third_of_one():
    latency = emulator()
    assert mean(latency.reset_s() for _ in range(500)) == pytest.approx(5.0, rel=0.05)
    assert latency.screenshot_s() == pytest.approx(0.3)


def test_a_stall_adds_fifteen_to_sixty_seconds():
    times = actions(emulator(stall_rate=1.0), 500)
    assert min(times) > 15.0
    assert 35 < mean(times) < 44
    rare = [time for time in actions(emulator(stall_rate=0.01)) if time > 40.0]
    assert 50 < len(rare) < 250


def test_the_time_scale_multiplies_every_delay():
    full, tenth = emulator(stall_rate=0.1), emulator(stall_rate=0.1, time_scale=0.1)
    for name in ("reset_s", "action_s", "screenshot_s", "outage_s") * 20:
        assert getattr(tenth, name)() == pytest.approx(0.1 * getattr(full, name)())


def test_the_given_share_of_phones_sits_on_machines_half_as_fast():
    fleet = [emulator(device=f"phone-{number}", slow_machine_share=0.2) for number in range(2000)]
    slow = [latency for latency in fleet if latency.slow_machine]
    assert len(slow) / len(fleet) == pytest.approx(0.2, abs=0.03)
    one = next(number for number, latency in enumerate(fleet) if latency.slow_machine)
    assert fleet[one].action_s() == pytest.approx(2 * emulator(device=f"phone-{one}").action_s())


def test_a_phone_on_a_slow_machine_is_half_as_fast_whatever_the_seed_says():
    settings = LatencyConfig(time_scale=1.0, stall_rate=0.0, slow_machine_share=0.0)
    slow = Latency(settings, device="phone-0", seed=0, slow_machine=True)
    assert slow.action_s() == pytest.approx(2 * emulator().action_s())
    both = Latency(LatencyConfig(slow_machine_share=1.0), device="phone-0", seed=0, slow_machine=True)
    assert both.reset_s() == pytest.approx(
        Latency(LatencyConfig(slow_machine_share=1.0), device="phone-0", seed=0).reset_s()
    )
