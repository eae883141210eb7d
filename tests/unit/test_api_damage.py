"""Whatever is damaged in a run folder, the Python API answers with errors of distrl that name the file or the fix."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import distrl
from distrl.config.load import load_config
from distrl.errors import DistrlError, StoreError
from distrl.evaluation.report import make_report
from distrl.runtime.resume import adopt
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import summarise
from distrl.telemetry.events import EventLog
from distrl.transport.base import BudgetUsed
from support.trained import small_run, store_episodes

FILES = (
    "FORMAT",
    "config.toml",
    "session.toml",
    "budget.json",
    "summary.json",
    "metrics.jsonl",
    "evaluations/before.json",
    "evaluations/after.json",
    "heartbeats/supervisor.lock",
    "heartbeats/learner.json",
    "logs/supervisor.jsonl",
    "experience/index.sqlite",
    "experience/episodes/*/a.ep",
    "weights/latest.json",
    "weights/v*.safetensors",
)
READERS: dict[str, Callable[[Path], object]] = {
    "open_run": lambda path: distrl.open_run(path),
    "config": lambda path: distrl.open_run(path).config,
    "summary": lambda path: distrl.open_run(path).summary,
    "status": lambda path: distrl.open_run(path).status(),
    "evaluations": lambda path: distrl.open_run(path).evaluations(),
    "metrics": lambda path: distrl.open_run(path).metrics(),
    "curve": lambda path: distrl.open_run(path).curve("learner/updates"),
    "episodes": lambda path: list(distrl.open_run(path).episodes()),
    "episode": lambda path: distrl.open_run(path).episode("a"),
    "frame": lambda path: distrl.open_run(path).frame("sha256:" + "0" * 64),
    "policy": lambda path: distrl.open_run(path).policy(),
    "evaluate": lambda path: distrl.evaluate(path, episodes=1),
    "resume": lambda path: distrl.open_run(path).resume(progress=False),
}
DAMAGES: dict[str, bytes | None] = {
    "empty": b"",
    "other bytes": b"\xff\xfe\x00 something else",
    "another record": b'{"songs": 1}\n',
    "folder": None,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with every file that the readers ask for."""
    folder = small_run(tmp_path_factory.mktemp("runs"), run__minutes=0, run__episodes=1)
    adopt(folder, folder.config())
    store_episodes(folder, a=True, b=False)
    EventLog(folder.metrics).write("learner", role="learner", **{"learner/updates": 1})
    report = msgspec.json.encode(make_report([], suite="sim-start", version=0))
    folder.evaluations.mkdir()
    folder.heartbeats.mkdir(exist_ok=True)
    for name in ("before", "after"):
        (folder.evaluations / f"{name}.json").write_bytes(report)
    for name in ("supervisor.lock", "learner.json"):
        (folder.heartbeats / name).write_bytes(b"")
    folder.budget.write_bytes(msgspec.json.encode(BudgetUsed()))
    summarise(folder, load_config(folder.config_file), BudgetUsed())
    return folder


def test_the_whole_run_is_read_by_all_and_is_finished(whole: RunFolder) -> None:
    for name in READERS.keys() - {"resume", "frame"}:
        READERS[name](whole.path)
    with pytest.raises(DistrlError, match="is finished"):
        READERS["resume"](whole.path)
    with pytest.raises(StoreError, match="has kept no screenshots"):
        READERS["frame"](whole.path)
    assert not (whole.experience / "frames").exists(), "reading makes nothing"


def refusal_of(read: Callable[[Path], object], path: Path) -> DistrlError | None:
    """How a reader refuses the run; None: it does not. Any other error is raised."""
    try:
        read(path)
    except DistrlError as error:
        return error
    return None


@pytest.mark.parametrize("file", FILES)
def test_damage_is_answered_with_an_error_of_distrl_or_with_what_is_left(
    file: str, whole: RunFolder, tmp_path: Path
) -> None:
    for number, content in enumerate(DAMAGES.values()):
        copy = Path(shutil.copytree(whole.path, tmp_path / str(number)))
        (path,) = copy.glob(file)
        path.unlink()
        path.mkdir() if content is None else path.write_bytes(content)
        refusals = [refusal for read in READERS.values() if (refusal := refusal_of(read, copy))]
        assert all(refusal.fix for refusal in refusals)


@pytest.mark.parametrize("name", ["before", "after", "v000001"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_report_is_named(name: str, damage: str, tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    folder.evaluations.mkdir()
    report, content = folder.evaluations / f"{name}.json", DAMAGES[damage]
    report.mkdir() if content is None else report.write_bytes(content)
    with pytest.raises(StoreError, match=f"{name}.json"):
        distrl.open_run(folder.path).evaluations()


@pytest.mark.parametrize("name", ["summary.json", "budget.json", "heartbeats/supervisor.lock"])
def test_a_folder_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    (folder.path / name).mkdir(parents=True)
    with pytest.raises(StoreError, match=rf"cannot \w+ .*{name}: Is a directory"):
        distrl.open_run(folder.path).status()
