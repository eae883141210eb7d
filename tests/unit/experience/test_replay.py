from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from distrl.config.schema import ReplayConfig
from distrl.errors import ConfigError, DistrlError
from distrl.experience.replay import Replay, ReplayState, importance_weights


def make_replay(weight_by: str = "mean", seed: int = 0, **settings: object) -> Replay[str]:
    given = {"capacity_steps": 100, "class_balance": 0.0, "weight_by": weight_by, **settings}
    return Replay(msgspec.convert(given, ReplayConfig), np.random.default_rng(seed))


def put(
    replay: Replay[str], id: str, priority: float = 1.0, steps: int = 1, version: int = 0, success: bool = False
) -> bool:
    return replay.add(id, f"item {id}", steps=steps, version=version, success=success, priority=priority)


def assert_drawn_by_priority(replay: Replay[str], alpha: float, num: int = 40_000) -> None:
    shares = {id: priority**alpha for id, priority in replay.priorities().items()}
    counts = Counter(sample.id for sample in replay.sample(num))
    expected = np.array(list(shares.values())) / sum(shares.values()) * num
    assert set(counts) <= set(shares)
    assert chisquare([counts[id] for id in shares], expected).pvalue > 0.001


# --- sampling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_trajectories_are_drawn_as_often_as_their_priorities_say(alpha: float) -> None:
    replay = make_replay(alpha=alpha)
    for index, priority in enumerate([0.2, 1.0, 3.0, 7.0, 12.0]):
        put(replay, f"t{index}", priority)
    assert_drawn_by_priority(replay, alpha)


def test_a_refreshed_priority_changes_how_often_a_trajectory_is_drawn() -> None:
    replay = make_replay(alpha=1.0)
    for index in range(5):
        put(replay, f"t{index}", 1.0)
    replay.refresh("t0", 20.0)
    replay.refresh("t3", 0.05)
    assert replay.priorities()["t0"] == 20.0
    assert_drawn_by_priority(replay, 1.0)


def test_what_remains_after_eviction_is_drawn_by_priority_and_the_evicted_never() -> None:
    replay = make_replay(alpha=0.6, capacity_steps=10)
    for index in range(17):
        put(replay, f"t{index}", 1.0 + index, steps=2)
    assert list(replay.priorities()) == ["t12", "t13", "t14", "t15", "t16"]
    assert_drawn_by_priority(replay, 0.6)


@pytest.mark.parametrize(("class_balance", "share"), [(0.0, 0.75), (1.0, 0.5)])
def test_rare_kinds_are_drawn_as_often_as_common_ones_where_they_are_balanced(
    class_balance: float, share: float
) -> None:
    replay = make_replay(alpha=1.0, class_balance=class_balance)
    for number in range(12):
        kind = "rare" if number % 4 == 0 else "common"
        replay.add(f"{kind} {number}", "", steps=1, version=0, success=True, priority=1.0, kind=kind)
    replay.set_version(0)
    drawn = [sample.id.startswith("common") for sample in replay.sample(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("in_one_go", [True, False])
def test_what_has_no_kind_is_left_out_of_the_balance_and_weighs_as_one_of_mean_number(in_one_go: bool) -> None:
    def balance(num_unknown: int) -> dict[str, float]:
        replay = make_replay(alpha=1.0, class_balance=1.0)
        for number in range(8):
            kind = "rare" if number % 4 == 0 else "common"
            replay.add(f"{kind} {number}", "", steps=1, version=0, success=False, priority=1.0, kind=kind)
        if not in_one_go:
            replay.set_version(0)
        for number in range(num_unknown):
            replay.add(f"unknown {number}", "", steps=1, version=0, success=False, priority=1.0, kind=None)
        if in_one_go:
            replay.set_version(0)
        held = {sample.id: sample.probability for sample in replay.sample(2000)}
        return {name: chance / held["rare 0"] for name, chance in held.items()}

    without, beside = balance(0), balance(30)
    assert {name: beside[name] for name in without} == pytest.approx(without)
    # 2 rare, 6 common, 4 on average: a rare one weighs 2, so one of mean number half of that.
    assert beside["unknown 0"] == pytest.approx(0.5)


def test_a_sample_carries_its_item_and_its_true_probability() -> None:
    replay = make_replay(alpha=0.5)
    put(replay, "a", 4.0)
    put(replay, "b", 9.0)
    probabilities = {sample.id: sample.probability for sample in replay.sample(100)}
    assert probabilities == pytest.approx({"a": 0.4, "b": 0.6})
    assert all(sample.item == f"item {sample.id}" for sample in replay.sample(10))


def test_nothing_eligible_gives_no_samples() -> None:
    assert make_replay().sample(4) == []


def test_the_same_seed_draws_the_same_trajectories() -> None:
    first, second = make_replay(seed=5), make_replay(seed=5)
    for replay in (first, second):
        for index in range(9):
            put(replay, f"t{index}", 1.0 + index)
    assert [s.id for s in first.sample(50)] == [s.id for s in second.sample(50)]


# --- importance weights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "divisor"), [("max", np.max), ("mean", np.mean)])
def test_weights_are_n_times_p_to_the_minus_beta_over_max_or_mean(by: str, divisor: object) -> None:
    replay = make_replay(by, alpha=1.0, beta=0.4)
    for id, priority in {"a": 1.0, "b": 2.0, "c": 5.0}.items():
        put(replay, id, priority)
    samples = replay.sample(64)
    raw = np.array([(3 * {"a": 1, "b": 2, "c": 5}[s.id] / 8) ** -0.4 for s in samples])
    assert [s.weight for s in samples] == pytest.approx(list(raw / divisor(raw)))  # type: ignore[operator]


def test_only_the_eligible_count_in_probabilities_and_weights() -> None:
    replay = make_replay("max", alpha=1.0, beta=1.0, max_staleness=1, keep_successes=False)
    for id, version in {"old": 0, "a": 5, "b": 5}.items():
        put(replay, id, {"old": 50.0, "a": 1.0, "b": 3.0}[id], version=version)
    replay.set_version(5)
    samples = {sample.id: sample for sample in replay.sample(200)}
    assert {id: s.probability for id, s in samples.items()} == pytest.approx({"a": 0.25, "b": 0.75})
    assert {id: s.weight for id, s in samples.items()} == pytest.approx({"a": 1.0, "b": 1 / 3})


def test_equal_priorities_weigh_one() -> None:
    assert importance_weights(np.full(4, 0.25), 4, 0.4, by="max").tolist() == [1.0] * 4
    assert importance_weights(np.zeros(0), 4, 0.4, by="max").tolist() == []


# --- staleness ------------------------------------------------------------------------------------------------------


def test_a_trajectory_one_version_beyond_the_bound_is_no_longer_drawn_and_one_at_the_bound_is() -> None:
    replay = make_replay(max_staleness=3, keep_successes=False)
    put(replay, "beyond", version=6, success=True)
    put(replay, "at", version=7)
    replay.set_version(10)
    assert (replay.num_eligible, len(replay)) == (1, 2)
    assert {sample.id for sample in replay.sample(50)} == {"at"}


def test_successes_stay_eligible_however_stale_where_they_are_kept() -> None:
    replay = make_replay(max_staleness=3, keep_successes=True)
    put(replay, "failure", version=0)
    put(replay, "success", version=0, success=True)
    replay.set_version(100)
    assert {sample.id for sample in replay.sample(50)} == {"success"}
    assert replay.drawn.num_kept == 50


def test_a_trajectory_that_arrives_too_late_is_held_but_not_drawn() -> None:
    replay = make_replay(max_staleness=2)
    replay.set_version(10)
    put(replay, "late", version=1)
    replay.refresh("late", 99.0)
    assert (len(replay), replay.num_eligible, replay.sample(3)) == (1, 0, [])


def test_a_learner_that_goes_back_makes_trajectories_eligible_again() -> None:
    replay = make_replay(max_staleness=2)
    put(replay, "a", version=5)
    replay.set_version(20)
    replay.set_version(4)
    assert [sample.staleness for sample in replay.sample(2)] == [0, 0]


def test_staleness_is_told_over_what_was_drawn() -> None:
    replay = make_replay(max_staleness=8)
    put(replay, "a", version=2)
    replay.set_version(4)
    replay.sample(3)
    replay.set_version(8)
    replay.sample(1)
    assert (replay.drawn.num, replay.drawn.staleness_mean, replay.drawn.staleness_max) == (4, 3.0, 6)


# --- what an algorithm chooses itself -------------------------------------------------------------------------------


def test_the_eligible_are_told_by_id_oldest_first_and_what_is_too_stale_is_not_among_them() -> None:
    replay = make_replay(max_staleness=1, keep_successes=False)
    for id, version in {"old": 0, "a": 5, "b": 4}.items():
        put(replay, id, version=version)
    replay.set_version(5)
    assert list(replay.eligible().items()) == [("a", "item a"), ("b", "item b")]
    assert len(replay.eligible()) == replay.num_eligible


def test_what_is_asked_for_comes_in_that_order_with_weight_1_and_counts_as_drawn() -> None:
    replay = make_replay(alpha=1.0, beta=1.0, max_staleness=8)
    for id, priority in {"a": 1.0, "b": 50.0, "c": 3.0}.items():
        put(replay, id, priority, version=ord(id) - ord("a"))
    replay.set_version(2)
    taken = replay.take(["c", "a", "a"])
    assert [(one.id, one.item, one.weight) for one in taken] == [
        ("c", "item c", 1.0),
        ("a", "item a", 1.0),
        ("a", "item a", 1.0),
    ]
    assert [one.staleness for one in taken] == [0, 2, 2]
    assert (replay.drawn.num, replay.drawn.staleness_max) == (3, 2)
    assert replay.take([]) == []


@pytest.mark.parametrize(("id", "why"), [("stale", "too stale"), ("nobody", "not held")])
def test_asking_for_what_is_not_eligible_is_an_error_that_says_where_to_choose(id: str, why: str) -> None:
    replay = make_replay(max_staleness=1, keep_successes=False)
    put(replay, "stale", version=0)
    put(replay, "fresh", version=9)
    replay.set_version(9)
    with pytest.raises(DistrlError, match=why) as caught:
        replay.take(["fresh", id])
    assert "eligible()" in caught.value.fix
    assert replay.drawn.num == 0


# --- pinned trajectories --------------------------------------------------------------------------------------------


def pin(replay: Replay[str], id: str, *, steps: int = 2) -> None:
    replay.add(id, f"item {id}", steps=steps, version=0, success=True, priority=1.0, pin=True)


def test_the_pinned_are_never_evicted_and_always_eligible() -> None:
    replay = make_replay(capacity_steps=12, max_staleness=1, keep_successes=False)
    for id in ("p0", "p1"):
        pin(replay, id)
    for index in range(30):
        put(replay, f"t{index}", steps=1 + index % 3, version=index)
        replay.set_version(index)
        assert {"p0", "p1"} <= set(replay.eligible())
        assert replay.num_steps <= 12
        assert len(replay.eligible()) == replay.num_eligible
    assert [id for id in replay.priorities() if id.startswith("t")] == ["t27", "t28", "t29"]
    assert {sample.id for sample in replay.sample(400)} == {"p0", "p1", "t28", "t29"}
    assert replay.drawn.num_kept > 0


def test_what_is_pinned_late_is_eligible_at_once_though_its_version_is_long_past() -> None:
    replay = make_replay(max_staleness=1, keep_successes=False)
    replay.set_version(9)
    pin(replay, "late")
    assert (set(replay.eligible()), replay.num_eligible) == ({"late"}, 1)
    assert {sample.id for sample in replay.sample(4)} == {"late"}


def test_more_than_half_of_the_capacity_cannot_be_pinned_and_a_long_trajectory_still_fits() -> None:
    replay = make_replay(capacity_steps=12)
    for index in range(4):
        pin(replay, f"p{index}")
    for index in range(6):
        put(replay, f"t{index}")
    assert [id for id in replay.priorities() if id.startswith("p")] == ["p0", "p1", "p2"]
    put(replay, "long", steps=12)
    assert list(replay.priorities()) == ["long"]


@pytest.mark.parametrize("capacity_steps", [100, 12])
def test_a_restored_replay_keeps_what_was_pinned_where_it_stood(capacity_steps: int) -> None:
    before, after = (make_replay(capacity_steps=capacity_steps, max_staleness=3) for _ in range(2))
    for id in ("p0", "p1"):
        pin(before, id)
    for index in range(20):
        put(before, f"t{index}", 1.0 + index, version=index)
    before.set_version(20)
    saved = before.state()
    after.begin_at(saved.first_slot)
    for id in saved.ids:
        pin(after, id) if id.startswith("p") else put(after, id, version=int(id[1:]))
    after.restore(saved)
    assert after.state() == before.state()
    assert after.sample(50) == before.sample(50)
    for replay in (before, after):
        for index in range(20, 30):
            put(replay, f"t{index}", version=index)
    assert after.sample(50) == before.sample(50)


# --- the circle -----------------------------------------------------------------------------------------------------


def test_a_trajectory_larger_than_the_capacity_is_refused_with_the_setting_to_change() -> None:
    replay = make_replay(capacity_steps=10)
    put(replay, "a", steps=10)
    with pytest.raises(ConfigError, match=r"capacity_steps"):
        put(replay, "b", steps=11)
    assert list(replay.priorities()) == ["a"]


@pytest.mark.parametrize("priority", [0.0, -1.0, float("nan"), float("inf")])
def test_a_priority_that_is_no_share_is_refused(priority: float) -> None:
    replay = make_replay()
    with pytest.raises(DistrlError, match="above 0"):
        put(replay, "a", priority)
    assert len(replay) == 0


def test_the_same_id_is_held_once() -> None:
    replay = make_replay()
    assert put(replay, "a", 1.0)
    assert not put(replay, "a", 5.0)
    assert replay.priorities() == {"a": 1.0}


def test_refreshing_one_that_is_gone_changes_nothing() -> None:
    replay = make_replay(capacity_steps=2)
    for id in "abc":
        put(replay, id)
    replay.refresh("a", 50.0)
    assert replay.priorities() == {"b": 1.0, "c": 1.0}
    assert {sample.probability for sample in replay.sample(20)} == {0.5}


@pytest.mark.parametrize("capacity_steps", [100, 7, 5])
def test_a_restored_replay_goes_on_as_if_nothing_had_happened(capacity_steps: int) -> None:
    random, later = np.random.default_rng(1), np.random.default_rng(2)
    config = ReplayConfig(capacity_steps=capacity_steps, max_staleness=4)
    before, after = Replay[str](config, random), Replay[str](config, later)
    for index in range(8):  # once or more than once round a circle of less than 8 slots
        put(before, f"t{index}", 1.0 + index, version=index)
    before.refresh("t6", 70.0)
    before.set_version(9)
    before.sample(5)
    later.bit_generator.state = random.bit_generator.state
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(before.state()), type=ReplayState)
    after.begin_at(saved.first_slot)
    for id in saved.ids:
        put(after, id, version=int(id[1:]))
    after.restore(saved)
    assert after.state() == before.state()
    assert after.sample(30) == before.sample(30)


arrivals = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 9), st.booleans(), st.floats(0.01, 100), st.sampled_from("arv")),
    max_size=60,
)


@settings(deadline=None)
@given(arrivals, st.integers(12, 40), st.integers(0, 4), st.booleans())
def test_whatever_arrives_the_circle_holds_the_newest_that_fit_and_draws_only_the_eligible(
    arrivals: list[tuple[int, int, bool, float, str]], capacity: int, bound: int, keep: bool
) -> None:
    replay = make_replay(capacity_steps=capacity, max_staleness=bound, keep_successes=keep)
    plain: dict[str, tuple[int, int, bool, float]] = {}
    now = 0
    for index, (steps, version, success, priority, deed) in enumerate(arrivals):
        if deed == "a":
            put(replay, f"t{index}", priority, steps, version, success)
            plain[f"t{index}"] = (steps, version, success, priority)
            while sum(held[0] for held in plain.values()) > capacity:
                del plain[next(iter(plain))]
        elif deed == "v":
            now = version
            replay.set_version(now)
        elif plain:
            id = list(plain)[index % len(plain)]
            replay.refresh(id, priority)
            plain[id] = (*plain[id][:3], priority)
        eligible = {id: held[3] ** 0.6 for id, held in plain.items() if now - held[1] <= bound or (keep and held[2])}
        assert list(replay.priorities().items()) == [(id, held[3]) for id, held in plain.items()]
        assert replay.num_steps == sum(held[0] for held in plain.values()) <= capacity
        assert (len(replay), replay.num_eligible) == (len(plain), len(eligible))
        for sample in replay.sample(3):
            assert sample.item == f"item {sample.id}"
            assert sample.probability == pytest.approx(eligible[sample.id] / sum(eligible.values()))
