"""From runs to rows and pictures: what the learning benchmarks do alike with the outcomes of their methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.methods import QUICK_SEEDS, SEEDS
from distrl.bench.plots import Bar, Line, need_matplotlib
from distrl.bench.statistics import Floats, Interval, Strata, interval, need_seeds, relative
from distrl.config.load import config_hash
from distrl.config.schema import Config

Row = list[float | None]
"""Value, low and high end of the 95 % interval; None: without bound."""


def begin(options: BenchOptions) -> int:
    """The number of seeds; raises before any run where they are too few or pictures cannot be drawn."""
    if options.out is not None:
        need_matplotlib()
    return need_seeds(options.seeds or (QUICK_SEEDS if options.quick else SEEDS))


def generator() -> np.random.Generator:
    """The same for every figure: what is reported beside it changes nothing about it."""
    return np.random.default_rng(0)


def measure(scores: Mapping[str, Strata]) -> dict[str, Interval]:
    """The IQM of each method."""
    return {name: interval(strata, generator()) for name, strata in scores.items()}


def compare(ours: str, scores: Mapping[str, Strata]) -> dict[str, Interval | None]:
    """Our method over each of the others, less 1."""
    return {name: relative(scores[ours], strata, generator()) for name, strata in scores.items() if name != ours}


def rows(found: Mapping[str, Interval | None]) -> dict[str, Row | None]:
    """As they stand in results files."""
    return {name: row(one) for name, one in found.items()}


def row(found: Interval | None) -> Row | None:
    """One of them; None where there was nothing to compare with."""
    return None if found is None else found.row()


def bars(found: Mapping[str, Interval]) -> list[Bar]:
    """The same as a picture."""
    return [
        Bar(name=name, value=one.value, low=_or(one.low, one.value), high=_or(one.high, one.value))
        for name, one in found.items()
    ]


def band(name: str, x_K: Sequence[float], success_SK: Floats) -> Line:
    """A curve over seeds: the IQM at each point, with its interval."""
    found = [interval([column_S], generator()) for column_S in success_SK.T]
    return Line(
        name=name,
        x=list(x_K),
        y=[one.value for one in found],
        low=[_or(one.low, one.value) for one in found],
        high=[_or(one.high, one.value) for one in found],
    )


def hash_all(configs: Iterable[Config]) -> str:
    """Twelve characters that change when any of these configurations does."""
    return sha256("\n".join(config_hash(config) for config in configs).encode()).hexdigest()[:12]


def _or(bound: float | None, value: float) -> float:
    return value if bound is None else bound
