"""What was trained, from Python: its success on held-out tasks, and the policy to act with. Both are in `distrl` itself.

A source is a `Run`, or the path of a run, of one of its checkpoints or of an export. Whatever the caller can mend is a `DistrlError`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from distrl.cli.extras import need_model_packages, need_training_packages
from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.evaluation.report import Report
from distrl.runtime.run_folder import as_path, read_errors
from distrl.types import Action, Decision, Observation, Split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from distrl.evaluation.stored_playback import Playback
    from distrl.runtime.playing import Loaded

T = TypeVar("T")

log = logging.getLogger("distrl.trained_policy")


def evaluate(
    source: str | os.PathLike[str],
    *,
    suite: str | None = None,
    episodes: int = 300,
    split: Split = "test",
    max_oracle_steps: int | None = None,
    model: str | os.PathLike[str] | None = None,
    trust_code: bool = False,
) -> Report:
    """Success of a run, checkpoint or export on held-out tasks, with an interval and a row per template.

    `suite` is the run's own where it is None. `model` is the folder of the language model that exported adapters belong to;
    `trust_code` lets code run that the settings in the folder name: plug-ins, or code beside a model.
    """
    need_training_packages()
    from distrl.runtime.playing import evaluate_source
    from distrl.runtime.source import TaskChoice, find_source

    choice = TaskChoice(suite=suite, split=split, max_oracle_steps=max_oracle_steps)
    path = as_path(source, "source")
    base, trusted = None if model is None else Path(model), trust_code or getattr(source, "trusted", False)
    with read_errors(path):
        found = find_source(path, choice, model=base, trust_code=trusted)
        need_model_packages(found.config)
        return _aside(lambda: evaluate_source(found, episodes, notice=log.warning))


def load_policy(
    source: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    trust_code: bool = False,
) -> TrainedPolicy:
    """The policy of a run (its newest version), of one of its checkpoints, or of an export."""
    need_training_packages()
    from distrl.runtime.playing import load
    from distrl.runtime.source import find_source

    path = as_path(source, "source")
    base, trusted = None if model is None else Path(model), trust_code or getattr(source, "trusted", False)
    with read_errors(path):
        found = find_source(path, model=base, trust_code=trusted)
        need_model_packages(found.config)
        return TrainedPolicy(load(found))


class TrainedPolicy:
    """A policy with trained weights, to act with."""

    def __init__(self, loaded: Loaded) -> None:
        import torch

        self._loaded = loaded
        self._generator = torch.Generator().manual_seed(0)

    def __repr__(self) -> str:
        return f"TrainedPolicy({self._loaded.source.name!r}, version={self.version})"

    @property
    def version(self) -> int:
        """Which version of the run it is."""
        return self._loaded.version

    @property
    def config(self) -> Config:
        """The settings that it was trained with."""
        return self._loaded.source.config

    def act(
        self,
        observation: Observation | Mapping[str, Any],
        *,
        screenshot: bytes | NDArray[np.uint8] | None = None,
        temperature: float = 0.5,
    ) -> Action:
        """What to do now, as a record that `env.step` takes; see `decide`."""
        return self.decide(observation, screenshot=screenshot, temperature=temperature).action

    def decide(
        self,
        observation: Observation | Mapping[str, Any],
        *,
        screenshot: bytes | NDArray[np.uint8] | None = None,
        temperature: float = 0.5,
    ) -> Decision:
        """The action with its log-probability, entropy and value (the chance of success).

        `observation` is the record that policies see, or the `info` of `make_env` that holds it. `screenshot` is for policies that
        look at pixels: what `env.render()` gives, or the bytes of a JPEG or PNG. Temperature 0 takes the likeliest action.
        """
        from distrl.runtime.playing import check_temperature

        check_temperature(temperature)
        seen = observation if isinstance(observation, Observation) else _record(observation)
        if screenshot is not None:
            reference = self._loaded.frames.put(_encoded(screenshot))
            seen = msgspec.structs.replace(seen, screenshot=reference)
        (made,) = self._loaded.policy.decide([seen], temperature=temperature, generator=self._generator)
        return made

    def play(self, task: str | None = None, *, seed: int = 0, temperature: float = 0.5) -> Playback:
        """Play a task by its id, or a held-out one that `seed` chooses, on a device of the run's kind; judged, with pictures."""
        from random import Random

        from distrl.evaluation.playback import play
        from distrl.runtime.playing import make_player
        from distrl.runtime.source import choose_task

        player = make_player(self._loaded, temperature=temperature, seed=seed)
        chosen = choose_task(self.config, task, number=Random(int(seed)).randrange(10**9))
        return _aside(lambda: play(player, chosen))


def _record(info: object) -> Observation:
    found = info.get("observation") if isinstance(info, Mapping) else None
    if isinstance(found, Observation):
        return found
    keys = f" with {', '.join(map(str, info))[:200] or 'nothing'}" if isinstance(info, Mapping) else ""
    raise UsageError(
        f"{type(info).__name__}{keys} holds no observation that a policy reads",
        expected="the record in `info['observation']`, or that `info`",
        fix="_, info = env.reset(); policy.act(info)",
    )


def _encoded(screenshot: bytes | NDArray[np.uint8]) -> bytes:
    from PIL import Image

    from distrl.rollout.episode import is_whole

    if isinstance(screenshot, bytes) and is_whole(screenshot):
        return screenshot
    out = BytesIO()
    try:
        Image.fromarray(screenshot).save(out, "PNG")  # type: ignore[arg-type]  # bytes are refused here
    except (TypeError, ValueError, AttributeError, KeyError, OSError) as error:
        raise UsageError(
            f"this {type(screenshot).__name__} is no screenshot: {str(error)[:200]}",
            expected="height × width × 3 bytes as an array, or the bytes of a whole JPEG or PNG",
            fix="policy.act(info, screenshot=env.render())",
        ) from None
    return out.getvalue()


def _aside(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread of its own.

    There it finds no event loop, which a notebook has running, and what it asks of its processor (no denormals) ends with it.
    """
    import torch

    from distrl.runtime.factory import prepare_torch

    def prepared() -> T:
        prepare_torch()
        return work()

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="distrl") as beside:
            return beside.submit(prepared).result()
    finally:
        torch.set_num_threads(threads)
