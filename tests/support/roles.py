"""Contexts of roles without processes of their own."""

from __future__ import annotations

from pathlib import Path

from distrl.config.schema import Config
from distrl.runtime.base import RoleContext
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.base import Transport


def a_context(
    name: str, path: Path, config: Config, *, turns: int = 0, transport: Transport | None = None
) -> RoleContext:
    """A role in the process of the test: no signals, no lock, no supervisor. It is to end after so many `turns`."""
    run, left = RunFolder(path), [turns]
    found = transport or run.transport(config)

    def stopping() -> bool:
        left[0] -= 1
        return left[0] < 0

    return RoleContext(
        name=name,
        config=config,
        incarnation=1,
        transport=found,
        heartbeat=HeartbeatWriter(found.heartbeats.beat, name, interval_s=0.0),
        log=EventLog(run.log(name)),
        metrics=EventLog(run.metrics),
        spool=path / "spool" / name,
        stopping=stopping,
    )
