"""An environment that reaches the emulator by the adb program, as AndroidWorld's does."""

from __future__ import annotations

import subprocess


class Env:
    """One emulator."""

    interaction_cache = ""

    def __init__(self, adb: str, console_port: int) -> None:
        self._adb = [adb, "-s", f"emulator-{console_port}", "shell"]

    def reset(self, go_home: bool) -> None:
        self._run("input keyevent 3")
        self.interaction_cache = ""

    def put(self, value: str) -> None:
        self._run(f"settings put system volume {value}")

    def get(self) -> str:
        return self._run("settings get system volume")

    def torn_down(self) -> None:
        self._run("settings put system torn_down 1")

    def _run(self, command: str) -> str:
        done = subprocess.run([*self._adb, command], check=True, capture_output=True, text=True, timeout=30)
        return done.stdout.strip()


def load_and_setup_env(
    *, console_port: int, emulator_setup: bool, freeze_datetime: bool, adb_path: str, grpc_port: int
) -> Env:
    assert grpc_port == console_port + 3000
    return Env(adb_path, console_port)
