"""The fault matrix: its data, its page, how files are damaged, and how the end of a command is judged."""

from __future__ import annotations

import os
import sqlite3
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Literal

import pytest

from distrl.bench.base import names
from distrl.bench.result_cache import ResultCache, code_version
from distrl.bench.system import faults, stalls
from distrl.bench.system.fault_cases import (
    DAMAGES,
    FILES,
    PHASES,
    QUICK_DAMAGES,
    QUICK_SIGNALS,
    ROLES,
    SIGNAL_RUNS,
    SIGNALS,
    SURROUNDINGS,
    VERBS,
    Damage,
    FileCase,
    Phase,
    Role,
    Signal,
    file_cases,
    quick_reads,
    signal_case,
    signal_cases,
)
from distrl.bench.system.fault_files import SETTINGS, Readers, damage_file, flags, flip, mend_file, truncate, unlisted
from distrl.bench.system.fault_signals import Sent, Sessions, outcome_of
from distrl.bench.system.fault_surroundings import TRIALS
from distrl.bench.system.fault_verbs import PRELOADED, READERS, Ended, Verb, run_verb, words_of
from distrl.bench.system.faults import PartResults, Result, rewrite, summarise
from distrl.config.load import load_config
from distrl.errors import DistrlError, UsageError
from distrl.runtime.run_folder import create_run
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileHeartbeats
from support.trained import small_run, store_episodes

PAGE = Path(__file__).parents[4] / "docs" / "faults.md"


def test_the_page_has_the_tables_of_the_data() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewrite(page) == page, "python -m distrl.bench.system.faults docs/faults.md"
    assert all(f"`{file.file}`" in page for file in FILES)


def test_a_page_without_a_place_for_the_tables_is_refused() -> None:
    with pytest.raises(UsageError, match="no place"):
        rewrite("# Faults\n")


def test_every_file_damage_and_verb_is_a_case_and_so_is_every_signal_role_and_phase() -> None:
    cases = {(case.file.file, case.damage, case.verb) for case in file_cases()}
    assert len(cases) == len(FILES) * len(DAMAGES) * len(VERBS) == len(file_cases())
    signals = {case.name for numbers in SIGNAL_RUNS for case in signal_cases(*numbers)}
    assert len(signals) == len(SIGNALS) * len(ROLES) * len(PHASES) == 120
    assert {case.name for case in QUICK_SIGNALS} <= signals
    assert {case.what for case in SURROUNDINGS} == set(TRIALS)


def test_the_quick_form_has_every_file_every_damage_and_every_verb() -> None:
    cases = quick_reads()
    assert {case.file.file for case in cases} == {file.file for file in FILES}
    assert {case.damage for case in cases} == set(DAMAGES)
    assert {case.verb for case in cases} == set(READERS)
    assert {case.expected for case in cases} == {"goes on", "refused"}
    assert len({(case.file.file, case.damage) for case in cases}) == len(cases) == len(FILES) * QUICK_DAMAGES


def test_a_file_that_no_case_damages_is_named(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    assert unlisted(run.path) == []
    (run.weights / "deep").mkdir(parents=True)
    (run.weights / "deep" / "v1.json").write_bytes(b"")
    (run.path / "notes.txt").write_bytes(b"")
    assert unlisted(run.path) == ["notes.txt", "weights/deep/v1.json"]


def test_it_is_there_by_name_and_its_settings_fit_the_schema() -> None:
    assert "faults" in names()
    assert load_config(None, SETTINGS).run.name == "faults"
    assert "--rollout.keep_screenshots true" in " ".join(flags(SETTINGS))


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_every_damage_is_done_and_can_be_undone(tmp_path: Path, damage: Damage) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b'{"episodes": 3}')
    damage_file(path, damage)
    assert path.is_dir() == (damage == "folder")
    assert path.exists() == (damage != "missing")
    assert damage in ("folder", "missing", "read-only") or path.read_bytes() != b'{"episodes": 3}'
    assert damage == "missing" or (path.stat().st_mode & 0o222 == 0) == (damage == "read-only")
    mend_file(path, b'{"episodes": 3}')
    assert (path.read_bytes(), os.access(tmp_path, os.W_OK)) == (b'{"episodes": 3}', True)


def test_each_verb_is_tried_in_a_copy_of_its_own_and_comes_back_in_order(tmp_path: Path) -> None:
    run = small_run(tmp_path / "runs")
    files = [file for file in FILES if file.file in ("FORMAT", "env.json", "weights/latest.json")]
    verbs: tuple[Verb, ...] = ("runs show", "runs list")
    cases = [FileCase(file=file, damage="missing", verb=verb) for file in files for verb in verbs]
    with Readers(run.path, tmp_path / "copies") as readers:
        found = readers.read(cases)
    assert [tried.ended.outcome for tried in found] == [case.expected for case in cases]
    assert [case.expected for case in cases].count("refused") == 1


def test_even_one_byte_is_flipped() -> None:
    assert (flip(b"", first=0), flip(b"2", first=0)) == (b"", b"\xcd")


@pytest.mark.parametrize(
    ("content", "left"),
    [(b"2\n", b"2"), (b"", b""), (b"a = 1\nbb = 2\nccc = 3\nlong = 4444444444\n", b"a = 1\nbb = 2\nccc")],
)
def test_lines_are_cut_off_in_the_middle_of_one(content: bytes, left: bytes) -> None:
    assert truncate(content) == left


def test_a_foreign_index_is_a_database(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"ours")
    damage_file(path, "foreign")
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    other.close()


# --- the end of a command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "out", "err", "outcome"),
    [
        (0, "done", "", "goes on"),
        (0, "", "", "silent"),
        (None, "started", "", "did not end"),
        (1, "", "Traceback (most recent call last):\nKeyError", "traceback"),
        (2, "", "progress\ndistrl: seen\nexpected: this\ntry: that", "refused"),
        (2, "", "distrl: seen", "no fix"),
        (2, "", "distrl: seen\n" + "more\n" * 15 + "try: that", "no fix"),
        (-11, "half", "", "killed by signal 11"),
    ],
)
def test_the_end_of_a_command_is_judged(code: int | None, out: str, err: str, outcome: str) -> None:
    assert Ended(code=code, out=out, err=err).outcome == outcome


def test_a_verb_is_run_in_a_process_of_its_own_and_permissions_count_in_it(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    assert run_verb(words_of("status", run.path), 60.0).outcome == "goes on"
    run.config_file.chmod(0o000)
    run.path.chmod(0o000)
    ended = run_verb(words_of("status", run.path), 60.0, powerless=True)
    run.path.chmod(0o755)
    assert (ended.outcome, ended.code) == ("refused", 2)
    assert "distrl.bench.system.fault_verbs" in PRELOADED


@pytest.mark.parametrize("verb", READERS)
def test_every_verb_reads_a_run_and_leaves_it_as_it_is(tmp_path: Path, verb: Verb) -> None:
    run = small_run(tmp_path / "runs")
    store_episodes(run, good=True, bad=False)
    before = sorted(run.path.rglob("*"))
    ended = run_verb(words_of(verb, run.path), 60.0)
    assert (ended.outcome, sorted(run.path.rglob("*"))) == ("goes on", before), ended.err


def test_what_the_python_api_refuses_is_a_message_with_a_fix(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.summary.write_bytes(b"{}")
    assert run_verb(words_of("Python", run.path), 60.0).outcome == "refused"
    assert run_verb(words_of("Python", tmp_path), 60.0).outcome == "refused"


# --- signals ----------------------------------------------------------------------------------------------------------

SENT_S = 100.0
FIRST, SECOND = 11, 12
"""Processes of a role."""


def after_a_signal(
    root: Path, number: Signal, phase: Phase, *, role: Role = "learner", started: tuple[int, ...] = (FIRST,),
    beat: tuple[int, Literal["doing", "stopped"], float] | None = None, died: int = 0, over: bool = False,
) -> str:  # fmt: skip
    """What is made of a run in which a role was started so often and has beaten so: its process, its phase, and how long since the signal."""
    sessions = Sessions(root, {})
    sessions.run = create_run(load_config(None, {"run.root": str(root)}), now=datetime(2026, 5, 4))
    sessions.run.heartbeats.mkdir()
    name = "worker-0" if role == "worker" else role
    log = EventLog(sessions.run.log("supervisor"))
    for count, pid in enumerate(started):
        if count:
            log.write("died", role=name, why="killed", restarts=count)
        log.write("started", role=name, pid=pid, restarts=count)
    for _ in range(died):
        log.write("died", role=name, why="killed", restarts=1)
    if beat is not None:
        pid, now, since_s = beat
        FileHeartbeats(sessions.run.heartbeats).beat(
            Heartbeat(role=name, pid=pid, phase=now, what="", since_s=0.0, beat_s=SENT_S + since_s)
        )
    case = signal_case(number, role, phase)
    return outcome_of(sessions, Sent(case=case, role=name, pid=FIRST, sent_s=SENT_S, deaths=0), over=over)


@pytest.mark.parametrize("number", ["INT", "HUP", "STOP", "QUIT", "USR1"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_role_goes_on_once_the_same_process_has_beaten_after_the_signal(
    tmp_path: Path, number: Signal, phase: Phase
) -> None:
    assert after_a_signal(tmp_path, number, phase, beat=(FIRST, "doing", -0.1)) == ""
    assert after_a_signal(tmp_path, number, phase, beat=(FIRST, "doing", 0.1)) == ""  # it may be dying
    assert after_a_signal(tmp_path, number, phase, beat=(FIRST, "doing", 1.0)) == "goes on"
    assert after_a_signal(tmp_path, number, phase, beat=(FIRST, "stopped", 0.1)) == "goes on"
    assert after_a_signal(tmp_path, number, phase, beat=(FIRST, "stopped", -0.1)) == ""  # the signal came too late
    assert after_a_signal(tmp_path, number, phase, started=(FIRST, SECOND)) == "died of it"


@pytest.mark.parametrize("number", ["TERM", "KILL", "SEGV"])
def test_a_role_that_ends_of_a_signal_goes_on_once_it_is_at_work_again(tmp_path: Path, number: Signal) -> None:
    assert after_a_signal(tmp_path, number, "training", beat=(FIRST, "doing", 1.0)) == ""
    assert after_a_signal(tmp_path, number, "training", beat=(FIRST, "stopped", 1.0)) == ""
    assert after_a_signal(tmp_path, number, "training", started=(FIRST, SECOND)) == ""
    assert (
        after_a_signal(tmp_path, number, "training", started=(FIRST, SECOND), beat=(SECOND, "doing", 1.0)) == "goes on"
    )
    assert after_a_signal(tmp_path, number, "training", started=(FIRST, SECOND, SECOND + 1)) == "died 2 times"


def test_while_finishing_a_good_end_will_do_but_not_after_a_kill(tmp_path: Path) -> None:
    assert after_a_signal(tmp_path, "TERM", "finishing", beat=(FIRST, "stopped", 0.1)) == "goes on"
    assert after_a_signal(tmp_path, "TERM", "finishing", beat=(FIRST, "doing", 1.0)) == ""
    assert after_a_signal(tmp_path, "KILL", "finishing", beat=(FIRST, "stopped", 0.1)) == ""
    assert after_a_signal(tmp_path, "KILL", "finishing", beat=(FIRST, "doing", 0.0)) == ""


@pytest.mark.parametrize(("died", "over", "outcome"), [(0, False, "goes on"), (1, False, ""), (1, True, "goes on")])
def test_a_worker_that_is_killed_while_finishing_is_not_needed_any_more(
    tmp_path: Path, died: int, over: bool, outcome: str
) -> None:
    seen = after_a_signal(tmp_path, "KILL", "finishing", role="worker", beat=(FIRST, "doing", 0), died=died, over=over)
    assert seen == outcome
    assert after_a_signal(tmp_path, "KILL", "finishing", died=died, over=over) == ""  # the learner is


@pytest.mark.parametrize(("over", "outcome"), [(False, ""), (True, "goes on")])
def test_a_session_may_end_well_before_a_role_that_was_started_again_has_beaten(
    tmp_path: Path, over: bool, outcome: str
) -> None:
    seen = after_a_signal(tmp_path, "SEGV", "finishing", role="worker", started=(FIRST, SECOND), over=over)
    assert seen == outcome


# --- figures ----------------------------------------------------------------------------------------------------------


def test_cases_are_counted_and_those_that_are_not_fine_are_named() -> None:
    fine = Result(group="files", case="a", expected="goes on", seen="goes on")
    files = [fine, Result(group="files", case="b", expected="refused", seen="traceback")]
    signals = [
        Result(group="signals", case="c", expected="goes on", seen="goes on", lost=2),
        Result(group="signals", case="d", expected="goes on", seen="did not end"),
    ]
    found = summarise(
        [PartResults(results=files, wall_s=7.0), PartResults(results=signals, named_s=[2.0, 3.0], wall_s=3.0)]
    )
    assert (found.cases, found.fine, found.tracebacks, found.silent, found.lost) == (4, 1, 1, 1, 2)
    assert found.by_group == {"files": {"cases": 2, "fine": 1}, "signals": {"cases": 2, "fine": 0}}
    assert [line[0] for line in found.failed] == ["b", "c", "d"]
    assert (found.stalls, found.stall_named_slowest_s, found.wall_s) == (2, 3.0, 10.0)
    assert faults.BEGIN in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("seen", "fine"), [("goes on", True), ("refused", True), ("no fix", False)])
def test_where_two_ends_are_right_either_is_fine(seen: str, fine: bool) -> None:
    assert Result(group="files", case="a", expected="goes on or refused", seen=seen).fine is fine


@pytest.mark.parametrize(
    ("seen", "short"),
    [
        ("no lock", "no lock"),
        ("exit code 4: [0:10] training\ndistrl: cut off\ntry: again", "exit code 4: [0:10] training … distrl: cut off"),
    ],
)
def test_a_run_that_failed_is_told_in_few_words(seen: str, short: str) -> None:
    assert faults.shorten(seen) == short


# --- interrupted ------------------------------------------------------------------------------------------------------


def parts_of(tried: list[str], *, broken: str = "") -> faults.Parts:
    """Three parts of one case each, which note that they were tried; `broken` raises as Ctrl-C does."""

    def try_one(name: str) -> list[Result]:
        if name == broken:
            raise KeyboardInterrupt
        tried.append(name)
        return [Result(group="files", case=name, expected="goes on", seen="goes on")]

    for name in ("first", "second", "third"):
        yield name, partial(try_one, name)


def test_after_an_interruption_the_parts_that_are_done_are_not_tried_again(tmp_path: Path) -> None:
    cache, tried = ResultCache(tmp_path, code=lambda: "one"), list[str]()
    with pytest.raises(KeyboardInterrupt):
        faults._try(parts_of(tried, broken="third"), cache)
    found = faults._try(parts_of(tried), cache)
    assert tried == ["first", "second", "third"]
    assert [result.case for part in found for result in part.results] == tried
    assert all(part.wall_s > 0 for part in found)


def test_parts_of_other_code_are_tried_again_and_without_a_cache_all_are(tmp_path: Path) -> None:
    tried = list[str]()
    for code in ("one", "two"):
        faults._try(parts_of(tried), ResultCache(tmp_path, code=partial(str, code)))
    faults._try(parts_of(tried), None)
    assert tried == ["first", "second", "third"] * 3


def test_code_that_changes_meanwhile_ends_the_bench(tmp_path: Path) -> None:
    codes = iter(["one", "one", "two"])
    with pytest.raises(DistrlError, match="source of distrl has changed"):
        faults._try(parts_of([]), ResultCache(tmp_path, code=lambda: next(codes)))


def test_the_fingerprint_of_the_whole_package_minds_the_benches_too() -> None:
    assert code_version(whole=True) != code_version()


def test_a_bench_that_ends_early_sends_no_more_signals(tmp_path: Path) -> None:
    cut = Event()
    cut.set()
    with pytest.raises(DistrlError, match="ended before all signals"):
        faults._signal(tmp_path, signal_cases("TERM"), cut)
    assert list(tmp_path.iterdir()) == []


# --- stalls -----------------------------------------------------------------------------------------------------------


def test_stops_while_a_role_starts_are_counted_apart() -> None:
    found = stalls.summarise(
        [
            stalls.Stop(role="learner", phase="training", named_s=2.5),
            stalls.Stop(role="worker", phase="finishing", named_s=3.5),
            stalls.Stop(role="worker", phase="starting", named_s=20.0),
        ],
        died=1,
        audited=(0, 2),
        wall_s=60.0,
    )
    assert (found.stops, found.named_p50_s, found.named_slowest_s, found.within_bound) == (2, 3.0, 3.5, 0.5)
    assert {role: named.stops for role, named in found.by_role.items()} == {"learner": 1, "worker": 1, "evaluator": 0}
    assert {phase: named.slowest_s for phase, named in found.by_phase.items()} == {
        "starting": 20.0,
        "training": 2.5,
        "finishing": 3.5,
    }
    assert (found.died, found.lost_episodes, found.duplicate_episodes) == (1, 0, 2)


def test_stalls_are_measured_with_the_heartbeat_of_the_defaults() -> None:
    assert load_config(None, stalls.SETTINGS).runtime.heartbeat_s == load_config(None, {}).runtime.heartbeat_s
    assert sum(stalls.STOPS[phase] for phase in PHASES if phase != "starting") * len(stalls.ROLES) > 100
