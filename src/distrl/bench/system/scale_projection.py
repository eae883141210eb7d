"""What 10,000 and 100,000 devices would need, on paper: the tables of docs/scale.md, worked out from measured figures.

    python -m distrl.bench.system.scale_projection docs/results

Nothing here was run at that size. Every input is a figure of a results file, or one of `ASSUMED` with where it comes from.
"""

from __future__ import annotations

import json
import sys
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

SIZES = (10_000, 100_000)
DAY_S = 86_400
DEVICES_PER_WORKER, DEVICES_PER_NODE = 64, 256
PUBLISH_S = 20.0
"""Between two versions at that size."""
GPUS_PER_MACHINE = 8


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs that no results file holds."""

    episode_bytes: float = 2005.0
    """Mean file of 733 episodes of `sim-start`, UI elements without pictures."""
    picture_bytes: float = 12_000.0
    """A JPEG at 224 x 448 (docs/pixel.md); a real phone's screen is larger, as it is configured."""
    heartbeats_per_s: float = 2.0
    """Of each role: `runtime.heartbeat_s`."""
    news_per_s: float = 0.5
    """Calls of each role that waits for news of weights: the supervisor notes every two seconds how long the run has collected."""
    adapter_mb: float = 100.0
    network_mb_per_s: float = 1250.0
    """10 Gbit/s."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs from results files."""

    episodes_per_device_s: float
    """One device with the delays of an emulator, in real time."""
    steps_per_device_s: float
    updates_per_episode: float
    training_s_per_episode: float
    """One core, pointer, at so many updates an episode."""
    decisions_per_s: float
    """3B vision-language model on one H200 that does nothing else."""
    samples_per_s: float
    replay_inserts_per_s: float
    """Trajectories, into a replay memory on one core."""
    hub_s_per_episode: float
    """Processor time of the hub, beside what it takes with a single device."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: a value for each size."""

    what: str
    values: tuple[str, ...]


def read(results: Path) -> Measured:
    """The inputs, from the files of `distrl bench`."""
    collection, vlm, replay, devices = (_load(results, name) for name in ("collection", "vlm", "replay", "scale"))
    scheme, scale, hub = collection["schemes"]["async"], collection["time_scale"], devices["cores"]["hub"]
    return Measured(
        episodes_per_device_s=scheme["episodes_per_device_s"] * scale,
        steps_per_device_s=scheme["steps_per_s"] / collection["devices"] * scale,
        updates_per_episode=collection["updates_per_episode"],
        training_s_per_episode=scheme["training_s_per_episode"],
        decisions_per_s=vlm["decisions_per_s"],
        samples_per_s=vlm["train_samples_per_s"],
        replay_inserts_per_s=replay["inserts_per_s"],
        hub_s_per_episode=(hub[-1] - hub[0]) / devices["trajectories_per_s"][-1],
    )


def _load(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    return found


def rows(measured: Measured, assumed: Assumed | None = None) -> list[Row]:
    """The table, for every size of `SIZES`."""
    given = assumed or Assumed()
    columns = [column(size, measured, given) for size in SIZES]
    return [Row(what=what, values=tuple(found[what] for found in columns)) for what in columns[0]]


def column(devices: int, measured: Measured, assumed: Assumed) -> dict[str, str]:
    """What so many devices need."""
    episodes, steps = devices * measured.episodes_per_device_s, devices * measured.steps_per_device_s
    workers, nodes = ceil(devices / DEVICES_PER_WORKER), ceil(devices / DEVICES_PER_NODE)
    written, pictures = episodes * assumed.episode_bytes, steps * assumed.picture_bytes
    calls = episodes + workers * (assumed.heartbeats_per_s + assumed.news_per_s)
    weights_mb_per_s = nodes * assumed.adapter_mb / PUBLISH_S
    learners = steps / measured.samples_per_s
    return {
        "episodes · steps a second": f"{episodes:,.0f} · {steps:,.0f}",
        "workers of 64 devices · nodes of 256": f"{workers:,} · {nodes:,}",
        "episodes, without pictures": f"{written / 1e6:,.1f} MB/s, {written * DAY_S / 1e12:,.1f} TB a day",
        "pictures of 12 kB": f"{pictures / 1e6:,.0f} MB/s, {pictures * DAY_S / 1e12:,.0f} TB a day",
        "calls to the one hub, with heartbeats and news": f"{calls:,.0f} a second",
        f"processor time of the hub, at {1000 * measured.hub_s_per_episode:.1f} ms an episode": f"{episodes * measured.hub_s_per_episode:,.1f} cores",
        "adapters of 100 MB every 20 s, each node once": f"{weights_mb_per_s:,.0f} MB/s: "
        f"{weights_mb_per_s / assumed.network_mb_per_s:,.1f} × 10 Gbit/s",
        "replay: share of one core": f"{episodes / measured.replay_inserts_per_s:.1%}",
        f"cores that train a pointer, at {measured.updates_per_episode:g} updates an episode": f"{ceil(episodes * measured.training_s_per_episode):,}",
        "H200 that decide with a 3B model": f"{ceil(steps / measured.decisions_per_s):,}",
        "H200 that train it on every step once": f"{ceil(learners):,}, in {ceil(learners / GPUS_PER_MACHINE):,} machines of {GPUS_PER_MACHINE}",
    }


def table(measured: Measured) -> str:
    """The table as Markdown."""
    head = "| | " + " | ".join(f"{size:,} devices" for size in SIZES) + " |"
    lines = [head, "|---" * (1 + len(SIZES)) + "|"]
    return "\n".join([*lines, *(f"| {row.what} | {' | '.join(row.values)} |" for row in rows(measured))])


if __name__ == "__main__":
    sys.stdout.write(table(read(Path(sys.argv[1]))) + "\n")
