"""The runtime seam: someone starts roles, says how they are, and ends them. No role knows which runtime it is in."""

from __future__ import annotations

from typing import Protocol

import msgspec

from distrl.config.schema import Config
from distrl.telemetry.pulse import Heartbeat


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
    return tuple(f"worker-{number}" for number in range(config.rollout.workers))


def role_names(config: Config) -> tuple[str, ...]:
    """Every role of a run that its supervisor looks after, in the order in which they are shown."""
    return ("learner", *worker_names(config), "evaluator")


class Runtime(Protocol):
    """Places the roles of a run and looks after them."""

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""

    def tend(self) -> None:
        """Notice what died or fell silent and bring it back; raises where that is hopeless.

        `RoleCrashed` after too many deaths in a row; at once where a role ended with words on what the owner can mend.
        """

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        """Ask a role to come to a good end; one that is needed and dies on the way is started again to finish."""

    def ended(self, role: str) -> bool:
        """Whether the role has ended for good."""

    def kill(self, role: str, why: str) -> None:
        """End a role that did not end when asked."""

    def status(self) -> list[RoleStatus]:
        """How every role is."""

    def stop(self) -> None:
        """End everything now."""
