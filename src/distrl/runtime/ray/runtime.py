"""Roles as actors on the nodes of a Ray cluster, supervised as local ones are.

The run folder lies on the machine that began the run, which is a node of the cluster. There, a hub (`transport.ray`) opens
it to the roles on other nodes. Ray places the roles by what they need, restarts the hub, and moves what travels; this
supervisor starts a role again that died or fell silent, wherever there is a place for it by then. A worker whose node is
gone waits for another, and joins once there is one.

An incarnation that cannot be reached may still be alive beyond a cut network. It is killed as far as that is possible,
and refused by the hub once its successor has begun.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from distrl.config.schema import Config
from distrl.errors import ConfigError, RoleCrashed, StoreError
from distrl.runtime.base import inference_names, worker_names
from distrl.runtime.ray.cluster import check_cluster, code_version, describe, needs_of, num_gpus
from distrl.runtime.ray.head_watch import LOOK_EVERY_S, HeadWatch
from distrl.runtime.ray.hub_watch import HubWatch
from distrl.runtime.ray.inference import CALLS_AT_ONCE, actor_name
from distrl.runtime.ray.role_actor import DECISIONS, End, Order, Place, RoleActor
from distrl.runtime.run_folder import Lock, RunFolder, take
from distrl.runtime.spools import prepare_spools, remove_empty, spool_names
from distrl.runtime.supervision import SupervisedRole, Supervisor
from distrl.telemetry.heartbeat import Heartbeat
from distrl.threads import in_thread
from distrl.transport.files import FileTransport
from distrl.transport.ray.hub import Hub

HUB_S = 25.0
"""How long the hub may take to start: loading its libraries on a busy machine is most of it."""
FIRST_PLACED_S = 10.0
"""How long roles that can run anywhere leave the choice to those that cannot."""
PLACING_S = 20.0
"""How long Ray takes to start a role that has a place, on a busy machine: at the end of a run nobody waits longer for a worker without one."""
LEAVE_S = 10.0
"""How long leaving a cluster may take whose head does not answer; without a GCS it takes Ray five seconds."""
NODE_GONE_S = 5.0
"""For so long the hub has been away before anybody asks whether its node is: on another one it cannot start again."""
KILLED = -int(signal.SIGKILL)
CONTROL_THREADS = 2


class _Role(SupervisedRole):
    """A role and the actor of its present incarnation."""

    def __init__(self, name: str, needs: str) -> None:
        super().__init__(name)
        self.actor: Any = None
        self.incarnation = 0
        self.place: Place | None = None
        """Where the actor runs, once it does."""
        self.lock: Lock | None = None
        """Held for an actor on another machine, so that whoever looks at the run sees that the role is alive."""
        self.launched_s = 0.0
        self._needs = needs
        self._begin: Callable[[Place], Any] = lambda place: None
        self._placed: Any = None
        self._over: Any = None
        self.end: End | None = None
        self.out_of_reach = False
        """Whether it is on another machine, and nobody can be told there to kill it."""
        self._died = ""

    def launched(self, actor: Any, incarnation: int, *, now_s: float, begin: Callable[[Place], Any]) -> None:
        """Be this actor from now on. Once it has a place, `begin` has it do its work, or refuses the place; what it ends with comes of that."""
        self.actor, self.incarnation, self.launched_s = actor, incarnation, now_s
        self.place = self.end = self._over = None
        self._died, self._begin = "", begin
        self._placed = actor.place.remote()

    @property
    def started(self) -> bool:
        """Whether there is an actor."""
        return self.actor is not None

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as Ray knows."""
        return self.place is not None and self.end is None and not self._died

    @property
    def waits_for(self) -> str:
        """A place to run, where it has none."""
        if not self.started or self.place is not None:
            return ""
        return f"starts once a node has {self._needs} to spare" if self._needs else "is being started by Ray"

    def look(self) -> None:
        """Take in what Ray knows of it by now."""
        if self.place is None and not self._died and _is_ready(self._placed):
            self._take_place()
        if self._over is not None and self.end is None and not self._died and _is_ready(self._over):
            self._take_end()

    def _take_place(self) -> None:
        try:
            place = msgspec.msgpack.decode(ray.get(self._placed, timeout=1.0), type=Place)
        except (ActorUnavailableError, GetTimeoutError):
            self._placed = self.actor.place.remote()  # that answer is lost for good
        except RayActorError as error:
            if error.actor_init_failed:
                raise _no_code(self.name, error) from error
            self._died = f"killed: {_in_words(error)}"
        except (RayError, msgspec.DecodeError) as error:
            raise _no_code(self.name, error) from error
        else:
            self._over = self._begin(place)
            self.place = place

    def _take_end(self) -> None:
        try:
            self.end = msgspec.msgpack.decode(ray.get(self._over, timeout=1.0), type=End)
        except (ActorUnavailableError, GetTimeoutError):
            return  # it cannot be reached at present: if it stays away, it is silent
        except RayActorError as error:
            self._died = f"killed: {_in_words(error)}"
        except (RayError, msgspec.DecodeError) as error:
            self._died = f"failed: {_in_words(error)}"

    def exit_code(self) -> int | None:
        """How its actor has ended; None while it runs or waits for a place."""
        self.look()
        if self._died:
            return KILLED
        return None if self.end is None else self.end.code

    def describe_end(self, code: int) -> str:
        """An end that nobody asked for, in words."""
        if self._died:
            return self._died
        return "it ended without being asked" if code == 0 else f"exit code {code}"

    def exit_reason(self) -> str:
        """Why its actor gave up; empty: it did not say."""
        return self.end.reason if self.end is not None else ""

    def owns(self, heartbeat: Heartbeat) -> bool:
        """Whether its present actor has said this."""
        return self.started and heartbeat.incarnation == self.incarnation

    def ask_to_finish(self) -> None:
        """Ask its actor to come to a good end."""
        self.actor.ask_to_finish.remote()

    def kill(self) -> None:
        """End its actor's process, also one that is stopped and hears nothing."""
        if self.actor is None:
            return
        with suppress(RayError):
            ray.kill(self.actor)
        if self.place is not None and self.end is None and not self._died and not self.out_of_reach:
            _kill_process(self.place)
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def forget(self) -> None:
        """Be without an actor."""
        self.actor = self.place = self.end = self._over = None
        self._died = ""


class RayRuntime(Supervisor[_Role]):
    """`runtime.base.Runtime` on a Ray cluster."""

    def __init__(self, run: RunFolder, config: Config) -> None:
        self.transport = FileTransport(run, keep_versions=config.learner.keep_versions)
        super().__init__(run, config.runtime, self.transport.heartbeats, time.monotonic)
        self._all = config
        self._spools: Path | None = None
        self._hub: Any = None
        self._hub_watch: HubWatch | None = None
        self._head_watch: HeadWatch | None = None
        self._node_looked_s = 0.0
        self._node = ""
        self._code = code_version()

    def start(self, roles: tuple[str, ...]) -> None:
        """Join the cluster, open the run folder to it, and place these roles."""
        check_cluster(self._all)
        self._node = str(ray.get_runtime_context().get_node_id())
        self._head_watch = HeadWatch(ray.get_runtime_context().gcs_address, self._log, clock=self._clock)
        self._spools = prepare_spools(self._run)
        self._hub = self._start_hub()
        self._hub_watch = HubWatch(self._hub, self._log, silent_after_s=self._config.silent_after_s, clock=self._clock)
        needs = needs_of(self._all, roles, gpus=num_gpus())
        for need in needs:
            self._roles[need.role] = _Role(need.role, describe(need.resources) if need.resources else "")
        self._needs = {need.role: need.resources for need in needs}
        bound = [role for role in self._roles.values() if self._is_bound(role)]
        for role in bound:
            self._launch(role)
        for role in self._roles.values():
            if role not in bound:
                role.start_at_s = self._clock() + bool(bound) * FIRST_PLACED_S

    def _is_bound(self, role: _Role) -> bool:
        """Whether it can only run on some of the nodes: those that can run anywhere must not take their place."""
        return bool(self._needs[role.name].keys() - {"CPU"})

    def _ended(self, role: _Role, code: int) -> None:
        if role.end is not None and role.end.trace:
            with self._run.console(role.name).open("a", encoding="utf-8") as console:  # as a local role's own output
                console.write(role.end.trace + "\n")
        super()._ended(role, code)

    def supervise(self) -> None:
        """Notice what died or fell silent and start it again, and who has come to run."""
        if self._head_watch is not None:
            self._head_watch.look()
        if self._hub_watch is not None:
            self._hub_watch.look()
            self._check_node(self._hub_watch.away_s)
        super().supervise()
        if all(role.place is not None for role in self._roles.values() if self._is_bound(role)):
            for role in self._roles.values():
                if not role.restarts:
                    role.start_at_s = 0.0
        for role in self._roles.values():
            if role.place is not None and role.lock is None and role.alive and role.place.node != self._node:
                self._welcome(role, role.place)
            if role.finishing and not role.needed and not role.done and self._finds_no_place(role):
                self._log.write("unplaced", role=role.name, why=role.waits_for)
                role.kill()
                role.done, role.note = True, "had no place to run"

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        """Ask a role to come to a good end; one that has no place yet hears of it as soon as it has one."""
        super().ask_to_finish(role, needed=needed)
        found = self._roles[role]
        if found.started and found.place is None:
            found.ask_to_finish()

    def _finds_no_place(self, role: _Role) -> bool:
        return role.started and role.place is None and self._clock() - role.launched_s > PLACING_S

    def _check_silence(self, role: _Role, look_s: float) -> None:
        if self._hub_away_s(role):
            role.silent_s, look_s = 0.0, 0.0  # nothing could be heard of it
        if self._head_away_s and role.silent_s > self._config.silent_after_s / 2:
            look_s = 0.0  # named by now, and nobody could take its place
        super()._check_silence(role, look_s)

    def _note(self, role: _Role) -> str:
        away_s = self._hub_away_s(role) if role.alive else 0.0
        return f"cannot be heard of: the hub has not answered for {away_s:.0f} s" if away_s else super()._note(role)

    def _hub_away_s(self, role: _Role) -> float:
        """For how long the hub has not answered, where the role is heard of through it."""
        elsewhere = role.place is not None and role.place.node != self._node
        return self._hub_watch.away_s if elsewhere and self._hub_watch is not None else 0.0

    def _check_node(self, hub_away_s: float) -> None:
        """`RoleCrashed` where the hub is away because Ray has ended here, or has given this machine up."""
        if hub_away_s < NODE_GONE_S or self._clock() < self._node_looked_s + LOOK_EVERY_S:
            return
        self._node_looked_s = self._clock()
        if self._head_watch is None or not self._head_watch.answers():
            return  # it is named, and Ray would keep this thread until it answers
        if self._node in {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}:  # type: ignore[no-untyped-call]
            return
        raise RoleCrashed(
            "this machine is no node of the Ray cluster any more: its raylet has died, or the head could not reach it",
            expected="Ray on the machine of the run folder",
            fix="`ray stop` and `ray start` here, then go on with `distrl train --resume RUN`",
        )

    @property
    def _head_away_s(self) -> float:
        return self._head_watch.away_s if self._head_watch is not None else 0.0

    def stop(self) -> None:
        """End everything now, and leave the cluster."""
        away = self._head_watch is not None and self._head_watch.stays_away()
        for role in self._roles.values():
            role.done = True
            role.out_of_reach = away and role.place is not None and role.place.node != self._node
            role.kill()
        if away and self._hub_watch is not None:
            self._hub_watch.kill()
        if self._hub is not None:
            with suppress(RayError):
                ray.kill(self._hub)
        if self._spools is not None:
            remove_empty(self._spools)
        if away:
            _leave_without_head()
        else:
            ray.shutdown()

    def _start_hub(self) -> Any:
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,  # who calls it repeats what was not answered, with deadlines (transport.ray.connection)
            "scheduling_strategy": NodeAffinitySchedulingStrategy(self._node, soft=False),
        }
        keep = self._all.learner.keep_versions
        hub: Any = (
            ray.remote(Hub)
            .options(**options)
            .remote(str(self._run.path.resolve()), str(self._run.metrics.resolve()), keep, self._all.run.storage)
        )
        try:
            ray.get(hub.ready.remote(), timeout=HUB_S)
        except (RayError, GetTimeoutError) as error:
            raise ConfigError(
                f"the hub of the run did not start on this machine: {_in_words(error)}",
                expected=f"Ray's processes here to have distrl, and to be able to write to {self._run.path}",
                fix="start Ray here from the environment in which distrl is installed, as the user who trains",
            ) from error
        return hub

    def _launch(self, role: _Role) -> None:
        if self._head_watch is not None and not self._head_watch.answers():
            role.note = "starts once the head of the Ray cluster answers"
            role.start_at_s = self._clock() + LOOK_EVERY_S
            return  # Ray would keep this thread until then
        self._begin_incarnation(role)
        incarnation = 1 + sum(event["event"] == "started" for event in self.transport.events.read(role.name))
        incarnation = max(incarnation, role.incarnation + 1)
        order = Order(
            name=role.name,
            incarnation=incarnation,
            config=self._all,
            run=str(self._run.path.resolve()),
            node=self._node,
            spools=spool_names(self._run),
            imports=tuple(os.path.abspath(entry) for entry in sys.path if os.path.isdir(entry or ".")),
        )
        remote: Any = ray.remote
        kind = remote(concurrency_groups={DECISIONS: self._calls_at_once(role.name)})(RoleActor)
        options = {**self._options(role.name), "name": actor_name(order.spools[-1], role.name, incarnation)}
        actor = kind.options(**options).remote(self._hub, role.finishing)

        def begin(place: Place) -> Any:
            self._refuse_other_code(role, place)
            return actor.run.remote(msgspec.msgpack.encode(order))

        role.launched(actor, incarnation, now_s=self._clock(), begin=begin)
        self._log.write("placing", role=role.name, restarts=role.restarts, needs=describe(self._needs[role.name]))

    def _calls_at_once(self, role: str) -> int:
        return CALLS_AT_ONCE if role in inference_names(self._all) else 1

    def _options(self, role: str) -> dict[str, Any]:
        needs = self._needs[role]
        own = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU")}
        return {
            "num_cpus": needs.get("CPU", 0.0),
            "num_gpus": needs.get("GPU", 0.0),
            "resources": own,
            "max_restarts": 0,  # a new actor each time: it may need another place, and has a number of its own
            "max_concurrency": 1 + CONTROL_THREADS,
            "scheduling_strategy": self._strategy(role),
        }

    def _strategy(self, role: str) -> Any:
        """Workers apart from each other; the learner where the run folder is, if there is a place; the evaluator there, too."""
        if role in (*worker_names(self._all), *inference_names(self._all)):
            return "SPREAD"
        if role == "evaluator" and self._config.device_resource and self._all.devices.kind != "sim":
            # It plays on the workers' own devices, which hang on their machine.
            with_devices = [role.place.node for role in self._roles.values() if self._is_bound(role) and role.place]
            return NodeAffinitySchedulingStrategy((with_devices or [self._node])[0], soft=True)
        # Ray may take a soft preference of a role that needs nothing for none.
        return NodeAffinitySchedulingStrategy(self._node, soft=role == "learner")

    def _refuse_other_code(self, role: _Role, place: Place) -> None:
        """Before it is told what to do: other code may not even understand that."""
        if place.code != self._code:
            raise ConfigError(
                f"{role.name} on {place.host} has distrl {place.code}, and this machine has {self._code}",
                expected="the same code of distrl on all machines of a run",
                fix=f"install the same version on {place.host}, then `distrl train --resume {self._run.path}`",
            )

    def _welcome(self, role: _Role, place: Place) -> None:
        """Take in a role that has come to run on another machine."""
        with suppress(StoreError):  # its predecessor, on this machine, is not gone yet
            role.lock = take(self._run.lock(role.name), wait_s=0.0, what=role.name)
            self._log.write("started", role=role.name, host=place.host, pid=place.pid, restarts=role.restarts)


def _leave_without_head() -> None:
    """Leave a cluster whose head may not answer: Ray would wait for a word from it without end."""
    leaving = in_thread(ray.shutdown, name="leave")
    if not wait([leaving], LEAVE_S).done:
        atexit.register(_end_process)  # before what Ray has registered, which waits again or crashes


def _end_process() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(RoleCrashed.exit_code)


def _no_code(role: str, error: BaseException) -> ConfigError:
    return ConfigError(
        f"{role} cannot be started on the node that Ray has chosen for it: {_in_words(error)}",
        expected="the same code of distrl on all machines of a run, with the extra ray",
        fix="install it there, in the environment of `ray start`, then `distrl train --resume RUN`",
    )


def _is_ready(answer: Any) -> bool:
    return bool(ray.wait([answer], timeout=0, fetch_local=False)[0])


def _in_words(error: BaseException) -> str:
    """The part of Ray's words that says what happened."""
    text = " ".join(str(error).split())
    if "worker process has died" in text:
        return "its process died"
    if "node" in text and ("died" in text or "dead" in text) and "worker process" not in text:
        return "its node is gone"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "died" in line or "exit" in line]
    return (telling[-1] if telling else lines[0] if lines else type(error).__name__)[:300]


def _kill_process(place: Place) -> None:
    """Kill the process itself: one that is stopped does not hear that it should end."""
    if place.node == str(ray.get_runtime_context().get_node_id()):
        kill_role(place.pid)
        return
    strategy = NodeAffinitySchedulingStrategy(place.node, soft=False)
    with suppress(RayError, ValueError):
        ray.remote(kill_role).options(num_cpus=0, scheduling_strategy=strategy, max_retries=0).remote(place.pid)


def kill_role(pid: int) -> None:
    """Kill a process of this machine, if it is a role's actor and not another program that was given its number since."""
    with suppress(OSError):
        if b"RoleActor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
