"""Damaged files of a run folder: one tiny trained run is made, and verbs are run on damaged copies of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Self

import msgspec

from distrl.bench.system.fault_cases import FILES, Damage, FileCase, RunFile
from distrl.bench.system.fault_verbs import LIMIT_S, Ended, run_verb, words_of
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, held
from distrl.runtime.summary import Summary
from distrl.types import Value

EPISODES = 12
SETTINGS: dict[str, Value] = {
    "run.name": "faults",
    "run.minutes": 0,
    "run.episodes": EPISODES,
    "tasks.suite": "sim-start",
    "devices.per_worker": 3,
    "devices.sim.latency.profile": "instant",
    "rollout.workers": 1,
    "rollout.keep_screenshots": True,
    "policy.pointer.width": 16,
    "policy.pointer.layers": 1,
    "warm_start.demonstrations": 10,
    "warm_start.epochs": 1,
    "learner.first_update_episodes": 4,
    "learner.batch_trajectories": 4,
    "learner.publish_every_s": 0.3,
    "learner.checkpoint_every_s": 0.3,
    "evaluation.episodes": 2,
    "evaluation.every_s": 0,
    "runtime.heartbeat_s": 0.1,
}
AT_ONCE = 2
"""Verbs that are run at the same time, each on a copy of its own."""
ROLES_END_S = 60.0
"""How long roles may take to end after their supervisor."""
TRAIN_S = 240.0
"""Longest wait for the tiny run."""


def flags(settings: dict[str, Value]) -> list[str]:
    """Settings as flags of `distrl train`."""
    return [
        word
        for key, value in settings.items()
        for word in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))
    ]


def make_run(root: Path) -> RunFolder:
    """A finished run with every kind of file that runs have."""
    command = [
        sys.executable,
        "-m",
        "distrl",
        "train",
        "--no-view",
        *flags({**SETTINGS, "run.root": str(root / "made")}),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TRAIN_S, check=False)
    if done.returncode:
        raise DistrlError(f"the tiny run failed (exit code {done.returncode}): {done.stderr[-1000:]}")
    (made,) = (root / "made").iterdir()
    _add_rare_files(made)
    with ExperienceStore(made / "experience") as store:
        row = next(row for row in store.after(0, 1000) if row.source == "played")
        store.add(msgspec.structs.replace(store.read(row.id), id="late"))
        # While it is open: the index then has its write-ahead log and its shared memory, as after a kill.
        return RunFolder(Path(shutil.copytree(made, root / "base")))


def _add_rare_files(run: Path) -> None:
    """What longer runs and runs of other settings have: an evaluation on the way, and event files of TensorBoard."""
    shutil.copyfile(run / "evaluations" / "before.json", run / "evaluations" / "v000001.json")
    (run / "tensorboard" / "learner").mkdir(parents=True)
    (run / "tensorboard" / "learner" / "events.out.tfevents.1").write_bytes(bytes(range(200)))


FOR_PEOPLE = ("report.html", "heartbeats/*.screens", "logs/view.out")
"""Files for people to look at, which no verb of the matrix reads."""


def unlisted(run: Path) -> list[str]:
    """Files of a run folder that the matrix does not damage."""
    listed = {path for name in (*(file.file for file in FILES), *FOR_PEOPLE) for path in run.glob(name)}
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path not in listed)


def find(run: Path, file: RunFile) -> Path:
    """The file that is damaged."""
    if file.content is not None:
        return run / file.file
    found = sorted(path for path in run.glob(file.file) if path.is_file())
    if not found:
        raise DistrlError(f"{run} has no {file.file}", expected="a run with every kind of file")
    return found[-1]


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_file(path: Path, damage: Damage, *, fan: bool = False) -> None:
    """Break one file; `fan`: its folder stays writable."""
    if damage == "missing":
        path.unlink(missing_ok=True)  # it may be one that another damage takes away too
        return
    content = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(truncate(content))
        case "flipped":
            path.write_bytes(flip(content, first=0 if path.suffix == ".sqlite" else len(content) // 3))
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.unlink()
            path.mkdir()
            (path / "file").write_bytes(b"something")
        case "foreign":
            path.unlink()
            write_foreign(path)
        case "read-only":
            path.chmod(0o444)
            if not fan:
                path.parent.chmod(0o555)


def truncate(content: bytes) -> bytes:
    """The first half; of several lines, so much that the last one is cut off behind its third byte, wherever lines end."""
    middle = len(content) // 2
    line = content.rfind(b"\n", 0, middle)
    return content[: middle if line < 0 else line + 4]


def flip(content: bytes, *, first: int) -> bytes:
    """Invert one byte in 61 from the first on; of an index the very first, since nobody reads all its pages."""
    broken = bytearray(content)
    for at in range(first, len(broken), 61):
        broken[at] ^= 0xFF
    return bytes(broken)


def write_foreign(path: Path) -> None:
    """Something whole of the same kind that this run did not write."""
    if path.suffix == ".sqlite":
        path.write_bytes(_other_database())
        return
    kinds = {
        ".json": b'{"songs": ["one", "two"]}',
        ".jsonl": b'{"songs": 1}\n["two"]\n3\n',
        ".toml": b'[songs]\none = "two"\n',
    }
    header = b'{"song":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    kinds[".safetensors"] = len(header).to_bytes(8, "little") + header + bytes(4)
    path.write_bytes(kinds.get(path.suffix, b"PK\x03\x04 something else altogether\n" * 20))


def _other_database() -> bytes:
    """Made in memory: SQLite would take the log beside the damaged index for its own."""
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
        return other.serialize()


def mend_file(path: Path, content: bytes) -> None:
    """Undo any damage."""
    path.parent.chmod(0o755)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def restore_permissions(path: Path) -> None:
    """Let everything in a folder be written and removed again."""
    for folder, _, files in os.walk(path):
        Path(folder).chmod(0o755)
        for name in files:
            Path(folder, name).chmod(0o644)


# --- cases ------------------------------------------------------------------------------------------------------------


Listing = dict[str, tuple[int, int]]
"""Files by name, with their size and when they were written."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """How a verb ended on a damaged run."""

    ended: Ended
    lost: int
    """Good episodes that are gone or changed."""
    changed: tuple[str, ...] = ()
    """Files that a verb which only reads has made, changed or removed."""


def read_damaged(copy: Path, case: FileCase) -> Tried:
    """Try a verb that only reads, in a copy of the run; what was damaged is put back."""
    _put(copy, case.file)
    broken = find(copy, case.file)
    whole = {path: path.read_bytes() for path in (broken, *(copy / name for name in case.file.without))}
    try:
        _damage(copy, case.file, broken, case.damage)
        hurt = listing(copy)
        ended = run_verb(words_of(case.verb, copy), LIMIT_S[case.verb], powerless=case.damage == "read-only")
        now = listing(copy)
        # SQLite keeps its readers in the shared memory.
        names = {name for name in {*hurt, *now} if not name.endswith("-shm")}
        changed = tuple(sorted(name for name in names if hurt.get(name) != now.get(name)))
        return Tried(ended=ended, lost=_lost(hurt, now, [broken]), changed=changed)
    finally:
        for path, content in whole.items():
            mend_file(path, content)
        if case.file.content is not None:
            broken.unlink()


class Readers:
    """`AT_ONCE` processes, each with a copy of a run that it damages and reads."""

    def __init__(self, base: Path, root: Path) -> None:
        # Each alone in its folder, for `runs list`.
        self._copies = [Path(shutil.copytree(base, root / str(number) / "copy")) for number in range(AT_ONCE)]
        # A pool for each copy: two tasks of one pool might meet in it.
        self._pools = [ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in self._copies]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def read(self, cases: Sequence[FileCase]) -> list[Tried]:
        """Try verbs that only read, in the order of the cases."""
        trying = [
            pool.map(partial(read_damaged, copy), cases[number::AT_ONCE])
            for number, (pool, copy) in enumerate(zip(self._pools, self._copies, strict=True))
        ]
        found = [list(tried) for tried in trying]
        return [found[number % AT_ONCE][number // AT_ONCE] for number in range(len(cases))]


def resume_damaged(base: RunFolder, copy: Path, files: Sequence[RunFile], damage: Damage) -> Tried:
    """Resume a copy of the run in which all these files are damaged."""
    shutil.copytree(base.path, copy)
    try:
        for file in files:
            _put(copy, file)
        broken, before = [find(copy, file) for file in files], listing(copy)
        for file, path in zip(files, broken, strict=True):
            _damage(copy, file, path, damage)
        words = words_of("resume", copy, episodes=num_episodes(base) + 4)
        ended = run_verb(words, LIMIT_S["resume"], powerless=damage == "read-only")
        _await_roles(RunFolder(copy))
        return Tried(ended=ended, lost=_lost(before, listing(copy), broken))
    finally:
        restore_permissions(copy)
        shutil.rmtree(copy)


def _await_roles(run: RunFolder) -> None:
    """Wait until the roles of a session are gone: one that took too long was killed, and they notice that and end."""
    until_s = time.monotonic() + ROLES_END_S
    while time.monotonic() < until_s and any(map(_is_held, run.heartbeats.glob("*.lock"))):
        time.sleep(0.1)


def _is_held(lock: Path) -> bool:
    return lock.is_file() and held(lock)


def _put(copy: Path, file: RunFile) -> None:
    """Make a file that only some runs have."""
    if file.content is not None:
        (copy / file.file).write_bytes(file.content)


def _damage(copy: Path, file: RunFile, path: Path, damage: Damage) -> None:
    for name in file.without:
        (copy / name).unlink(missing_ok=True)
    damage_file(path, damage, fan=file.fan)


def _lost(before: Listing, now: Listing, broken: Sequence[Path]) -> int:
    """Episodes that are gone or changed, but for those that were damaged."""
    good = {name: stamp for name, stamp in before.items() if name.endswith(".ep") and Path(name) not in broken}
    return sum(now.get(name) != stamp for name, stamp in good.items())


def num_episodes(run: RunFolder) -> int:
    """Episodes that were played."""
    return msgspec.json.decode(run.summary.read_bytes(), type=Summary).episodes


def listing(run: Path) -> Listing:
    """Every file of a run with its size and when it was written."""
    found = [entry for folder, _, files in os.walk(run) for entry in (os.path.join(folder, name) for name in files)]
    stats = {name: os.stat(name) for name in found}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
