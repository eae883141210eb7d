"""Episodes as a Parquet dataset, in LeRobot's layout (v2.1) and readable by Hugging Face `datasets` as it is.

    meta/info.json · meta/tasks.jsonl · meta/episodes.jsonl · data/chunk-000/episode_000000.parquet · README.md

A row per step: what LeRobot names (`action` as a vector, `timestamp`, `frame_index`, `episode_index`, `index`, `task_index`, `next.reward`,
`next.done`), the picture as `datasets` stores images, and `step`, the whole step as JSON, from which `read_dataset` gives back the same
trajectories. Needs the extra `distrl[datasets]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from distrl.errors import StoreError
from distrl.types import Action, LongPress, Step, Swipe, Tap, Trajectory

CODEBASE = "v2.1"
CHUNK = 1000
"""Episodes in one folder."""
KINDS = ("tap", "long_press", "swipe", "type", "press", "wait", "finish", "unparsed")
"""The first number of an action's vector is its place here; then come x, y, to_x and to_y, -1 where the action has none."""
ACTION_NAMES = ("kind", "x", "y", "to_x", "to_y")
PICTURE = "observation.images.screen"
FEATURES: dict[str, dict[str, Any]] = {
    "action": {"dtype": "float32", "shape": [5], "names": list(ACTION_NAMES)},
    "observation.state": {"dtype": "float32", "shape": [2], "names": ["step", "value"]},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
    "next.reward": {"dtype": "float32", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "step": {"dtype": "string", "shape": [1], "names": None},
}


class EpisodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `meta/episodes.jsonl`; LeRobot reads the first three."""

    episode_index: int
    tasks: list[str]
    length: int
    trajectory: Trajectory
    """Without its steps."""


class DatasetSize(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    episodes: int
    steps: int
    tasks: int
    pictures: int


def write_dataset(
    folder: Path, trajectories: Iterable[Trajectory], picture: Callable[[str], bytes], *, name: str
) -> DatasetSize:
    """Write a dataset into a new folder; `picture` gives the screenshot behind a reference."""
    from pyarrow import Table, parquet

    (folder / "meta").mkdir(parents=True)
    tasks: dict[str, int] = {}
    num_steps = num_pictures = num_episodes = 0
    with (folder / "meta" / "episodes.jsonl").open("wb") as lines:
        for number, one in enumerate(trajectories):
            task = tasks.setdefault(one.task.instruction, len(tasks))
            rows = [_row(step, at, number, num_steps + at, task, one) for at, step in enumerate(one.steps)]
            columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
            pictures = [
                picture(step.observation.screenshot) if step.observation.screenshot else b"" for step in one.steps
            ]
            columns[PICTURE] = [{"bytes": found, "path": None} if found else None for found in pictures]
            path = folder / episode_path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(Table.from_pydict(columns, schema=_schema()), path)
            bare = msgspec.structs.replace(one, steps=())
            line = EpisodeLine(episode_index=number, tasks=[one.task.instruction], length=len(rows), trajectory=bare)
            lines.write(msgspec.json.encode(line) + b"\n")
            num_steps, num_episodes = num_steps + len(rows), number + 1
            num_pictures += sum(map(bool, pictures))
    size = DatasetSize(episodes=num_episodes, steps=num_steps, tasks=len(tasks), pictures=num_pictures)
    _describe(folder, size, tasks, name)
    return size


def read_dataset(folder: Path) -> Iterator[Trajectory]:
    """The trajectories of a dataset that `write_dataset` wrote; pictures stay in its files."""
    from pyarrow import parquet

    try:
        lines = (folder / "meta" / "episodes.jsonl").read_bytes().splitlines()
        for raw in lines:
            line = msgspec.json.decode(raw, type=EpisodeLine)
            found = parquet.read_table(folder / episode_path(line.episode_index), columns=["step"])
            steps = tuple(msgspec.json.decode(text, type=Step) for text in found["step"].to_pylist())
            yield msgspec.structs.replace(line.trajectory, steps=steps)
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder} is no dataset of distrl: {error}", expected="a folder of `distrl export RUN FOLDER --episodes`") from error  # fmt: skip


def episode_path(number: int) -> str:
    """Where an episode lies in a dataset."""
    return f"data/chunk-{number // CHUNK:03d}/episode_{number:06d}.parquet"


def action_vector(action: Action) -> list[float]:
    """An action as numbers."""
    kind = float(KINDS.index(msgspec.to_builtins(action)["type"]))
    if isinstance(action, Tap | LongPress):
        return [kind, action.x, action.y, -1.0, -1.0]
    if isinstance(action, Swipe):
        return [kind, action.x, action.y, action.to_x, action.to_y]
    return [kind, -1.0, -1.0, -1.0, -1.0]


def _row(step: Step, at: int, episode: int, index: int, task: int, trajectory: Trajectory) -> dict[str, Any]:
    before_s = sum(one.device_s for one in trajectory.steps[:at])
    return {
        "action": action_vector(step.decision.action),
        "observation.state": [float(at), step.decision.value],
        "timestamp": before_s,
        "frame_index": at,
        "episode_index": episode,
        "index": index,
        "task_index": task,
        "next.reward": step.reward,
        "next.done": at == len(trajectory.steps) - 1,
        "step": msgspec.json.encode(step).decode(),
    }


def _schema() -> Any:
    import pyarrow

    types = {
        "float32": pyarrow.float32(),
        "int64": pyarrow.int64(),
        "bool": pyarrow.bool_(),
        "string": pyarrow.string(),
    }
    fields = []
    for name, feature in FEATURES.items():
        kind = types[feature["dtype"]]
        size = feature["shape"][0]
        fields.append(pyarrow.field(name, pyarrow.list_(kind, size) if size > 1 else kind))
    picture = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    hint = {"info": {"features": {PICTURE: {"_type": "Image"}, **{n: _hint(f) for n, f in FEATURES.items()}}}}
    return pyarrow.schema([*fields, (PICTURE, picture)], metadata={"huggingface": msgspec.json.encode(hint)})


def _hint(feature: dict[str, Any]) -> dict[str, Any]:
    """A feature as `datasets` names it."""
    value = {"dtype": feature["dtype"], "_type": "Value"}
    size = feature["shape"][0]
    return {"feature": value, "length": size, "_type": "List"} if size > 1 else value


def _describe(folder: Path, size: DatasetSize, tasks: dict[str, int], name: str) -> None:
    features = {
        **FEATURES,
        PICTURE: {"dtype": "image", "shape": [3, None, None], "names": ["channels", "height", "width"]},
    }
    info = {
        "codebase_version": CODEBASE,
        "robot_type": "phone",
        "total_episodes": size.episodes,
        "total_frames": size.steps,
        "total_tasks": size.tasks,
        "total_videos": 0,
        "total_chunks": -(-size.episodes // CHUNK),
        "chunks_size": CHUNK,
        "fps": 1,
        "splits": {"train": f"0:{size.episodes}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": None,
        "features": features,
    }
    (folder / "meta" / "info.json").write_bytes(msgspec.json.format(msgspec.json.encode(info)))
    lines = (msgspec.json.encode({"task_index": number, "task": task}) + b"\n" for task, number in tasks.items())
    (folder / "meta" / "tasks.jsonl").write_bytes(b"".join(lines))
    (folder / "README.md").write_text(_CARD.format(name=name, size=size), encoding="utf-8")


_CARD = """\
---
configs:
- config_name: default
  data_files: data/*/*.parquet
tags:
- LeRobot
- distrl
- phone-agent
---

# {name}

{size.episodes} episodes, {size.steps} steps, {size.tasks} instructions, {size.pictures} pictures, recorded by distrl. In LeRobot's layout, a row per step:
`datasets.load_dataset("FOLDER")` reads it, and `distrl.experience.dataset.read_dataset(FOLDER)` gives the trajectories back.
"""
