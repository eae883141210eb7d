"""The runtime seam: someone places the roles of a run, builds a context for each, and looks after them.

No role knows which runtime it is in. What it may use is in its `RoleContext`: no role imports the run folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from distrl.config.groups import num_workers
from distrl.config.schema import Config
from distrl.rollout.outbox import STORE_DEADLINE_S
from distrl.telemetry.heartbeat import Heartbeat, HeartbeatWriter
from distrl.telemetry.live import NoScreens, Screens
from distrl.transport.base import ActorLost, DecisionRequests, EventSink, Inference, Transport

NAMED_AFTER_S, STARTING_NAMED_AFTER_S = 2.5, 20.0
"""Silence after which a role is named as silent, to whoever looks at the run; loading libraries on a busy machine is none.

A role that stops is named within 3 s: whoever looks may see its last heartbeat late and looks only now and then.
"""


def describe_silence(silent_s: float, *, starting: bool, heartbeat_s: float) -> str:
    """What to say of a living role that has not been heard of for so long; empty: that is not long enough to tell.

    Where heartbeats are so far apart that a healthy role would be named, two of them have to be missing.
    """
    named_after_s = max(STARTING_NAMED_AFTER_S if starting else NAMED_AFTER_S, 2 * heartbeat_s)
    return f"silent for {silent_s:.0f} s" if silent_s >= named_after_s else ""


class NoInference:
    """`Inference` and `DecisionRequests` where every worker decides itself."""

    def actors(self) -> tuple[str, ...]:
        """None."""
        return ()

    async def ask(self, actor: str, request: bytes) -> bytes:
        """Refuse."""
        raise ActorLost(f"there is no inference actor {actor!r}", fix="--rollout.decide local")

    def serve(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Nobody asks."""


class RoleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime hands to a role."""

    name: str
    config: Config
    incarnation: int
    """How often this role has been started in this run, this time included: 1, 2, …"""
    transport: Transport
    heartbeat: HeartbeatWriter
    log: EventSink
    metrics: EventSink
    spool: Path
    """A folder on this machine's own disk that outlives the process."""
    store_deadline_s: float = STORE_DEADLINE_S
    """How long a worker waits for the store to take one trajectory before it turns to its spool."""
    left_spools: Callable[[], Iterator[Path]] = lambda: iter(())
    """Such folders that other workers of the run have left, for this role to hand over; to be looked for beside its loop."""
    stopping: Callable[[], bool]
    """True once the role should come to a good end."""
    screens: Screens = NoScreens()
    """Where it shows its devices to people, where someone may look."""
    inference: Inference = NoInference()
    """Actors that decide for workers; for a worker that decides itself there are none."""
    requests: DecisionRequests = NoInference()
    """What workers ask, for an actor that decides for them."""
    orphaned: Callable[[], bool] = lambda: False
    """True once nobody waits for what the role still does."""


class RoleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One role as shown to people."""

    role: str
    alive: bool
    restarts: int
    note: str
    """What the runtime has to say of it: why it was restarted, when it will be."""
    heartbeat: Heartbeat | None


def worker_names(config: Config) -> tuple[str, ...]:
    """The workers of a run."""
    return tuple(f"worker-{number}" for number in range(num_workers(config)))


def inference_names(config: Config) -> tuple[str, ...]:
    """The actors of a run that decide for its workers."""
    count = config.inference.actors if config.rollout.decide == "actors" else 0
    return tuple(f"inference-{number}" for number in range(count))


def role_names(config: Config) -> tuple[str, ...]:
    """Every role of a run, in the order in which they are shown."""
    return ("learner", *inference_names(config), *worker_names(config), "evaluator")


class Runtime(Protocol):
    """Places the roles of a run and supervises them."""

    @property
    def transport(self) -> Transport:
        """What its roles send each other things by, as the supervisor sees it."""

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""

    def supervise(self) -> None:
        """Notice what died or fell silent and start it again; raises where that is hopeless.

        `RoleCrashed` after too many deaths in a row; at once where a role ended with an error that the owner can mend.
        """

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        """Ask a role to come to a good end; one that is needed and dies on the way is started again to finish."""

    def ended(self, role: str) -> bool:
        """Whether the role has ended for good."""

    def kill(self, role: str, why: str) -> None:
        """End a role that did not end when asked."""

    def status(self) -> list[RoleStatus]:
        """How every role is."""

    def restarts(self) -> int:
        """Restarts of all roles together."""

    def busy_s(self) -> float:
        """Device time of all roles in all their incarnations, as their workers measured it."""

    def device_s(self) -> float:
        """Time that the workers' devices were there, summed as `busy_s` is; 0: no worker measures it."""

    def stop(self) -> None:
        """End everything now."""
