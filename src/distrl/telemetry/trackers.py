"""Metrics to experiment trackers: Weights & Biases, which writes files and sends nothing unless told to, and Trackio, which is local.

Both get one tracker run for each run folder, with its settings, and each metric under the name of its role: `worker/steps` of worker-1 is
`worker-1/steps`. The horizontal axis is `elapsed_s`, seconds since the run's first metrics. Trackers are begun in the thread of their sink, so
neither their start nor their failure holds up a training. A resumed run goes on under the same name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distrl.errors import UsageError
from distrl.installing import install
from distrl.telemetry.sinks import SinkContext

PROJECT = "distrl"
"""Of both trackers, where the environment names none."""
LONGEST_ID = 120


class WandbSink:
    """`distrl.telemetry.sinks.MetricSink` for Weights & Biases.

    Files go to `<run>/wandb`, for `wandb sync`; `WANDB_MODE=online` sends them at once. `WANDB_PROJECT` and the other variables of wandb work too.
    """

    def __init__(self, settings: object, context: SinkContext) -> None:
        self.check()
        self._run: Any = None
        self._folder = context.run

    @staticmethod
    def check() -> None:
        """`UsageError` where the package is not installed."""
        _need("wandb")

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        """One row."""
        if self._run is None:
            self._run = self._begin()
        self._run.log({"elapsed_s": elapsed_s, **by_role(role, metrics)})

    def close(self) -> None:
        """Write what is left."""
        if self._run is not None:
            self._run.finish()

    def _begin(self) -> Any:
        import wandb

        # No code, packages or system figures are recorded: `env.json` has what distrl knows of the machine.
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True, x_save_requirements=False,
        )  # fmt: skip
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=self._folder.name,
            id=re.sub(r"[^A-Za-z0-9_-]", "-", self._folder.name)[-LONGEST_ID:],
            resume="allow",
            dir=str(self._folder),
            mode=os.environ.get("WANDB_MODE") or "offline",
            config=settings_of(self._folder),
            settings=quiet,
        )
        run.define_metric("elapsed_s")
        run.define_metric("*", step_metric="elapsed_s")
        return run


class TrackioSink:
    """`distrl.telemetry.sinks.MetricSink` for Trackio: `trackio show --project distrl` draws them.

    They go where Trackio keeps everything, `TRACKIO_DIR`; its other variables work too. The step is whole seconds.
    """

    def __init__(self, settings: object, context: SinkContext) -> None:
        self.check()
        self._run: Any = None
        self._folder = context.run

    @staticmethod
    def check() -> None:
        """`UsageError` where the package is not installed."""
        _need("trackio")

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        """One row."""
        if self._run is None:
            self._run = self._begin()
        self._run.log({"elapsed_s": elapsed_s, **by_role(role, metrics)}, step=int(elapsed_s))

    def close(self) -> None:
        """Write what is left."""
        if self._run is not None:
            self._run.finish()

    def _begin(self) -> Any:
        import trackio

        return trackio.init(
            project=PROJECT, name=self._folder.name, resume="allow", config=settings_of(self._folder), embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip


def by_role(role: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics under the name of their role, so that those of several workers stay apart."""
    named = {}
    for name, value in metrics.items():
        first, _, rest = name.partition("/")
        named[f"{role}/{rest}" if role == first or role.startswith(f"{first}-") else f"{role}/{name}"] = value
    return named


def settings_of(run: Path) -> dict[str, Any]:
    """The settings of a run as its folder has them, secrets masked; none where they cannot be read."""
    try:
        return tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise UsageError(
            f"telemetry.sinks = {package} needs the package {package}, which is not installed",
            expected=f"distrl with its extra [{package}]",
            fix=install(package),
        )
