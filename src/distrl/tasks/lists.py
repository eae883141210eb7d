"""Tasks from files of instructions, one a line: as the General and Web Shopping lists of Android in the Wild are published.

A file is plain text (blank lines and lines that begin with # are left out) or JSON Lines. The splits are given by files, as
DigiRL's train and test lists are, or follow from the text of each instruction (`split_of`), so that no text is in two. What files
share is found and said, and refused unless `overlap` allows it. Upper and lower case and spaces make no difference to that, and
a line that a file repeats counts once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from distrl.config.schema import ListConfig
from distrl.errors import ConfigError, TaskError
from distrl.tasks.base import SPLITS, check_index, split_of
from distrl.types import AndroidSetup, Check, ModelCheck, Setup, Split, Task

log = logging.getLogger("distrl.tasks")

LONGEST_INSTRUCTION = 2000
"""Characters; what is longer is no instruction."""
MOST_BYTES = 64_000_000
"""Of a file."""
EXAMPLES = 3


class ListedTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a JSONL file; what it leaves out is as `[tasks.list]` says."""

    instruction: str
    criterion: str = ""
    """What a model that judges must see at the end; not with `check`."""
    template: str = "list"
    """Tasks of one kind share it."""
    setup: Setup | None = None
    check: Check | None = None
    max_steps: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


class ListSuite:
    """The tasks of `[tasks.list]`, in the order of the files."""

    name = "list"

    def __init__(self, settings: ListConfig | None = None) -> None:
        config = settings or ListConfig()
        if not config.path:
            raise ConfigError(
                "tasks.suite is list, and tasks.list.path names no file",
                expected="a file of instructions, one a line",
                fix="--tasks.list.path my_tasks.txt",
            )
        self._config, self._setup = config, _setup_of(config)
        self._tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
        for split, listed in _in_splits(config):
            self._tasks[split].append(self._task(split, listed))

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return len(self._tasks[split])

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split; `TaskError` beyond its size."""
        check_index(self, split, index)
        return self._tasks[split][index]

    def _task(self, split: Split, listed: ListedTask) -> Task:
        return Task(
            id=f"{self.name}/{split}/{len(self._tasks[split]):05d}",
            suite=self.name,
            template=listed.template,
            split=split,
            instruction=listed.instruction,
            setup=listed.setup or self._setup,
            check=listed.check or ModelCheck(criterion=listed.criterion or self._config.criterion),
            max_steps=listed.max_steps or self._config.max_steps,
        )


def _setup_of(config: ListConfig) -> AndroidSetup:
    settings = {}
    for setting in config.settings:
        name, sign, value = setting.partition("=")
        if not sign or name.partition("/")[0] not in ("global", "secure", "system") or not name.partition("/")[2]:
            raise ConfigError(
                f"tasks.list.settings has {setting!r}",
                expected="namespace/name=value, the namespace being global, secure or system",
                fix='tasks.list.settings = ["global/airplane_mode_on=0"]',
            )
        settings[name] = value
    return AndroidSetup(stop=config.stop, clear=config.clear, settings=settings, open=config.open)


# --- splits -----------------------------------------------------------------------------------------------------------


def _in_splits(config: ListConfig) -> Iterator[tuple[Split, ListedTask]]:
    """Every task of the files with its split."""
    if not config.test_path:
        if config.tune_path:
            raise ConfigError(
                "tasks.list.tune_path is given, and test_path is not",
                expected="both, or neither: then the text of an instruction decides its split",
                fix="--tasks.list.test_path FILE, or leave tune_path out",
            )
        for listed in read_list(Path(config.path), config.format):
            yield split_of(_same(listed)), listed
        return
    yield from _given(config, config.test_path)


def _given(config: ListConfig, test_path: str) -> Iterator[tuple[Split, ListedTask]]:
    files: dict[Split, str] = {"train": config.path, "tune": config.tune_path, "test": test_path}
    lists = {split: read_list(Path(path), config.format) for split, path in files.items() if path}
    tested = {_same(listed) for listed in lists["test"]}
    shared = [
        listed for split, found in lists.items() if split != "test" for listed in found if _same(listed) in tested
    ]
    tuned = {_same(listed) for listed in lists.get("tune", ())}
    shared += [listed for listed in lists["train"] if _same(listed) in tuned - tested]
    if shared:
        _tell_overlap(config, shared, num_tested=len(tested))
    held = {"train": tested | tuned, "tune": tested, "test": set[str]()}
    for split, found in lists.items():
        for listed in found:
            if config.overlap != "leave_out" or _same(listed) not in held[split]:
                yield _own_split(split, listed, has_tune="tune" in lists), listed


def _own_split(split: Split, listed: ListedTask, *, has_tune: bool) -> Split:
    """Without a file for tuning, a tenth of the training file is: evaluations on the way need some."""
    tunes = split == "train" and not has_tune and split_of(_same(listed)) == "tune"
    return "tune" if tunes else split


def _tell_overlap(config: ListConfig, shared: list[ListedTask], *, num_tested: int) -> None:
    some = ", ".join(repr(listed.instruction[:80]) for listed in shared[:EXAMPLES])
    more = ", …" if len(shared) > EXAMPLES else ""
    said = f"{len(shared)} instruction(s) stand in more than one of the files, of {num_tested} test instructions: {some}{more}"
    if config.overlap == "refuse":
        raise TaskError(
            said,
            expected="splits that share no instruction",
            fix="--tasks.list.overlap leave_out (trains without them), or --tasks.list.overlap allow, and say so with the figures",
        )
    log.warning("%s: %s", said, "left out of training" if config.overlap == "leave_out" else "allowed")


def _same(listed: ListedTask) -> str:
    """What is equal for instructions that say the same."""
    return listed.instruction.casefold()


# --- files ------------------------------------------------------------------------------------------------------------


def read_list(path: Path, format: str = "auto") -> list[ListedTask]:
    """The tasks of a file, each instruction once; `TaskError` that names file and line where it cannot be read."""
    is_jsonl = format == "jsonl" or (format == "auto" and path.suffix.lower() in (".jsonl", ".json"))
    parse = _parse_json if is_jsonl else _parse_text
    found: dict[str, ListedTask] = {}
    for number, line in enumerate(_lines(path), 1):
        place = f"{path}:{number}"
        listed = parse(line, place)
        if listed is None:
            continue
        first = found.setdefault(_same(listed), _checked(listed, place))
        if msgspec.structs.replace(listed, instruction=first.instruction) != first:
            raise TaskError(
                f"{place} says {listed.instruction[:80]!r} once more, with another setup, check or limit",
                expected="each instruction once in a file",
                fix="word one of the two otherwise",
            )
    if not found:
        raise TaskError(
            f"{path} holds no instructions", expected="one a line", fix="another file, or write some into it"
        )
    return list(found.values())


def _lines(path: Path) -> Iterable[str]:
    """The lines of a text file, whatever ends them, without a byte-order mark."""
    fix = "check tasks.list.path, tune_path and test_path; they are seen from the folder that distrl is started in"
    if not path.is_file():
        what = "is no file" if path.exists() else "is not there"
        raise TaskError(f"{path} {what}", expected="a file of instructions", fix=fix)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise TaskError(f"{path} has {size / 1e6:.0f} MB", expected=f"{MOST_BYTES / 1e6:.0f} MB or less", fix=fix)
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}", expected="a file of instructions", fix=fix) from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not text in UTF-8 (byte {error.start})",
            expected="plain text or JSONL in UTF-8",
            fix="save it as UTF-8: iconv -f UTF-16 -t UTF-8, for one",
        ) from None
    return text.split("\n")  # read_text has turned the ends of lines of Windows into these


def _parse_text(line: str, _place: str) -> ListedTask | None:
    text = " ".join(line.split()) if len(line) <= LONGEST_INSTRUCTION else line
    return None if not text or text.startswith("#") else ListedTask(instruction=text)


def _parse_json(line: str, place: str) -> ListedTask | None:
    if not line.strip():
        return None
    try:
        listed = msgspec.json.decode(line.encode(), type=ListedTask)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, TaskError) as error:
        raise TaskError(
            f"{place} is no task: {str(error).partition(chr(10))[0][:200]}",
            expected='a JSON object such as {"instruction": "Open the clock"}',
            fix="mend the line; docs/tasks.md lists the fields",
        ) from None
    if listed.check is not None and listed.criterion:
        raise TaskError(f"{place} has check and criterion", expected="one of them", fix="leave criterion out")
    if len(listed.instruction) > LONGEST_INSTRUCTION:
        return listed
    return msgspec.structs.replace(listed, instruction=" ".join(listed.instruction.split()))


def _checked(listed: ListedTask, place: str) -> ListedTask:
    text = listed.instruction
    if len(text) > LONGEST_INSTRUCTION:
        raise TaskError(
            f"{place} has {len(text):,} characters: {text[:60]!r}…",
            expected=f"an instruction of {LONGEST_INSTRUCTION:,} characters or fewer",
            fix="one instruction a line: is this the right file?",
        )
    if not text or not text.isprintable():
        raise TaskError(
            f"{place} holds no printable instruction: {text[:60]!r}", expected="words", fix="mend or remove the line"
        )
    return listed
