"""Faults of what surrounds a run: the date, the disk, missing packages, permissions, and a reader that goes away."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from distrl.bench.jobs import log_progress
from distrl.bench.system.fault_cases import Surrounding
from distrl.bench.system.fault_files import SETTINGS, flags, listing, num_episodes, restore_permissions
from distrl.bench.system.fault_signals import SLOW, Sessions
from distrl.bench.system.fault_verbs import LIMIT_S, Ended, run_verb, words_of
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import read_summary

SHIFTED = """
import os, time
from pathlib import Path
real, shift = time.time, Path(os.environ["DISTRL_BENCH_DATE"])
def date():
    kind, _, seconds = shift.read_text().partition(" ")
    return float(seconds) if kind == "stopped" else real() + float(seconds)
time.time = date
"""
"""A `sitecustomize` that sets the date of every process by what stands in a file."""
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
"""A `sitecustomize` under which there is no torch."""
FULL_BYTES = 60_000
"""Largest file on a disk that is full from the start: the settings fit, weights do not."""
HOUR_S = 3600.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a case is tried."""

    base: RunFolder
    """A finished run, which nobody may change."""
    root: Path
    """An empty folder."""
    case: Surrounding


def try_surrounding(base: RunFolder, root: Path, case: Surrounding) -> str:
    """What came of a case: what was expected of it, or what was seen instead."""
    log_progress(f"faults: {case.what}: {case.how}")
    root.mkdir(parents=True)
    try:
        return TRIALS[case.what](Scene(base=base, root=root, case=case))
    finally:
        restore_permissions(root)
        shutil.rmtree(root, ignore_errors=True)


# --- the date ---------------------------------------------------------------------------------------------------------


def _environment(root: Path, customize: str) -> dict[str, str]:
    """An environment in which every Python process runs this first."""
    (root / "path").mkdir()
    (root / "path" / "sitecustomize.py").write_text(customize, encoding="utf-8")
    paths = [str(root / "path"), *(path for path in sys.path if path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _date(scene: Scene) -> str:
    """Train while the date jumps: nobody is restarted for it, nothing is lost, and the hour is not charged."""
    shift, started_s = scene.root / "shift", time.monotonic()
    _write(shift, "shifted 0")
    environment = {**_environment(scene.root, SHIFTED), "DISTRL_BENCH_DATE": str(shift)}
    sessions = Sessions(scene.root / "run", SLOW, environment)
    try:
        sessions.begin(14)
        sessions.until(lambda: sessions.count() >= 4, "its first episodes")
        words = {"forward": f"shifted {HOUR_S}", "back": f"shifted {-HOUR_S}", "stopped": f"stopped {time.time()}"}
        _write(shift, words[scene.case.how])
        code, took_s = sessions.end(), time.monotonic() - started_s
        summary = read_summary(sessions.run)
    finally:
        sessions.stop()
    if code != 0 or summary is None:
        return f"exit code {code}: {sessions.said()[-300:]}"
    if summary.restarts or summary.lost_episodes or summary.duplicate_episodes or summary.wall_s > took_s + 1.0:
        return f"restarts {summary.restarts}, lost {summary.lost_episodes}, {summary.wall_s:.0f} s of {took_s:.0f} s"
    return "goes on"


def _write(file: Path, text: str) -> None:
    """Readers see the old text or the new one."""
    draft = file.with_suffix(".new")
    draft.write_text(text, encoding="ascii")
    draft.replace(file)


# --- the disk ---------------------------------------------------------------------------------------------------------


def _full_disk(scene: Scene) -> str:
    match scene.case.how:
        case "from the start":
            words = ["train", "--no-view", *flags({**SETTINGS, "run.root": str(scene.root / "runs")})]
            return _command(words, LIMIT_S["resume"], limit_bytes=FULL_BYTES).outcome
        case "while training":
            return _fills_up(scene.root)
        case _:
            return _command(words_of("status", scene.base.path), LIMIT_S["status"], limit_bytes=0).outcome


def _fills_up(root: Path) -> str:
    """The disk is full for all processes of a run that trains; once there is space, it goes on and nothing is lost."""
    sessions = Sessions(root / "run", SLOW)
    try:
        sessions.begin()
        sessions.until(lambda: sessions.count() >= 4, "its first episodes")
        for pid in (sessions.pid, *sessions.started().values()):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        code = sessions.end()
        full = Ended(code=code, out="", err=sessions.said())
        if full.outcome != "refused":
            return full.outcome
        sessions.begin(sessions.count() + 4)
        code, summary = sessions.end(), read_summary(sessions.run)
        whole = summary is not None and summary.lost_episodes == summary.duplicate_episodes == 0
        return "refused" if code == 0 and whole else f"resumed with exit code {code}: {sessions.said()[-300:]}"
    finally:
        sessions.stop()


# --- packages, permissions, pipes -------------------------------------------------------------------------------------


def _no_torch(scene: Scene) -> str:
    environment = _environment(scene.root, HIDDEN)
    words = (
        ["train", "--no-view", "--run.root", str(scene.root / "runs")]
        if scene.case.how == "train"
        else words_of(scene.case.verb, scene.base.path)
    )
    return _command(words, LIMIT_S[scene.case.verb], environment=environment, folder=scene.root).outcome


def _forbidden(scene: Scene) -> str:
    """A run folder in which nothing may be written."""
    copy = Path(shutil.copytree(scene.base.path, scene.root / "copy"))
    for folder, _, files in os.walk(copy):
        for name in files:
            Path(folder, name).chmod(0o444)
        Path(folder).chmod(0o555)
    before = listing(copy)
    words = words_of(scene.case.verb, copy, episodes=num_episodes(scene.base) + 4)
    ended = run_verb(words, LIMIT_S[scene.case.verb], powerless=True)
    return ended.outcome if listing(copy) == before else "something was written"


def _closed_pipe(scene: Scene) -> str:
    """The reader of a command's output goes at once: the command still comes to its end, with exit code 0."""
    new = ["train", "--no-view", *flags({**SETTINGS, "run.root": str(scene.root / "runs")})]
    words = new if scene.case.how == "train" else words_of(scene.case.verb, scene.base.path)
    with (scene.root / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "distrl", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if scene.case.how == "train" else errors,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.close()
        code = _wait(process, LIMIT_S["resume"])
    said = (scene.root / "errors").read_text(encoding="utf-8", errors="replace")
    if scene.case.how == "train":
        runs = [RunFolder(path) for path in (scene.root / "runs").iterdir()]
        return "goes on" if code == 0 and runs and read_summary(runs[0]) is not None else f"exit code {code}"
    return "goes on" if code == 0 and "Traceback" not in said else f"exit code {code}: {said[-300:]}"


def _command(
    words: list[str],
    limit_s: float,
    *,
    environment: dict[str, str] | None = None,
    limit_bytes: int | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a command as a process of its own, in `folder`; `limit_bytes`: no file can grow beyond."""

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    program = ["distrl.bench.system.fault_verbs", *words[1:]] if words[0] == "Python" else ["distrl", *words]
    process = subprocess.Popen(
        [sys.executable, "-m", *program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=limit, cwd=folder,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ended(code=None, out=out, err=err)
    return Ended(code=process.returncode, out=out, err=err)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return None


TRIALS: dict[str, Callable[[Scene], str]] = {
    "the date": _date,
    "a full disk": _full_disk,
    "no torch": _no_torch,
    "no write permission": _forbidden,
    "a pipe that closes": _closed_pipe,
}
"""What tries a case, by what is at fault."""
