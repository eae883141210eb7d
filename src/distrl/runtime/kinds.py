"""The one place that knows which runtimes there are."""

from __future__ import annotations

from distrl.config.schema import Config
from distrl.runtime.base import Runtime
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import RunFolder


def make_runtime(config: Config, run: RunFolder) -> Runtime:
    """The runtime that `runtime.kind` names, for the roles of this run; it starts nothing yet."""
    return LocalRuntime(run, config.runtime)
