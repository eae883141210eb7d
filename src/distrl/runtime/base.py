"""The runtime seam: someone starts roles, says how they are, and ends them. No role knows which runtime it is in."""

from __future__ import annotations

from typing import Protocol

import msgspec

from distrl.telemetry.pulse import Heartbeat


class RoleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One role as shown to people."""

    role: str
    alive: bool
    restarts: int
    note: str
    """What the runtime has to say of it: why it was restarted, when it will be."""
    heartbeat: Heartbeat | None


class Runtime(Protocol):
    """Places the roles of a run and looks after them."""

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""

    def tend(self) -> None:
        """Notice what died or fell silent and bring it back; raises `RoleCrashed` when that is hopeless."""

    def ask_to_finish(self, role: str) -> None:
        """Ask a role to come to a good end; it is not started again."""

    def alive(self, role: str) -> bool:
        """Whether the role still runs."""

    def kill(self, role: str, why: str) -> None:
        """End a role that did not end when asked."""

    def status(self) -> list[RoleStatus]:
        """How every role is."""

    def stop(self) -> None:
        """End everything now."""
