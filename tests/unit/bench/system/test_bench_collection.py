"""Which window of a run is measured, what was collected in it, and how several runs are combined."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.bench.base import BenchOptions, names
from distrl.bench.plots import plot_file
from distrl.bench.system import collection
from distrl.bench.system.collection import (
    DEVICES_PER_WORKER,
    EMULATORS,
    ROUND,
    SCHEMES,
    WINDOW_DEADLINE_S,
    WORKERS,
    Collected,
    RunFigures,
    Window,
    WindowMeter,
    combine,
    counter_increase,
    num_seeds,
    order,
    scheme_config,
    summarise_window,
)
from distrl.bench.system.collection_sourced import SOURCED
from distrl.config.reference import flatten
from distrl.config.schema import Config
from distrl.errors import RoleCrashed, UsageError
from distrl.experience.index import IndexRow
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import RunSnapshot
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Ending, PolicyVersion
from support.batches import tiny_policy


def version(number: int, *, at_s: float, episodes: int) -> PolicyVersion:
    return PolicyVersion(
        version=number, file="", sha256="", size_bytes=0, updates=0, episodes=episodes, published_s=at_s
    )


def row(at_s: float, *, worker: str = "worker-0", steps: int = 5) -> IndexRow:
    return IndexRow(
        seq=1, id="e", task="t", template="t", version=0, steps=steps, success=False, ending=Ending.FINISHED, source="played",
        wall_s=1.0, worker=worker, created_s=at_s, size_bytes=1,
    )  # fmt: skip


def test_the_window_opens_after_a_round_and_closes_with_the_first_version_that_is_late_enough() -> None:
    meter = WindowMeter(warm_episodes=64, window_s=30.0)
    for one in (
        version(0, at_s=100.0, episodes=0),
        version(1, at_s=110.0, episodes=63),
        version(2, at_s=120.0, episodes=64),
        version(2, at_s=120.0, episodes=64),
        version(3, at_s=149.9, episodes=90),
    ):
        meter.publish(one)
        assert meter.window is None
    meter.publish(version(4, at_s=155.0, episodes=120))
    assert meter.window == Window(start_s=120.0, end_s=155.0)
    meter.publish(version(5, at_s=200.0, episodes=150))
    assert meter.window == Window(start_s=120.0, end_s=155.0), "it stays as it was"


def test_the_weights_before_any_practice_open_no_window() -> None:
    meter = WindowMeter(warm_episodes=0, window_s=1.0)
    meter.publish(version(0, at_s=0.0, episodes=0))
    meter.publish(version(1, at_s=50.0, episodes=3))
    meter.publish(version(2, at_s=60.0, episodes=5))
    assert meter.window == Window(start_s=50.0, end_s=60.0)


def test_what_a_counter_rose_by_is_read_between_its_sightings() -> None:
    series = [(10.0, 100.0), (0.0, 0.0), (20.0, 110.0)]
    assert counter_increase(Window(start_s=5.0, end_s=15.0), series) == pytest.approx(105.0 - 50.0)
    assert counter_increase(Window(start_s=-5.0, end_s=30.0), series) == pytest.approx(110.0), (
        "nothing is made up beyond them"
    )


def test_the_figures_of_a_window_leave_out_what_lies_beside_it() -> None:
    window = Window(start_s=100.0, end_s=110.0)
    rows = [
        row(100.0),
        *(row(101.0 + n, steps=4) for n in range(4)),
        row(110.0, worker="worker-1", steps=9),
        row(110.1),
    ]
    # Each worker has two phones: the first are busy for 16 of 20 s, the second, half as fast, for 8.
    busy = {"worker-0": [(90.0, 0.0), (100.0, 5.0), (110.0, 21.0)], "worker-1": [(100.0, 0.0), (110.0, 8.0)]}
    found = summarise_window(window, rows, busy, devices_per_worker=2)
    assert (found.episodes, found.steps, found.window_s) == (5, 25, 10.0)
    assert found.episodes_per_s == 0.5
    assert found.device_utilisation == pytest.approx(24.0 / 40.0)
    # Four seconds of a phone for an episode on the first, eight on the second.
    assert found.limit_episodes_per_s == pytest.approx(2 / 4.0 + 2 / 8.0)


def collected(rate: float, *, utilisation: float = 0.5, limit: float = 10.0) -> RunFigures:
    found = Collected(
        window_s=10.0, episodes=round(10 * rate), steps=round(60 * rate), episodes_per_s=rate,
        device_utilisation=utilisation, limit_episodes_per_s=limit,
    )  # fmt: skip
    return RunFigures(collected=found, training_s_per_episode=0.02, restarts=0)


def test_a_speed_up_is_the_mean_of_the_ratios_of_runs_with_the_same_seed() -> None:
    figures = combine(
        {
            "async": [collected(8.0, utilisation=0.9), collected(10.0, utilisation=0.98, limit=12.0)],
            "digirl_sync": [collected(2.0), collected(2.0)],
            "tuned_sync": [collected(4.0), replace(collected(8.0), restarts=1)],
        },
        tried={64: 3.0, 128: 4.5, 256: 4.0},
        setting=SOURCED,
    )
    assert figures.profile == "digirl"
    assert (figures.tuned_round_episodes, figures.rounds_tried["256"]) == (128, 4.0)
    assert figures.speedup_vs_digirl_sync == pytest.approx(4.5)
    assert figures.speedup_vs_tuned_sync == pytest.approx((2.0 + 1.25) / 2)
    assert figures.speedup_spread == {"digirl_sync": (4.0, 5.0), "tuned_sync": (1.25, 2.0)}
    assert figures.device_utilisation == pytest.approx(0.94)
    assert figures.limit_episodes_per_s == pytest.approx(11.0)
    assert figures.learner_load == pytest.approx(0.22)
    assert (figures.seeds, figures.restarts) == (2, 1)
    ours = figures.schemes["async"]
    assert (ours.episodes_per_s, ours.episodes_per_s_spread, ours.window_s) == (9.0, (8.0, 10.0), 20.0)
    assert ours.episodes_per_device_s == pytest.approx(9.0 / (WORKERS * DEVICES_PER_WORKER))
    assert ours.share_of_limit == pytest.approx((0.8 + 10 / 12) / 2)
    assert ours.steps_per_episode == pytest.approx(6.0)


def test_sourced_delays_are_all_that_the_second_comparison_has_instead() -> None:
    chosen, sourced = (flatten(scheme_config("tuned_sync", 3, ROUND, setting)) for setting in (EMULATORS, SOURCED))
    profile, scale = "devices.sim.latency.profile", "devices.sim.latency.time_scale"
    limits = {"rollout.episode_budget_s", "rollout.step_deadline_s"}
    assert {key for key in chosen if chosen[key] != sourced[key]} == {profile, scale} | limits
    ratio = SOURCED.time_scale / EMULATORS.time_scale
    assert all(float(str(sourced[key])) == pytest.approx(ratio * float(str(chosen[key]))) for key in limits | {scale})


def test_the_schemes_differ_in_nothing_but_their_scheme() -> None:
    configs = {name: flatten(scheme_config(name, 3)) for name in SCHEMES}
    for key in configs["async"].keys() - {"learner.mode", "rollout.lockstep"}:
        assert len({str(values[key]) for values in configs.values()}) == 1, key
    assert configs["async"]["run.seed"] == 3
    assert WORKERS * DEVICES_PER_WORKER >= 32
    assert ROUND % (WORKERS * DEVICES_PER_WORKER) == 0, "a round is whole batches of every worker"


def test_every_other_repetition_goes_backwards() -> None:
    assert order(0) == order(2) == list(SCHEMES)
    assert order(1) == list(reversed(SCHEMES))


def test_a_spread_needs_two_repetitions_and_a_quick_look_none() -> None:
    assert num_seeds(BenchOptions(quick=True)) == num_seeds(BenchOptions(quick=True, seeds=1)) == 1
    assert num_seeds(BenchOptions()) >= 2
    assert num_seeds(BenchOptions(seeds=2)) == 2
    with pytest.raises(UsageError, match="--seeds 1") as caught:
        num_seeds(BenchOptions(seeds=1))
    assert (caught.value.exit_code, "--seeds" in caught.value.fix) == (2, True)


def test_the_benchmarks_are_there_by_name_and_what_they_share_is_not() -> None:
    assert {"collection", "replay", "weights"} <= set(names())
    assert not {"system", "plots", "jobs", "result_cache"} & set(names())


# --- the window, more closely -----------------------------------------------------------------------------------------


def moment(tmp_path: Path, *heartbeats: Heartbeat | None) -> RunSnapshot:
    """The state of a run whose workers have these heartbeats."""
    roles = [
        SimpleNamespace(role=f"worker-{number}", heartbeat=heartbeat) for number, heartbeat in enumerate(heartbeats)
    ]
    return cast(RunSnapshot, SimpleNamespace(run=RunFolder(tmp_path), roles=roles))


def heartbeat(at_s: float, **figures: float) -> Heartbeat:
    return Heartbeat(
        role="worker", pid=1, phase="doing", what="", since_s=0.0, beat_s=0.0, time_s=at_s, figures=figures
    )


def test_the_meter_records_the_device_time_of_every_worker_that_reports_it(tmp_path: Path) -> None:
    meter = WindowMeter(warm_episodes=1, window_s=1.0)
    meter.observe(moment(tmp_path, heartbeat(10.0, busy_s=1.0), None, heartbeat(10.0, other=1.0)), 10.0)
    meter.observe(moment(tmp_path, heartbeat(11.0, busy_s=3.0), heartbeat(11.0, busy_s=0.5)), 11.0)
    assert meter.busy == {"worker-0": [(10.0, 1.0), (11.0, 3.0)], "worker-1": [(11.0, 0.5)]}
    assert meter.window is None, "no version was published"


def test_the_meter_takes_versions_from_the_folder_of_the_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    meter, weights = WindowMeter(warm_episodes=2, window_s=30.0), WeightsFolder(run.weights)
    for number, at_s, episodes in ((0, 0.0, 0), (1, 5.0, 1), (2, 10.0, 4), (3, 39.0, 6), (4, 45.0, 9)):
        weights.publish(tiny_policy(), version(number, at_s=at_s, episodes=episodes))
        meter.observe(moment(tmp_path), at_s)
    assert meter.window == Window(start_s=10.0, end_s=45.0)


def test_a_run_that_closes_no_window_is_given_up(tmp_path: Path) -> None:
    meter = WindowMeter(warm_episodes=1, window_s=1.0)
    meter.observe(moment(tmp_path), 1000.0)
    meter.observe(moment(tmp_path), 1000.0 + WINDOW_DEADLINE_S)
    with pytest.raises(RoleCrashed, match="no version closed the window"):
        meter.observe(moment(tmp_path), 1000.1 + WINDOW_DEADLINE_S)


readings = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 10.0)), min_size=2, max_size=20, unique_by=lambda one: one[0]
)


@given(readings, st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3))
def test_what_a_counter_rose_by_adds_up_over_neighbouring_windows(
    found: list[tuple[float, float]], ends: list[float]
) -> None:
    """The counter is the sum of the rises, so that it never falls."""
    times_s = sorted(time_s for time_s, _ in found)
    series = list(zip(times_s, np.cumsum([rise for _, rise in found]).tolist(), strict=True))
    first, middle, last = sorted(ends)
    parts = [Window(start_s=first, end_s=middle), Window(start_s=middle, end_s=last)]
    whole = counter_increase(Window(start_s=first, end_s=last), series)
    assert sum(counter_increase(part, series) for part in parts) == pytest.approx(whole, abs=1e-6)
    assert 0.0 <= whole <= series[-1][1] - series[0][1] + 1e-9


def test_a_worker_that_played_nothing_adds_nothing_to_the_limit_and_lowers_utilisation() -> None:
    window = Window(start_s=0.0, end_s=10.0)
    busy = {"worker-0": [(0.0, 0.0), (10.0, 10.0)], "worker-1": [(0.0, 0.0), (10.0, 0.0)]}
    found = summarise_window(window, [row(5.0), row(6.0)], busy, devices_per_worker=1)
    assert found.device_utilisation == pytest.approx(0.5)
    assert found.limit_episodes_per_s == pytest.approx(1 / 5.0)
    assert found.episodes_per_s == pytest.approx(0.2)


def test_a_fleet_that_is_always_busy_collects_at_its_limit() -> None:
    window = Window(start_s=0.0, end_s=10.0)
    busy = {"worker-0": [(0.0, 0.0), (10.0, 20.0)]}
    found = summarise_window(window, [row(float(n)) for n in range(1, 9)], busy, devices_per_worker=2)
    assert found.device_utilisation == pytest.approx(1.0)
    assert found.episodes_per_s == pytest.approx(found.limit_episodes_per_s)


# --- whole measurements -----------------------------------------------------------------------------------------------


def test_the_best_length_of_a_round_is_measured_and_every_scheme_with_every_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, int]] = []

    def measure(config: Config, window_s: float) -> RunFigures:
        scheme = "async" if config.learner.mode == "async" else "digirl" if config.rollout.lockstep else "tuned"
        asked.append((scheme, config.run.seed, config.learner.round_episodes))
        best = config.learner.round_episodes == 4 * ROUND
        return collected({"async": 8.0, "digirl": 2.0, "tuned": 6.0 if best else 3.0}[scheme])

    monkeypatch.setattr(collection, "measure", measure)
    figures = collection.run(BenchOptions(seeds=2, out=tmp_path))
    assert asked[:4] == [("tuned", collection.TRIAL_SEED, length) for length in collection.ROUNDS]
    assert asked[4:] == [
        ("async", 0, ROUND), ("digirl", 0, ROUND), ("tuned", 0, 4 * ROUND),
        ("tuned", 1, 4 * ROUND), ("digirl", 1, ROUND), ("async", 1, ROUND),
    ]  # fmt: skip
    assert figures.tuned_round_episodes == 4 * ROUND
    assert (figures.speedup_vs_digirl_sync, figures.speedup_vs_tuned_sync) == pytest.approx((4.0, 8.0 / 6.0))
    assert figures.rounds_tried == {str(length): 6.0 if length == 4 * ROUND else 3.0 for length in collection.ROUNDS}
    text = (tmp_path / "collection.svg").read_text()
    for word in ("asynchronous", "well-tuned barrier", "every device always busy", "episodes per second"):
        assert word in text
    assert (tmp_path / "collection.png").stat().st_size > 10_000


def test_one_seed_has_no_spread_and_is_drawn_all_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = {"async": [collected(8.0)], "digirl_sync": [collected(2.0)], "tuned_sync": [collected(4.0)]}
    figures = combine(found, {ROUND: 4.0})
    assert figures.speedup_spread["digirl_sync"] == (4.0, 4.0)
    with plot_file(tmp_path, "one") as axes:
        collection.draw(figures, axes)
        assert len(axes.containers) >= 3
    assert (tmp_path / "one.png").exists()


def test_a_run_without_a_checkpoint_has_trained_for_no_time(tmp_path: Path) -> None:
    assert collection._training_s(RunFolder(tmp_path)) == 0.0
