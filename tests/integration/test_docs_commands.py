"""Every command and every Python block of the documentation does what its page says, as far as a minute allows.

Python is run, and so are commands that end within seconds, and one training. Other trainings are resolved up to their first process.
What this machine cannot do is in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import io
import re
import subprocess
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from distrl.bench.base import find
from distrl.cli.main import VERBS, Parser, main, split_overrides
from distrl.cli.train import check_settings
from distrl.config.load import load_config
from distrl.errors import UsageError
from distrl.runtime.resume import settings_to_resume
from distrl.runtime.run_folder import open_run
from support.pages import EXAMPLES, ROOT, Command, blocks, inline_commands, shell_commands
from support.runs import TINY, distrl, flags

NOT_RUN = {
    "pip": "changes the environment, and needs a network",
    "hf": "downloads a model",
    "python3": "makes another virtual environment",
    "ray": "makes this machine a node; tests/integration/test_ray_runs.py starts nodes of its own",
    "scp": "needs a second machine",
    "ssh": "needs a second machine",
    "vllm": "another project's server",
    "tensorboard": "another project's server; tests/unit/telemetry read its files back",
    ".": "enters the virtual environment of another machine",
    "docker": "needs a container engine; tests/unit/docs/test_containers.py reads the files",
    "git": "makes a second work tree of an earlier commit",
    "mkdir": "belongs to that work tree",
    "tar": "belongs to that work tree",
    "cd": "belongs to that work tree",
    "python": "benchmarks/smollm2.py wants a download",
}
"""Programs that are not started here, and why."""
PARSED = {
    "devices": "needs adb, and serve-sim does not end; tests/integration/test_android_*.py run them",
    "view": "does not end; tests/integration/test_dashboard_pages.py and tests/unit/cli/test_view.py run it",
    "bench": "takes minutes to hours; tests/integration/test_bench_*.py run each in miniature",
    "ground": "needs a language model of 135 million parameters; tests/integration/test_screen_grounding.py runs it with a small one",
}
"""Verbs whose arguments are read and checked, and why they are not run here."""
OWN_TESTS = {"docs/extending.md": "excerpts of examples/own_package, which tests/e2e/test_own_package.py runs"}
"""Pages whose Python is run by another test."""
FIRST = "docs/start.md"
"""The page whose first training is run, in miniature."""
ANDROID_FILES = ("phones.toml", "emulators.toml")
"""Files that docs/android.md has a reader write for phones of their own."""
OWN_TASKS = "docs/tasks.md"
"""The page whose Python is a file `my_tasks.py`: its commands are run with it."""
MADE = {"docs/python-api.md": {"episode.gif": b"GIF89a"}}
"""Files that the Python of a page writes, and how they begin."""
SMALL_POINTER = {
    "policy.kind": "pointer",
    "policy.device": "cpu",
    "policy.pointer.width": 16,
    "policy.pointer.layers": 1,
    "learner.device": "cpu",
    "warm_start.epochs": 1,
}
"""What takes the place of a language model."""
RUN = re.compile(r"runs/\S+|\bRUN\b")

COMMANDS = shell_commands()
INLINE = inline_commands()
PYTHON_PAGES = sorted({block.page for block in blocks("python")} - set(OWN_TESTS))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a clone after a first run: configs/, examples/, the pages' my.toml, and runs/ with one tiny run."""
    place = tmp_path_factory.mktemp("clone")
    for folder in (ROOT / "configs", EXAMPLES, EXAMPLES / "own_package"):
        (place / folder.name).symlink_to(folder)
    (own,) = (block.text for block in blocks("toml") if block.page == FIRST)
    (place / "my.toml").write_text(own, encoding="utf-8")
    (whole,) = (block.text for block in blocks("python") if block.page == OWN_TASKS)
    (place / "my_tasks.py").write_text(whole, encoding="utf-8")
    for name in ANDROID_FILES:
        (place / name).write_text('[devices]\nkind = "android"\n', encoding="utf-8")
    install(EXAMPLES / "own_package", place / "site")
    first = next(words for words in map(plain, COMMANDS) if words[1:2] == ["train"] and words in of_page(FIRST))
    overrides, rest = split_overrides(first[2:])
    done = distrl(
        "train", *rest, *flags({**overrides, **TINY, "run.episodes": 16, "evaluation.episodes": 4}), cwd=place
    )
    assert done.returncode == 0, done.stderr
    return place


def of_page(page: str) -> list[list[str]]:
    """The commands of one page."""
    return [plain(command) for command in COMMANDS if command.place.startswith(f"{page}:")]


def install(package: Path, site: Path) -> None:
    """Make the entry points of a package known to whoever has `site` on its path, as pip does."""
    groups = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    lines = [
        line for name, group in groups.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in group.items()))
    ]
    folder = site / f"{package.name}-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def here(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the present folder, with the examples on the path; whoever asks at the keyboard hears `quit`."""
    monkeypatch.chdir(clone)
    for folder in (clone / "site", EXAMPLES, EXAMPLES / "own_package" / "src"):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("quit\n"))
    return clone


def plain(command: Command) -> list[str]:
    """The words without assignments and without the folder of the program; `python -m distrl` is distrl."""
    words = list(command.words)
    while re.match(r"\w+=", words[0]):
        del words[0]
    words[0] = words[0].rpartition("/")[2]
    return words[2:] if words[:3] in (["python", "-m", "distrl"], ["python3", "-m", "distrl"]) else words


def on_the_run(words: list[str], place: Path) -> list[str]:
    """The words, with the tiny run for whatever run the page names."""
    (run,) = (file.parent for file in place.glob("runs/*/config.toml"))
    return [RUN.sub(str(run.relative_to(place)), word) for word in words]


def parse(verb: str, words: list[str]) -> Any:
    """The arguments as the verb itself reads them."""
    assert verb in VERBS, f"distrl has no verb {verb}"
    module = import_module(f"distrl.cli.{verb}")
    parser = Parser(prog=f"distrl {verb}", allow_abbrev=False)
    module.configure(parser)
    overrides, rest = split_overrides(words) if getattr(module, "TAKES_CONFIG", False) else ({}, words)
    args = parser.parse_args(rest)
    args.overrides = overrides
    return args


def resolve_training(words: list[str]) -> None:
    """All that `distrl train` does before it writes anything, except to look for a GPU and a model."""
    args = parse("train", words)
    check_settings(
        load_config(args.config, args.overrides)
        if args.resume is None
        else settings_to_resume(open_run(args.resume), args.overrides)
    )


def find_bench(words: list[str]) -> None:
    find(parse("bench", words).name)


def run_for_short(*words: str) -> None:
    assert main(words) == 0


def evaluate(words: list[str]) -> None:
    run_for_short("evaluate", *re.sub(r"--episodes \d+", "--episodes 2", " ".join(words)).split())


def export(words: list[str]) -> None:
    """A pointer has no adapters to merge, so such commands are only read."""
    args = parse("export", words)
    if args.film is not None:
        return  # which asks for the id of an episode; tests/integration/test_cli_export.py has one
    if not (args.merged or args.adapter):
        run_for_short("export", *words)


def sft(words: list[str]) -> None:
    """The settings are resolved, and the same data are learnt from by a small policy, which takes seconds."""
    args = parse("sft", words)
    load_config(args.run, args.overrides)
    data = [word for path in args.data for word in ("--data", str(path))]
    run_for_short("sft", "my.toml", *data, *flags({**SMALL_POINTER, "run.root": "cloned"}))


def tasks(words: list[str]) -> None:
    """A list of all suites takes a minute on a busy machine: one of them is listed. What is checked is on the reader's machine,
    and a page to play on does not end by itself."""
    if words[0] == "check" or parse("tasks", words).__dict__.get("browser"):
        parse("tasks", words)
        return
    run_for_short("tasks", *words, *(["--suite", "sim-start"] if words == ["list"] else []))


SHORTENED: dict[str, Callable[[list[str]], None]] = {
    "train": resolve_training,
    "bench": find_bench,
    "evaluate": evaluate,
    "export": export,
    "sft": sft,
    "tasks": tasks,
}


def check(words: list[str]) -> None:
    """Run a command of distrl, or as much of it as the tables above say."""
    verb, rest = words[1], words[2:]
    if verb in SHORTENED:
        SHORTENED[verb](rest)
    elif verb in PARSED:
        parse(verb, rest)
    else:
        run_for_short(verb, *rest)


@pytest.mark.parametrize("command", dict.fromkeys(tuple(plain(command)) for command in COMMANDS), ids=" ".join)
def test_a_command_of_a_page_works(command: tuple[str, ...], here: Path) -> None:
    words = on_the_run(list(command), here)
    if words[0] == "distrl":
        check(words)
    elif words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True, timeout=30)
    else:
        assert words[0] in NOT_RUN, f"run {words[0]} here, or say in NOT_RUN why not"


@pytest.mark.parametrize("command", dict.fromkeys(tuple(plain(command)) for command in INLINE), ids=" ".join)
def test_a_command_within_a_sentence_is_one_that_distrl_takes(command: tuple[str, ...], here: Path) -> None:
    verb, rest = command[1], on_the_run(list(command[2:]), here)
    assert verb in VERBS
    try:
        SHORTENED[verb](rest) if verb in ("train", "bench") else parse(verb, rest)
    except UsageError as error:
        if "arguments are required" not in str(error):  # the name of a command, not a whole one
            raise


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, here: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        if block.page == page:
            exec(compile(block.text, block.place, "exec"), names)
    for name, begins in MADE.get(page, {}).items():
        assert (here / name).read_bytes().startswith(begins)


def test_the_pages_of_the_examples_are_among_the_pages() -> None:
    own = ["distrl", "evaluate", "RUN", "--episodes", "30", "--trust-code"]
    assert own in of_page("examples/own_package/README.md")
    inline = [command.words for command in INLINE if command.place.startswith("examples/README.md:")]
    assert ("distrl", "train", "--policy.kind", "custom_policy:OverlapPolicy") in inline


def test_no_reason_is_left_for_what_no_page_has() -> None:
    programs = {plain(command)[0] for command in COMMANDS}
    verbs = {words[1] for words in map(plain, [*COMMANDS, *INLINE]) if words[0] == "distrl"}
    assert set(NOT_RUN) - programs == set()
    assert set(PARSED) - verbs == set()
    assert set(OWN_TESTS) - {block.page for block in blocks("python")} == set()
