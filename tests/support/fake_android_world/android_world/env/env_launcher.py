"""An environment that reaches the emulator by the adb program, as AndroidWorld's does.

It always names port 5037 to adb, whatever the environment says, and restarts the adb server when a command fails.
"""

from __future__ import annotations

import os
import subprocess


class Env:
    """One emulator."""

    interaction_cache = ""

    def __init__(self, adb: str, console_port: int) -> None:
        os.environ.pop("ANDROID_ADB_SERVER_PORT", None)
        self._adb, self._serial = [adb, "-P", "5037"], f"emulator-{console_port}"

    def reset(self, go_home: bool) -> None:
        if go_home:
            self._shell("input keyevent 3")
        self._shell(f"settings put system reset_to_home {int(go_home)}")
        self.interaction_cache = ""

    def put(self, value: str) -> None:
        self._shell(f"settings put system volume {value}")

    def open_settings(self) -> None:
        self._shell("monkey -p org.distrl.sim.settings -c android.intent.category.LAUNCHER 1")

    def get(self) -> str:
        return self._shell("settings get system volume")

    def torn_down(self) -> None:
        self._shell("settings put system torn_down 1")

    def fail(self) -> None:
        self._shell("false")

    def _shell(self, command: str) -> str:
        try:
            return self._run("-s", self._serial, "shell", command)
        except subprocess.CalledProcessError:
            self._run("kill-server")
            self._run("start-server")
            raise

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._adb, *words], check=True, capture_output=True, text=True, timeout=30)
        return done.stdout.strip()


def load_and_setup_env(
    *, console_port: int, emulator_setup: bool, freeze_datetime: bool, adb_path: str, grpc_port: int
) -> Env:
    assert grpc_port == console_port + 3000
    return Env(adb_path, console_port)
