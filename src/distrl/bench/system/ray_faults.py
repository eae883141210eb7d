"""`distrl bench ray_faults`: 200 random faults over one run on a Ray of three nodes, and what they cost.

The run decides with inference actors, so every kind of process is there to be hit. Faults come at random times:

- kill: SIGKILL of a worker, the learner, the evaluator, an inference actor or the hub;
- pause: SIGSTOP of one of these for some seconds, often longer than a role may be silent;
- cut: the network of a node with workers is cut for some seconds. Each of these nodes has a network of its own, which only root may make: for
  anybody else all processes of the node stand still instead, its raylet too, which unlike behind a real cut do not play on meanwhile;
- disk full: the disk of the run folder has no byte left for some seconds. It is a small memory disk of its own, which only root
  may mount: for anybody else, these faults are pauses. A run ends on a full disk, with the fix; it is resumed once there is space;
- slow disk: the index of episodes is locked for some seconds, as by a disk that does not come back from a write.

Counted are episodes that were acknowledged and are gone, episodes that are there twice, how soon `distrl status` names each role that
is paused, and the longest time in which no episode came and neither `distrl status` nor a heartbeat named a role, the hub or the
store as what is waited for.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.kills import Kills, audit
from distrl.bench.system.processes import tree
from distrl.bench.system.ray_networks import HEAD, NetworkNode, network_nodes, networks
from distrl.bench.system.ray_nodes import on_cluster, ray_nodes
from distrl.bench.system.weights import quantile
from distrl.config.load import load_config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.base import RoleStatus, role_names
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import read_status
from distrl.telemetry.events import events_of
from distrl.transport.files import FileHeartbeats
from distrl.types import Value

Kind = Literal["kill", "pause", "cut", "disk full", "slow disk"]
FAULTS, QUICK_FAULTS = 200, 8
SHARES: dict[Kind, int] = {"kill": 110, "pause": 50, "cut": 12, "disk full": 8, "slow disk": 20}
"""Of 200."""
EVERY_S = 3.0
"""Mean time between two faults."""
SPARE = 1.3
"""Longer than the faults should take: intervals are random, and faults that find nobody to hit come again."""
HELD_S = (1.0, 6.0)
"""How long a cut or a disk fault lasts."""
PAUSED_S = (2.0, 15.0)
"""How long a pause lasts; beyond `runtime.silent_after_s`, the role is killed and started again meanwhile."""
NAMED_WITHIN_S = 10.0
NODES = 2
DISK_BYTES = 2**30
LOOK_S = 0.25
START_S, END_S = 300.0, 600.0
HUB = "hub"
SETTINGS: dict[str, Value] = {
    "run.name": "ray-faults",
    "rollout.workers": 3,
    "rollout.decide": "actors",
    "inference.actors": 2,
    "inference.cpus": 0.1,
    "inference.deadline_s": 5,
    "devices.per_worker": 16,
    "devices.sim.latency.time_scale": 0.2,
    "warm_start.demonstrations": 60,
    "warm_start.epochs": 4,
    "learner.checkpoint_every_s": 5.0,
    "evaluation.episodes": 30,
    "evaluation.every_s": 15.0,
    "evaluation.during_episodes": 20,
    "runtime.max_restarts": 100,  # it is about faults, and these come from outside
}


class RayFaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the faults came to."""

    faults: int
    by_kind: dict[str, int]
    by_target: dict[str, int]
    episodes: int
    lost_episodes: int
    unacknowledged_episodes: int
    """Finished and not yet stored when their worker was killed."""
    duplicate_episodes: int
    exactly_once: bool
    """Each was read by the learner exactly once."""
    restarts: int
    resumed: int
    """How often the run had ended on a full disk and was resumed."""
    finished: bool
    pauses_named: int
    """Pauses of roles that were at work; while a role loads its libraries, its silence is not a stall."""
    pauses_over_before_named: int
    pauses_not_named: int
    """That lasted longer than 10 s, and were not named within these."""
    named_p50_s: float
    named_slowest_s: float
    """From the stop of a role until `distrl status` calls it silent."""
    longest_without_episode_s: float
    longest_unnamed_stall_s: float
    """The longest of it in which nothing was named."""
    cut_by: str
    full_disk_by: str
    wall_s: float
    nodes: int
    runtime: str
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> RayFaultFigures:
    """Measure everything that `distrl bench ray_faults` reports."""
    count, started_s = QUICK_FAULTS if options.quick else FAULTS, time.monotonic()
    with fault_nodes() as (cluster, nodes), small_disk() as (root, is_own):
        settings = {
            **SETTINGS,
            **on_cluster(cluster),
            "run.root": str(root),
            "run.minutes": SPARE * count * EVERY_S / 60,
        }
        trial = Trial(cluster, nodes, root, settings, Random("ray faults"), can_fill=is_own)
        try:
            trial.play(count)
        finally:
            trial.stop()
        return trial.figures(time.monotonic() - started_s)


@contextmanager
def fault_nodes() -> Iterator[tuple[Any, list[NetworkNode]]]:
    """A cluster with nodes that have phones, and those of them that have a network of their own: all of them or none."""
    with ExitStack() as stack:
        own = stack.enter_context(networks(NODES))
        cluster = stack.enter_context(ray_nodes(0, node_ip_address=HEAD) if own else ray_nodes(NODES))
        yield cluster, stack.enter_context(network_nodes(cluster, NODES)) if own else []


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder, and whether it is a disk of its own."""
    with tempfile.TemporaryDirectory(prefix="distrl-faults-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            mounted = False
        try:
            yield Path(folder), mounted
        finally:
            if mounted:
                command = ["umount", "-l", folder]
                subprocess.run(command, check=False)


class Trial:
    """A run that is hit, and watched meanwhile."""

    def __init__(
        self,
        cluster: Any,
        nodes: list[NetworkNode],
        root: Path,
        settings: dict[str, Value],
        random: Random,
        *,
        can_fill: bool,
    ) -> None:
        self._nodes = nodes
        self._cluster, self._root, self._settings, self._random = cluster, root, settings, random
        self._can_fill, self._config = can_fill, load_config(None, settings)
        self._folder = tempfile.TemporaryDirectory(prefix="distrl-faults-")
        self._errors = Path(self._folder.name, "errors")  # not on the disk that will be full
        flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        self._training = self._begin(*flags)
        self._run = self._await_run()
        self._watch = Watch(self._run)
        self._held: list[tuple[float, str, Any]] = []
        """What is to end: when, what, and the call that ends it."""
        self.by_kind: Counter[str] = Counter()
        self.by_target: Counter[str] = Counter()
        self.resumed = 0

    def _begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distrl", "train", "--no-view", *arguments]
        with self._errors.open("wb") as output:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)

    def _await_run(self) -> RunFolder:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s and self._training.poll() is None:
            for file in self._root.glob("*/weights/latest.json"):
                run = RunFolder(file.parents[1])
                with ExperienceStore(run.experience, read_only=True) as store:
                    if store.count():
                        return run
            time.sleep(LOOK_S)
        raise self._failed("did not begin")

    def play(self, count: int) -> None:
        """Let so many faults come, and see the run end."""
        weights = [(kind, share) for kind, share in SHARES.items() if kind != "disk full" or self._can_fill]
        kinds, shares = [kind for kind, _ in weights], [share for _, share in weights]
        next_s = time.monotonic()
        while self.by_kind.total() < count:  # one that finds nobody to hit is none
            next_s += self._random.expovariate(1 / EVERY_S)
            self._wait_until(next_s)
            if self._training.poll() is not None and not self._held:
                break  # its time is over
            self._hit(self._random.choices(kinds, shares)[0])
            next_s = max(next_s, time.monotonic() - EVERY_S)
        self._wait_until(time.monotonic() + HELD_S[1])
        self._await_end()

    def _wait_until(self, at_s: float) -> None:
        while True:
            self._turn()
            if time.monotonic() >= at_s:
                return
            time.sleep(LOOK_S)

    def _turn(self) -> None:
        now_s = time.monotonic()
        for held in [held for held in self._held if held[0] <= now_s]:
            self._held.remove(held)
            held[2]()
        if self._training.poll() not in (None, 0):
            self._resume()
        self._watch.look()

    def _resume(self) -> None:
        """Go on with a run that a full disk has ended; any other end is a failure."""
        while self._held:  # the disk is empty again, and nobody stands still
            self._held.pop()[2]()
        said = self._errors.read_text(encoding="utf-8", errors="replace")
        if "space" not in said:
            raise self._failed(f"failed (exit code {self._training.returncode})")
        self.resumed += 1
        log_progress("the run ended on the full disk; it is resumed")
        self._training = self._begin("--resume", str(self._run.path))
        self._watch.rest()

    def _hit(self, kind: Kind) -> None:
        held_s = self._random.uniform(*(PAUSED_S if kind == "pause" else HELD_S))
        target = self._strike(kind, held_s)
        if target is None:
            return
        self.by_kind[kind] += 1
        self.by_target[target.partition("-")[0]] += 1
        log_progress(f"fault {self.by_kind.total()}: {kind}: {target}")

    def _strike(self, kind: Kind, held_s: float) -> str | None:
        """Begin a fault; what it hits."""
        if kind in ("kill", "pause"):
            return self._signal(kind, held_s)
        if any(what == kind for _, what, _ in self._held):
            return self._signal("pause", held_s)  # one of each at a time
        if kind == "cut":
            return self._cut(held_s)
        return self._fill(held_s) if kind == "disk full" else self._lock(held_s)

    def _end_later(self, held_s: float, what: str, end: Any) -> None:
        self._held.append((time.monotonic() + held_s, what, end))

    def _signal(self, kind: str, held_s: float) -> str | None:
        targets = {name: pid for name, pid in self._pids().items() if is_running(pid)}
        if not targets:
            return None
        name = self._random.choice(sorted(targets))
        pid = targets[name]
        if not _send(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP):
            return None
        if kind == "pause":
            self._watch.pauses.begin(name)
            self._end_later(held_s, kind, lambda: self._go_on(name, pid))
        return name

    def _go_on(self, name: str, pid: int) -> None:
        self._watch.pauses.end(name)
        _send(pid, signal.SIGCONT)

    def _pids(self) -> dict[str, int]:
        beats = FileHeartbeats(self._run.heartbeats)
        found = {name: beat.pid for name in role_names(self._config) if (beat := beats.last(name)) is not None}
        hubs = [int(event["pid"]) for event in events_of(self._run.log("supervisor"), "hub", "pid")]
        return {**found, **({HUB: hubs[-1]} if hubs else {})}

    def _cut(self, held_s: float) -> str:
        """Cut the network of a node with workers, or have all its processes stand still."""
        if self._nodes:
            cut = self._random.choice(self._nodes)
            cut.cut()
            self._end_later(held_s, "cut", cut.mend)
            return "node"
        node = self._random.choice(self._cluster.list_all_nodes()[1:])
        raylet = node.all_processes["raylet"][0].process.pid
        stopped = [pid for pid in tree(raylet) if _send(pid, signal.SIGSTOP)]
        self._end_later(held_s, "cut", lambda: [_send(pid, signal.SIGCONT) for pid in stopped])
        return "node"

    def _fill(self, held_s: float) -> str:
        ballast = self._root / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 2**20)
        self._end_later(held_s, "disk full", lambda: ballast.unlink(missing_ok=True))
        return "disk"

    def _lock(self, held_s: float) -> str:
        held = sqlite3.connect(self._run.experience / "index.sqlite", isolation_level=None, timeout=2.0)
        try:
            held.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            held.close()
            return self._signal("pause", held_s) or "index"
        self._end_later(held_s, "slow disk", held.close)
        return "index"

    def _await_end(self) -> None:
        until_s = time.monotonic() + END_S
        while self._training.poll() is None and time.monotonic() < until_s:
            self._turn()
            time.sleep(LOOK_S)
        if self._training.poll() != 0:
            raise self._failed("did not come to its end")

    def _failed(self, what: str) -> DistrlError:
        said = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        return DistrlError(f"the run {what}: {' / '.join(said)[:600]}", expected="a run that survives the faults")

    def stop(self) -> None:
        """End everything that is left."""
        for _, _, end in self._held:
            end()
        self._training.kill()
        self._training.wait()
        self._folder.cleanup()

    def figures(self, wall_s: float) -> RayFaultFigures:
        """What the run's own records come to."""
        pauses = self._watch.pauses
        found = audit(self._run, self._config, Kills(by_role=dict(self.by_target), longest_silence_s=0.0), wall_s)
        return RayFaultFigures(
            faults=self.by_kind.total(),
            by_kind=dict(self.by_kind),
            by_target=dict(sorted(self.by_target.items())),
            episodes=found.episodes,
            lost_episodes=found.lost_episodes,
            unacknowledged_episodes=found.unacknowledged_episodes,
            duplicate_episodes=found.duplicate_episodes,
            exactly_once=found.exactly_once,
            restarts=found.restarts,
            resumed=self.resumed,
            finished=found.finished,
            pauses_named=len(pauses.named_s),
            pauses_over_before_named=pauses.over_before,
            pauses_not_named=pauses.not_named,
            named_p50_s=round(quantile(pauses.named_s, 0.5), 2) if pauses.named_s else 0.0,
            named_slowest_s=round(max(pauses.named_s, default=0.0), 2),
            longest_without_episode_s=round(self._watch.longest_without_s, 1),
            longest_unnamed_stall_s=round(self._watch.longest_unnamed_s, 1),
            cut_by="network of the node cut" if self._nodes else "all processes of the node stopped: not root",
            full_disk_by="memory disk filled" if self._can_fill else "nothing: not root",
            wall_s=found.wall_s,
            nodes=1 + NODES,
            runtime="ray",
            seeds=1,
            config_hash=found.config_hash,
        )


class Pauses:
    """Roles that stand still, and how soon they are named."""

    def __init__(self) -> None:
        self._begun_s: dict[str, float] = {}
        self.named_s: list[float] = []
        self.over_before = self.not_named = 0

    def begin(self, role: str) -> None:
        """A role stands still from now on."""
        self._begun_s[role] = time.monotonic()

    def look(self, roles: Sequence[RoleStatus], now_s: float) -> None:
        """Take in what `distrl status` says of each role; the hub is none of them, and is named by those that wait for it."""
        named = {role.role for role in roles if role.note}
        if named or any(role.heartbeat is not None and HUB in role.heartbeat.what for role in roles):
            named.add(HUB)
        for role in roles:
            if role.heartbeat is not None and role.heartbeat.phase == "starting":
                self._begun_s.pop(role.role, None)  # it says so itself, for as long as `runtime.start_grace_s`
        for name in named & self._begun_s.keys():
            self.named_s.append(now_s - self._begun_s.pop(name))

    def end(self, role: str) -> None:
        """It goes on, or another incarnation has taken its place."""
        begun_s = self._begun_s.pop(role, None)
        if begun_s is None:
            return
        if time.monotonic() - begun_s > NAMED_WITHIN_S:
            self.not_named += 1
        else:
            self.over_before += 1


class Watch:
    """For how long no episode comes, and whether anything is named meanwhile."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self.pauses = Pauses()
        self._episodes = -1
        self.longest_without_s = self.longest_unnamed_s = 0.0
        self.rest()

    def rest(self) -> None:
        """Begin anew: there is nobody who could bring episodes."""
        self._since_s = self._unnamed_since_s = time.monotonic()

    def look(self) -> None:
        """Take in what the store and `distrl status` say now."""
        now_s = time.monotonic()
        try:
            status = read_status(self._run, now_s=time.time())
        except (DistrlError, OSError, sqlite3.Error):
            return  # the index is locked, or the disk full: whoever asks sees that
        self.pauses.look(status.roles, now_s)
        if status.phase != "live" or _is_winding_down(self._run):
            self.rest()
            return
        if status.episodes != self._episodes:
            self._episodes = status.episodes
            self._since_s = self._unnamed_since_s = now_s
        if any(role.note or is_telling(role.heartbeat) for role in status.roles):
            self._unnamed_since_s = now_s
        self.longest_without_s = max(self.longest_without_s, now_s - self._since_s)
        self.longest_unnamed_s = max(self.longest_unnamed_s, now_s - self._unnamed_since_s)


def is_telling(beat: Any) -> bool:
    """Whether a role says that it waits for something that is not there, or that it starts."""
    if beat is None:
        return False
    waits = beat.phase == "waiting" and any(
        word in beat.what for word in ("hub", "store", "inference actor", "a device")
    )
    return waits or beat.phase == "starting"


def _is_winding_down(run: RunFolder) -> bool:
    beats = (FileHeartbeats(run.heartbeats).last(path.stem) for path in run.heartbeats.glob("worker-*.json"))
    return any(beat is not None and beat.phase == "stopped" for beat in beats)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and nobody has stopped it."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] not in "TZ"
    return False


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
