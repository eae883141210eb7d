"""A role in a process of its own on some node: the actor that builds its context and runs it.

Where the node is the one that has the run folder, the role uses the folder itself; everywhere else it goes through the hub.
No role knows which.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import msgspec
import ray
from ray.actor import ActorHandle

from distrl.config.load import config_of
from distrl.config.schema import Config
from distrl.errors import DistrlError, raised_as
from distrl.rollout.outbox import STORE_DEADLINE_S
from distrl.runtime.base import NoInference, RoleContext, inference_names, worker_names
from distrl.runtime.ray.cluster import code_version
from distrl.runtime.ray.inference import RayInference, TakenRequests
from distrl.runtime.ray.node_spools import NodeSpools
from distrl.runtime.role import PREDECESSOR_S, WarningLog, run_role
from distrl.runtime.run_folder import RunFolder, disk_errors, take
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.base import EventSink, Transport
from distrl.transport.ray.client import HubTransport
from distrl.transport.ray.connection import HubConnection
from distrl.transport.ray.wire import Caller

HUB_DEADLINE_S = 10.0
"""How long a worker elsewhere keeps in memory alone what the hub does not take.

Ray ends all processes of a node that has not reached the head for a minute (`RAY_gcs_rpc_server_reconnect_timeout_s`): what they have played
has to be on the node's disk by then.
"""
DECISIONS = "decisions"
"""The threads of an actor that decides."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one incarnation of a role is to do."""

    name: str
    incarnation: int
    config: Config
    run: str
    """The run folder, on the node that has it."""
    node: str
    """Which node that is."""
    spools: tuple[str, ...]
    """Names of the sessions' spool folders."""
    imports: tuple[str, ...]
    """Folders from which the supervisor imports code of its own, for nodes that have them too."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an incarnation runs, and which code."""

    node: str
    host: str
    pid: int
    code: str


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How an incarnation has ended by itself."""

    code: int = 0
    reason: str = ""
    """Why it gave up, where its owner can mend that."""
    trace: str = ""
    """The traceback of a bug."""


class RoleActor:
    """One incarnation of a role. `run` works in a thread of its own; the other calls are answered meanwhile."""

    def __init__(self, hub: ActorHandle[Any], finish: bool) -> None:
        """`finish`: take up what is left, finish it and end."""
        self._hub = hub
        self._asked, self._requests = Event(), TakenRequests()
        if finish:
            self._asked.set()

    def place(self) -> bytes:
        """Where it runs."""
        return msgspec.msgpack.encode(
            Place(node=_own_node(), host=socket.gethostname(), pid=os.getpid(), code=code_version())
        )

    def ask_to_finish(self) -> None:
        """Have it come to a good end."""
        self._asked.set()

    @ray.method(concurrency_group=DECISIONS)
    def decide(self, request: bytes) -> bytes:
        """What a worker asks of an actor that decides, answered."""
        return self._requests.take(request)

    def run(self, order: bytes) -> bytes:
        """Do what the `Order` says until it should end; how it has ended."""
        try:
            with raised_as(_Ended):
                self._run(msgspec.msgpack.decode(order, type=Order))
            end = End()
        except _Ended as ended:
            end = ended.end
        except DistrlError as error:
            end = End(code=error.exit_code, reason=str(error))
        return msgspec.msgpack.encode(end)

    def _run(self, order: Order) -> None:
        sys.path.extend(folder for folder in order.imports if folder not in sys.path and os.path.isdir(folder))
        hub = HubConnection(self._hub, Caller(role=order.name, incarnation=order.incarnation))
        hub.tell("begin", order.name, order.incarnation)
        spools, run = NodeSpools(order.spools), RunFolder(Path(order.run))
        if order.node == _own_node():
            with disk_errors(run.path):
                lock = take(run.lock(order.name), wait_s=PREDECESSOR_S, what=f"{order.name} of {run.path}")
                self._work(order, run.transport(order.config), EventLog(run.metrics), spools)
                lock.release()
        else:
            transport = HubTransport(hub, node=spools.folder)
            self._work(order, transport, transport.metrics, spools, hub)

    def _work(
        self,
        order: Order,
        transport: Transport,
        metrics: EventSink,
        spools: NodeSpools,
        hub: HubConnection | None = None,
    ) -> None:
        log = transport.events.log(order.name)
        warnings = WarningLog(log)
        logging.getLogger("distrl").addHandler(warnings)
        is_worker = order.name in worker_names(order.config)
        deciding = inference_names(order.config) if is_worker or order.name == "evaluator" else ()
        inference = RayInference(order.spools[-1], deciding, transport.heartbeats) if deciding else None
        context = RoleContext(
            name=order.name,
            config=config_of(order.config, order.name),
            incarnation=order.incarnation,
            transport=transport,
            heartbeat=HeartbeatWriter(
                transport.heartbeats.beat,
                order.name,
                interval_s=order.config.runtime.heartbeat_s,
                incarnation=order.incarnation,
            ),
            log=log,
            metrics=metrics,
            spool=spools.claim(order.name),
            inference=inference or NoInference(),
            requests=self._requests,
            store_deadline_s=HUB_DEADLINE_S if hub is not None else STORE_DEADLINE_S,
            left_spools=spools.left if is_worker else lambda: iter(()),
            stopping=self._asked.is_set,
        )
        if hub is not None:
            hub.held_up = _of_this_thread(lambda what: context.heartbeat.held_up(f"the hub: {what}"))
        try:
            context.heartbeat.starting("loading its libraries")
            run_role(context)
            context.heartbeat.stopped("finished")
        finally:
            logging.getLogger("distrl").removeHandler(warnings)
            if inference is not None:
                inference.close()
            transport.close()
            spools.close()


def _of_this_thread(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say`, as long as this thread calls it: threads beside a role's loop do not speak for it."""
    own = get_ident()
    return lambda what: say(what) if get_ident() == own else None


def _own_node() -> str:
    return str(ray.get_runtime_context().get_node_id())


class _Ended(DistrlError):
    """A role raised what is no `DistrlError`: it was asked to exit, or it is a bug, and its owner has to see where."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error) or type(error).__name__)
        trace = "".join(traceback.format_exception(error))
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 0
        self.end = End(code=code) if isinstance(error, SystemExit) else End(code=1, trace=trace)
