"""`distrl bench collection_sourced`: `bench collection` on phones whose delays have a source, the profile `digirl`."""

from __future__ import annotations

from distrl.bench.base import BenchOptions
from distrl.bench.system.collection import CollectionFigures, compare


def run(options: BenchOptions) -> CollectionFigures:
    """Measure everything that `distrl bench collection_sourced` reports."""
    return compare(options, "collection_sourced", "digirl")
