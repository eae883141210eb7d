"""Tasks from files of instructions: every kind of file, splits that share nothing, and errors that name the line."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distrl.cli.tasks import count_overlap
from distrl.config.load import dump_toml, load_config
from distrl.config.schema import ListConfig
from distrl.errors import ConfigError, TaskError
from distrl.tasks.base import SPLITS, Suite, find_suite, suite, tasks_of
from distrl.tasks.lists import ListSuite, read_list
from distrl.types import AndroidCheck, AndroidSetup, ModelCheck, SimSetup, Task

SHOPS = ("newegg.com", "bestbuy.com", "costco.com", "ebay.com", "walmart.com")
ITEMS = ("macbook air", "razer kraken", "usb-c cable", "logitech g933", "dell xps", "jbl charge 4", "amazon basics")


def instructions(count: int) -> list[str]:
    """Instructions in the manner of the Web Shopping list."""
    found = [
        f'Go to {shop}, search for "{item} {number}", and select the first entry'
        for number in range(20)
        for shop in SHOPS
        for item in ITEMS
    ]
    return found[:count]


def write(path: Path, data: str | bytes) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def texts(made: Suite) -> list[list[str]]:
    return [[task.instruction for task in tasks_of(made, split)] for split in SPLITS]


def all_tasks(made: Suite) -> list[Task]:
    return [task for split in SPLITS for task in tasks_of(made, split)]


# --- splits


def test_a_list_of_500_instructions_splits_without_overlap(tmp_path: Path) -> None:
    path = write(tmp_path / "shopping.txt", "\n".join(instructions(500)))
    made = find_suite(load_config(None, {"tasks.suite": "list", "tasks.list.path": path}).tasks)
    assert isinstance(made, ListSuite)
    sizes = [made.size(split) for split in SPLITS]
    assert (sum(sizes), count_overlap(all_tasks(made))) == (500, 0)
    assert [size > share * 500 for size, share in zip(sizes, (0.6, 0.05, 0.12), strict=True)] == [True] * 3
    assert made.task("train", 3).id == "list/train/00003"
    assert texts(made) == texts(ListSuite(ListConfig(path=path)))
    with pytest.raises(TaskError, match="has no test task"):
        made.task("test", sizes[2])


def test_splits_that_files_give_are_kept_and_a_tenth_of_training_is_for_tuning(tmp_path: Path) -> None:
    lines = instructions(500)
    train, test = (
        write(tmp_path / name, "\n".join(part)) for name, part in (("a.txt", lines[:400]), ("b.txt", lines[400:]))
    )
    made = ListSuite(ListConfig(path=train, test_path=test))
    trained, tuned, tested = texts(made)
    assert (sorted(trained + tuned), tested) == (sorted(lines[:400]), lines[400:])
    assert 20 <= len(tuned) <= 60
    tune = write(tmp_path / "c.txt", "only this one")
    assert [len(found) for found in texts(ListSuite(ListConfig(path=train, tune_path=tune, test_path=test)))] == [
        400,
        1,
        100,
    ]


def test_files_that_share_instructions_are_refused_with_how_many_and_which(tmp_path: Path) -> None:
    train = write(tmp_path / "train.txt", "Open the clock\nCall Ann\nGo home")
    test = write(tmp_path / "test.txt", "open  the CLOCK\nGo back\n")
    with pytest.raises(TaskError, match=r"1 instruction\(s\) stand in more than one .* 'Open the clock'") as caught:
        ListSuite(ListConfig(path=train, test_path=test))
    assert "--tasks.list.overlap leave_out" in caught.value.fix


def test_an_overlap_that_is_allowed_or_left_out_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "distrl.tasks")
    train = write(tmp_path / "train.txt", "Open the clock\nCall Ann\nGo home\nCall Bob")
    tune = write(tmp_path / "tune.txt", "Call Ann\nGo back")
    test = write(tmp_path / "test.txt", "open  the CLOCK\nGo back\n")
    files = {"path": train, "tune_path": tune, "test_path": test}
    left = ListSuite(ListConfig(**files, overlap="leave_out"))  # type: ignore[arg-type]
    assert texts(left) == [["Go home", "Call Bob"], ["Call Ann"], ["open the CLOCK", "Go back"]]
    assert count_overlap(all_tasks(left)) == 0
    allowed = ListSuite(ListConfig(**files, overlap="allow"))  # type: ignore[arg-type]
    assert [allowed.size(split) for split in SPLITS] == [4, 2, 2]
    assert [line.getMessage().rpartition(": ")[2] for line in caplog.records] == ["left out of training", "allowed"]
    assert caplog.records[0].getMessage().startswith("3 instruction(s)")


def test_a_tuning_file_needs_a_test_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    with pytest.raises(ConfigError, match="test_path is not"):
        ListSuite(ListConfig(path=path, tune_path=path))


# --- tasks


def test_tasks_begin_and_are_judged_as_the_table_says(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    write(tmp_path / "a.txt", "Open the clock")
    file.write_text(
        f"""
[tasks]
suite = "list"
[tasks.list]
path = "{tmp_path / "a.txt"}"
stop = ["com.android.chrome"]
clear = ["com.shop"]
settings = ["global/airplane_mode_on=0", "secure/note=a=b"]
open = "https://example.com/"
criterion = "a clock is on the screen"
max_steps = 7
[judge]
kind = "model"
[judge.model]
url = "http://127.0.0.1:8000/v1"
model = "m"
""",
        encoding="utf-8",
    )
    config = load_config(file)
    (task,) = all_tasks(find_suite(config.tasks))
    assert task.setup == AndroidSetup(
        stop=("com.android.chrome",),
        clear=("com.shop",),
        settings={"global/airplane_mode_on": "0", "secure/note": "a=b"},
        open="https://example.com/",
    )
    assert (task.check, task.max_steps) == (ModelCheck(criterion="a clock is on the screen"), 7)
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
    (tmp_path / "again.toml").write_text(dump_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "again.toml") == config


def test_a_line_of_json_may_have_a_setup_a_check_and_a_template_of_its_own(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"instruction": "a"},
        {"instruction": "b", "criterion": "b is there", "template": "letters", "max_steps": 3},
        {"instruction": "c", "setup": {"type": "sim", "phone": 1, "seed": 2}},
        {"instruction": "d", "check": {"type": "android", "activity": "com.shop"}, "setup": {"type": "android", "open": "x"}},
    ]  # fmt: skip
    path = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, lines)))
    config = ListConfig(path=path, criterion="usual", open="home")
    by_text = {task.instruction: task for task in all_tasks(ListSuite(config))}
    assert (by_text["a"].check, by_text["a"].setup) == (ModelCheck(criterion="usual"), AndroidSetup(open="home"))
    assert (by_text["b"].check, by_text["b"].template, by_text["b"].max_steps) == (
        ModelCheck(criterion="b is there"),
        "letters",
        3,
    )
    assert by_text["c"].setup == SimSetup(phone=1, seed=2)
    assert (by_text["d"].check, by_text["d"].setup) == (AndroidCheck(activity="com.shop"), AndroidSetup(open="x"))


@pytest.mark.parametrize("setting", ["airplane_mode_on=0", "global/x", "other/x=1", "global/=1"])
def test_android_settings_have_a_namespace_a_name_and_a_value(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=r"tasks\.list\.settings has") as caught:
        ListSuite(ListConfig(path=write(tmp_path / "a.txt", "x"), settings=(setting,)))
    assert "global/airplane_mode_on=0" in caught.value.fix


# --- files


@pytest.mark.parametrize(
    "data",
    [
        b"Open the clock\nCall Ann\n",
        b"\xef\xbb\xbfOpen the clock\r\nCall Ann\r\n",
        b"\n\n  Open   the clock \t\n# a comment\n   # another\n\nCall Ann",
        b"Open the clock\nOPEN THE CLOCK\nCall Ann\nCall Ann\n",
        b"Open the clock\rCall Ann\r",
    ],
    ids=["plain", "windows with a mark", "blank lines and comments", "twice", "old mac"],
)
def test_plain_text_is_read_however_it_was_saved(tmp_path: Path, data: bytes) -> None:
    found = read_list(Path(write(tmp_path / "a.txt", data)))
    assert [listed.instruction for listed in found] == ["Open the clock", "Call Ann"]


def test_instructions_of_any_language_are_read(tmp_path: Path) -> None:
    lines = ["打开时钟", "Öffne die Uhr 🕰", "افتح الساعة"]
    assert [one.instruction for one in read_list(Path(write(tmp_path / "a.txt", "\n".join(lines))))] == lines


@pytest.mark.parametrize(
    ("name", "data", "seen"),
    [
        ("a.txt", b"", "holds no instructions"),
        ("a.txt", b"\xef\xbb\xbf\n# nothing\n", "holds no instructions"),
        ("a.txt", b"fine\n" + b"x" * 1_000_000, "a.txt:2 has 1,000,000 characters"),
        ("a.txt", b"fine\nbell \x07", "a.txt:2 holds no printable instruction"),
        ("a.txt", "Open".encode("utf-16"), "is not text in UTF-8"),
        ("a.jsonl", b'{"instruction": "a"}\n{', "a.jsonl:2 is no task"),
        ("a.jsonl", b"Open the clock", "a.jsonl:1 is no task"),
        ("a.jsonl", b'{"text": "a"}', "a.jsonl:1 is no task"),
        ("a.jsonl", b'{"instruction": "a", "goal": 1}', "a.jsonl:1 is no task"),
        ("a.jsonl", b'{"instruction": 7}', "a.jsonl:1 is no task"),
        ("a.jsonl", b'{"instruction": "a", "check": {"type": "sim"}}', "a.jsonl:1 is no task: a SimCheck"),
        ("a.jsonl", b'{"instruction": "a", "check": {"type": "model"}, "criterion": "x"}', "has check and criterion"),
        ("a.jsonl", b'{"instruction": "  "}', "a.jsonl:1 holds no printable instruction"),
        ("a.jsonl", b'{"instruction": "' + b"x" * 1_000_000 + b'"}', "a.jsonl:1 has 1,000,000 characters"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl:1 is no task"),
    ],
)
def test_a_file_that_is_no_list_is_refused_with_its_line(tmp_path: Path, name: str, data: bytes, seen: str) -> None:
    with pytest.raises(TaskError, match=seen) as caught:
        read_list(Path(write(tmp_path / name, data)))
    assert caught.value.fix
    assert len(str(caught.value)) < 700


def test_a_file_that_is_not_there_or_none_is_refused(tmp_path: Path) -> None:
    for path, seen in (
        (tmp_path / "nowhere.txt", "is not there"),
        (tmp_path, "is no file"),
        (Path("/dev/zero"), "is no file"),
    ):
        with pytest.raises(TaskError, match=seen):
            read_list(path)


def test_the_format_can_be_said(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "list", '{"instruction": "a"}'))
    assert [one.instruction for one in read_list(path, "jsonl")] == ["a"]
    assert [one.instruction for one in read_list(path)] == ['{"instruction": "a"}']


def test_the_list_needs_a_file_and_its_table_needs_the_list() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.list\.path names no file"):
        suite("list")
    with pytest.raises(ConfigError, match=r"tasks\.list\.path is read by list alone, and tasks\.suite is sim-start"):
        load_config(None, {"tasks.list.path": "a.txt"})


def test_an_instruction_that_comes_twice_is_one_task_unless_it_is_meant_otherwise(tmp_path: Path) -> None:
    same = '{"instruction": "Open maps"}\n{"instruction": "open MAPS"}\n'
    assert [one.instruction for one in read_list(Path(write(tmp_path / "a.jsonl", same)))] == ["Open maps"]
    other = '{"instruction": "Open maps"}\n{"instruction": "open MAPS", "max_steps": 5}\n'
    with pytest.raises(TaskError, match=r"b\.jsonl:2 says 'open MAPS' once more, with another setup, check or limit"):
        read_list(Path(write(tmp_path / "b.jsonl", other)))
