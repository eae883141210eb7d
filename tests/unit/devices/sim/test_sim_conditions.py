"""Delays and faults of a simulated phone: at their rates, and the same for the same name and seed."""

from __future__ import annotations

from collections import Counter
from statistics import mean, median

import pytest

from distrl.config.schema import FaultConfig, LatencyConfig
from distrl.devices.sim.conditions import DIGIRL, EMULATOR, Fault, Faults, Latency, time_scale


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


def test_the_time_scale_of_an_instant_phone_is_zero():
    assert time_scale(LatencyConfig(profile="instant", time_scale=0.4)) == 0.0
    assert time_scale(LatencyConfig(profile="emulator", time_scale=0.4)) == 0.4


def test_hardly_an_action_takes_longer_than_the_longest_and_a_usual_episode_fits_into_a_long_one():
    slow = emulator(slow_machine_share=1.0, stall_rate=0.5)
    late = [seconds for seconds in actions(slow) if seconds > EMULATOR.longest_action_s]
    assert len(late) < 0.02 * 20_000, "no more than the far end of the tail"
    usual = emulator(slow_machine_share=1.0)
    episodes = [usual.reset_s() + sum(actions(usual, 35)) for _ in range(200)]
    assert mean(episodes) == pytest.approx(EMULATOR.long_episode_s, rel=0.05)


def test_the_waits_of_digirl_are_fixed_and_nothing_stalls():
    settings = LatencyConfig(profile="digirl", time_scale=0.5, stall_rate=1.0, slow_machine_share=0.0)
    phone = Latency(settings, device="phone-0", seed=0)
    assert actions(phone, 100) == pytest.approx([0.5 * DIGIRL.action_mean_s] * 100)
    assert DIGIRL.action_mean_s == pytest.approx(5.0, abs=0.01)
    resets = [phone.reset_s() for _ in range(500)]
    assert 10.0 <= min(resets) < 10.5
    assert 17.0 < max(resets) <= 17.5
    assert DIGIRL.longest_action_s >= 2 * DIGIRL.reset_s[1]


def test_an_outage_lasts_between_two_and_ten_seconds():
    latency = emulator()
    outages = [latency.outage_s() for _ in range(500)]
    assert 2.0 <= min(outages) < 2.5
    assert 9.5 < max(outages) <= 10.0


# --- faults ---------------------------------------------------------------------------------------------------------


def steps(count: int, device: str = "phone-0", seed: int = 0, **config: float | str | int) -> list[Fault | None]:
    faults = Faults(FaultConfig(**config), device=device, seed=seed)
    return [faults.next_step() for _ in range(count)]


def test_nothing_goes_wrong_where_nothing_was_asked_for():
    assert set(steps(1000)) == {None}
    assert not Faults(FaultConfig(), device="phone-0", seed=0).next_frame_is_damaged()


def test_every_kind_of_fault_comes_at_its_own_rate():
    counts = Counter(steps(20_000, crash_rate=0.02, freeze_rate=0.03, disconnect_rate=0.05))
    assert counts[Fault.CRASH] / 20_000 == pytest.approx(0.02, rel=0.15)
    assert counts[Fault.FREEZE] / 20_000 == pytest.approx(0.03, rel=0.15)
    assert counts[Fault.DISCONNECT] / 20_000 == pytest.approx(0.05, rel=0.15)


def test_a_certain_fault_always_happens():
    assert set(steps(50, disconnect_rate=1.0)) == {Fault.DISCONNECT}


def test_the_same_name_and_seed_give_the_same_faults_and_others_do_not():
    first = steps(200, crash_rate=0.3)
    assert first == steps(200, crash_rate=0.3)
    assert first != steps(200, device="phone-1", crash_rate=0.3)
    assert first != steps(200, seed=1, crash_rate=0.3)


def test_the_phone_that_is_made_to_fail_crashes_once_after_the_given_number_of_steps():
    seen = steps(100, device="phone-3", fail_device="phone-3", fail_after_steps=20)
    assert seen.index(Fault.CRASH) == 19
    assert seen.count(Fault.CRASH) == 1
    assert set(steps(100, device="phone-4", fail_device="phone-3", fail_after_steps=20)) == {None}


def test_frames_are_damaged_at_their_rate_without_disturbing_the_other_faults():
    config = FaultConfig(crash_rate=0.3, corrupt_rate=0.25)
    faults = Faults(config, device="phone-0", seed=0)
    damaged, seen = 0, []
    for _ in range(4000):
        damaged += faults.next_frame_is_damaged()
        seen.append(faults.next_step())
    assert damaged / 4000 == pytest.approx(0.25, rel=0.1)
    assert seen == steps(4000, crash_rate=0.3)
