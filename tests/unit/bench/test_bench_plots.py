"""Plots: written in both formats, not empty, readable, and the same for the same values."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib
import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from distrl.bench import plots
from distrl.bench.base import BenchOptions
from distrl.bench.learning.ablation import VARIANTS
from distrl.bench.learning.methods import ALGORITHMS, PLOT_NAMES, SCHEMES
from distrl.bench.learning.staleness import CORRECTIONS
from distrl.bench.plots import Bar, Labels, Line, draw_bars, draw_lines, require_matplotlib, save
from distrl.errors import StoreError, UsageError

LABELS = Labels(title="Success over time", x="seconds", y="success")
LINES = [
    Line(name=name, x=[0, 1, 2], y=[low, low + 0.1, low + 0.2], low=[0.0, low, low], high=[low + 0.1, 0.6, 0.8])
    for name, low in (("aride", 0.3), ("digirl_sync", 0.2))
]
BARS = [Bar(name="default", value=0.4, low=0.35, high=0.5), Bar(name="no priorities", value=0.3, low=0.3, high=0.3)]


def ink(file: Path) -> tuple[float, int]:
    """The share of the image that is not white, and how many colours it has."""
    pixels = np.asarray(Image.open(file).convert("RGB"))
    return float((pixels < 250).any(axis=2).mean()), len(np.unique(pixels.reshape(-1, 3), axis=0))


def test_curves_are_written_with_their_labels(tmp_path: Path) -> None:
    png, svg = save(draw_lines(LINES, LABELS, level=(0.5, "target")), tmp_path / "new", "efficiency")
    assert (png.name, svg.name) == ("efficiency.png", "efficiency.svg")
    share, colours = ink(png)
    assert 0.05 < share < 0.8
    assert colours > 50
    text = svg.read_text()
    assert all(
        f"<!-- {word} -->" in text for word in ("Success over time", "seconds", "aride", "digirl_sync", "target")
    )


def test_every_compared_method_has_a_line_of_its_own() -> None:
    for signs in (plots.COLOURS, plots.LINES, plots.MARKERS):
        assert len(set(signs)) == len(signs) >= max(len(ALGORITHMS), len(SCHEMES), len(CORRECTIONS))


def test_bars_are_written_with_their_numbers(tmp_path: Path) -> None:
    png, svg = save(draw_bars(BARS, LABELS), tmp_path, "ablation")
    assert ink(png)[0] > 0.1
    text = svg.read_text()
    assert all(word in text for word in ("default", "no priorities", "0.400", "0.300"))


def test_long_names_leave_room_for_the_bars() -> None:
    bars = [Bar(name=method.name, value=0.4, low=0.35, high=0.5) for method in VARIANTS]
    figure = draw_bars(bars, LABELS)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().width > 0.45
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(boxes))


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], [method.name for method in ALGORITHMS], list(PLOT_NAMES.values())], ids=len
)
def test_the_whole_legend_is_in_the_figure(names: list[str]) -> None:
    lines = [msgspec.structs.replace(LINES[0], name=name) for name in names]
    figure = draw_lines(lines, LABELS, level=(0.5, "target 0.50"))
    figure.draw_without_rendering()
    box, (legend,) = figure.bbox, figure.legends
    inside = legend.get_window_extent()
    assert box.x0 <= inside.x0 < inside.x1 <= box.x1
    (axes,) = figure.axes
    assert axes.get_position().height * figure.get_figheight() > 2.5


def test_the_same_figures_make_the_same_files(tmp_path: Path) -> None:
    first = [file.read_bytes() for file in save(draw_bars(BARS, LABELS), tmp_path, "a")]
    assert [file.read_bytes() for file in save(draw_bars(BARS, LABELS), tmp_path, "a")] == first


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        save(draw_bars(BARS, LABELS), tmp_path / "file", "a")


def test_plots_without_matplotlib_are_refused_before_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    require_matplotlib()
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"the extra `bench`"):
        require_matplotlib()


# --- edge cases -------------------------------------------------------------------------------------------------------


def legend_names(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_curve_of_one_seed_and_one_point_is_drawn(tmp_path: Path) -> None:
    """A band of one seed is as wide as its line."""
    alone = Line(name="one", x=[0], y=[0.5], low=[0.5], high=[0.5])
    png, _ = save(draw_lines([alone], LABELS), tmp_path, "one")
    assert ink(png)[0] > 0.01


def test_a_curve_that_stays_at_zero_is_drawn_and_the_axis_starts_there(tmp_path: Path) -> None:
    flat = Line(name="flat", x=[0, 1], y=[0.0, 0.0], low=[0.0, 0.0], high=[0.0, 0.0])
    figure = draw_lines([flat], LABELS)
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0.0
    save(figure, tmp_path, "flat")


def test_a_level_is_named_in_the_legend_after_the_curves() -> None:
    assert legend_names(draw_lines(LINES, LABELS, level=(0.5, "target 0.50"))) == [
        "aride",
        "digirl_sync",
        "target 0.50",
    ]
    assert legend_names(draw_lines(LINES, LABELS)) == ["aride", "digirl_sync"]


def test_short_names_stand_in_two_columns_and_long_ones_in_one() -> None:
    for names, columns in ((["a", "b", "c"], 2), (["a", "b" * (plots.NAME_LETTERS + 1)], 1)):
        (legend,) = draw_lines([msgspec.structs.replace(LINES[0], name=name) for name in names], LABELS).legends
        assert legend._ncols == columns  # type: ignore[attr-defined]


def test_a_legend_of_many_curves_makes_the_figure_higher() -> None:
    few, many = (
        draw_lines([msgspec.structs.replace(LINES[0], name=f"curve {n}") for n in range(number)], LABELS)
        for number in (2, 12)
    )
    assert few.get_figheight() == plots.HEIGHT_IN
    assert many.get_figheight() == pytest.approx(plots.HEIGHT_IN + 4 * plots.LEGEND_ROW_IN)


def test_curves_have_the_band_that_they_were_given() -> None:
    (axes,) = draw_lines(LINES, LABELS).axes
    assert len(axes.lines) == len(axes.collections) == 2
    assert axes.lines[0].get_ydata().tolist() == LINES[0].y
    vertices = axes.collections[0].get_paths()[0].vertices
    assert vertices[:, 1].max() == pytest.approx(max(LINES[0].high))
    assert vertices[:, 1].min() == pytest.approx(min(LINES[0].low))


def test_more_curves_than_colours_start_again_with_the_first() -> None:
    lines = [msgspec.structs.replace(LINES[0], name=f"curve {n}") for n in range(len(plots.COLOURS) + 1)]
    (axes,) = draw_lines(lines, LABELS).axes
    assert axes.lines[0].get_color() == axes.lines[-1].get_color() == plots.COLOURS[0]


@pytest.mark.parametrize(
    "bars",
    [
        [Bar(name="alone", value=0.4, low=0.3, high=0.5)],
        [Bar(name="zero", value=0.0, low=0.0, high=0.0)],
        [Bar(name="beside its interval", value=0.4, low=0.5, high=0.6)],
        [Bar(name=f"bar {number}", value=0.1 * number, low=0.0, high=1.0) for number in range(25)],
    ],
    ids=["one", "zero", "beside", "many"],
)
def test_bars_of_every_kind_are_drawn(bars: list[Bar], tmp_path: Path) -> None:
    figure = draw_bars(bars, LABELS)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [bar.name for bar in bars]
    assert axes.get_xlim()[0] == 0.0
    assert axes.get_xlim()[1] >= max(bar.high for bar in bars)
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first on top"
    save(figure, tmp_path, "bars")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_only_the_first_bar_is_highlighted() -> None:
    (axes,) = draw_bars([*BARS, *BARS], LABELS).axes
    colours = [patch.get_facecolor() for patch in axes.patches]
    assert colours[0] != colours[1]
    assert colours[1] == colours[2] == colours[3]


def test_drawing_leaves_the_settings_of_the_caller_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(draw_bars(BARS, LABELS), tmp_path, "a")
    with plots.plot_file(tmp_path, "b") as axes:
        axes.plot([0, 1], [0, 1])
        assert matplotlib.rcParams["font.size"] == plots.STYLE["font.size"]
    assert dict(matplotlib.rcParams) == before


def test_a_plot_that_could_not_be_drawn_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), plots.plot_file(tmp_path / "new", "broken"):
        _ = 1 / 0
    assert not (tmp_path / "new").exists()


def test_only_results_that_are_kept_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    plots.check_matplotlib(BenchOptions())
    with pytest.raises(UsageError, match="omit --out"):
        plots.check_matplotlib(BenchOptions(out=tmp_path))


def test_the_colours_of_the_systems_plots_differ() -> None:
    assert len({plots.BLUE, plots.ORANGE, plots.GREEN, plots.GREY}) == 4
