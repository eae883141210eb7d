"""A suite whose data nobody has."""

from pathlib import Path

DATA = (Path(__file__).parent / "data-that-is-not-there.json").read_text()
