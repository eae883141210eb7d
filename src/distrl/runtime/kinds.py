"""The one place that knows which runtimes there are."""

from __future__ import annotations

from distrl.config.load import worker_configs
from distrl.config.schema import Config
from distrl.runtime.base import Runtime
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import RunFolder


def make_runtime(config: Config, run: RunFolder) -> Runtime:
    """The runtime that `runtime.kind` names, for the roles of this run; it starts nothing yet."""
    if config.runtime.kind == "ray":
        from distrl.runtime.ray.runtime import RayRuntime

        return RayRuntime(run, config)
    return LocalRuntime(run, config.runtime)


def check_runtime(config: Config) -> None:
    """Raise now, before anything is written, where the roles of a run would find no place to run on."""
    if config.run.storage:
        from distrl.experience.target import check_target

        check_target(config.run.storage)
    if config.runtime.kind == "ray":
        from distrl.runtime.ray.cluster import check_cluster

        check_cluster(config)
    else:
        from distrl.runtime.placement import check_devices

        for one in (config, *worker_configs(config)):
            check_devices(one)
