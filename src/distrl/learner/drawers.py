"""Processes beside the learner that draw for it, each with its order, until they are ended.

They write what they draw to their output, and end by themselves once nobody reads.
"""

from __future__ import annotations

import os
import subprocess

import msgspec

from distrl.config.schema import Config
from distrl.errors import RoleCrashed
from distrl.learner.demonstrator import Order


class Drawers:
    """As many of them as the warm start asks for; `what` is what people call that which they draw."""

    def __init__(self, config: Config, command: tuple[str, ...], what: str) -> None:
        self._config, self._command, self._what = config, command, what
        wanted = config.warm_start.processes or max(1, (os.cpu_count() or 1) - 2)
        self.num = min(wanted, config.warm_start.demonstrations)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start them all and give each its order."""
        for number in range(self.num):
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(Order(config=self._config, number=number, num=self.num)))
            process.stdin.close()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def died(self, number: int) -> RoleCrashed:
        """What to raise where this one has ended by itself."""
        code = self.processes[number].wait()
        return RoleCrashed(
            f"process {number} of the {self.num} that draw {self._what} ended with {code}",
            expected="one that draws until it is ended",
            fix="read what it wrote to the learner's output in logs/learner.out",
        )
