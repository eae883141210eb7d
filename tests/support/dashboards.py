"""A dashboard in a process of its own, as `distrl view` starts it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from distrl.bench.system.stored_run import write_stored_run
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.types import Tap, Trajectory, UiElement, Verdict
from support.runs import PATIENCE_S


class Dashboard:
    """One that runs."""

    def __init__(self, place: Path, *flags: str, port: int = 0) -> None:
        self._start(["view", str(place), "--no-browser", *flags], port=port)

    def _start(self, words: list[str], *, port: int, folder: Path | None = None) -> None:
        command = [sys.executable, "-m", "distrl", *words, "--json", "--port", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, self._process.communicate()
        found = json.loads(said)
        self.url, self.port = found["url"].rstrip("/"), found["port"]

    def stop(self) -> str:
        """End it; what it said on stderr."""
        self._process.terminate()
        _, errors = self._process.communicate(timeout=PATIENCE_S)
        return errors


@contextmanager
def dashboard(place: Path, *flags: str, port: int = 0) -> Iterator[Dashboard]:
    """One while this lasts."""
    found = Dashboard(place, *flags, port=port)
    try:
        yield found
    finally:
        found.stop()


class Trying(Dashboard):
    """The one that `distrl tasks try ID --browser` starts in a folder; its address is that of the attempt."""

    def __init__(self, task: str, folder: Path, *flags: str) -> None:
        self._start(["tasks", "try", task, "--browser", *flags], port=0, folder=folder)


@contextmanager
def trying(task: str, folder: Path, *flags: str) -> Iterator[Trying]:
    """One while this lasts."""
    found = Trying(task, folder, *flags)
    try:
        yield found
    finally:
        found.stop()


SCRIPT = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
HOSTILE = f"{SCRIPT}\" onload='window.hacked=1' `${{window.hacked=1}}` \u202e\u0000 {{{{7*7}}}} </title></style>"


def write_hostile_run(root: Path) -> RunFolder:
    """A run in which everything that a device or a model says is an attempt on the page, its name included."""
    run = write_stored_run(root, 12)
    hostile = root / "20990101-000000-<img src=x onerror=alert(1)>&\"'"
    run.path.rename(hostile)
    run = RunFolder(hostile)
    with ExperienceStore(run.experience) as store:
        store.add(_hostile(store.read("episode-000003")))
    for log in ("worker-0", "supervisor"):
        with run.log(log).open("ab") as file:
            file.write(
                msgspec.json.encode({"time_s": 1.0, "event": "device_lost", "device": HOSTILE, "why": HOSTILE}) + b"\n"
            )
            file.write(msgspec.json.encode({"time_s": 1.0, "event": "notice", "text": HOSTILE}) + b"\n")
    with run.metrics.open("ab") as file:
        line = {"time_s": 1e10, "event": "learner", "role": HOSTILE, "learner/entropy": 0.1}
        file.write(msgspec.json.encode(line) + b"\n")
    return run


def _hostile(episode: Trajectory) -> Trajectory:
    replace = msgspec.structs.replace
    elements = tuple(
        replace(element, text=HOSTILE, description=HOSTILE, resource_id=HOSTILE)
        for element in episode.steps[0].observation.elements
    )
    assert all(isinstance(element, UiElement) for element in elements)
    steps = tuple(
        replace(step, observation=replace(step.observation, elements=elements, app=HOSTILE, instruction=HOSTILE))
        for step in episode.steps
    )
    task = replace(episode.task, instruction=HOSTILE, template=HOSTILE, id=f"sim-start/train/{HOSTILE}")
    return replace(
        episode, id="hostile", task=task, steps=steps, device=HOSTILE, worker=HOSTILE, verdict=Verdict(outcome="failure", reason=HOSTILE, side_effects=(HOSTILE,)),
    )  # fmt: skip


def odd_numbers(run: RunFolder) -> None:
    """An episode in which no number is one."""
    nan, replace = math.nan, msgspec.structs.replace
    with ExperienceStore(run.experience) as store:
        episode = store.read("episode-000003")
        steps = tuple(
            replace(
                step, device_s=nan, reward=math.inf, version=-1, observation=replace(step.observation, width_px=-3, height_px=10**12),
                decision=replace(step.decision, action=Tap(nan, math.inf), logp=nan, value=nan, entropy=nan),
            ) for step in episode.steps
        )  # fmt: skip
        store.add(replace(episode, id="odd", steps=steps, priority=nan, last_value=nan, verdict=replace(episode.verdict, progress=nan)))  # fmt: skip
