"""Pictures: written in both forms, not empty, the same for the same figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from distrl.bench import plots
from distrl.bench.ablation import VARIANTS
from distrl.bench.methods import ALGORITHMS, SCHEMES, SHOWN
from distrl.bench.plots import Bar, Line, Words, draw_bars, draw_lines, need_matplotlib, save
from distrl.bench.staleness import CORRECTIONS
from distrl.errors import StoreError, UsageError

WORDS = Words(title="Success over time", x="seconds", y="success")
LINES = [
    Line(name=name, x=[0, 1, 2], y=[low, low + 0.1, low + 0.2], low=[0.0, low, low], high=[low + 0.1, 0.6, 0.8])
    for name, low in (("aride", 0.3), ("digirl_sync", 0.2))
]
BARS = [Bar(name="default", value=0.4, low=0.35, high=0.5), Bar(name="no priorities", value=0.3, low=0.3, high=0.3)]


def ink(file: Path) -> tuple[float, int]:
    """The share of the picture that is not white, and how many colours it has."""
    pixels = np.asarray(Image.open(file).convert("RGB"))
    return float((pixels < 250).any(axis=2).mean()), len(np.unique(pixels.reshape(-1, 3), axis=0))


def test_curves_are_written_with_their_words(tmp_path: Path) -> None:
    png, svg = save(draw_lines(LINES, WORDS, level=(0.5, "target")), tmp_path / "new", "efficiency")
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
    png, svg = save(draw_bars(BARS, WORDS), tmp_path, "ablation")
    assert ink(png)[0] > 0.1
    text = svg.read_text()
    assert all(word in text for word in ("default", "no priorities", "0.400", "0.300"))


def test_long_names_leave_room_for_the_bars() -> None:
    bars = [Bar(name=method.name, value=0.4, low=0.35, high=0.5) for method in VARIANTS]
    figure = draw_bars(bars, WORDS)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().width > 0.45
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(boxes))


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], [method.name for method in ALGORITHMS], list(SHOWN.values())], ids=len
)
def test_the_whole_legend_is_in_the_picture(names: list[str]) -> None:
    lines = [msgspec.structs.replace(LINES[0], name=name) for name in names]
    figure = draw_lines(lines, WORDS, level=(0.5, "target 0.50"))
    figure.draw_without_rendering()
    box, (legend,) = figure.bbox, figure.legends
    inside = legend.get_window_extent()
    assert box.x0 <= inside.x0 < inside.x1 <= box.x1
    (axes,) = figure.axes
    assert axes.get_position().height * figure.get_figheight() > 2.5


def test_the_same_figures_make_the_same_files(tmp_path: Path) -> None:
    first = [file.read_bytes() for file in save(draw_bars(BARS, WORDS), tmp_path, "a")]
    assert [file.read_bytes() for file in save(draw_bars(BARS, WORDS), tmp_path, "a")] == first


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        save(draw_bars(BARS, WORDS), tmp_path / "file", "a")


def test_pictures_without_matplotlib_are_refused_before_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    need_matplotlib()
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"distrl\[bench\]"):
        need_matplotlib()
