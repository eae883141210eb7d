"""`distrl bench collection_sourced`: `bench collection` on phones whose delays have a source, the profile `digirl`.

An episode takes these phones about three times as long as those of the profile `emulator`. Time runs three times as fast for them, so that as many episodes
a second come in, and the learner has as much to do for each second, as in `bench collection`.
"""

from __future__ import annotations

from distrl.bench.base import BenchOptions
from distrl.bench.system.collection import ROUND, TIME_SCALE, CollectionFigures, Setting, compare

SOURCED = Setting(profile="digirl", time_scale=TIME_SCALE / 3, rounds=(2 * ROUND, 8 * ROUND), seeds=2, window_s=40.0)


def run(options: BenchOptions) -> CollectionFigures:
    """Measure everything that `distrl bench collection_sourced` reports."""
    return compare(options, "collection_sourced", SOURCED)
