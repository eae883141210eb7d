"""The page on 10,000 devices holds what the results of the benchmarks come to, and what stands in its text."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from distrl.bench.system.scale_projection import GPUS_PER_MACHINE, Assumed, column, read, rows, table

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


def test_the_page_has_the_table_that_the_results_come_to() -> None:
    page, measured = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8"), read(RESULTS)
    assert table(measured) in page
    assert f"an episode every {1 / measured.episodes_per_device_s:.1f} s" in " ".join(page.split())
    assert f"a step every {1 / measured.steps_per_device_s:.1f} s" in " ".join(page.split())
    of_one_hub = 1 / measured.hub_s_per_episode
    assert f"{of_one_hub:.0f} episodes a second if it had" in page
    assert f"those of {of_one_hub / measured.episodes_per_device_s:,.0f} devices" in page
    samples = GPUS_PER_MACHINE * measured.samples_per_s
    assert f"{samples:.0f} samples a second, the steps of {samples / measured.steps_per_device_s:,.0f} devices" in page


def test_ten_times_the_devices_need_ten_times_as_much() -> None:
    for row in rows(read(RESULTS)):
        small, large = (float(re.findall(r"[\d,.]+", value)[0].replace(",", "")) for value in row.values)
        assert 8.0 < large / small < 12.0, row.what


def test_a_faster_model_needs_fewer_gpus() -> None:
    measured = read(RESULTS)
    assert column(10_000, measured, Assumed())["H200 that decide with a 3B model"] == "35"
    twice = replace(measured, decisions_per_s=2 * measured.decisions_per_s)
    assert column(10_000, twice, Assumed())["H200 that decide with a 3B model"] == "18"
