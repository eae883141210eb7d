"""Warnings inside a role are events of its log, since nobody sees its logging."""

from __future__ import annotations

import logging
from pathlib import Path

from distrl.runtime.role import WarningLog
from distrl.telemetry.events import EventLog, read_events


def test_warnings_of_the_package_become_events_and_events_are_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    log = EventLog(path)
    logger, handler = logging.getLogger("distrl"), WarningLog(log)
    logger.addHandler(handler)
    try:
        logging.getLogger("distrl.devices").warning("%s never rests", "phone-1")
        logging.getLogger("distrl.devices").info("a detail")
        logging.getLogger("distrl.events.worker-0").warning("an event")
    finally:
        logger.removeHandler(handler)
        log.close()
    (found,) = read_events(path)
    assert (found["event"], found["logger"], found["text"]) == ("warning", "distrl.devices", "phone-1 never rests")
