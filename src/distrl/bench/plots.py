"""Plots of results: learning curves with bands and bars with intervals, as PNG and SVG.

Large letters on a light background, readable on a phone. Colours are safe for colour-blind readers (Okabe and Ito), and
each curve has its own marker and line style, so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import msgspec

from distrl.bench.base import BenchOptions
from distrl.errors import UsageError
from distrl.experience.durable import storage_errors
from distrl.installing import install

if TYPE_CHECKING:  # an optional dependency, imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C", "#7A4FA3", "#8B5A2B")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)), (0, (6, 2, 1, 2)), (0, (2, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h", "<")
WIDTH_IN, HEIGHT_IN, DPI = 6.4, 4.8, 200
WIDE_IN = 8.0
# Of the same palette, for the plots of the system's benchmarks.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#777777"
NAME_LETTERS = 26
"""Longest line of a bar's name, and longest name in a legend of two columns."""
LEGEND_ROW_IN = 0.27
STYLE: dict[Any, Any] = {
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "legend.frameon": False,
    "svg.hashsalt": "distrl",
}
"""Matplotlib parameters of every plot."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A curve with its band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its interval."""

    name: str
    value: float
    low: float
    high: float


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Title and axis labels of a plot."""

    title: str
    x: str
    y: str = ""


def require_matplotlib() -> None:
    """Raise before a long measurement rather than after it."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--out also draws plots, and matplotlib is not installed",
            expected="the extra `bench`",
            fix=f"{install('bench')}; or omit --out",
        )


def draw_lines(lines: Sequence[Line], labels: Labels, *, level: tuple[float, str] | None = None) -> Figure:
    """Curves over a common axis; `level` is the height and the name of a horizontal line."""
    names = [line.name for line in lines] + ([level[1]] if level else [])
    columns = 2 if max(map(len, names)) <= NAME_LETTERS else 1
    with _style():
        figure, axes = _canvas(labels, HEIGHT_IN + LEGEND_ROW_IN * max(0, ceil(len(names) / columns) - 2))
        for number, line in enumerate(lines):
            _draw_line(axes, line, number)
        axes.set_xlabel(labels.x)
        if level is not None:
            axes.axhline(level[0], color="#555555", lw=1.2, ls=":", label=level[1])
        axes.set_ylim(bottom=0.0)
        # Below the axes: inside, no corner is free of every curve.
        figure.legend(loc="outside lower center", ncols=columns, handlelength=3.2)
    return figure


def _draw_line(axes: Axes, line: Line, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    style, marker = LINES[number % len(LINES)], MARKERS[number % len(MARKERS)]
    every = max(1, len(line.x) // 8)
    axes.plot(line.x, line.y, color=colour, ls=style, lw=2.4, marker=marker, ms=7, markevery=every, label=line.name)
    axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, lw=0)


def draw_bars(bars: Sequence[Bar], labels: Labels) -> Figure:
    """Horizontal bars, the first on top and highlighted, each with its interval and value."""
    with _style():
        figure, axes = _canvas(labels, max(2.4, 0.9 + 0.5 * len(bars)))
        for number, bar in enumerate(bars):
            _draw_bar(axes, bar, number)
        axes.set_yticks(range(len(bars)), [fill(bar.name, NAME_LETTERS) for bar in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.locator_params(axis="x", nbins=5)
        figure.supxlabel(labels.x, fontsize=13)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 1.2 * max([bar.high for bar in bars] + [0.01]))
    return figure


def _draw_bar(axes: Axes, bar: Bar, number: int) -> None:
    error = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
    axes.barh(number, bar.value, color=COLOURS[0] if number == 0 else COLOURS[5], height=0.62)
    axes.errorbar(bar.value, number, xerr=error, color="#222222", capsize=4, lw=1.6)
    axes.annotate(f" {bar.value:.3f}", (max(bar.high, bar.value), number), va="center")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the plot as `name`.png and `name`.svg."""
    files = [folder / f"{name}.png", folder / f"{name}.svg"]
    with storage_errors(folder, flag="--out"), _style():
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            # Without the date, the same values make the same file.
            figure.savefig(file, dpi=DPI, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files


def _style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def _canvas(labels: Labels, height_in: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # not pyplot, which keeps every figure and looks for a display

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.add_subplot()
    # Over the whole figure: beside long names, the axes are too narrow for it.
    figure.suptitle(labels.title, x=0.01, ha="left", fontweight="bold", fontsize=14)
    axes.set_ylabel(labels.y)
    return figure, axes


def check_matplotlib(options: BenchOptions) -> None:
    """Raise before a long measurement where its plot could not be drawn."""
    if options.out is not None:
        require_matplotlib()


@contextmanager
def plot_file(folder: Path, name: str) -> Iterator[Axes]:
    """Axes to draw on; afterwards `name.png` and `name.svg` are in the folder."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDE_IN, HEIGHT_IN), layout="constrained")
        yield figure.subplots()
    save(figure, folder, name)
