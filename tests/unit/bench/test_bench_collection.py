"""Which part of a run is measured, and how the figures of several runs become one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.bench.base import BenchOptions, names
from distrl.bench.collection import (
    DEVICES_PER_WORKER,
    ROUND,
    SCHEMES,
    WORKERS,
    RunFigures,
    combine,
    num_seeds,
    order,
    scheme_config,
)
from distrl.bench.system.watching import Collected, Watcher, Window, spent_in, sum_up
from distrl.config.reference import flatten
from distrl.errors import UsageError
from distrl.experience.index import IndexRow
from distrl.types import Ending, PolicyVersion


def version(number: int, *, at_s: float, episodes: int) -> PolicyVersion:
    return PolicyVersion(
        version=number, file="", sha256="", size_bytes=0, updates=0, episodes=episodes, published_s=at_s
    )


def row(at_s: float, *, worker: str = "worker-0", steps: int = 5) -> IndexRow:
    return IndexRow(
        seq=1, id="e", task="t", template="t", version=0, steps=steps, success=False, ending=Ending.FINISHED,
        wall_s=1.0, worker=worker, created_s=at_s, size_bytes=1,
    )  # fmt: skip


def test_the_window_opens_after_a_round_and_closes_with_the_first_version_that_is_late_enough() -> None:
    watcher = Watcher(warm_episodes=64, window_s=30.0)
    for one in (
        version(0, at_s=100.0, episodes=0),
        version(1, at_s=110.0, episodes=63),
        version(2, at_s=120.0, episodes=64),
        version(2, at_s=120.0, episodes=64),
        version(3, at_s=149.9, episodes=90),
    ):
        watcher.publish(one)
        assert watcher.window is None
    watcher.publish(version(4, at_s=155.0, episodes=120))
    assert watcher.window == Window(start_s=120.0, end_s=155.0)
    watcher.publish(version(5, at_s=200.0, episodes=150))
    assert watcher.window == Window(start_s=120.0, end_s=155.0), "it stays as it was"


def test_the_weights_before_any_practice_open_no_window() -> None:
    watcher = Watcher(warm_episodes=0, window_s=1.0)
    watcher.publish(version(0, at_s=0.0, episodes=0))
    watcher.publish(version(1, at_s=50.0, episodes=3))
    watcher.publish(version(2, at_s=60.0, episodes=5))
    assert watcher.window == Window(start_s=50.0, end_s=60.0)


def test_what_a_counter_rose_by_is_read_between_its_sightings() -> None:
    series = [(10.0, 100.0), (0.0, 0.0), (20.0, 110.0)]
    assert spent_in(Window(start_s=5.0, end_s=15.0), series) == pytest.approx(105.0 - 50.0)
    assert spent_in(Window(start_s=-5.0, end_s=30.0), series) == pytest.approx(110.0), "nothing is made up beyond them"


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
    found = sum_up(window, rows, busy, devices_per_worker=2)
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
    )
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
    assert not {"system", "pictures", "watching", "publishing"} & set(names())
