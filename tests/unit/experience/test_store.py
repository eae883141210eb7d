from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import weakref
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.experience.durable import publish
from distrl.experience.episode_file import FORMAT, EpisodeFile, encode, load
from distrl.experience.store import Added, ExperienceStore
from distrl.types import Ending, Press, RunnerUp, Tap, Trajectory
from support.trajectories import make_step, make_trajectory

TESTS = Path(__file__).parents[2]


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that runs `script` as soon as it is sent a line."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def episode_file(folder: Path, id: str) -> Path:
    (path,) = folder.glob(f"episodes/*/{id}.ep")
    return path


def leave_unindexed(folder: Path, trajectory: Trajectory) -> None:
    """What a process leaves that is killed between the file and the row."""
    with ExperienceStore(folder.parent / "other", clock=lambda: 77.0) as other:
        other.add(trajectory)
    made = episode_file(other.folder, trajectory.id)
    publish(folder / made.relative_to(other.folder), made.read_bytes())


# --- adding and reading ---------------------------------------------------------------------------------------------


def test_an_episode_comes_back_as_it_was_in_another_process_too(tmp_path: Path) -> None:
    trajectory = replace(
        make_trajectory("w0-1"), last=make_step(2).observation, last_value=0.25, ending=Ending.DEVICE_LOST
    )
    ExperienceStore(tmp_path).add(trajectory)
    assert ExperienceStore(tmp_path).read("w0-1") == trajectory


def test_the_index_knows_what_the_learner_wants_to_choose_by(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path, clock=lambda: 123.5)
    added = store.add(make_trajectory("w0-1", num_steps=5, success=True, version=3))
    (row,) = store.after(0, 10)
    assert (row.seq, row.id, row.task, row.template) == (added.seq, "w0-1", "settings/wifi/7", "wifi")
    assert (row.version, row.steps, row.success, row.ending) == (3, 5, True, Ending.FINISHED)
    assert (row.wall_s, row.worker, row.created_s) == (2.5, "w0", 123.5)
    assert row.size_bytes == episode_file(tmp_path, "w0-1").stat().st_size


def test_a_cursor_gives_what_came_later_in_order_and_no_more_than_asked(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    for index in range(5):
        store.add(make_trajectory(f"e{index}"))
    first = store.after(0, 2)
    assert [row.id for row in first] == ["e0", "e1"]
    assert [row.id for row in store.after(first[-1].seq, 10)] == ["e2", "e3", "e4"]
    assert store.after(store.after(0, 10)[-1].seq, 10) == []


def test_totals_are_told_from_a_cursor_on(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    first = store.add(make_trajectory("a", num_steps=2))
    last = store.add(make_trajectory("b", num_steps=3, success=False))
    assert store.count() == 2
    assert (store.stats().episodes, store.stats().steps, store.stats().successes) == (2, 5, 1)
    later = store.stats(first.seq)
    assert (later.episodes, later.steps, later.successes, later.last_seq) == (1, 3, 0, last.seq)
    assert store.stats(last.seq).last_seq == last.seq


def test_adding_an_id_again_changes_nothing(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    first = store.add(make_trajectory("a", num_steps=2))
    again = store.add(make_trajectory("a", num_steps=9))
    assert again == Added(status="duplicate", seq=first.seq)
    assert (store.count(), len(store.read("a").steps)) == (1, 2)


@pytest.mark.parametrize("id", ["", ".", "..", "../../x", "a/b", "a b", ".hidden", "x" * 121, "a\n", "a\x00"])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(StoreError, match="cannot be the id"):
        ExperienceStore(tmp_path).add(make_trajectory(id))


GOOD = encode(make_trajectory("a"), created_s=1.0)


def test_a_change_of_any_single_byte_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.ep"
    for place in range(len(GOOD)):
        file.write_bytes(GOOD[:place] + bytes([GOOD[place] ^ 4]) + GOOD[place + 1 :])
        with pytest.raises(StoreError, match=r"a\.ep (cannot be used|has format)"):
            load(file)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_an_episode_unless_they_are_one(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "a.ep"
    for damaged in (content, GOOD[: len(content)], GOOD + content + b"x", GOOD[:38] + content):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"a\.ep cannot be used"):
            load(file)


def test_reading_a_damaged_episode_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    store.add(make_trajectory("a"))
    file = episode_file(tmp_path, "a")
    file.write_bytes(GOOD[:-1] + b"?")
    with pytest.raises(StoreError, match=r"(?s)a\.ep cannot be used: its checksum.*try: copy it back"):
        store.read("a")


def test_an_episode_that_never_was_is_not_called_damaged_and_one_whose_file_is_gone_is(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    store.add(make_trajectory("a"))
    with pytest.raises(StoreError, match=r"(?s)holds no episode b.*lists them"):
        store.read("b")
    episode_file(tmp_path, "a").unlink()
    with pytest.raises(StoreError, match=r"(?s)a\.ep cannot be used: No such file.*backup"):
        store.read("a")


# --- several processes ----------------------------------------------------------------------------------------------

ADD_ALL = """
import sys
from pathlib import Path
from support.trajectories import make_trajectory
from distrl.experience.store import ExperienceStore
print("ready", flush=True)
sys.stdin.readline()
store = ExperienceStore(Path(sys.argv[1]))
for index in range(60):
    added = store.add(make_trajectory(f"e{index}"))
    print(index, added.status, added.seq)
"""


def test_of_two_processes_that_add_the_same_ids_at_once_exactly_one_adds_each(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    processes = [start(ADD_ALL, str(folder)) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    ids, states, seqs = ([words[k::3] for words in said] for k in range(3))
    assert ids[0] == ids[1] == [str(index) for index in range(60)]
    assert all({a, b} == {"added", "duplicate"} for a, b in zip(*states, strict=True))
    assert seqs[0] == seqs[1]
    audit = ExperienceStore(folder).audit()
    assert (audit.episodes, audit.missing, audit.orphans, audit.duplicates) == (60, (), (), ())


# --- what a crash leaves --------------------------------------------------------------------------------------------


def test_a_file_without_a_row_is_indexed_with_its_own_time_by_recovery(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "store")
    leave_unindexed(store.folder, make_trajectory("lost"))
    assert store.audit().orphans == (str(episode_file(store.folder, "lost").relative_to(store.folder)),)
    assert store.recover() == 1
    assert [(row.id, row.created_s) for row in store.after(0, 10)] == [("lost", 77.0)]
    assert store.recover() == 0
    assert store.add(make_trajectory("lost")).status == "duplicate"


def test_adding_again_what_a_crash_left_without_a_row_completes_it_and_keeps_the_first_file(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "store")
    leave_unindexed(store.folder, make_trajectory("lost", num_steps=2))
    assert store.add(make_trajectory("lost", num_steps=9)).status == "duplicate"
    assert [(row.id, row.steps) for row in store.after(0, 10)] == [("lost", 2)]
    assert len(store.read("lost").steps) == 2


def test_recovery_removes_old_temporary_files_and_leaves_those_that_are_being_written(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path, clock=lambda: 10_000.0)
    old, young = (tmp_path / "episodes" / "00" / f".{name}.ep-0.tmp" for name in ("old", "young"))
    for path, mtime in ((old, 9_000.0), (young, 9_999.0)):
        path.write_bytes(b"half an epi")
        os.utime(path, (mtime, mtime))
    assert store.recover() == 0
    assert (old.exists(), young.exists()) == (False, True)


def test_a_lost_index_is_rebuilt_in_the_order_of_creation(tmp_path: Path) -> None:
    times = iter(range(100))
    with ExperienceStore(tmp_path, clock=lambda: float(next(times))) as store:
        for index in range(12):
            store.add(make_trajectory(f"e{index}"))
    (tmp_path / "index.sqlite").unlink()
    store = ExperienceStore(tmp_path)
    assert store.recover() == 12
    assert [row.id for row in store.after(0, 20)] == [f"e{index}" for index in range(12)]


def test_a_lost_index_is_rebuilt_with_one_episode_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExperienceStore(tmp_path) as store:
        for index in range(6):
            store.add(make_trajectory(f"e{index}"))
    (tmp_path / "index.sqlite").unlink()
    alive = list[weakref.ref[object]]()
    most = 0

    class Watched:
        """A step that lives as long as its episode and, unlike a record, can be watched."""

        version = 3

    def watched(path: Path) -> EpisodeFile:
        nonlocal most
        gc.collect()
        loaded, companion = load(path), Watched()
        alive.append(weakref.ref(companion))
        most = max(most, sum(one() is not None for one in alive))
        steps: tuple[Any, ...] = (*loaded.trajectory.steps, companion)
        return replace(loaded, trajectory=replace(loaded.trajectory, steps=steps))

    monkeypatch.setattr("distrl.experience.store.load", watched)
    assert ExperienceStore(tmp_path).recover() == 6
    assert most <= 2, "the next one may be loaded before the last one is let go"


def test_recovery_does_not_index_a_damaged_file(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    (tmp_path / "episodes" / "00" / "half.ep").write_bytes(encode(make_trajectory("half"), created_s=1.0)[:-5])
    assert store.recover() == 0
    assert (store.count(), store.audit().orphans) == (0, ("episodes/00/half.ep",))


# --- the audit ------------------------------------------------------------------------------------------------------


def test_an_audit_names_what_is_gone_damaged_or_there_twice(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    for id in ("whole", "gone", "damaged", "twice"):
        store.add(make_trajectory(id))
    episode_file(tmp_path, "gone").unlink()
    file = episode_file(tmp_path, "damaged")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    (tmp_path / "episodes" / "00" / "copy.ep").write_bytes(episode_file(tmp_path, "twice").read_bytes())
    audit = store.audit()
    assert audit.episodes == 4
    assert set(audit.missing) == {"gone", "damaged"}
    assert (audit.orphans, audit.duplicates) == (("episodes/00/copy.ep",), ("twice",))
    assert not audit.healthy


def test_an_audit_of_a_sound_store_finds_nothing(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    store.add(make_trajectory("a"))
    assert store.audit().healthy


def test_a_file_under_the_wrong_name_is_not_taken_for_the_episode(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path)
    store.add(make_trajectory("a"))
    store.add(make_trajectory("b"))
    episode_file(tmp_path, "b").write_bytes(episode_file(tmp_path, "a").read_bytes())
    with pytest.raises(StoreError, match="holds episode a"):
        store.read("b")
    assert store.audit().missing == ("b",)


# --- folders that will not do ---------------------------------------------------------------------------------------


def test_a_file_where_the_folder_should_be_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("I am a file")
    with pytest.raises(StoreError, match=r"(?s)cannot use .*store.*try: move the file away"):
        ExperienceStore(tmp_path / "store")
    with pytest.raises(StoreError, match="Not a directory"):
        ExperienceStore(tmp_path / "store" / "below")


OTHER_FORMATS = [FORMAT - 1, FORMAT + 1, 99]


@pytest.mark.parametrize("number", OTHER_FORMATS)
def test_an_index_of_another_format_is_refused(tmp_path: Path, number: int) -> None:
    ExperienceStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    wanted = (
        rf"(?s)index\.sqlite has format {number}, and this distrl reads format {FORMAT}.*try: use the distrl version"
    )
    with pytest.raises(StoreError, match=wanted):
        ExperienceStore(tmp_path)


@pytest.mark.parametrize("number", OTHER_FORMATS)
def test_an_episode_file_of_another_format_is_refused_and_never_indexed(tmp_path: Path, number: int) -> None:
    store = ExperienceStore(tmp_path)
    store.add(make_trajectory("a"))
    file = episode_file(tmp_path, "a")
    content = file.read_bytes()
    file.write_bytes(content[:8] + number.to_bytes(2, "big") + content[10:])
    wanted = rf"(?s)a\.ep has format {number}, and this distrl reads format {FORMAT}.*try: use the distrl version"
    with pytest.raises(StoreError, match=wanted):
        store.read("a")
    store.close()
    (tmp_path / "index.sqlite").unlink()
    with ExperienceStore(tmp_path) as rebuilt:
        assert (rebuilt.recover(), rebuilt.count()) == (0, 0)


def test_an_index_that_is_no_database_is_refused_with_the_way_to_rebuild_it(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="the next start rebuilds it"):
        ExperienceStore(tmp_path)


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="no index of episodes"):
        ExperienceStore(tmp_path)


WRITE_TOO_MUCH = """
import random, resource, sys
from pathlib import Path
from msgspec.structs import replace
from support.trajectories import TASK, make_trajectory
from distrl.errors import StoreError
from distrl.experience.store import ExperienceStore
store = ExperienceStore(Path(sys.argv[1]))
store.add(make_trajectory("before"))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
noise = random.Random(1).randbytes(400_000).hex()
try:
    store.add(replace(make_trajectory("large"), task=replace(TASK, instruction=noise)))
except StoreError as error:
    print(error)
store.add(make_trajectory("after"))
"""


def test_a_write_that_fails_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    said, _ = start(WRITE_TOO_MUCH, str(tmp_path)).communicate("", timeout=60)
    assert f"cannot use {tmp_path}: File too large" in said
    assert "try: " in said
    store = ExperienceStore(tmp_path)
    assert [row.id for row in store.after(0, 10)] == ["before", "after"]
    assert sorted(path.name for path in tmp_path.glob("episodes/*/*")) == ["after.ep", "before.ep"]
    assert store.audit().healthy


def test_the_episodes_of_a_version_are_counted_for_one_worker_or_all_and_from_a_cursor(tmp_path: Path) -> None:
    with ExperienceStore(tmp_path) as store:
        assert store.count_of(3) == (0, 0)
        for number, worker in enumerate(["w0", "w0", "w1", "w1", "w1"]):
            made = make_trajectory(f"e{number}", version=3 + number % 2)
            store.add(replace(made, worker=worker))
        assert store.count_of(3) == (3, 5)
        assert store.count_of(3, worker="w1") == (2, 5)
        assert store.count_of(4, worker="w1") == (1, 5)
        assert store.count_of(3, after=2) == (2, 5)
        assert store.count_of(3, after=5) == (0, 5)


def test_looking_at_an_empty_index_leaves_the_log_beside_it(tmp_path: Path) -> None:
    with ExperienceStore(tmp_path) as store:
        store.add(make_trajectory("e1"))
        log = (tmp_path / "index.sqlite-wal").read_bytes()
    (tmp_path / "index.sqlite").write_bytes(b"")
    (tmp_path / "index.sqlite-wal").write_bytes(log)
    with pytest.raises(StoreError, match="is no index of episodes"):
        ExperienceStore(tmp_path, read_only=True)
    assert (tmp_path / "index.sqlite-wal").read_bytes() == log


def test_runners_up_are_kept_and_a_file_without_them_is_read(tmp_path: Path) -> None:
    before = make_trajectory("before")
    others = (RunnerUp(Tap(0.25, 0.75), -1.5), RunnerUp(Press("back"), -2.25))
    step = before.steps[0]
    told = replace(before, id="told", steps=(replace(step, decision=replace(step.decision, runners_up=others)),))
    with ExperienceStore(tmp_path) as store:
        for episode in (before, told):
            store.add(episode)
        assert store.read("told") == told
        assert store.read("before") == before
    # As an earlier version wrote it: the field is not there.
    assert b"runners_up" not in zlib.decompress(episode_file(tmp_path, "before").read_bytes()[38:])
