"""The dashboard that `distrl train` starts: it shows the phones at work, and the training never notices what becomes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from distrl.runtime.run_folder import RunFolder
from support.runs import ENDLESS, PATIENCE_S, SLOW, TINY, Training, flags, num_episodes

PORT = 8642


def get(url: str) -> Any:
    """The JSON at an address."""
    with urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def begin(root: Path, **changes: object) -> tuple[Training, str]:
    """A training with its dashboard, once its address was said."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    training = Training(
        *flags({**TINY, **SLOW, "rollout.workers": 1, "evaluation.episodes": 4, "run.root": root, **named}), view=True
    )
    assert training.process.stderr is not None
    said = ""
    while "dashboard  " not in said:
        line = training.process.stderr.readline()
        assert line, said
        said += line
    training.run = RunFolder(next(root.glob("*/config.toml")).parent)
    found = re.search(r"dashboard  (http://127\.0\.0\.1:\d+)/", said)
    assert found is not None
    return training, found[1]


@pytest.fixture
def taken() -> Any:
    """The usual port, in use by someone else, where nobody has it already."""
    with socket.socket() as held:
        try:
            held.bind(("127.0.0.1", PORT))
            held.listen()
        except OSError:
            pass  # taken it is
        yield


@pytest.mark.usefixtures("taken")
def test_devices_are_shown_while_they_play_and_the_training_outlives_its_dashboard(tmp_path: Path) -> None:
    training, url = begin(tmp_path, run__episodes=ENDLESS)
    try:
        assert not url.endswith(f":{PORT}")
        name = training.run.name
        playing: list[dict[str, Any]] = []
        until_s = time.monotonic() + PATIENCE_S
        while not playing:
            assert time.monotonic() < until_s
            assert training.process.poll() is None
            with suppress(URLError):  # it is starting
                playing = [
                    one
                    for one in get(f"{url}/api/runs/{name}/fleet")["devices"]
                    if one["state"] == "playing" and one["elements"] and one["version"] >= 0
                ]
            time.sleep(0.1)
        shown = playing[0]
        assert shown["device"].startswith("worker-0/phone-")
        assert shown["instruction"]
        assert shown["task"].startswith("sim-start/train/")
        assert shown["version"] >= 0
        view = _dashboard_of(training.process.pid)
        os.kill(view, signal.SIGKILL)
        before = num_episodes(training.run)
        training.until(lambda: num_episodes(training.run) > before)
        training.process.send_signal(signal.SIGINT)
        summary = training.finish()
        assert summary["episodes"] > before
        assert (summary["restarts"], summary["lost_episodes"]) == (0, 0)
    finally:
        training.stop()


def _dashboard_of(supervisor: int) -> int:
    """The process that a training has started to show it."""
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        if b"view" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return int(pid)
    raise AssertionError("there is no dashboard")


def test_a_dashboard_ends_with_its_training_however_that_ends(tmp_path: Path) -> None:
    training, url = begin(tmp_path, run__episodes=ENDLESS)
    try:
        training.until(lambda: training.run.heartbeats.exists())
        view = _dashboard_of(training.process.pid)
    finally:
        training.process.kill()  # not even the end of the supervisor leaves it behind
        training.stop()
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{view}").exists() and b"view" in Path(f"/proc/{view}/cmdline").read_bytes():
        assert time.monotonic() < until_s, "the dashboard outlives its training"
        time.sleep(0.05)
    with pytest.raises(URLError):
        get(f"{url}/api/runs")
