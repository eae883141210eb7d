"""How the figures of several runs under fire become one."""

from __future__ import annotations

from msgspec.structs import replace

from distrl.bench.base import names
from distrl.bench.kills import SETTINGS, KillFigures, combine
from distrl.config.load import load_config

ONE = KillFigures(
    kills=8, by_role={"learner": 3, "worker-0": 5}, episodes=100, taken_in=100, lost_episodes=0,
    unacknowledged_episodes=1, duplicate_episodes=0, restarts=8, finished=True, exactly_once=True, longest_silence_s=2.0, wall_s=60.0, seeds=1, config_hash="a",
)  # fmt: skip


def test_runs_are_added_up_and_the_worst_of_them_counts() -> None:
    other = replace(ONE, by_role={"worker-1": 8}, longest_silence_s=5.0, lost_episodes=1, exactly_once=False)
    both = combine([ONE, other])
    assert (both.kills, both.episodes, both.lost_episodes, both.restarts, both.seeds) == (16, 200, 1, 16, 2)
    assert both.unacknowledged_episodes == 2
    assert both.by_role == {"learner": 3, "worker-0": 5, "worker-1": 8}
    assert (both.finished, both.exactly_once, both.longest_silence_s) == (True, False, 5.0)
    assert combine([ONE]) == ONE


def test_it_is_there_by_name_and_its_settings_fit_the_schema() -> None:
    assert "kills" in names()
    assert "lab" not in names()
    assert load_config(None, SETTINGS).run.name == "kills"
