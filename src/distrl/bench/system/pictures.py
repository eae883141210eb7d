"""Pictures of the system's benchmarks: PNG and SVG beside the results, large letters, colours that everyone can tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.bench.base import BenchOptions
from distrl.bench.plots import STYLE
from distrl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the palette of Okabe and Ito, made for those who do not see red and green.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#777777"
WIDE_IN, HIGH_IN, DPI = 8.0, 4.8, 150


def check_drawing(options: BenchOptions) -> None:
    """Refuse now what could not be drawn after a long measurement."""
    if options.out is not None and find_spec("matplotlib") is None:
        raise UsageError(
            "--out also draws, and matplotlib is not installed",
            expected="the extra `bench`",
            fix="pip install 'distrl[bench]', or leave --out away",
        )


@contextmanager
def picture(folder: Path, name: str) -> Iterator[Axes]:
    """Axes to draw on; afterwards `name.png` and `name.svg` are in the folder."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDE_IN, HIGH_IN), layout="constrained")
        yield figure.subplots()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{name}.png", dpi=DPI)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        except OSError as error:
            fix = "give --out a folder that you may write to"
            raise StoreError(f"cannot draw into {folder}: {error.strerror}", fix=fix) from None
