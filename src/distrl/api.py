"""distrl from Python: train, look at a run, evaluate what it learnt, and play with it. All of it is in `distrl` itself.

    import distrl

    run = distrl.train(run__minutes=2)                   # or a TOML file, a dict, a Config
    print(run.summary.success_before, run.summary.success_after)
    for episode in run.episodes(success=False):
        print(episode.task.instruction, episode.verdict.reason)
    report = distrl.evaluate(run, episodes=100)

It is what the command line does, with the same sessions, locks and files, checks and errors: whatever the caller can mend is a
`DistrlError`. Roles are processes of their own that are started by
name, so a script needs no `if __name__ == "__main__"` and a notebook works. Records go to the logger `distrl`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from distrl.config.load import load_config
from distrl.config.reference import flatten, settings
from distrl.config.schema import Config
from distrl.errors import StoreError, UsageError, closest
from distrl.evaluation.report import Report, read_report
from distrl.runtime.run_folder import RunFolder, as_path, read_errors
from distrl.runtime.run_folder import open_run as open_folder
from distrl.runtime.summary import RunStatus, Summary, read_status, read_summary
from distrl.trained_policy import TrainedPolicy, evaluate, load_policy
from distrl.types import SettingValue, Source, Split, Trajectory, Value

if TYPE_CHECKING:
    from distrl.experience.index import IndexRow
    from distrl.runtime.session import RunSnapshot, Session
    from distrl.telemetry.events import EventTail
    from distrl.telemetry.live import DeviceViews

__all__ = ["Run", "open_run", "record", "train"]

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
    from distrl.cli.train import new_run

    _check_watch(watch)
    resolved = resolve(config, overrides)
    with _found_by_roles():
        return _run_session(new_run(resolved), resolved, watch, progress)


def record(episodes: Iterable[Trajectory], config: Settings = None, **overrides: Any) -> Run:
    """A new run that holds these episodes, such as a person's own demonstrations: `distrl sft CONFIG --data RUN` learns from them."""
    from distrl.experience.store import ExperienceStore
    from distrl.runtime.run_folder import create_run

    found = list(episodes) if isinstance(episodes, Iterable) else [episodes]  # all of them, before there is a folder
    if not found:
        raise UsageError("there is no episode to record", expected="one or more", fix="distrl.record([episode])")
    _check_episodes(found)
    folder = create_run(resolve(config, {"run__name": "demonstrations", **overrides}), now=datetime.now())
    with ExperienceStore(folder.experience) as store:
        for episode in found:
            store.add(episode)
    return Run(folder, trusted=True)


def _check_episodes(episodes: Sequence[object]) -> None:
    ids = [episode.id if isinstance(episode, Trajectory) else "" for episode in episodes]
    if "" in ids:
        raise UsageError(
            f"{episodes[ids.index('')]!r:.100} is no episode with an id",
            expected="records of distrl.types.Trajectory",
            fix="distrl.record(other_run.episodes(success=True))",
        )
    if twice := [id for id in dict.fromkeys(ids) if ids.count(id) > 1]:
        raise UsageError(
            f"several episodes have the id {twice[0][:80]!r}", expected="an id for each", fix="number them"
        )


def resolve(config: Settings, overrides: Mapping[str, Any]) -> Config:
    """The configuration that is meant; `ConfigError` names what does not fit."""
    changes = {_key(key): _value(key, value) for key, value in overrides.items()}
    if isinstance(config, Config):
        defaults = {key: setting.default for key, setting in settings().items()}
        own = {key: value for key, value in flatten(config).items() if defaults.get(key) != value}
        return load_config(None, {**own, **changes})
    if isinstance(config, Mapping):
        return load_config(None, {**_by_key(config), **changes})
    if config is not None and not isinstance(config, str | os.PathLike):
        raise UsageError(
            f"{config!r:.100} is no configuration",
            expected="a TOML file, a mapping, a Config or None",
            fix='train("my.toml"), train({"run": {"minutes": 2}}) or train(run__minutes=2)',
        )
    return load_config(None if config is None else Path(config), changes)


def _key(name: str) -> str:
    return name.replace("__", ".")


def _by_key(table: Mapping[str, Any]) -> dict[str, SettingValue]:
    """The settings of a mapping, nested or with dotted keys, by key."""
    found: dict[str, SettingValue] = {}
    for key, value in _leaves(table):
        if key in found:
            raise UsageError(f"{key} is given twice", expected="each setting once", fix=f"keep one of the two: {key}")
        found[key] = value
    return found


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, SettingValue]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{_key(str(name))}", _value(str(name), value)


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


def _check_watch(watch: object) -> None:
    if watch is not None and not callable(watch):
        raise UsageError(
            f"watch = {watch!r:.100} cannot be called", expected="a function of a snapshot, or None", fix="watch=print"
        )


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


def _run_session(folder: RunFolder, config: Config, watch: Callable[[RunSnapshot], None] | None, progress: bool) -> Run:
    """One session from start to summary."""
    from distrl.cli.progress import Progress
    from distrl.cli.train import incomplete, write_report_of
    from distrl.runtime.kinds import make_runtime
    from distrl.runtime.session import Session
    from distrl.telemetry.sinks import forwarding

    log.info("run folder %s", folder.path)
    with ExitStack() as stack:
        with read_errors(folder.path):
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
    write_report_of(folder)
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
    """The run in this folder, live or finished; `StoreError` names the ones that exist where it is none.

    Nothing that its settings name is run.
    """
    return Run(open_folder(as_path(path, "path")))


class Run:
    """A training run, read from its folder. Reading is safe while the run goes on."""

    def __init__(self, folder: RunFolder, *, trusted: bool = False) -> None:
        self._folder = folder
        self.trusted = trusted
        """Whether code that its settings name (plug-ins) may run: so for a run that was trained here."""

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
        """The figures of a run that has ended; None where it has not, `StoreError` where they cannot be read."""
        with read_errors(self.path):
            return read_summary(self._folder)

    def status(self) -> RunStatus:
        """The run at a glance: phase, roles, evaluations, troubles."""
        import time

        with read_errors(self.path):
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
        _check_filters(success=success, source=source, last=last)
        _check_text(template=(template, "contacts-call"), task=(task, "sim-start/train/00003"))
        return self._read_episodes(_Wanted(success=success, template=template, task=task, source=source), last)

    def _read_episodes(self, wanted: _Wanted, last: int | None) -> Iterator[Trajectory]:
        from distrl.experience.store import ExperienceStore, IndexRow, has_index

        with read_errors(self.path):
            if not has_index(self._folder.experience):
                return
        with ExperienceStore(self._folder.experience, read_only=True) as store:
            rows = list[IndexRow]()
            while found := store.after(rows[-1].seq if rows else 0, ROWS_AT_ONCE):
                rows += found
            ids = [row.id for row in rows if wanted.includes(row)]
            for id in ids if last is None else ids[max(0, len(ids) - last) :]:
                yield store.read(id)

    def index(self, *, after: int = 0, limit: int = ROWS_AT_ONCE) -> list[IndexRow]:
        """What is known of the stored episodes without opening their files: up to `limit` rows behind the number `after`, in order."""
        from distrl.experience.store import ExperienceStore, has_index

        with read_errors(self.path):
            if not has_index(self._folder.experience):
                return []
        with ExperienceStore(self._folder.experience, read_only=True) as store:
            return store.after(after, limit)

    def devices(self) -> list[DeviceViews]:
        """What the devices of each worker show at this moment, or showed when the run ended; none where its runtime does not tell."""
        from distrl.telemetry.live import read_views

        return read_views(self._folder.heartbeats)

    def episode(self, id: str) -> Trajectory:
        """One stored episode; `StoreError` where there is none of this id."""
        from distrl.experience.store import ExperienceStore
        from distrl.runtime.source import check_text

        check_text("id", id, example="268c69a3a7ca4cdf987da42487dc1de1")
        with ExperienceStore(self._folder.experience, read_only=True) as store:
            return store.read(id)

    def episodes_of(self, ids: Iterable[str]) -> Iterator[Trajectory | None]:
        """Stored episodes by their ids, in this order; None for one that is damaged or gone, which `episode` says more of."""
        from distrl.experience.store import ExperienceStore, has_index

        with read_errors(self.path):
            if not has_index(self._folder.experience):
                yield from (None for _ in ids)
                return
        with ExperienceStore(self._folder.experience, read_only=True) as store:
            for id in ids:
                try:
                    yield store.read(id)
                except StoreError:
                    yield None

    def frame(self, reference: str) -> bytes:
        """The screenshot behind `observation.screenshot`, JPEG or PNG; there with `rollout.keep_screenshots`."""
        from distrl.experience.frames import FrameStore

        if not (self._folder.experience / "frames").is_dir():  # which a `FrameStore` would make
            raise StoreError(
                f"{self.path} has kept no screenshots",
                expected="a run with rollout.keep_screenshots",
                fix="train(rollout__keep_screenshots=True)",
            )
        return FrameStore(self._folder.experience).get(reference)

    def metrics(self, role: str | None = None) -> list[dict[str, Value]]:
        """The lines of `metrics.jsonl`, those of one role ("learner", "worker-1", "evaluator") or of all."""
        from distrl.telemetry.events import read_events

        _check_text(role=(role, "learner"))
        with read_errors(self.path):
            rows = read_events(self._folder.metrics)
        return [row for row in rows if role is None or role in (row.get("role"), row.get("event"))]

    def follow(self, role: str | None = None) -> EventTail:
        """The lines of `metrics.jsonl`, or the events that one role has logged, as they come: each call of `new()` reads on."""
        from distrl.telemetry.events import EventTail

        return EventTail(self._folder.metrics if role is None else self._log_of(role))

    def newest_events(self, role: str, *, words: Iterable[str] = ()) -> Iterator[dict[str, Value]]:
        """What one role has logged, the newest first; `words` leaves out lines that do not hold all of them, whatever their case."""
        from distrl.telemetry.events import newest_events

        with read_errors(self.path):
            yield from newest_events(self._log_of(role), [word.lower().encode() for word in words])

    def _log_of(self, role: str) -> Path:
        if role not in self.logs():
            raise UsageError(f"{role[:80]!r} has no log in {self.path}", expected=closest(role, self.logs()))
        return self._folder.log(role)

    def logs(self) -> list[str]:
        """The roles that have logged something, and "supervisor"."""
        names = (path.stem for path in self._folder.logs.glob("[!.]*.jsonl"))
        return sorted(name for name in names if name.isprintable())  # others are no roles, and cannot be shown

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """One metric over time: seconds since the first line of `metrics.jsonl`, and its value. Several workers take turns."""
        from distrl.runtime.source import check_text

        check_text("metric", metric, example="learner/loss/total")
        rows = self.metrics()
        first_s = float(rows[0]["time_s"]) if rows else 0.0
        points = [(float(row["time_s"]) - first_s, row.get(metric)) for row in rows]
        return [(elapsed_s, float(value)) for elapsed_s, value in points if isinstance(value, int | float)]

    def evaluations(self) -> dict[str, Report]:
        """The reports by name, in order: `before`, `v000012` and the like, `after`; `StoreError` names one that is damaged."""
        files = {file.stem: file for file in sorted(self._folder.evaluations.glob("*.json"))}
        names = sorted(files, key=lambda name: ({"before": 0, "after": 2}.get(name, 1), name))
        return {name: read_report(files[name]) for name in names}

    def policy(self, *, trust_code: bool = False) -> TrainedPolicy:
        """What it has learnt so far; see `load_policy`."""
        return load_policy(self, trust_code=trust_code)

    def evaluate(
        self,
        *,
        suite: str | None = None,
        episodes: int = 300,
        split: Split = "test",
        max_oracle_steps: int | None = None,
        trust_code: bool = False,
    ) -> Report:
        """Its success on held-out tasks; see `evaluate`."""
        return evaluate(
            self,
            suite=suite,
            episodes=episodes,
            split=split,
            max_oracle_steps=max_oracle_steps,
            trust_code=trust_code,
        )

    def resume(
        self,
        *,
        watch: Callable[[RunSnapshot], None] | None = None,
        progress: bool = True,
        trust_code: bool = False,
        **overrides: Any,
    ) -> Run:
        """Go on where it stopped, as `distrl train --resume` does: `run.resume(run__minutes=10)` for longer.

        `trust_code` lets code run that the settings in the folder name, as `--trust-code` does; what `overrides` name is the
        caller's own.
        """
        from distrl.cli.train import resumed_settings

        _check_watch(watch)
        changes = {_key(key): _value(key, value) for key, value in overrides.items()}
        with _found_by_roles():
            config = resumed_settings(self._folder, changes, trust_code=trust_code or self.trusted)
            return _run_session(self._folder, config, watch, progress)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes are read; None: whatever it is."""

    success: bool | None
    template: str | None
    task: str | None
    source: Source | None

    def includes(self, row: IndexRow) -> bool:
        """Whether a row of the index is one of them."""
        asked = {"success": self.success, "template": self.template, "task": self.task, "source": self.source}
        return all(wanted is None or getattr(row, name) == wanted for name, wanted in asked.items())


def _check_text(**given: tuple[object, str]) -> None:
    """`UsageError` where an argument is neither text nor None; each comes with an example."""
    from distrl.runtime.source import check_text

    for name, (value, example) in given.items():
        if value is not None:
            check_text(name, value, example=example)


def _check_filters(*, success: object, source: object, last: object) -> None:
    """`UsageError` where no episode can be what is asked for."""
    sources = get_args(Source)
    if success not in (None, True, False):
        raise UsageError(f"success = {success!r:.100} does not fit", expected="True, False or None", fix="success=True")
    if source not in (None, *sources):
        raise UsageError(
            f"source = {source!r:.100} is unknown",
            expected=f"{closest(str(source), sources)}, or None for all",
            fix='source="played"',
        )
    if last is not None and (isinstance(last, bool) or not isinstance(last, Integral) or last < 0):
        raise UsageError(
            f"last = {last!r:.100} does not fit", expected="a whole number from 0 on, or None", fix="last=10"
        )
