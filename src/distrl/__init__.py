"""distrl: train agents that operate phones, with workers and a learner that never wait for each other.

The names below are the public Python API. Importing the package is cheap: torch, numpy and Pillow are loaded by what needs them.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from distrl.api import Run, open_run, record, train
    from distrl.config.schema import Config
    from distrl.env import PhoneEnv, make_env
    from distrl.evaluation.film import make_gif, make_strip
    from distrl.evaluation.report import Report
    from distrl.evaluation.video import make_mp4
    from distrl.trained_policy import TrainedPolicy, evaluate, load_policy

__all__ = [
    "Config",
    "PhoneEnv",
    "Report",
    "Run",
    "TrainedPolicy",
    "__version__",
    "evaluate",
    "load_policy",
    "make_env",
    "make_gif",
    "make_mp4",
    "make_strip",
    "open_run",
    "record",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "Config": "distrl.config.schema",
    "PhoneEnv": "distrl.env",
    "Report": "distrl.evaluation.report",
    "Run": "distrl.api",
    "TrainedPolicy": "distrl.trained_policy",
    "evaluate": "distrl.trained_policy",
    "load_policy": "distrl.trained_policy",
    "make_env": "distrl.env",
    "make_gif": "distrl.evaluation.film",
    "make_mp4": "distrl.evaluation.video",
    "make_strip": "distrl.evaluation.film",
    "open_run": "distrl.api",
    "record": "distrl.api",
    "train": "distrl.api",
}
"""The module of each public name, loaded on first use."""

# As libraries do: records go nowhere until whoever uses the library says where.
logging.getLogger("distrl").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Load what is asked for on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'distrl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


# --- Gymnasium --------------------------------------------------------------------------------------------------------


def register_environments() -> None:
    """Make `distrl/<suite>-v0` known to Gymnasium for each built-in suite; doing it twice changes nothing."""
    from gymnasium.envs.registration import register, registry

    from distrl.plugins import BUILT_IN

    for name in BUILT_IN["suites"]:
        if name == "list":  # has tasks only where a configuration names a file of them
            continue
        id = f"distrl/{name}-v0"
        if id not in registry:
            register(id, entry_point="distrl.env:make_env", kwargs={"name": name})


class _OnGymnasium:
    """Registers the environments once Gymnasium is imported.

    Gymnasium finds no packages by itself (since 1.0 it has no entry points), and `import distrl` is to load none that it may not need.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the other finders find; of Gymnasium's registry, with the registration behind its own code."""
        if name != "gymnasium.envs.registration":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register_environments()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium.envs.registration" in sys.modules:
    register_environments()
else:
    sys.meta_path.insert(0, _OnGymnasium())
