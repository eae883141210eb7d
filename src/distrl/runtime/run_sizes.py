"""What runs there are, what each weighs, and what of it can go.

A run is read from its folder. Pruning takes the run's own lock, so a live run is never touched, and says beforehand what each part
is good for. A run whose checkpoints or episodes are gone can be evaluated, watched and exported, and no longer resumed: the file
`PRUNED` in its folder says so.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from distrl.errors import DistrlError, StoreError, UsageError
from distrl.evaluation.report import Rate, read_rate
from distrl.experience.durable import storage_errors
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, held, open_run, take
from distrl.runtime.summary import read_summary

State = Literal["live", "finished", "stopped", "unreadable"]
Part = Literal["versions", "checkpoints", "frames", "episodes", "logs", "tensorboard"]
PARTS: dict[Part, str] = {
    "versions": "published versions between the first and the newest",
    "checkpoints": "what the learner needs to go on: the run can no longer be resumed",
    "frames": "screenshots: nobody can learn from the episodes of a policy that reads them",
    "episodes": "all stored episodes with their index and screenshots: nobody can learn from them, and no resuming",
    "logs": "events and raw output of the roles",
    "tensorboard": "event files; the figures are in metrics.jsonl too",
}
"""What can go, and what is lost with it."""
HARMLESS: tuple[Part, ...] = ("versions",)
"""What goes unless something else is named."""
ENDS_RESUMING: tuple[Part, ...] = ("checkpoints", "episodes")
PRUNED = "PRUNED"
"""Names the parts that are gone, a line each."""
LOCK_WAIT_S = 1.0
_VERSION = re.compile(r"v(\d+)\.(json|safetensors)")


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    name: str
    path: str
    state: State
    success_before: Rate | None = None
    success_after: Rate | None = None
    """After the training, or the last evaluation on the way."""
    episodes: int = 0
    size_bytes: int = 0
    why: str = ""
    """Why it cannot be read."""


def runs_in(root: Path) -> list[Path]:
    """The run folders in this folder, the newest first: their names begin with the time."""
    return sorted((file.parent for file in root.glob("*/config.toml")), key=lambda path: path.name, reverse=True)


def newest_run(root: Path) -> Path:
    """The newest run; `StoreError` where there is none."""
    found = runs_in(root)
    if not found:
        raise StoreError(f"{root} holds no run", expected="a run folder in it", fix="distrl train, or name the run")
    return found[0]


def describe(path: Path) -> RunFacts:
    """A run in a few figures; one that cannot be read says why."""
    try:
        run = open_run(path)
        return RunFacts(
            name=run.name,
            path=str(path),
            state=state_of(run),
            success_before=read_rate(run.evaluations / "before.json"),
            success_after=_last_rate(run),
            episodes=_episodes(run),
            size_bytes=_size(path),
        )
    except DistrlError as error:
        return RunFacts(name=path.name, path=str(path), state="unreadable", size_bytes=_size(path), why=error.seen)


def state_of(run: RunFolder) -> State:
    """Live while its supervisor lives; finished with its budget used up; else stopped, and can be resumed."""
    if held(run.lock("supervisor")):
        return "live"
    summary = read_summary(run)
    return "stopped" if summary is None or not summary.is_whole else "finished"


def _last_rate(run: RunFolder) -> Rate | None:
    on_the_way = sorted(run.evaluations.glob("v[0-9]*.json"))
    after = read_rate(run.evaluations / "after.json")
    return after or (read_rate(on_the_way[-1]) if on_the_way else None)


def _episodes(run: RunFolder) -> int:
    summary = read_summary(run)
    if summary is not None:
        return summary.episodes
    if not (run.experience / "index.sqlite").is_file():
        return 0
    with ExperienceStore(run.experience, read_only=True) as store:
        return store.count()


# --- what it weighs ---------------------------------------------------------------------------------------------------


def sizes(run: RunFolder) -> dict[str, int]:
    """Bytes of each part of a run, the largest first."""
    experience = run.experience
    parts = {
        "frames": _size(experience / "frames"),
        "episodes": _size(experience) - _size(experience / "frames"),
        "weights": _size(run.weights),
        "checkpoints": _size(run.checkpoints),
        "logs": _size(run.logs),
        "tensorboard": _size(run.path / "tensorboard"),
        "metrics": _size(run.metrics),
    }
    parts["other"] = _size(run.path) - sum(parts.values())
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what vanishes meanwhile counts nothing."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() and not file.is_symlink() else 0
        except FileNotFoundError:
            continue
    return total


# --- what can go ------------------------------------------------------------------------------------------------------


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What goes, or went, from one run."""

    run: str
    parts: dict[str, int]
    """Bytes by part."""
    kept: str = ""
    """Why nothing goes; empty: it does."""

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def prune(path: Path, parts: Iterable[Part], *, delete: bool) -> Pruned:
    """What these parts of a run weigh; with `delete`, they are gone afterwards. A live run keeps everything."""
    run = open_run(path)  # which refuses a folder of another format: what lies where in it is not known
    if held(run.lock("supervisor")):
        return Pruned(run=str(path), parts={}, kept="it is live")
    wanted = tuple(parts)
    if "episodes" in wanted and state_of(run) == "stopped" and "checkpoints" not in wanted:
        raise UsageError(
            f"{path} was stopped and its checkpoints count on its episodes",
            expected="a run that nobody means to resume",
            fix="--part episodes --part checkpoints",
        )
    going = {part: _targets(run, part) for part in wanted}
    found = Pruned(run=str(path), parts={part: sum(map(_size, files)) for part, files in going.items()})
    if delete:
        _delete(run, going)
    return found


def _targets(run: RunFolder, part: Part) -> list[Path]:
    match part:
        case "versions":
            return _old_versions(run.weights)
        case "checkpoints":
            return [run.checkpoints]
        case "frames":
            return [run.experience / "frames"]
        case "episodes":
            return [run.experience]
        case "logs":
            return [run.logs]
        case "tensorboard":
            return [run.path / "tensorboard"]


def _old_versions(folder: Path) -> list[Path]:
    """Every version but the first, which progress is measured against, and the newest."""
    numbers = {file: int(name[1]) for file in folder.glob("v*") if (name := _VERSION.fullmatch(file.name))}
    newest = max(numbers.values(), default=0)
    return sorted(file for file, number in numbers.items() if number not in (0, newest))


def _delete(run: RunFolder, going: dict[Part, list[Path]]) -> None:
    lock = take(run.lock("supervisor"), wait_s=LOCK_WAIT_S, what=str(run.path))
    try:
        with storage_errors(run.path):
            ending = [part for part in going if part in ENDS_RESUMING]
            if ending:  # first: a deletion that is cut off has ended it too
                (run.path / PRUNED).write_text("\n".join(ending) + "\n", encoding="ascii")
            for path in (path for files in going.values() for path in files):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            run.logs.mkdir(exist_ok=True)
    finally:
        lock.release()


def refuse_pruned(run: RunFolder) -> None:
    """`StoreError` where a run cannot go on because it was pruned."""
    if (run.path / PRUNED).is_file():
        gone = (run.path / PRUNED).read_text(encoding="ascii", errors="replace").split()
        raise StoreError(
            f"{run.path} was pruned of its {' and '.join(gone)}, and cannot go on",
            expected="a run with its checkpoints and episodes",
            fix=f"distrl watch {run.path}, distrl evaluate {run.path}, or a new run",
        )
