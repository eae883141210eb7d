"""Pictures of the system's benchmarks: PNG and SVG beside the results, large letters, colours that everyone can tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.bench.base import BenchOptions
from distrl.bench.plots import STYLE, need_matplotlib, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the palette of Okabe and Ito, made for those who do not see red and green.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#777777"
WIDE_IN, HIGH_IN = 8.0, 4.8


def check_drawing(options: BenchOptions) -> None:
    """Refuse now what could not be drawn after a long measurement."""
    if options.out is not None:
        need_matplotlib()


@contextmanager
def picture(folder: Path, name: str) -> Iterator[Axes]:
    """Axes to draw on; afterwards `name.png` and `name.svg` are in the folder."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDE_IN, HIGH_IN), layout="constrained")
        yield figure.subplots()
    save(figure, folder, name)
