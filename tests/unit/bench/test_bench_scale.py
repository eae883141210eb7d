"""The arithmetic of `distrl bench scale`."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.bench.base import num_cores
from distrl.bench.system.scale import Entry, Sample, cpu_rate, summarise


def a_sample(at_s: float, **cpu_s: float) -> Sample:
    return Sample(at_s=at_s, cpu_s={int(pid[1:]): used_s for pid, used_s in cpu_s.items()}, rss_bytes=0)


def test_cpu_time_is_that_of_every_process_while_it_was_seen() -> None:
    samples = [
        a_sample(0.0, p1=10.0, p2=5.0),
        a_sample(1.0, p1=10.5),
        a_sample(2.0, p1=11.5, p3=90.0),
        a_sample(4.0, p3=90.5),
    ]
    assert cpu_rate(samples) == pytest.approx((0.5 + 1.0 + 0.5) / 4.0)
    assert cpu_rate(samples[:1]) == cpu_rate([]) == 0.0


def test_the_lists_have_an_entry_per_run_and_say_how_far_from_linear_each_is() -> None:
    def entry(devices: int, per_s: float) -> Entry:
        return Entry(
            devices=devices, workers=1, per_s=per_s, device_utilisation=0.9, learner_wait=0.5, rss_mb=100.0, cpu_s_per_s=0.2,
            success_after=0.75,
        )  # fmt: skip

    found = summarise([entry(2, 0.5), entry(8, 2.0), entry(16, 3.9), entry(32, 0.0)], [entry(8, 2.0)])
    assert found.devices == [2, 8, 16, 32]
    assert found.trajectories_per_s == [0.5, 2.0, 3.9, 0.0]
    assert found.share_of_linear == [1.0, 1.0, 0.975, 0.0]
    assert found.ms_per_trajectory == [400.0, 100.0, 51.3, 0.0]
    assert (found.bend_devices, found.bend_cpu_share) == (32, round(0.2 / num_cores(), 3))
    assert [(fleet.workers, fleet.devices, fleet.success_after) for fleet in found.fleets] == [(1, 8, 0.75)]
