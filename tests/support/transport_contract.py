"""What every transport promises, as tests that a module imports: it brings the `setting` fixture that makes its transports."""

from __future__ import annotations

from threading import Barrier, Event, Thread
from typing import Protocol

import msgspec
import pytest
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.experience.frames import reference_of
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import BudgetUsed, Claims, EpisodeSource, Transport
from distrl.transport.memory import MemoryEpisodes
from distrl.types import PolicyVersion, Trajectory
from support.batches import tiny_policy
from support.learners import make_version
from support.trajectories import make_trajectory

KEEP = 3
LIFETIME_S = 100.0


class Setting(Protocol):
    """A transport, and the ways in which a test reaches behind it."""

    now_s: float

    def open(self) -> Transport:
        """The transport as another role sees it."""

    def break_frames(self) -> None:
        """From now on no picture can be kept."""

    def claims(self, owner: str, episodes: EpisodeSource | None = None) -> Claims:
        """A new incarnation of this owner, on the clock of the test; it counts what is delivered in `episodes`, or in the store."""


# --- episodes -------------------------------------------------------------------------------------------------------


def add(transport: Transport, *trajectories: Trajectory) -> None:
    for trajectory in trajectories:
        transport.episodes.add(trajectory, {})


def test_an_episode_is_kept_once_by_its_id_and_the_first_one_counts(setting: Setting) -> None:
    first, again = make_trajectory("a", success=True), make_trajectory("a", success=False)
    add(setting.open(), first, make_trajectory("b"))
    add(setting.open(), again, first)
    episodes = setting.open().episodes
    assert [(row.seq, row.id) for row in episodes.after(0, 10)] == [(1, "a"), (2, "b")]
    assert episodes.read("a") == first
    assert episodes.stats().episodes == 2


def test_episodes_come_in_the_order_in_which_they_were_added_and_from_any_cursor(setting: Setting) -> None:
    names = [f"e{number}" for number in range(7)]
    add(setting.open(), *map(make_trajectory, names))
    episodes, seen, cursor = setting.open().episodes, list[str](), 0
    while rows := episodes.after(cursor, 3):
        assert len(rows) <= 3
        seen, cursor = seen + [row.id for row in rows], rows[-1].seq
    assert seen == names
    assert [row.id for row in episodes.after(5, 10)] == ["e5", "e6"]
    add(setting.open(), make_trajectory("late"))
    assert [row.id for row in episodes.after(cursor, 10)] == ["late"]
    assert episodes.after(100, 10) == []


def test_a_row_says_what_the_trajectory_says(setting: Setting) -> None:
    trajectory = replace(make_trajectory("a", num_steps=4, version=5), source="hindsight", worker="worker-3")
    add(setting.open(), trajectory)
    (row,) = setting.open().episodes.after(0, 10)
    found = (row.id, row.task, row.template, row.version, row.steps, row.success, row.source, row.ending, row.worker)
    assert found == (
        "a", trajectory.task.id, "wifi", 5, 4, True, "hindsight", trajectory.ending, "worker-3"
    )  # fmt: skip
    assert row.wall_s == trajectory.wall_s


def test_an_episode_that_was_never_added_is_a_store_error_with_a_fix(setting: Setting) -> None:
    with pytest.raises(StoreError) as caught:
        setting.open().episodes.read("nobody")
    assert caught.value.fix


def of_all_sources() -> list[Trajectory]:
    """Two attempts of each of two workers at two versions, and what was made of attempts and by the oracle."""
    played = [
        replace(make_trajectory(f"{worker}-{version}-{n}", version=version, success=n == 0), worker=worker)
        for worker in ("w0", "w1")
        for version in (3, 4)
        for n in range(2)
    ]
    relabelled = replace(played[1], id=f"{played[1].id}+hindsight", source="hindsight")
    shown = replace(make_trajectory("demonstration-0", version=3), source="demonstration", worker="oracle")
    return [shown, *played, relabelled]


def test_only_what_was_played_is_counted_by_version_and_by_worker(setting: Setting) -> None:
    assert setting.open().episodes.count_of(3) == (0, 0)
    add(setting.open(), *of_all_sources())
    episodes = setting.open().episodes
    assert episodes.count_of(3) == (4, 10)
    assert episodes.count_of(3, worker="w1") == (2, 10)
    assert episodes.count_of(4, worker="w0") == (2, 10)
    assert episodes.count_of(3, worker="oracle") == (0, 10)
    assert episodes.count_of(9) == (0, 10)


def test_a_count_goes_on_from_its_cursor(setting: Setting) -> None:
    everything, episodes = of_all_sources(), setting.open().episodes
    add(setting.open(), *everything[:4])
    first, cursor = episodes.count_of(3)
    add(setting.open(), *everything[4:])
    more, last = episodes.count_of(3, after=cursor)
    assert (first, cursor, more, last) == (2, 4, 2, 10)
    assert episodes.count_of(3, after=last) == (0, last)


def test_totals_are_over_what_was_played_behind_a_cursor(setting: Setting) -> None:
    episodes, everything = setting.open().episodes, of_all_sources()
    empty = episodes.stats()
    assert (empty.episodes, empty.steps, empty.successes, empty.wall_s, empty.last_seq) == (0, 0, 0, 0.0, 0)
    add(setting.open(), *everything)
    all_, late = episodes.stats(), episodes.stats(after=5)
    assert (all_.episodes, all_.steps, all_.successes, all_.wall_s, all_.last_seq) == (8, 32, 4, 20.0, 10)
    assert (late.episodes, late.steps, late.successes, late.last_seq) == (4, 16, 2, 10)
    assert episodes.stats(after=10).last_seq == 10


def test_the_pictures_of_an_episode_can_be_read_once_it_is_there(setting: Setting) -> None:
    pictures = {reference_of(data): data for data in (b"one", b"two")}
    setting.open().episodes.add(make_trajectory("a"), pictures)
    frames = setting.open().frames
    assert {reference: frames.get(reference) for reference in pictures} == pictures
    assert frames.put(b"one") == reference_of(b"one")
    with pytest.raises(StoreError):
        frames.get(reference_of(b"never put"))


def test_an_episode_whose_pictures_cannot_be_kept_is_not_there_either(setting: Setting) -> None:
    episodes = setting.open().episodes
    episodes.add(make_trajectory("before"), {reference_of(b"one"): b"one"})
    setting.break_frames()
    with pytest.raises(StoreError):
        episodes.add(make_trajectory("lost"), {reference_of(b"two"): b"two"})
    episodes.add(make_trajectory("after"), {})
    assert [row.id for row in episodes.after(0, 10)] == ["before", "after"]


def test_there_is_nothing_to_recover_where_nobody_was_killed(setting: Setting) -> None:
    add(setting.open(), make_trajectory("a"))
    assert setting.open().episodes.recover() == 0


# --- weights --------------------------------------------------------------------------------------------------------


def published(setting: Setting, *numbers: int) -> list[PolicyVersion]:
    """Versions, each of weights of its own."""
    weights = setting.open().weights
    return [
        weights.publish(tiny_policy(number, spread=0.1), make_version(number, updates=number)) for number in numbers
    ]


def test_before_the_first_version_there_is_none(setting: Setting) -> None:
    weights = setting.open().weights
    assert (weights.latest(), weights.find(0)) == (None, None)


def test_the_latest_version_is_the_one_that_was_published_last_and_tells_all_about_itself(setting: Setting) -> None:
    (first,) = published(setting, 1)
    reader = setting.open().weights
    assert reader.latest() == reader.find(1) == first
    (second,) = published(setting, 2)
    assert reader.latest() == second
    assert (second.version, second.updates) == (2, 2)
    assert second.size_bytes > 0
    assert second.file
    assert second.sha256 != first.sha256


def test_loaded_weights_are_those_of_their_version_whatever_their_policy_has_learnt_since(setting: Setting) -> None:
    policy, weights = tiny_policy(5, spread=0.1), setting.open().weights
    done, before = weights.publish(policy, make_version(1)), policy.dump()
    for parameters in policy.network.parameters():
        parameters.data.zero_()
    setting.open().weights.publish(policy, make_version(2))
    reader = tiny_policy(6)
    setting.open().weights.load(reader, done)
    assert reader.dump() == before


def test_the_last_few_versions_are_kept_and_older_ones_are_gone(setting: Setting) -> None:
    versions = published(setting, 1, 2, 3, 4, 5)
    weights, reader = setting.open().weights, tiny_policy(9)
    assert [weights.find(number) for number in range(1, 6)] == [None, None, *versions[2:]]
    before = reader.dump()
    with pytest.raises(StoreError, match="gone") as caught:
        weights.load(reader, versions[0])
    assert caught.value.fix
    assert reader.dump() == before
    weights.load(reader, versions[2])
    assert reader.dump() == tiny_policy(3, spread=0.1).dump()


def test_version_0_stays_since_progress_is_measured_against_it(setting: Setting) -> None:
    first, *_ = published(setting, 0, 1, 2, 3, 4, 5)
    weights, reader = setting.open().weights, tiny_policy(9)
    kept = [number for number in range(6) if weights.find(number) is not None]
    assert kept == [0, 3, 4, 5]
    weights.load(reader, first)
    assert reader.dump() == tiny_policy(0, spread=0.1).dump()


def test_versions_can_be_looked_for_while_others_are_published(setting: Setting) -> None:
    over, errors = Event(), list[BaseException]()

    def look() -> None:
        weights = setting.open().weights
        try:
            while not over.is_set():
                newest = weights.latest()
                assert newest is None or newest.version >= 0
        except BaseException as error:
            errors.append(error)

    reader = Thread(target=look)
    reader.start()
    published(setting, *range(60))
    over.set()
    reader.join(60.0)
    assert errors == []


def test_other_weights_under_the_same_number_are_not_taken_for_the_version(setting: Setting) -> None:
    (first,) = published(setting, 1)
    weights = setting.open().weights
    again = weights.publish(tiny_policy(8, spread=0.1), make_version(1))
    reader = tiny_policy(9)
    with pytest.raises(StoreError):
        weights.load(reader, first)
    weights.load(reader, again)
    assert reader.dump() == tiny_policy(8, spread=0.1).dump()


# --- heartbeats, checkpoints, reports, the budget -------------------------------------------------------------------


def test_a_role_has_its_own_last_heartbeat(setting: Setting) -> None:
    one = Heartbeat(role="learner", pid=7, phase="doing", what="training", since_s=1.0, beat_s=2.0)
    two = replace(one, what="saving", beat_s=3.0, figures={"updates": 4.0})
    writer, reader = setting.open().heartbeats, setting.open().heartbeats
    assert reader.last("learner") is None
    writer.beat(one)
    writer.beat(replace(one, role="worker-0"))
    assert reader.last("learner") == one
    writer.beat(two)
    assert (reader.last("learner"), reader.last("worker-1")) == (two, None)
    assert reader.last("worker-0") == replace(one, role="worker-0")


def test_the_newest_checkpoint_comes_back_with_exactly_its_own_files(setting: Setting) -> None:
    assert setting.open().checkpoints.newest() is None
    files = {"state.json": b"{}", "policy.safetensors": bytes(range(256)), "ema.safetensors": b"average"}
    setting.open().checkpoints.write(files)
    assert setting.open().checkpoints.newest() == files
    later = {"state.json": b'{"updates": 2}', "policy.safetensors": b""}
    setting.open().checkpoints.write(later)
    assert setting.open().checkpoints.newest() == later


def test_a_checkpoint_does_not_change_with_the_mapping_it_was_made_of(setting: Setting) -> None:
    files = {"state.json": b"{}"}
    setting.open().checkpoints.write(files)
    files["state.json"] = b"changed"
    assert setting.open().checkpoints.newest() == {"state.json": b"{}"}


class Report(msgspec.Struct, frozen=True):
    success: float


def test_a_report_is_there_once_it_was_written_and_may_be_written_again(setting: Setting) -> None:
    reports = setting.open().reports
    assert not reports.has("before")
    for success in (0.25, 0.5):
        reports.write("before", Report(success))
    assert setting.open().reports.has("before")
    assert not setting.open().reports.has("after")


def test_a_report_comes_back_as_json_until_it_is_removed(setting: Setting) -> None:
    assert setting.open().reports.read("after") is None
    setting.open().reports.write("after", Report(0.25))
    assert msgspec.json.decode(setting.open().reports.read("after") or b"", type=Report) == Report(0.25)
    for _ in range(2):
        setting.open().reports.remove("after")
    assert setting.open().reports.read("after") is None
    assert not setting.open().reports.has("after")


def test_the_events_of_a_role_are_read_in_order_over_all_its_incarnations(setting: Setting) -> None:
    assert (setting.open().events.roles(), setting.open().events.read("worker-0")) == ((), [])
    for incarnation in (1, 2):
        log = setting.open().events.log("worker-0")
        log.write("started", incarnation=incarnation)
        log.write("finished", id=f"e{incarnation}", loss=float("nan"))
    setting.open().events.log("evaluator")
    events = setting.open().events
    assert events.roles() == ("evaluator", "worker-0")
    found = events.read("worker-0")
    assert [event["event"] for event in found] == ["started", "finished"] * 2
    assert [event.get("id") for event in found] == [None, "e1", None, "e2"]
    assert all(isinstance(event["time_s"], float) and "loss" not in event for event in found)
    assert events.read("evaluator") == []


def test_a_new_run_has_used_nothing_and_what_is_written_is_what_all_read(setting: Setting) -> None:
    assert setting.open().collected_s() == 0.0
    assert setting.open().budget.read() == BudgetUsed()
    used = BudgetUsed(wall_s=9.0, collect_s=5.0, busy_s=3.0, device_s=4.0, restarts=1)
    setting.open().budget.write(used)
    assert setting.open().budget.read() == used
    assert setting.open().collected_s() == 5.0


def test_an_audit_finds_everything_that_was_added(setting: Setting) -> None:
    add(setting.open(), *of_all_sources())
    audit = setting.open().episodes.audit()
    assert (audit.episodes, audit.healthy, audit.orphans) == (10, True, ())


def test_a_transport_that_was_closed_leaves_what_was_written_to_the_next(setting: Setting) -> None:
    transport = setting.open()
    add(transport, make_trajectory("a"))
    transport.close()
    transport.close()
    assert setting.open().episodes.stats().episodes == 1


# --- claims ---------------------------------------------------------------------------------------------------------


ROUND = 10
"""Of which nothing is delivered yet, in most of these tests."""


def test_claims_of_a_version_never_exceed_what_is_free_whoever_holds_them(setting: Setting) -> None:
    one, other = setting.claims("one"), setting.claims("other")
    mine = one.take(0, 4, ROUND)
    assert len(mine) == 4
    theirs = other.take(0, 100, ROUND)
    assert len(theirs) == 6
    assert len({*mine, *theirs}) == 10
    assert one.take(0, 1, ROUND) == other.take(0, 1, 3) == []
    assert len(one.take(1, 2, ROUND)) == 2, "another version has a round of its own"


def test_a_settled_claim_is_free_again_unless_its_episode_was_delivered(setting: Setting) -> None:
    one, other = setting.claims("one"), setting.claims("other")
    first, second = one.take(0, 2, 2)
    add(setting.open(), make_trajectory("delivered", version=0), make_trajectory("of-another-round", version=1))
    assert other.take(0, 2, 2) == []
    one.settle(first)
    assert other.take(0, 2, 2) == [], "delivered: one is missing, and one is being played"
    one.settle(second)
    assert len(other.take(0, 2, 2)) == 1


def test_a_worker_counts_what_all_have_delivered_each_time_that_it_claims(setting: Setting) -> None:
    one = setting.claims("one")
    for number in range(3):
        (claim,) = one.take(0, 1, 3)
        add(setting.open(), make_trajectory(f"e{number}", version=0))
        one.settle(claim)
    assert one.take(0, 1, 3) == []
    assert len(one.take(1, 5, 3)) == 3
    assert one.take(0, 1, 3) == [], "also where it asked for another version in between"


def test_the_next_incarnation_of_an_owner_frees_its_claims_and_nobody_elses(setting: Setting) -> None:
    setting.claims("killed").take(0, 6, ROUND)
    other = setting.claims("other")
    assert len(other.take(0, 2, ROUND)) == 2
    again = setting.claims("killed")
    assert len(again.take(0, 100, ROUND)) == 8


def test_a_claim_ends_at_its_deadline_and_not_before(setting: Setting) -> None:
    gone, other = setting.claims("gone"), setting.claims("other")
    (number, *_) = gone.take(0, 10, ROUND)
    setting.now_s += LIFETIME_S - 1.0
    assert other.take(0, 1, ROUND) == []
    setting.now_s += 2.0
    assert len(other.take(0, 10, ROUND)) == 10
    gone.settle(number)
    assert other.take(0, 1, ROUND) == [], "a late word ends nobody else's claim"


def test_who_settles_one_claim_keeps_the_others_for_another_lifetime(setting: Setting) -> None:
    storing, idle, other = setting.claims("storing"), setting.claims("idle"), setting.claims("other")
    first, *_ = storing.take(0, 5, ROUND)
    assert len(idle.take(0, 5, ROUND)) == 5
    setting.now_s += LIFETIME_S - 1.0
    storing.settle(first)
    setting.now_s += 2.0
    assert len(other.take(0, 10, ROUND)) == 6, "those of the idle owner, and the settled one"
    setting.now_s += LIFETIME_S
    assert len(other.take(0, 10, ROUND)) == 4


class Unanswering(MemoryEpisodes):
    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        raise StoreError("the index does not answer")


def test_a_count_that_fails_claims_nothing_and_locks_nobody_out(setting: Setting) -> None:
    one, other = setting.claims("one", Unanswering()), setting.claims("other")
    with pytest.raises(StoreError, match="does not answer"):
        one.take(0, 3, ROUND)
    assert len(other.take(0, 100, ROUND)) == 10


def test_a_session_that_begins_forgets_the_claims_of_all(setting: Setting) -> None:
    transport = setting.open()
    transport.forget_claims()
    assert len(transport.claims("one", lifetime_s=LIFETIME_S).take(0, 10, ROUND)) == 10
    setting.open().forget_claims()
    assert len(setting.open().claims("other", lifetime_s=LIFETIME_S).take(0, 10, ROUND)) == 10


def test_many_who_claim_at_once_get_every_episode_exactly_once(setting: Setting) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    start = Barrier(4)

    def play(worker: int) -> None:
        claims = setting.claims(f"worker-{worker}")
        start.wait(30.0)
        while numbers := claims.take(0, 1, 40):
            taken[worker] += numbers

    threads = [Thread(target=play, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    numbers = [number for mine in taken for number in mine]
    assert len(numbers) == len(set(numbers)) == 40


# --- leases of devices that roles share -----------------------------------------------------------------------------


def test_a_device_that_roles_share_is_leased_to_one_of_them_at_a_time(setting: Setting) -> None:
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert worker.take("emulator-5554")
    assert not evaluator.take("emulator-5554")
    assert evaluator.take("192.168.0.7:5555"), "another device"
    worker.give_back("emulator-5554")
    assert evaluator.take("emulator-5554")


def test_who_waits_for_a_device_has_it_before_its_last_holder_has_it_again(setting: Setting) -> None:
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert worker.take("a")
    assert not evaluator.take("a")
    worker.give_back("a")
    assert not worker.take("a")
    assert evaluator.take("a")
    assert not worker.take("a"), "now the worker is next"
    evaluator.give_back("a")
    assert not evaluator.take("a")
    assert worker.take("a")


def test_who_stops_waiting_holds_nobody_up(setting: Setting) -> None:
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert worker.take("a")
    assert not evaluator.take("a")
    evaluator.stop_waiting()
    worker.give_back("a")
    assert worker.take("a")
    worker.stop_waiting()
    assert not evaluator.take("a"), "it is still leased"


def test_a_device_whose_name_begins_with_a_role_is_that_roles_alone(setting: Setting) -> None:
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert worker.take("worker-0/phone-1")
    assert worker.take("worker-0/phone-1"), "nobody else is asked"
    assert evaluator.take("evaluator/phone-1")
    assert worker.take("worker-0-phone"), "no folder: a name like any other"
    assert not evaluator.take("worker-0-phone")


def test_only_the_holder_can_give_a_device_back(setting: Setting) -> None:
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert worker.take("a")
    evaluator.give_back("a")
    evaluator.give_back("never taken")
    assert not evaluator.take("a")


def test_devices_of_any_name_are_told_apart(setting: Setting) -> None:
    names = ["a", "A", "a/b", "a%2Fb", "..", "é" * 60, "é" * 61, "x" * 300, "x" * 301, ""]
    worker, evaluator = setting.open().leases("worker-0"), setting.open().leases("evaluator")
    assert all(worker.take(name) for name in names)
    assert not any(evaluator.take(name) for name in names)
