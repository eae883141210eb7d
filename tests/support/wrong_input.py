"""Wrong input of every sort, made from the settings and the parsers of all verbs, and what a right answer to it looks like.

A new verb, flag or setting is fed wrong values without an edit here; one that needs arguments has them in `needed`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from distrl.cli.completion import verb_parser
from distrl.cli.main import VERBS
from distrl.config.load import load_config
from distrl.config.reference import Setting, options_tables, sections, settings
from distrl.plugins import SETTING
from distrl.runtime.run_folder import create_run

CONFIGS = Path(__file__).parents[2] / "configs"

HUGE = "9" * 30
LONG = "x" * 5000
NUMBERS = ("x", "", "nan", "inf", "-inf", "1e400", "-1e308", "1,5", "½", "0x10", "true", "--", LONG)
PLUGINS = ("zzz", "", "no.such:Thing", "json:", ":", "json:no_such", "os:sep", "ünï", LONG)
TEXTS = {
    "run.name": ("", "Upper", "with space", "../up", "ünï", "-x", LONG),
    "policy.device": ("gpu", "cuda:", "cuda:x", "", "CPU"),
    "learner.device": ("gpu", "cuda:", "cuda:x", "", "CPU"),
    "devices.sim.faults.fail_device": ("phone-0", "worker-0/phone-99999", "worker-9/phone-0", "ünï"),
}
ANY_TEXT = {"run.root", "policy.vlm.path", "policy.vlm.lora_targets", "policy.vlm.dialect"}
"""What takes any text, or is a choice."""


def wrong_values(setting: Setting) -> Iterator[str]:
    """Texts that do not fit a setting."""
    if setting.key in SETTING.values():
        # An empty list of plug-ins, such as of sinks, is a list.
        yield from (name for name in PLUGINS if name or not isinstance(setting.default, tuple))
    elif setting.choices:
        yield from ("zzz", "", setting.choices[0].upper(), f"{setting.choices[0]}x", HUGE)
    elif isinstance(setting.default, bool):
        yield from ("yes", "1", "", "maybe", HUGE)
    elif isinstance(setting.default, int):
        yield from (*NUMBERS, "1.5", "-1", HUGE, f"-{HUGE}", "1" * 5000)
    elif isinstance(setting.default, float):
        yield from NUMBERS
    else:
        yield from TEXTS.get(setting.key, ())


def flags() -> list[list[str]]:
    """Settings as flags: values that do not fit, keys that nobody knows, and keys that are nearly right."""
    values = [[f"--{s.key}={value}"] for s in settings().values() for value in wrong_values(s)]
    near = [[f"--{key[:-2]}{key[-1]}", "1"] for key in settings() if key[:-2] + key[-1] not in settings()]
    alone = [[f"--{section}.no_such", "1"] for section in sections()]
    whole = [[f"--{section}", "1"] for section in sections() if "." in section]
    options = [[f"--{table}.x", "1"] for table in options_tables()]
    together = [
        ["--runtime.heartbeat_s", "20"],
        ["--algorithm.kind", "grpo"],
        ["--policy.kind", "pixel"],
        ["--learner.device", "cuda"],
        ["--minutes", "1"],
        ["--workers", "1"],
        ["--run.seed"],
        ["--seed", HUGE],
        ["--tasks.max_oracle_steps", "1"],
        ["--policy.options.x", "[" * 3000],
    ]
    return [*values, *near, *alone, *whole, *options, *together]


FILES = {
    "empty section name": "[]\n",
    "section cut off": "[run\n",
    "no section": "seed = 3\n",
    "unknown section": "[runn]\nseed = 3\n",
    "near-miss key": "[run]\nsed = 3\n",
    "text for a number": "[run]\nseed = '3'\n",
    "date for a number": "[run]\nseed = 2026-05-04\n",
    "nan": "[run]\nminutes = nan\n",
    "infinite": "[run]\nminutes = inf\n",
    "huge": f"[run]\nseed = {HUGE}\n",
    "thousands of digits": f"[run]\nseed = {'9' * 5000}\n",
    "list for a number": "[run]\nseed = [1, 2]\n",
    "table for a number": "[run.seed]\nx = 1\n",
    "number for a section": "run = 3\n",
    "list of sections": "[[run]]\nseed = 3\n",
    "twice": "[run]\nseed = 1\nseed = 2\n",
    "brackets": "a = " + "[" * 3000,
    "deep tables": f"[run.{'.'.join('a' * 3000)}]\nx = 1\n",
    "deep option": f"[devices.options.{'.'.join('a' * 3000)}]\nx = 1\n",
    "unicode key": "[run]\n'ünï' = 1\n",
    "long key": f"[run]\n{LONG} = 1\n",
    "not TOML": "\x00\x01\x02",
    "JSON": '{"run": {"seed": 3}}',
    "YAML": "run:\n  seed: 3\n",
}


def paths(folder: Path) -> list[str]:
    """Paths at which there is no run and no file of settings."""
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "damaged").mkdir(exist_ok=True)
    (folder / "damaged" / "config.toml").write_bytes(b"\xff\xfe")
    names = ["nowhere", "no/such/folder", "empty", "damaged", "ünï", "binary/below", LONG, " ", "-"]
    return [str(folder), *(str(folder / name) for name in names)]


def verbs(folder: Path) -> list[list[str]]:
    """Verbs with wrong flags, missing words, and words that are wrong together."""
    run = str(create_run(load_config(None, {"run.root": str(folder / "runs")}), now=datetime(2026, 5, 4)).path)
    flagged = [[verb, flag] for verb in VERBS for flag in ("--zzz", "--jsn", "--jsn=1", "--ünï", f"--{LONG}")]
    bare = [[verb] for verb in ("evaluate", "export", "sft", "tasks", "config", "bench", "watch", "runs", "devices")]
    asked = [
        ["zzz"], [""], ["--zzz"], [LONG], ["tran"], ["config", "zzz"], ["tasks", "zzz"], ["bench", "zzz"], ["runs", "zzz"],
        ["tasks", "show", "sim-start/test/-1"], ["tasks", "show", f"sim-start/test/{HUGE}"], ["tasks", "show", "sim-start/zzz/0"],
        ["tasks", "try", "sim-start"], ["evaluate", run], ["watch", run], ["export", run], ["sft", run],
        ["export", run, run], ["export", run, str(folder / "out")], ["export", run, str(folder / "out"), "--merged"],
        ["train", "--resume", run, "--run.seed", "5"], ["train", "--resume", run, "x.toml"],
        ["train", "--trust-code"], ["sft", run, "--data", run], ["runs", "prune", run, "--all"], ["runs", "prune"],
        ["devices", "serve-sim", "--first-port", "65530", "--count", "9"],
        ["devices", "serve-sim", "--width", "1080", "--height", "1200"],
    ]  # fmt: skip
    return [*flagged, *bare, *asked]


# --- every flag and every word of every command -----------------------------------------------------------------------


WORDS = ("zzz", "", "ünï", HUGE, LONG)
FRACTIONS = {"temperature", "fault_rate", "report_every", "task_s", "reading_minutes", "language_minutes"}
"""Arguments that need not be whole numbers."""
TASKS = {"name", "id"}
"""Arguments that are looked for among all tasks, which takes half a second."""
WRITTEN = {"gif", "strip", "out"}
"""Arguments that name what is to be written: any path will do where it can be."""
NOT_REFUSED = {"doctor --root": "a folder that cannot be used is what `doctor` is to find: exit code 1"}
NO_ANDROID = [
    "--devices.android.host",
    "127.0.0.2",
    "--devices.android.port",
    "1",
    "--devices.android.emulator.sdk",
    "no-sdk",
]
"""Where no adb server listens and none is started, and there is no emulator."""


def needed(name: str, folder: Path) -> dict[str, list[str]]:
    """Right values of the arguments that commands cannot do without, by command; `name` is a run."""
    return {
        "evaluate": [name],
        "watch": [name, f"--gif={folder / 'x.gif'}"],
        "sft": [name, f"--data={name}"],
        "ground": [str(CONFIGS / "screen-vlm.toml"), f"--language={name}"],
        "export": [name, str(folder / "out")],
        "tasks show": ["sim-start/test/0"],
        "tasks try": ["sim-start/test/0", f"--out={folder / 'try'}"],
        "bench": ["replay", "--quick"],
        "devices show": ["phone"],
        "devices tap": ["phone", "1", "1"],
        "completion": ["bash"],
        "runs prune": ["--all"],
    }


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command that does something, such as `tasks list`."""
    found: dict[str, argparse.ArgumentParser] = {}

    def walk(name: str, parser: argparse.ArgumentParser) -> None:
        below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        for action in below:
            for word, inner in action.choices.items():
                walk(f"{name} {word}", inner)
        if not below:
            found[name] = parser

    for verb in VERBS:
        walk(verb, verb_parser(verb))
    return found


def wrong_words(name: str, action: argparse.Action, folder: Path) -> Iterable[str]:
    """Texts that do not fit an argument."""
    if action.choices:
        return ("zzz", "", str(next(iter(action.choices))).upper(), HUGE, LONG)
    if action.type is None:
        return WORDS if action.dest not in TASKS else ("", LONG)
    if action.type is not Path:
        return (*NUMBERS, "-1", HUGE, f"-{HUGE}", "1" * 5000, *(() if action.dest in FRACTIONS else ("1.5",)))
    there, *others = paths(folder)
    if name == "view" and action.dest == "run":  # it shows any folder, and waits for runs in an empty one
        return [path for path in others if path != str(folder / "empty")]
    if action.dest in WRITTEN:
        return (str(folder / "binary" / "below"), str(folder / LONG))
    return others if action.dest == "root" else (there, *others)  # one of the others would be a run in it


def wrong_arguments(name: str, parser: argparse.ArgumentParser, right: list[str], folder: Path) -> list[list[str]]:
    """The command with each of its arguments wrong in turn, the others right; with too many words and too few."""
    positional = [action for action in parser._actions if not action.option_strings]
    flagged = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    words = list(takewhile(lambda word: not word.startswith("-"), right))
    rest = right[len(words) :]
    made = [[*words, *rest, "zzz", "zzz", "zzz"]]
    for place, action in enumerate(positional):
        values = wrong_words(name, action, folder)
        made += [[*words[:place], value, *words[place + 1 :], *rest] for value in values]
        if action.nargs is None:
            made.append([*words[:place], *rest])
    for action in flagged:
        flag = action.option_strings[-1]
        if f"{name} {flag}" in NOT_REFUSED:
            continue
        values = wrong_words(name, action, folder) if action.nargs != 0 else ("x", LONG)
        made += [[*right, f"{flag}={value}"] for value in values]
        made += [[*right, flag]] if action.nargs != 0 else []
    return [[*name.split(), *each] for each in made]


def check(command: list[str], code: object, out: str, err: str) -> str:
    """What is wrong with an answer; empty: nothing."""
    lines = err.splitlines()
    faults = {
        f"exit code {code}": code != 2 and not (code == 3 and command[0] == "devices"),
        f"{len(lines)} lines": not 2 <= len(lines) <= 15,
        f"{len(err)} characters": len(err) > 6000,
        "no fix": not any(line.startswith("try: ") for line in lines),
        "a traceback": "Traceback" in err,
        "something on stdout": out != "",
    }
    found = ", ".join(name for name, holds in faults.items() if holds)
    return f"{[word[:60] for word in command]}: {found}: {err[-300:]}" if found else ""
