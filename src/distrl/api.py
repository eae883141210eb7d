"""distrl from Python: train, look at a run, evaluate what it learnt, and play with it. All of it is in `distrl` itself.

    import distrl

    run = distrl.train(run__minutes=2)                   # or a TOML file, a dict, a Config
    print(run.summary.success_before, run.summary.success_after)
    for episode in run.episodes(success=False):
        print(episode.task.instruction, episode.verdict.reason)
    report = distrl.evaluate(run, episodes=100)

It is what the command line does, with the same sessions, locks and files. Roles are processes of their own that are started by
name, so a script needs no `if __name__ == "__main__"` and a notebook works. Records go to the logger `distrl`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from distrl.config.load import load_config
from distrl.config.reference import flatten, settings
from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.evaluation.report import Report
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.run_folder import open_run as open_folder
from distrl.runtime.summary import RunStatus, Summary, read_status, read_summary
from distrl.types import Action, Decision, Observation, SettingValue, Source, Split, Trajectory, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from distrl.evaluation.playback import Playback
    from distrl.runtime.playing import Loaded
    from distrl.runtime.session import RunSnapshot, Session

__all__ = ["Run", "TrainedPolicy", "evaluate", "load_policy", "open_run", "train"]

T = TypeVar("T")
Settings = str | os.PathLike[str] | Mapping[str, Any] | Config | None
"""A TOML file, a mapping (nested, or with dotted keys), a `Config`, or None for the defaults."""
ROWS_AT_ONCE = 1000

log = logging.getLogger("distrl.api")


# --- training ---------------------------------------------------------------------------------------------------------


def train(
    config: Settings = None,
    *,
    watch: Callable[[RunSnapshot], None] | None = None,
    progress: bool = True,
    **overrides: Any,
) -> Run:
    """Train to the end of the budget and return the run, as `distrl train` does.

    `overrides` are settings by key, with two underscores for each dot: `train(run__minutes=2, tasks__suite="sim-general")`;
    dotted keys work too: `train(**{"run.minutes": 2})`. `watch` is called several times a second with the state of the run;
    `progress` shows it on stderr. Ctrl-C (in a notebook: interrupt) finishes and saves, a second one stops at once.
    """
    from distrl.cli.train import check_model, check_settings
    from distrl.runtime.placement import check_devices
    from distrl.runtime.run_folder import create_run

    resolved = resolve(config, overrides)
    with _found_by_roles():
        check_settings(resolved)
        check_model(resolved)
        check_devices(resolved)
        return _sit(create_run(resolved, now=datetime.now()), resolved, watch, progress)


def resolve(config: Settings, overrides: Mapping[str, Any]) -> Config:
    """The configuration that is meant; `ConfigError` names what does not fit."""
    changes = {_key(key): _value(key, value) for key, value in overrides.items()}
    if isinstance(config, Config):
        defaults = {key: setting.default for key, setting in settings().items()}
        own = {key: value for key, value in flatten(config).items() if defaults.get(key) != value}
        return load_config(None, {**own, **changes})
    if isinstance(config, Mapping):
        return load_config(None, {**dict(_leaves(config)), **changes})
    return load_config(None if config is None else Path(config), changes)


def _key(name: str) -> str:
    return name.replace("__", ".")


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, SettingValue]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{_key(name)}", _value(name, value)


def _value(key: str, value: Any) -> SettingValue:
    """The value as settings hold it; a class or function stands for its import path."""
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if not callable(value):
        return value  # type: ignore[no-any-return]  # checked against the schema later
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if module == "__main__" or "<" in name:
        raise UsageError(
            f"{_key(key)} is {name}, which other processes cannot import from here",
            expected="something in a module of its own",
            fix="move it into a file, such as mine.py, and `import mine`",
        )
    return f"{module}:{name}"


@contextmanager
def _found_by_roles() -> Iterator[None]:
    """Let the processes of the roles import what this one can: modules beside the script or the notebook."""
    before = os.environ.get("PYTHONPATH")
    folders = [os.path.abspath(entry) for entry in sys.path if os.path.isdir(entry or ".")]
    installed = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    own = [folder for folder in folders if not any(part in folder for part in installed)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, (before or "").split(os.pathsep)), *own]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _sit(folder: RunFolder, config: Config, watch: Callable[[RunSnapshot], None] | None, progress: bool) -> Run:
    """One session from start to summary."""
    from distrl.cli.progress import Progress
    from distrl.cli.train import incomplete
    from distrl.runtime.kinds import make_runtime
    from distrl.runtime.session import Session
    from distrl.telemetry.sinks import forwarding

    log.info("run folder %s", folder.path)
    with ExitStack() as stack:
        forward = stack.enter_context(forwarding(config.telemetry, folder.metrics))
        watchers: list[Callable[[RunSnapshot], None]] = [lambda _: forward()]
        if progress:
            watchers.append(stack.enter_context(Progress()).show)
        if watch is not None:
            watchers.append(watch)

        def tell(snapshot: RunSnapshot) -> None:
            for watcher in watchers:
                watcher(snapshot)

        summary = _train(Session(folder, config, make_runtime(config, folder), tell))
    log.info(
        "success before %s, after %s; %d episodes", summary.success_before, summary.success_after, summary.episodes
    )
    if summary.cut_off:
        raise incomplete(summary, folder)
    return Run(folder, trusted=True)


def _train(session: Session) -> Summary:
    """Run a session; Ctrl-C once finishes and saves."""
    if threading.current_thread() is not threading.main_thread():
        return session.train()  # signals go to the main thread

    def ask(*_: object) -> None:
        session.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log.warning("finishing and saving; interrupt again to stop now")

    before = signal.signal(signal.SIGINT, ask)
    try:
        return session.train()
    finally:
        signal.signal(signal.SIGINT, before)


# --- runs -------------------------------------------------------------------------------------------------------------


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in this folder, live or finished; `StoreError` names the ones that exist where it is none."""
    return Run(open_folder(Path(path)))


class Run:
    """A training run, read from its folder. Reading is safe while the run goes on."""

    def __init__(self, folder: RunFolder, *, trusted: bool = False) -> None:
        self._folder = folder
        self.trusted = trusted
        """Whether Python code that its settings name (plug-ins) may run: so for a run that was trained here."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def name(self) -> str:
        """Date, time and `run.name`."""
        return self._folder.name

    @property
    def config(self) -> Config:
        """Its settings."""
        return self._folder.config()

    @property
    def summary(self) -> Summary | None:
        """The figures of a run that has ended; None where it has not."""
        return read_summary(self._folder)

    def status(self) -> RunStatus:
        """The run at a glance: phase, roles, evaluations, troubles."""
        import time

        return read_status(self._folder, now_s=time.time())

    def episodes(
        self,
        *,
        success: bool | None = None,
        template: str | None = None,
        task: str | None = None,
        source: Source | None = "played",
        last: int | None = None,
    ) -> Iterator[Trajectory]:
        """The stored episodes in the order in which they came, read one by one.

        `success` and `template` keep those alone, `task` those of one task id, `source` "played", "hindsight" or "demonstration"
        (None: all), `last` the newest so many of what is left.
        """
        from distrl.experience.store import ExperienceStore, IndexRow

        if not (self._folder.experience / "index.sqlite").is_file():
            return

        def wanted(row: IndexRow) -> bool:
            return (
                (success is None or row.success == success)
                and (template is None or row.template == template)
                and (task is None or row.task == task)
                and (source is None or row.source == source)
            )

        with ExperienceStore(self._folder.experience, read_only=True) as store:
            rows = list[IndexRow]()
            while found := store.after(rows[-1].seq if rows else 0, ROWS_AT_ONCE):
                rows += found
            ids = [row.id for row in rows if wanted(row)]
            for id in ids if last is None else ids[max(0, len(ids) - last) :]:
                yield store.read(id)

    def episode(self, id: str) -> Trajectory:
        """One stored episode; `StoreError` where there is none of this id."""
        from distrl.experience.store import ExperienceStore

        with ExperienceStore(self._folder.experience, read_only=True) as store:
            return store.read(id)

    def frame(self, reference: str) -> bytes:
        """The screenshot behind `observation.screenshot`, JPEG or PNG; there with `rollout.keep_screenshots`."""
        from distrl.experience.frames import FrameStore

        return FrameStore(self._folder.experience).get(reference)

    def metrics(self, role: str | None = None) -> list[dict[str, Value]]:
        """The lines of `metrics.jsonl`, those of one role ("learner", "worker-1", "evaluator") or of all."""
        from distrl.telemetry.events import read_events

        rows = read_events(self._folder.metrics)
        return [row for row in rows if role is None or role in (row.get("role"), row.get("event"))]

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """One metric over time: seconds since the first line of `metrics.jsonl`, and its value. Several workers take turns."""
        rows = self.metrics()
        first_s = float(rows[0]["time_s"]) if rows else 0.0
        return [(float(row["time_s"]) - first_s, float(row[metric])) for row in rows if metric in row]

    def evaluations(self) -> dict[str, Report]:
        """The reports by name, in order: `before`, `v000012` and the like, `after`."""
        files = {file.stem: file for file in sorted(self._folder.evaluations.glob("*.json"))}
        names = sorted(files, key=lambda name: ({"before": 0, "after": 2}.get(name, 1), name))
        return {name: msgspec.json.decode(files[name].read_bytes(), type=Report) for name in names}

    def policy(self, **how: Any) -> TrainedPolicy:
        """What it has learnt so far; see `load_policy`."""
        return load_policy(self, **how)

    def evaluate(self, **how: Any) -> Report:
        """Its success on held-out tasks; see `evaluate`."""
        return evaluate(self, **how)

    def resume(
        self, *, watch: Callable[[RunSnapshot], None] | None = None, progress: bool = True, **overrides: Any
    ) -> Run:
        """Go on where it stopped, as `distrl train --resume` does: `run.resume(run__minutes=10)` for longer."""
        from distrl.cli.train import check_model, check_settings, refuse_finished
        from distrl.runtime.placement import check_devices
        from distrl.runtime.resume import settings_to_resume

        with _found_by_roles():
            config = settings_to_resume(
                self._folder, {_key(key): _value(key, value) for key, value in overrides.items()}
            )
            check_settings(config)
            check_model(config)
            check_devices(config)
            refuse_finished(self._folder, config)
            return _sit(self._folder, config, watch, progress)


# --- what was learnt --------------------------------------------------------------------------------------------------


def evaluate(
    source: Run | str | os.PathLike[str],
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
    `trust_code` lets Python code run that the settings in the folder name: plug-ins, or code beside a model.
    """
    from distrl.runtime.playing import TaskChoice, evaluate_source, find_source

    if episodes < 1:
        raise UsageError(f"episodes = {episodes} does not fit", expected="1 or more", fix="episodes=300")
    choice = TaskChoice(suite=suite, split=split, max_oracle_steps=max_oracle_steps)
    base, trusted = None if model is None else Path(model), trust_code or getattr(source, "trusted", False)
    found = find_source(Path(source), choice, model=base, trust_code=trusted)
    return _aside(lambda: evaluate_source(found, episodes, notice=log.warning))


def load_policy(
    source: Run | str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    trust_code: bool = False,
) -> TrainedPolicy:
    """The policy of a run (its newest version), of one of its checkpoints, or of an export."""
    from distrl.runtime.playing import find_source, load

    base, trusted = None if model is None else Path(model), trust_code or getattr(source, "trusted", False)
    return TrainedPolicy(load(find_source(Path(source), model=base, trust_code=trusted)))


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
        from distrl.runtime.playing import choose_task, make_player

        chosen = choose_task(self.config, task, number=Random(seed).randrange(10**9))
        player = make_player(self._loaded, temperature=temperature, seed=seed)
        return _aside(lambda: play(player, chosen))


def _record(info: Mapping[str, Any]) -> Observation:
    found = info.get("observation")
    if isinstance(found, Observation):
        return found
    raise UsageError(
        f"{type(info).__name__} with {', '.join(map(str, info))} holds no observation that a policy reads",
        expected="the record in `info['observation']`, or that `info`",
        fix="_, info = env.reset(); policy.act(info)",
    )


def _encoded(screenshot: bytes | NDArray[np.uint8]) -> bytes:
    if isinstance(screenshot, bytes):
        return screenshot
    from PIL import Image

    out = BytesIO()
    Image.fromarray(screenshot).save(out, "PNG")
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
