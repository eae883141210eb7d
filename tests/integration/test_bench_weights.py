"""From what the processes said to delays and quantiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.bench.system.pictures import picture
from distrl.bench.system.publishing import InUse, Published, laden_policy, small_config
from distrl.bench.weights import Timed, delays, draw, join, summarise
from distrl.errors import RoleCrashed
from distrl.learner.weights import WeightsFolder
from support.learners import make_version

PUBLISHED = [Published(version=n, called_s=10.0 * n, done_s=10.0 * n + 0.2) for n in range(4)]


def use(number: int, at_s: float) -> InUse:
    return InUse(version=number, at_s=at_s)


def timed(delays_s: list[float], *, size_mb: float = 100.0, workers: int = 2) -> Timed:
    return Timed(size_mb=size_mb, workers=workers, delays_s=delays_s, publish_s=[0.25] * 4)


def test_a_delay_runs_from_the_call_to_the_first_decision_and_the_first_version_is_left_out() -> None:
    used = [use(0, 3.0), use(1, 10.4), use(2, 20.5), use(3, 30.3)]
    assert delays(PUBLISHED, used) == pytest.approx([0.4, 0.5, 0.3])


def test_a_version_that_was_skipped_counts_until_a_newer_one_decides() -> None:
    assert delays(PUBLISHED, [use(0, 3.0), use(1, 10.4), use(3, 30.3)]) == pytest.approx([0.4, 10.3, 0.3])


def test_a_version_that_never_decided_is_no_figure_but_an_error() -> None:
    with pytest.raises(RoleCrashed, match="version 3"):
        delays(PUBLISHED, [use(1, 10.4), use(2, 20.5)])


def test_the_quantiles_are_over_all_versions_workers_and_seeds() -> None:
    whole = join([timed([0.1 * n for n in range(0, 10)]), timed([0.1 * n for n in range(10, 21)])])
    figures = summarise([whole, timed([3.0], size_mb=500.0, workers=4)], seeds=2)
    assert (figures.size_mb, figures.workers) == ([100.0, 500.0], [2, 4])
    assert figures.p50_s == pytest.approx([1.0, 3.0])
    assert figures.p95_s == pytest.approx([1.9, 3.0])
    assert figures.publish_p50_s == [0.25, 0.25]
    assert (figures.versions, figures.runtime, figures.seeds) == (8, "local", 2)


@pytest.mark.parametrize("size_mb", [0.5, 9.0])
def test_a_policy_is_as_heavy_as_asked_for_and_takes_its_ballast_from_what_is_published(
    tmp_path: Path, size_mb: float
) -> None:
    writer, reader = (laden_policy(small_config(0), size_mb) for _ in range(2))
    writer.network.get_buffer("ballast_0").fill_(7.0)
    done = WeightsFolder(tmp_path).publish(writer, make_version(0))
    assert done.size_bytes == pytest.approx(1e6 * size_mb, rel=0.05)
    WeightsFolder(tmp_path).load(reader, done)
    assert reader.network.get_buffer("ballast_0").min() == 7.0


def test_the_picture_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = summarise([timed([0.1], size_mb=1.0), timed([0.2]), timed([0.4], workers=4)], seeds=1)
    with picture(tmp_path / "new", "weights") as axes:
        draw(figures, axes)
    assert (tmp_path / "new" / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "weights.svg").read_text()
    assert "publish to first decision" in (tmp_path / "new" / "weights.svg").read_text()
