"""The splits, from their files."""

from pathlib import Path


def resolve_split(name: str) -> set[str]:
    return set((Path(__file__).parent / "splits" / f"{name}.txt").read_text().split())
