"""MobileGym (arXiv 2605.26114) as a suite: its task classes, splits, levels and judges, on Chromium phones that show its page.

Nothing of it is part of distrl. The user clones and serves it, and names the address and the folder; `distrl.devices.web.gym` runs
its code in a process of its own. A task here is the name of one of its classes and a seed for its parameters. What it asks for is known
once its phone is set up, so the instruction of an unplayed task only names it. Tasks whose code cannot be loaded, for want of
data that the clone lacks, are left out by name; `distrl tasks check mobilegym` finds those that fail later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from distrl.config.judging import MobileGymConfig
from distrl.devices.web.gym import GET_IT, GymTask, list_tasks
from distrl.errors import ConfigError, TaskError, closest
from distrl.tasks.base import Fitting, check_index
from distrl.types import RewardCheck, Split, Task, Trajectory, WebEnd, WebSetup

KNOWN_VERSION = "0.1"
FIRST_DRAW: dict[Split, int] = {"test": 0, "tune": 1, "train": 2}
"""Draws count up from here; a test task is the first one, which MobileGym's own loader makes of the same seed."""
log = logging.getLogger("distrl.tasks")


class MobileGymSuite:
    """Tasks of MobileGym; numbers go round the templates, so that any stretch of a split has all of them in it."""

    name = "mobilegym"

    def __init__(self, settings: MobileGymConfig | None = None) -> None:
        config = self._config = settings or MobileGymConfig()
        folder = _find_folder(config)
        self.version = _version_of(folder)
        found = list_tasks(folder, config)
        _check_names(config, found)
        chosen = [task for task in found if _is_chosen(config, task)]
        self.left_out = {task.name: task.error for task in chosen if task.error}
        """Tasks whose code cannot be loaded, with the reason."""
        if self.left_out:
            log.info(
                "%d of %d tasks of MobileGym cannot be loaded: distrl tasks check mobilegym",
                len(self.left_out),
                len(chosen),
            )
        kept = [task for task in chosen if not task.error and (not config.levels or task.level in config.levels)]
        self.templates = {split: [task for task in kept if task.split == split] for split in ("train", "test")}
        self._levels = {task.name: task.level for task in kept}

    def size(self, split: Split) -> int:
        """How many tasks a split has; tuning is done on other draws of the training tasks."""
        if split == "test":
            return len(self.templates["test"])
        return len(self.templates["train"]) * (self._config.instances if split == "train" else 1)

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split."""
        check_index(self, split, index)
        templates = self.templates["test" if split == "test" else "train"]
        template, turn = templates[index % len(templates)], FIRST_DRAW[split] + index // len(templates)
        seed = seed_of(self._config.seed, template.name, turn)
        config = self._config
        return Task(
            id=f"{self.name}/{split}/{index:05d}",
            suite=self.name,
            template=template.name,
            split=split,
            instruction=f"{template.name}, seed {seed}",
            setup=WebSetup(
                url=config.url, page="mobilegym", task=template.name, seed=seed, language=config.language,
                answers=config.answers, draws=config.hindsight_draws if split == "train" else 0,
            ),
            check=RewardCheck(at_least=1.0),
            max_steps=template.max_steps,
        )  # fmt: skip

    def held_out_templates(self) -> frozenset[str]:
        """The task classes that MobileGym's test split alone has."""
        trained, tested = ({task.name for task in self.templates[split]} for split in ("train", "test"))
        return frozenset(tested - trained)

    def level_of(self, template: str) -> str:
        """MobileGym's own level of a task; empty: it is none of this suite."""
        return self._levels.get(template, "")

    def hindsight(self, *, max_oracle_steps: int, flip: float) -> Fitting:
        """What the judges of other tasks said of an end, while its states were at hand; they cannot be made to err."""
        if flip:
            raise ConfigError(
                "the judges of MobileGym cannot be made to err",
                expected="data.judge_flip = 0",
                fix="--data.judge_flip 0",
            )
        return _fulfilled


def _fulfilled(trajectory: Trajectory) -> Iterator[Task]:
    end, task = trajectory.end.device, trajectory.task
    if not isinstance(end, WebEnd) or not isinstance(task.setup, WebSetup):
        return
    for other in end.fulfilled:
        yield replace(
            task,
            id=f"{task.id}+{other.task}",
            template=other.task,
            instruction=other.instruction,
            setup=replace(task.setup, task=other.task, seed=other.seed),
        )


def seed_of(seed: int, name: str, number: int) -> int:
    """As MobileGym's own loader seeds draw `number` of a task."""
    return (seed ^ crc32(f"{name}:{number}".encode())) & 0xFFFFFFFF


def _find_folder(config: MobileGymConfig) -> Path:
    if not config.folder or not config.url:
        missing = "folder" if not config.folder else "url"
        raise TaskError(
            f"tasks.mobilegym.{missing} is empty",
            expected="the folder of your clone of MobileGym, and the address of its page",
            fix=f"{GET_IT}; then --tasks.mobilegym.folder PATH --tasks.mobilegym.url http://127.0.0.1:4173/",
        )
    folder = Path(config.folder).expanduser().absolute()
    if not (folder / "bench_env" / "splits").is_dir():
        raise TaskError(
            f"{folder} has no bench_env/splits" + ("" if folder.is_dir() else ": there is no such folder"),
            expected="a clone of MobileGym",
            fix=GET_IT,
        )
    return folder


def _version_of(folder: Path) -> str:
    """What the clone says of itself; another version than this was made for is told and tried."""
    try:
        version = str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        version = "unknown"
    if not version.startswith(f"{KNOWN_VERSION}."):
        log.warning(
            "%s is MobileGym %s, and this was tried with %s: run distrl tasks check mobilegym first",
            folder,
            version,
            KNOWN_VERSION,
        )
    return version


def _check_names(config: MobileGymConfig, found: list[GymTask]) -> None:
    known = {task.name for task in found} | {_app(task) for task in found}
    for key in ("names", "leave_out"):
        for name in getattr(config, key):
            if name not in known:
                raise TaskError(
                    f"MobileGym has no task {name!r}",
                    expected=closest(name, sorted(known)),
                    fix=f"mend tasks.mobilegym.{key}",
                )


def _is_chosen(config: MobileGymConfig, task: GymTask) -> bool:
    called = {task.name, _app(task)}
    return (not config.names or bool(called & set(config.names))) and not called & set(config.leave_out)


def _app(task: GymTask) -> str:
    return task.name.partition(".")[0]
