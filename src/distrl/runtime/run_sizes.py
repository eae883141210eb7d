"""What runs there are, what each weighs, and what of it can go.

A run is read from its folder; one that cannot be read is named with the reason and costs no other run its place. Pruning is planned
first, for as many runs as are named, and deletes afterwards, under the run's own lock: a live run is never touched. What `latest.json`
names is the published version, and stays. A run whose checkpoints or episodes are gone can be evaluated, watched and exported, and no
longer resumed: the file `PRUNED` in its folder says so.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from distrl.errors import DistrlError, StoreError, UsageError
from distrl.evaluation.report import Rate, read_rate
from distrl.experience.durable import replace, storage_errors
from distrl.experience.store import ExperienceStore, has_index
from distrl.runtime.run_folder import RunFolder, held, open_run, take
from distrl.runtime.summary import read_summary
from distrl.transport.weight_files import WeightsFolder

State = Literal["live", "finished", "stopped", "unreadable"]
Part = Literal["versions", "checkpoints", "frames", "episodes", "logs", "tensorboard"]
PARTS: dict[Part, str] = {
    "versions": "versions between the first and the published one",
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
    pruned: tuple[str, ...] = ()
    """Parts without which it cannot go on, and that were deleted."""
    why: str = ""
    """Why it cannot be read."""


def runs_in(root: Path) -> list[Path]:
    """The run folders in this folder, the newest first: their names begin with the time."""
    try:
        inside = list(root.iterdir())
    except OSError:
        return []
    return sorted(filter(_looks_like_a_run, inside), key=lambda path: path.name, reverse=True)


def _looks_like_a_run(path: Path) -> bool:
    try:
        return (path / "config.toml").exists() or (path / "session.toml").exists()
    except PermissionError:
        return True  # perhaps: whoever opens it says why not


def newest_run(root: Path) -> Path:
    """The newest run; `StoreError` where there is none."""
    found = runs_in(root)
    if not found:
        raise StoreError(
            f"{root.absolute()} holds no run", expected="a run folder in it", fix="distrl train, or name the run"
        )
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
            pruned=pruned_parts(run),
        )
    except (DistrlError, OSError) as error:
        why = reason(error)
        return RunFacts(name=path.name, path=str(path), state="unreadable", size_bytes=_size(path), why=why)


def reason(error: DistrlError | OSError) -> str:
    """Why a run cannot be used, in a line."""
    if isinstance(error, DistrlError):
        return error.seen.splitlines()[0]
    return f"cannot use {error.filename}: {error.strerror}" if error.filename else str(error)


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
    if not has_index(run.experience):
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
    """Bytes of a file, or of all files in a folder; what vanishes meanwhile or cannot be looked at counts nothing."""
    total = 0
    for file in (path, *_inside(path)):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() and not file.is_symlink() else 0
    return total


def _inside(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.rglob("*")


# --- what can go ------------------------------------------------------------------------------------------------------


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What goes, or went, from one run."""

    run: str
    parts: dict[str, int]
    """Bytes by part."""
    kept: str = ""
    """Why nothing goes; empty: it does."""
    failed: str = ""
    """Why not all of it went; empty: it did."""

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go from one run, found without changing anything."""

    run: RunFolder
    going: dict[Part, list[Path]]
    pruned: Pruned
    """The same in bytes."""


def plan_prune(path: Path, parts: Iterable[Part]) -> PrunePlan:
    """What these parts of a run are and weigh; nothing of a live run. An error where the run cannot do without them."""
    run = open_run(path)  # which refuses a folder of another format: what lies where in it is not known
    if held(run.lock("supervisor")):
        return PrunePlan(run=run, going={}, pruned=Pruned(run=str(path), parts={}, kept="it is live"))
    wanted = tuple(parts)
    if "episodes" in wanted and "checkpoints" not in wanted and state_of(run) == "stopped":
        raise UsageError(
            f"{path} was stopped and its checkpoints count on its episodes",
            expected="a run that nobody means to resume",
            fix="--part episodes --part checkpoints",
        )
    going = {part: _targets(run, part) for part in wanted}
    return PrunePlan(run=run, going=going, pruned=Pruned(run=str(path), parts=_weights_of(going)))


def prune(plan: PrunePlan) -> Pruned:
    """Delete what was planned; where that fails, what went before it failed and the reason. A live run keeps everything."""
    if plan.pruned.kept:
        return plan.pruned
    try:
        _delete(plan.run, plan.going)
    except StoreError as error:
        left = _weights_of(plan.going)
        gone = {part: size - left[part] for part, size in plan.pruned.parts.items() if size > left[part]}
        return Pruned(run=plan.pruned.run, parts=gone, failed=reason(error))
    return plan.pruned


def _weights_of(going: Mapping[Part, list[Path]]) -> dict[str, int]:
    return {part: sum(map(_size, files)) for part, files in going.items()}


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
    """The versions between the first, which progress is measured against, and the one that `latest.json` names.

    A newer file was not published: a learner that goes on writes it again.
    """
    numbers = {file: int(name[1]) for file in folder.glob("v*") if (name := _VERSION.fullmatch(file.name))}
    if not numbers:
        return []
    with storage_errors(folder):
        published = WeightsFolder(folder).latest()
    if published is None:
        return []
    if not (folder / Path(published.file).name).is_file():
        raise StoreError(
            f"{folder / published.file} is gone, and it is the published version",
            expected="the file that latest.json names",
            fix="put it back; the other versions are all that is left of this run",
        )
    return sorted(file for file, number in numbers.items() if 0 < number < published.version)


def _delete(run: RunFolder, going: dict[Part, list[Path]]) -> None:
    lock = take(run.lock("supervisor"), wait_s=LOCK_WAIT_S, what=str(run.path))
    try:
        with storage_errors(run.path):
            ending = [part for part in going if part in ENDS_RESUMING]
            if ending:  # first: a deletion that is cut off has ended it too
                gone = dict.fromkeys((*pruned_parts(run), *ending))
                replace(run.path / PRUNED, "".join(f"{part}\n" for part in gone).encode())
            for path in (path for files in going.values() for path in files):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            run.logs.mkdir(exist_ok=True)
    finally:
        lock.release()


def pruned_parts(run: RunFolder) -> tuple[str, ...]:
    """The parts without which a run cannot go on, and that were deleted; all of them where the file that names them is damaged."""
    if not (run.path / PRUNED).is_file():
        return ()
    found = (run.path / PRUNED).read_text(encoding="ascii", errors="replace").split()
    return tuple(part for part in ENDS_RESUMING if part in found) or ENDS_RESUMING


def refuse_pruned(run: RunFolder) -> None:
    """`StoreError` where a run cannot go on because it was pruned."""
    if gone := pruned_parts(run):
        raise StoreError(
            f"{run.path} was pruned of its {' and '.join(gone)}, and cannot go on",
            expected="a run with its checkpoints and episodes",
            fix=f"distrl watch {run.path}, distrl evaluate {run.path}, or a new run",
        )
