"""The fault matrix as data: what is broken, where, how, and what has to come of it.

Three groups: damaged files of a run folder, signals to the processes of a run, and faults of its surroundings. Who runs the
cases is in `fault_files`, `fault_signals` and `fault_surroundings`.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice, product
from typing import Literal

import msgspec

from distrl.bench.system.fault_verbs import QUICK_READERS, READERS, Verb

Damage = Literal["truncated", "flipped", "empty", "folder", "foreign", "missing", "read-only"]
DAMAGES: dict[Damage, str] = {
    "truncated": "cut off in the middle",
    "flipped": "some of its bytes inverted",
    "empty": "without content",
    "folder": "a folder with a file in it stands in its place",
    "foreign": "whole, of its own kind, and of something else",
    "missing": "not there",
    "read-only": "neither it nor its folder can be written to",
}
Outcome = Literal["goes on", "refused", "goes on or refused"]
"""Goes on: exit code 0 with what was asked for. Refused: at most 15 lines that name a fix, exit code not 0."""
VERBS: tuple[Verb, ...] = (*READERS, "resume")


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a run folder, and which damage of it stops which verb; whatever is not named goes on."""

    file: str
    """Its path in the run folder; a `*` stands for one of several names, of which the last counts."""
    what: str
    refused: dict[Verb, tuple[Damage, ...]] = {}
    fan: bool = False
    """It lies in one of 256 folders; which of them a new file goes to is chance, so that folder stays writable."""
    replaced: tuple[Damage, ...] = ()
    """Damages that stop a resumed run unless the learner has published anew before a worker reads the file."""
    without: tuple[str, ...] = ()
    """Files that are taken away with it, since they can stand in for it."""
    content: bytes | None = None
    """What the case puts there, for a file that the run under test does not have; None: it has it."""

    def expected(self, verb: Verb, damage: Damage) -> Outcome:
        """What has to come of a verb after a damage of this file."""
        if verb == "resume" and damage in self.replaced:
            return "goes on or refused"
        return "refused" if damage in self.refused.get(verb, ()) else "goes on"


class FileCase(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on a run of which one file is damaged."""

    file: RunFile
    damage: Damage
    verb: Verb

    @property
    def expected(self) -> Outcome:
        """What has to come of it."""
        return self.file.expected(self.verb, self.damage)


BROKEN: tuple[Damage, ...] = ("truncated", "flipped", "empty", "folder", "foreign")
"""Every damage of the content."""
WRITTEN: dict[Verb, tuple[Damage, ...]] = {"resume": ("folder", "read-only")}
"""A file that every session writes anew or appends to: what it held does not matter, where it is does."""
STARTED = {"learner": "learner", "worker-0": "worker", "evaluator": "evaluator"}
"""Kinds of roles by the name of the one that the run has."""
LOGGED = {"supervisor": "supervisor", **STARTED}
GONE: tuple[Damage, ...] = (*BROKEN, "missing")
PLAYERS: dict[Verb, tuple[Damage, ...]] = {"evaluate": GONE, "watch": GONE, "export": GONE}
"""Verbs that load what was trained."""
CHECKPOINT = "the newest checkpoint's"
FILES: tuple[RunFile, ...] = (
    RunFile(
        file="config.toml",
        what="the settings",
        refused={
            **dict.fromkeys(("status", "runs show", "runs prune", "sft --data"), ("folder", "missing")),
            **PLAYERS,
            # An empty file leaves all settings at their defaults.
            "Python": ("truncated", "flipped", "folder", "foreign", "missing"),
            "resume": (*GONE, "read-only"),
        },
    ),
    RunFile(file="session.toml", what="the settings of the last session", refused={"resume": (*BROKEN, "read-only")}),
    RunFile(
        file="FORMAT",
        what="the number of the layout, one digit",
        refused={
            **dict.fromkeys(
                (verb for verb in READERS if verb != "runs list"), ("flipped", "empty", "folder", "foreign", "missing")
            ),
            "resume": ("flipped", "empty", "folder", "foreign", "missing", "read-only"),
        },
    ),
    RunFile(file="env.json", what="the machine", refused={"resume": ("read-only",)}),
    RunFile(
        file="budget.json",
        what="the budget used",
        refused={"status": BROKEN, "Python": BROKEN, "resume": (*BROKEN, "read-only")},
    ),
    RunFile(
        file="summary.json",
        what="the summary",
        refused={"status": BROKEN, "export": BROKEN, "Python": BROKEN, "resume": (*BROKEN, "read-only")},
    ),
    RunFile(
        file="spools.json",
        what="where workers spool",
        refused={"resume": (*BROKEN, "read-only")},
    ),
    RunFile(
        file="PRUNED",
        what="what was pruned",
        content=b"checkpoints\n",
        refused={"resume": ("truncated", "flipped", "empty", "foreign", "read-only")},
    ),
    RunFile(file="metrics.jsonl", what="the metrics", refused=WRITTEN),
    RunFile(file="tensorboard/*/*", what="metrics for TensorBoard"),
    *(RunFile(file=f"logs/{name}.jsonl", what=f"the {kind}'s log", refused=WRITTEN) for name, kind in LOGGED.items()),
    *(
        RunFile(file=f"logs/{role}.out", what=f"the {kind}'s raw output", refused=WRITTEN)
        for role, kind in STARTED.items()
    ),
    *(
        RunFile(file=f"heartbeats/{role}.json", what=f"the {kind}'s heartbeat", refused=WRITTEN)
        for role, kind in STARTED.items()
    ),
    RunFile(
        file="heartbeats/supervisor.lock",
        what="the run's lock",
        refused={**dict.fromkeys(("status", "runs prune", "Python"), ("folder",)), **WRITTEN},
    ),
    *(
        RunFile(
            file=f"heartbeats/{role}.lock",
            what=f"the {kind}'s lock",
            refused={"status": ("folder",), "Python": ("folder",), **WRITTEN},
        )
        for role, kind in STARTED.items()
    ),
    RunFile(
        file="weights/latest.json",
        what="the pointer to the newest version",
        refused={**PLAYERS, "runs prune": BROKEN, "resume": (*BROKEN, "read-only")},
    ),
    RunFile(file="weights/v*.json", what="the newest version's record", refused={"resume": ("read-only",)}),
    RunFile(
        file="weights/v*.safetensors",
        what="the newest version's weights",
        refused={**PLAYERS, "runs prune": ("folder", "missing"), "resume": ("read-only",)},
        replaced=GONE,
    ),
    RunFile(file="checkpoints/*/manifest.json", what=f"{CHECKPOINT} checksums"),
    RunFile(file="checkpoints/*/state.json", what=f"{CHECKPOINT} counters"),
    RunFile(file="checkpoints/*/policy.safetensors", what=f"{CHECKPOINT} weights"),
    RunFile(file="checkpoints/*/ema.safetensors", what=f"{CHECKPOINT} averaged weights (EMA)"),
    RunFile(file="checkpoints/*/optimizer.safetensors", what=f"{CHECKPOINT} optimizer"),
    RunFile(
        file="evaluations/before.json",
        what="the evaluation before",
        refused={"Python": BROKEN, "resume": (*BROKEN, "read-only")},
    ),
    RunFile(
        file="evaluations/v*.json",
        what="an evaluation on the way",
        refused={"Python": BROKEN, "resume": ("read-only",)},
    ),
    RunFile(
        file="evaluations/after.json",
        what="the evaluation after",
        refused={"Python": BROKEN, "resume": ("folder", "read-only")},
    ),
    RunFile(
        file="experience/index.sqlite",
        what="the index of episodes, without its log",
        without=("experience/index.sqlite-wal", "experience/index.sqlite-shm"),
        refused={"status": GONE, "sft --data": GONE, "Python": GONE, "resume": (*BROKEN, "read-only")},
    ),
    RunFile(file="experience/index.sqlite-wal", what="the index's write-ahead log", refused=WRITTEN),
    RunFile(file="experience/index.sqlite-shm", what="the index's shared memory", refused=WRITTEN),
    RunFile(file="experience/episodes/*/*.ep", what="an episode", fan=True, refused={"Python": GONE}),
    RunFile(file="experience/frames/*/*", what="a screenshot", fan=True),
)


QUICK_DAMAGES = 2
"""Damages of each file that `--quick` reads."""


def file_cases() -> list[FileCase]:
    """Every file with every damage under every verb."""
    return [FileCase(file=file, damage=damage, verb=verb) for file, damage, verb in product(FILES, DAMAGES, VERBS)]


def quick_reads() -> list[FileCase]:
    """Every file with `QUICK_DAMAGES` of the damages, in turn, each under a verb that minds the file; where none does, a quick one."""
    damages, used, cases = cycle(DAMAGES), Counter[Verb](), list[FileCase]()
    for file in FILES:
        verbs = [verb for verb in READERS if file.refused.get(verb)] or QUICK_READERS
        for damage in islice(damages, QUICK_DAMAGES):
            cases.append(FileCase(file=file, damage=damage, verb=min(verbs, key=used.__getitem__)))
            used[cases[-1].verb] += 1
    return cases


# --- signals ----------------------------------------------------------------------------------------------------------

Signal = Literal["TERM", "INT", "HUP", "KILL", "STOP", "QUIT", "SEGV", "PIPE", "USR1", "XCPU"]
SIGNALS: dict[Signal, str] = {
    "TERM": "the polite end",
    "INT": "Ctrl-C",
    "HUP": "the end of the terminal",
    "KILL": "out of memory, or a person",
    "STOP": "followed by CONT",
    "QUIT": "Ctrl-\\, or a person who asks where a role stands",
    "SEGV": "a crash in compiled code, as ABRT",
    "PIPE": "nobody reads any more",
    "USR1": "a job scheduler that announces its time limit, as USR2 and ALRM",
    "XCPU": "a limit on processor time is near",
}
"""With where they come from."""
SIGNAL_RUNS: tuple[tuple[Signal, ...], ...] = (
    ("TERM",),
    ("INT", "HUP"),
    ("KILL",),
    ("STOP",),
    ("SEGV",),
    ("QUIT", "PIPE", "USR1", "XCPU"),
)
"""Signals that one run takes in turn; those that roles ignore may follow each other in one session."""
ENDS_ROLES: tuple[Signal, ...] = ("TERM", "KILL", "SEGV")
"""A role ends of these and is started again; it heeds no other."""
ENDS_SUPERVISOR: tuple[Signal, ...] = ("KILL", "SEGV", "QUIT")
"""The supervisor is dead at once."""
OUTLIVED: tuple[Signal, ...] = ("STOP", "PIPE")
"""The supervisor goes on."""
Role = Literal["learner", "worker", "evaluator", "supervisor"]
ROLES: tuple[Role, ...] = ("learner", "worker", "evaluator", "supervisor")
Phase = Literal["starting", "training", "finishing"]
PHASES: tuple[Phase, ...] = ("starting", "training", "finishing")


class SignalCase(msgspec.Struct, frozen=True, kw_only=True):
    """One signal to one process of a run, in one phase."""

    signal: Signal
    role: Role
    phase: Phase
    expected: Literal["goes on", "saved", "resumed"]
    """Goes on: the session does. Saved: it ends in good order, exit code 0. Resumed: it is dead, and `--resume` goes on."""

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.signal}{' then CONT' * (self.signal == 'STOP')} to the {self.role} while {self.phase}"


def _expected(number: Signal, role: Role) -> Literal["goes on", "saved", "resumed"]:
    if role != "supervisor" or number in OUTLIVED:
        return "goes on"
    return "resumed" if number in ENDS_SUPERVISOR else "saved"


def signal_case(number: Signal, role: Role, phase: Phase) -> SignalCase:
    """One case with what has to come of it."""
    return SignalCase(signal=number, role=role, phase=phase, expected=_expected(number, role))


def signal_cases(*numbers: Signal) -> list[SignalCase]:
    """Every role in every phase with each of these signals, in an order that one run can take: a supervisor may end its session, workers finish first."""
    order: dict[Phase, tuple[Role, ...]] = {
        "starting": ("supervisor", "learner", "worker", "evaluator"),
        "training": ROLES,
        "finishing": ("worker", "learner", "evaluator", "supervisor"),
    }
    return [signal_case(number, role, phase) for phase in PHASES for role in order[phase] for number in numbers]


QUICK_SIGNALS: tuple[SignalCase, ...] = (
    signal_case("HUP", "learner", "starting"),
    signal_case("STOP", "worker", "training"),
    signal_case("TERM", "learner", "training"),
    signal_case("HUP", "supervisor", "training"),
    signal_case("KILL", "worker", "finishing"),
    signal_case("INT", "evaluator", "finishing"),
)
"""A sample for `--quick`: two sessions of one run."""


# --- surroundings -----------------------------------------------------------------------------------------------------


class Surrounding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of what surrounds a run."""

    what: Literal["the date", "a full disk", "no torch", "no write permission", "a pipe that closes"]
    how: str
    """Which way, or which verb."""
    verb: Verb = "resume"
    """What is run, where it is a verb on a run."""
    expected: Outcome
    quick: bool = False
    """Whether `--quick` tries it."""

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.what}: {self.how}"


SURROUNDINGS: tuple[Surrounding, ...] = (
    Surrounding(what="the date", how="forward", expected="goes on"),
    Surrounding(what="the date", how="back", expected="goes on"),
    Surrounding(what="the date", how="stopped", expected="goes on"),
    Surrounding(what="a full disk", how="from the start", expected="refused"),
    Surrounding(what="a full disk", how="while training", expected="refused"),
    Surrounding(what="a full disk", how="status", verb="status", expected="goes on", quick=True),
    Surrounding(what="no torch", how="train", expected="refused", quick=True),
    Surrounding(what="no torch", how="evaluate", verb="evaluate", expected="refused"),
    Surrounding(what="no torch", how="status", verb="status", expected="goes on", quick=True),
    *(
        Surrounding(what="no torch", how=verb, verb=verb, expected="goes on")
        for verb in QUICK_READERS
        if verb != "status"
    ),
    *(
        Surrounding(what="no torch", how=verb, verb=verb, expected="refused")
        for verb in READERS
        if verb not in (*QUICK_READERS, "evaluate")
    ),
    *(
        Surrounding(
            what="no write permission",
            how=verb,
            verb=verb,
            expected="goes on",
            quick=verb in ("status", "watch", "Python"),
        )
        for verb in READERS
    ),
    Surrounding(what="no write permission", how="resume", expected="refused", quick=True),
    Surrounding(what="a pipe that closes", how="status", verb="status", expected="goes on", quick=True),
    Surrounding(what="a pipe that closes", how="evaluate", verb="evaluate", expected="goes on"),
    Surrounding(what="a pipe that closes", how="train", expected="goes on"),
)
"""Refused for a disk that fills up while training: the run ends with the fix, and `--resume` goes on, nothing lost."""
