"""Episodes as Parquet: the same trajectories come back, in a layout that others read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from PIL import Image

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.errors import StoreError
from distrl.experience.dataset import FEATURES, KINDS, PICTURE, action_vector, episode_path, read_dataset, write_dataset
from distrl.types import Press, Step, Swipe, Tap, Trajectory, Unparsed

parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra [datasets]")
JPEG = b"\xff\xd8a picture\xff\xd9"


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    run = write_stored_run(tmp_path_factory.mktemp("runs"), 30)
    found = list(distrl.open_run(run.path).episodes())
    first = found[0].steps[0]
    pictured = replace(first, observation=replace(first.observation, screenshot="sha256:" + "0" * 64))
    return [replace(found[0], steps=(pictured, *found[0].steps[1:])), *found[1:]]


def test_the_same_trajectories_come_back(episodes: list[Trajectory], tmp_path: Path) -> None:
    size = write_dataset(tmp_path / "set", episodes, lambda _: JPEG, name="test")
    assert list(read_dataset(tmp_path / "set")) == episodes
    assert (size.episodes, size.steps, size.pictures) == (30, sum(len(one.steps) for one in episodes), 1)


def test_the_layout_is_lerobots(episodes: list[Trajectory], tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", episodes, lambda _: JPEG, name="test")
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert info["codebase_version"] == "v2.1"
    assert (info["total_episodes"], info["chunks_size"]) == (30, 1000)
    assert info["data_path"].format(episode_chunk=0, episode_index=7) == episode_path(7)
    tasks = {
        line["task_index"]: line["task"]
        for line in map(json.loads, (tmp_path / "set/meta/tasks.jsonl").read_text().splitlines())
    }
    index = 0
    for number, episode in enumerate(episodes):
        rows = parquet.read_table(tmp_path / "set" / episode_path(number)).to_pylist()
        assert set(rows[0]) == {*FEATURES, PICTURE} == set(info["features"])
        assert [row["index"] for row in rows] == list(range(index, index + len(rows)))
        assert [row["frame_index"] for row in rows] == list(range(len(rows)))
        assert [row["next.done"] for row in rows] == [False] * (len(rows) - 1) + [True]
        assert {tasks[row["task_index"]] for row in rows} == {episode.task.instruction}
        index += len(rows)
    first = parquet.read_table(tmp_path / "set" / episode_path(0)).to_pylist()
    assert first[0][PICTURE] == {"bytes": JPEG, "path": None}
    assert first[1][PICTURE] is None


def test_hugging_face_datasets_loads_it_and_its_steps_are_the_same(episodes: list[Trajectory], tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="the package datasets is not installed: pip install datasets")
    out = BytesIO()
    Image.new("RGB", (4, 8), (200, 30, 30)).save(out, "JPEG")
    write_dataset(tmp_path / "set", episodes, lambda _: out.getvalue(), name="test")
    rows = load_with_datasets(tmp_path)
    assert len(rows) == sum(len(one.steps) for one in episodes)
    assert rows[0]["size"] == [4, 8]
    assert rows[1]["size"] is None
    steps = [msgspec.json.decode(row["step"], type=Step) for row in rows]
    assert steps == [step for one in episodes for step in one.steps]
    assert [row["episode_index"] for row in rows] == [n for n, one in enumerate(episodes) for _ in one.steps]


def load_with_datasets(place: Path) -> list[dict[str, Any]]:
    """The rows of the dataset as its own loader gives them, in a process without a network and with a cache of its own."""
    script = (
        "import json, sys; from datasets import load_dataset; found = load_dataset(sys.argv[1], split='train');"
        "print(json.dumps([{'step': row['step'], 'episode_index': row['episode_index'],"
        f" 'size': row['{PICTURE}'].size if row['{PICTURE}'] else None}} for row in found]))"
    )
    offline = {"HF_HOME": str(place / "cache"), "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(place / "set")],
        env={**os.environ, **offline}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_an_action_is_a_vector_of_fixed_size() -> None:
    assert action_vector(Tap(0.5, 0.25)) == [KINDS.index("tap"), 0.5, 0.25, -1, -1]
    assert action_vector(Swipe(0.5, 0.7, 0.5, 0.3)) == [KINDS.index("swipe"), 0.5, 0.7, 0.5, 0.3]
    assert action_vector(Press("back"))[0] == KINDS.index("press")
    assert action_vector(Unparsed("?"))[0] == KINDS.index("unparsed")


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no dataset"):
        list(read_dataset(tmp_path))
