from __future__ import annotations

from collections import Counter

import pytest

from distrl.config.schema import FaultConfig
from distrl.devices.sim.faults import Fault, Faults


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


def test_the_doomed_phone_crashes_once_after_the_given_number_of_steps():
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
