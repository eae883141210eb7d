"""From what learner and workers printed to delays and quantiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.plots import plot_file
from distrl.bench.system import weights
from distrl.bench.system.weights import (
    InUse,
    Measured,
    Published,
    PublishSpec,
    delays,
    draw,
    join,
    padded_policy,
    small_config,
    summarise,
)
from distrl.errors import RoleCrashed
from distrl.transport.weight_files import WeightsFolder
from support.learners import make_version

PUBLISHED = [Published(version=n, called_s=10.0 * n, done_s=10.0 * n + 0.2) for n in range(4)]


def use(number: int, at_s: float) -> InUse:
    return InUse(version=number, at_s=at_s)


def measured(delays_s: list[float], *, size_mb: float = 100.0, workers: int = 2) -> Measured:
    return Measured(size_mb=size_mb, workers=workers, delays_s=delays_s, publish_s=[0.25] * 4)


def test_a_delay_runs_from_the_call_to_the_first_decision_and_the_first_version_is_left_out() -> None:
    used = [use(0, 3.0), use(1, 10.4), use(2, 20.5), use(3, 30.3)]
    assert delays(PUBLISHED, used) == pytest.approx([0.4, 0.5, 0.3])


def test_a_version_that_was_skipped_counts_until_a_newer_one_decides() -> None:
    assert delays(PUBLISHED, [use(0, 3.0), use(1, 10.4), use(3, 30.3)]) == pytest.approx([0.4, 10.3, 0.3])


def test_a_version_that_never_decided_is_no_figure_but_an_error() -> None:
    with pytest.raises(RoleCrashed, match="version 3"):
        delays(PUBLISHED, [use(1, 10.4), use(2, 20.5)])


def test_the_quantiles_are_over_all_versions_workers_and_seeds() -> None:
    whole = join([measured([0.1 * n for n in range(0, 10)]), measured([0.1 * n for n in range(10, 21)])])
    figures = summarise([whole, measured([3.0], size_mb=500.0, workers=4)], seeds=2)
    assert (figures.size_mb, figures.workers) == ([100.0, 500.0], [2, 4])
    assert figures.p50_s == pytest.approx([1.0, 3.0])
    assert figures.p95_s == pytest.approx([1.9, 3.0])
    assert figures.publish_p50_s == [0.25, 0.25]
    assert (figures.versions, figures.runtime, figures.seeds) == (8, "local", 2)


@pytest.mark.parametrize("size_mb", [0.5, 9.0])
def test_a_policy_is_as_heavy_as_asked_for_and_takes_its_padding_from_what_is_published(
    tmp_path: Path, size_mb: float
) -> None:
    writer, reader = (padded_policy(small_config(0), size_mb) for _ in range(2))
    writer.network.get_buffer("padding_0").fill_(7.0)
    done = WeightsFolder(tmp_path).publish(writer, make_version(0))
    assert done.size_bytes == pytest.approx(1e6 * size_mb, rel=0.05)
    WeightsFolder(tmp_path).load(reader, done)
    assert reader.network.get_buffer("padding_0").min() == 7.0


def test_the_plot_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = summarise([measured([0.1], size_mb=1.0), measured([0.2]), measured([0.4], workers=4)], seeds=1)
    with plot_file(tmp_path / "new", "weights") as axes:
        draw(figures, axes)
    assert (tmp_path / "new" / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "weights.svg").read_text()
    assert "publish to first decision" in (tmp_path / "new" / "weights.svg").read_text()


# --- delays -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=10))
def test_a_worker_that_uses_every_version_has_the_delays_that_it_had(delays_s: list[float]) -> None:
    lines = [Published(version=n, called_s=10.0 * n, done_s=10.0 * n) for n in range(len(delays_s) + 1)]
    used = [use(0, 1.0), *(use(n + 1, 10.0 * (n + 1) + delay_s) for n, delay_s in enumerate(delays_s))]
    assert delays(lines, used) == pytest.approx(delays_s)


@given(st.lists(st.booleans(), min_size=1, max_size=10))
def test_a_skipped_version_never_has_a_shorter_delay(skipped: list[bool]) -> None:
    """The last version is always used."""
    num = len(skipped) + 1
    lines = [Published(version=n, called_s=10.0 * n, done_s=10.0 * n) for n in range(num + 1)]
    every = [use(n, 10.0 * n + 0.5) for n in range(num + 1)]
    some = [one for one in every if one.version in (0, num) or not skipped[one.version - 1]]
    pairs = zip(delays(lines, some), delays(lines, every), strict=True)
    assert all(longer >= shorter for longer, shorter in pairs)


def test_the_order_in_which_versions_were_used_does_not_matter() -> None:
    used = [use(0, 3.0), use(1, 10.4), use(2, 20.5), use(3, 30.3)]
    assert delays(PUBLISHED, used) == delays(PUBLISHED, used[::-1])


def test_one_version_alone_has_no_delay() -> None:
    assert delays(PUBLISHED[:1], [use(0, 3.0)]) == []


def test_several_seeds_are_joined_in_their_order_and_keep_size_and_workers() -> None:
    found = join([measured([0.1, 0.2], size_mb=10.0, workers=4), measured([0.3], size_mb=10.0, workers=4)])
    assert (found.size_mb, found.workers, found.delays_s) == (10.0, 4, [0.1, 0.2, 0.3])
    assert len(found.publish_s) == 8


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=50))
def test_the_quantiles_lie_within_the_delays_and_in_their_order(delays_s: list[float]) -> None:
    found = summarise([measured(delays_s)], seeds=1)
    assert min(delays_s) - 1e-4 <= found.p50_s[0] <= found.p95_s[0] <= max(delays_s) + 1e-4


# --- the processes ----------------------------------------------------------------------------------------------------

SPEC = PublishSpec(folder="", size_mb=0.1, versions=2, every_s=0.2, seed=0)


def test_a_measurement_has_time_to_start_and_for_every_version() -> None:
    assert weights.deadline_s(SPEC) == pytest.approx(60.0 + 3.0 * 3 * 0.2)
    assert weights.deadline_s(replace(SPEC, versions=20)) > weights.deadline_s(SPEC)


def test_a_small_size_adds_no_padding() -> None:
    policy = padded_policy(small_config(0), 0.0)
    assert [name for name in policy.weights() if "padding" in name] == []


def test_a_process_that_ends_without_a_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.sys, "executable", "true")
    role = weights._Role("worker", replace(SPEC, folder=str(tmp_path)), 3)
    try:
        with pytest.raises(RoleCrashed, match="worker 3 of the measurement did not start"):
            role.await_first_line(1e12)
    finally:
        role.end()


def test_a_process_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 600\n")
    endless.chmod(0o755)
    monkeypatch.setattr(weights.sys, "executable", str(endless))
    role = weights._Role("learner", replace(SPEC, folder=str(tmp_path)))
    try:
        with pytest.raises(RoleCrashed, match="learner 0 of the measurement did not end in time"):
            role.await_end(0.0)
    finally:
        role.end()


def test_all_sizes_are_measured_with_every_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int, int, int]] = []

    def measure(size_mb: float, workers: int, versions: int, seed: int) -> Measured:
        asked.append((size_mb, workers, versions, seed))
        return measured([0.1 * size_mb], size_mb=size_mb, workers=workers)

    monkeypatch.setattr(weights, "measure", measure)
    figures = weights.run(BenchOptions(seeds=2, out=tmp_path))
    assert asked == [
        (size_mb, workers, weights.VERSIONS, seed)
        for workers in weights.WORKERS
        for size_mb in weights.SIZES_MB
        for seed in (0, 1)
    ]
    assert figures.size_mb == [*weights.SIZES_MB] * 2
    assert figures.workers == [2] * 4 + [4] * 4
    assert figures.p95_s == pytest.approx([0.1, 1.0, 10.0, 50.0] * 2)
    text = (tmp_path / "weights.svg").read_text()
    assert "4 workers, median" in text
    assert "2 workers, 95th percentile" in text
