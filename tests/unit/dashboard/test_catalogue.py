"""The list of episodes: what filters find, in which order, and what is said of files that were not read yet or are gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

import distrl
from distrl.bench.system.stored_run import BEGAN_S, EVERY_S, write_stored_run
from distrl.config.load import load_config
from distrl.dashboard.catalogue import CUT_OFF, Catalogue, EpisodeFilter, VersionTimes, ending_of, time_limit_s
from distrl.dashboard.run_list import OpenRun, RunList, success_curve
from distrl.devices.android.device import TIMES as ANDROID_TIMES
from distrl.devices.base import TimeScales
from distrl.devices.sim.device import time_scales
from distrl.devices.web.apps.phone import TIMES as APP_TIMES
from distrl.devices.web.device import TIMES as WEB_TIMES
from distrl.errors import StoreError
from distrl.experience.store import ExperienceStore
from distrl.types import Ending, Verdict

FOREVER_S = 60.0
COUNT = 240


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stored_run(tmp_path_factory.mktemp("runs"), COUNT).path


@pytest.fixture
def catalogue(path: Path) -> Catalogue:
    found = Catalogue(distrl.open_run(path), VersionTimes())
    found.refresh()
    return found


def test_the_newest_come_first_and_a_page_goes_on_where_the_last_one_ended(catalogue: Catalogue) -> None:
    ids: list[str] = []
    before = 0
    while True:
        page = catalogue.find(EpisodeFilter(limit=50, before=before), budget_s=0)
        ids += [entry.id for entry in page.entries]
        before = page.next_before
        if not before:
            break
    assert ids == [f"episode-{number:06d}" for number in reversed(range(COUNT))]


def test_what_is_shown_has_its_details_though_no_file_was_read_before(catalogue: Catalogue) -> None:
    page = catalogue.find(EpisodeFilter(limit=5), budget_s=0)
    assert all(entry.detail is not None and entry.detail.instruction for entry in page.entries)
    assert page.num_unread == COUNT


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (EpisodeFilter(outcome="success"), lambda t: t.verdict.outcome == "success"),
        (EpisodeFilter(outcome="failure"), lambda t: t.verdict.outcome == "failure"),
        (EpisodeFilter(outcome="unknown"), lambda t: t.verdict.outcome == "unknown"),
        (EpisodeFilter(template="notes-delete"), lambda t: t.task.template == "notes-delete"),
        (EpisodeFilter(device="worker-1/phone-3"), lambda t: t.device == "worker-1/phone-3"),
        (EpisodeFilter(version_from=2, version_to=3), lambda t: 2 <= t.version <= 3),
        (EpisodeFilter(steps_from=8), lambda t: len(t.steps) >= 8),
        (EpisodeFilter(steps_to=3, worker="worker-0"), lambda t: len(t.steps) <= 3 and t.worker == "worker-0"),
        (EpisodeFilter(ending="device_lost"), lambda t: t.ending.value == "device_lost"),
        (EpisodeFilter(text="TANAKA archive"), lambda t: t.task.instruction == "Archive the mail from Mei Tanaka"),
        (EpisodeFilter(text="wrong person"), lambda t: "wrong person" in t.verdict.reason),
        (EpisodeFilter(suite="other"), lambda t: False),
    ],
)  # fmt: skip
def test_a_filter_finds_what_a_look_at_every_episode_finds(
    path: Path, catalogue: Catalogue, wanted: EpisodeFilter, holds
) -> None:  # type: ignore[no-untyped-def]
    found = catalogue.find(msgspec.structs.replace(wanted, limit=COUNT), budget_s=FOREVER_S)
    right = [episode.id for episode in distrl.open_run(path).episodes() if holds(episode)]
    assert [entry.id for entry in found.entries] == right[::-1]
    assert found.num_found == len(right)


def test_a_search_without_time_says_how_many_files_it_has_not_read(catalogue: Catalogue) -> None:
    found = catalogue.find(EpisodeFilter(text="tanaka"), budget_s=0)
    assert found.num_unread == COUNT
    assert not found.entries
    assert catalogue.find(EpisodeFilter(text="tanaka"), budget_s=FOREVER_S).num_unread == 0


def test_staleness_is_what_the_learner_was_ahead_when_the_episode_was_stored(path: Path) -> None:
    versions = VersionTimes()
    versions.note(BEGAN_S - 1, 3)
    versions.note(BEGAN_S + 100.5 * EVERY_S, 7)
    versions.note(BEGAN_S + 200 * EVERY_S, 5)  # a learner that was started again from an older checkpoint
    found = Catalogue(distrl.open_run(path), versions)
    found.refresh()
    assert {entry.staleness + entry.version for entry in found.entries[:101] if entry.version <= 3} == {3}
    assert {entry.staleness + entry.version for entry in found.entries[101:] if entry.version <= 7} == {7}


def test_what_is_stored_later_is_found_and_a_file_that_is_gone_costs_no_other(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 6)
    found = Catalogue(distrl.open_run(run.path), VersionTimes())
    found.refresh()
    with ExperienceStore(run.experience) as store:
        store.add(msgspec.structs.replace(store.read("episode-000003"), id="later"))
    next(run.experience.glob("episodes/*/episode-000004.ep")).write_bytes(b"damaged")
    found.refresh()
    page = found.find(EpisodeFilter(text="", outcome="", limit=10), budget_s=FOREVER_S)
    assert [entry.id for entry in page.entries][:2] == ["later", "episode-000005"]
    assert [entry.id for entry in page.entries if entry.detail is None] == ["episode-000004"]


def test_neighbours_are_the_episodes_stored_after_and_before(catalogue: Catalogue) -> None:
    at = {number: catalogue.entry(f"episode-{number:06d}") for number in (0, 5, COUNT - 1)}
    assert all(at.values())
    assert catalogue.neighbours(at[5]) == ("episode-000006", "episode-000004")  # type: ignore[arg-type]
    assert catalogue.neighbours(at[0]) == ("episode-000001", "")  # type: ignore[arg-type]
    assert catalogue.neighbours(at[COUNT - 1]) == ("", f"episode-{COUNT - 2:06d}")  # type: ignore[arg-type]


# --- the runs ---------------------------------------------------------------------------------------------------------


def test_a_run_that_cannot_be_read_is_listed_with_the_reason_and_costs_no_other(tmp_path: Path) -> None:
    whole = write_stored_run(tmp_path, 5)
    for name, damage in (("20990101-000000-format", "FORMAT"), ("20990101-000001-config", "config.toml")):
        broken = write_stored_run(tmp_path / "aside", 5).path.rename(tmp_path / name)
        (broken / damage).write_text("no such thing = [")
    (tmp_path / "20990101-000002-half").mkdir()
    (tmp_path / "20990101-000002-half" / "config.toml").write_text("")
    cards = {card.name: card for card in RunList(tmp_path).cards()}
    assert cards[whole.name].state == "stopped"
    assert cards[whole.name].episodes == 5
    assert all(card.state == "unreadable" and card.why for name, card in cards.items() if name != whole.name)
    assert len(cards) == 4


def test_only_listed_runs_can_be_opened_and_few_are_held(tmp_path: Path) -> None:
    write_stored_run(tmp_path / "runs", 3)
    other = write_stored_run(tmp_path / "other", 3)
    runs = RunList(tmp_path / "runs")
    for name in (other.name + "x", f"../other/{other.name}", "..", ""):
        with pytest.raises(StoreError):
            runs.open(name)


def test_success_over_time_is_counted_in_windows(path: Path) -> None:
    points = success_curve(distrl.open_run(path))
    assert len(points) == 24
    assert all(0 <= share <= 1 for _, share in points)
    assert points[-1][1] > points[0][1]


def test_an_open_run_takes_in_metrics_and_episodes(path: Path) -> None:
    opened = OpenRun(path)
    opened.refresh()
    assert opened.catalogue.num_played == COUNT
    assert opened.metrics.last["learner"]["learner/version"] == 5
    assert {entry.staleness for entry in opened.catalogue.entries} != {0}
    assert not opened.live
    assert opened.state == "stopped"


def test_what_the_end_of_a_session_cut_off_is_no_time_limit() -> None:
    assert ending_of(Ending.TIME_LIMIT, 4.0, 60.0) == CUT_OFF
    assert ending_of(Ending.TIME_LIMIT, 60.0, 60.0) == "time_limit"
    assert ending_of(Ending.STEP_LIMIT, 4.0, 60.0) == "step_limit"


@pytest.mark.parametrize("profile", ["instant", "emulator", "digirl"])
@pytest.mark.parametrize("scale", ["0.01", "0.4", "1"])
def test_without_a_limit_in_the_settings_that_of_the_phones_counts(profile: str, scale: str) -> None:
    config = load_config(None, {"devices.sim.latency.profile": profile, "devices.sim.latency.time_scale": scale})
    assert time_limit_s(config) == pytest.approx(time_scales(config.devices.sim.latency).episode_s, rel=1e-3)


def test_a_limit_in_the_settings_counts_and_other_devices_have_longer_ones() -> None:
    assert time_limit_s(load_config(None, {"rollout.episode_budget_s": "12"})) == 12.0
    least = min(times.episode_s for times in (ANDROID_TIMES, WEB_TIMES, APP_TIMES, TimeScales()))
    assert time_limit_s(load_config(None, {"devices.kind": "android"})) == least


def test_episodes_that_were_cut_off_are_an_outcome_of_their_own(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 60)
    with ExperienceStore(run.experience) as store:
        failed = next(
            one for row in store.after(0, 60) if not (one := store.read(row.id)).verdict.success and one.verdict.known
        )
        cut = replace(failed, ending=Ending.TIME_LIMIT, wall_s=2.0)
        store.add(replace(cut, id="cut"))
        store.add(replace(cut, id="late", wall_s=61.0))
        store.add(replace(cut, id="late-by-its-task", task=replace(cut.task, max_s=1.5)))
        store.add(
            replace(cut, id="unjudged", verdict=Verdict(outcome="unknown", reason="the end of the worker cut it off"))
        )
    catalogue = Catalogue(distrl.open_run(run.path), VersionTimes())
    catalogue.refresh()

    def found(outcome: Literal["success", "failure", "unknown", "cut_off"]) -> set[str]:
        entries = catalogue.find(EpisodeFilter(outcome=outcome, limit=100), budget_s=FOREVER_S).entries
        return {entry.id for entry in entries if not entry.id.startswith("episode-")}

    assert found("cut_off") == {"cut", "unjudged"}
    assert found("failure") == {"late", "late-by-its-task"}
    assert found("unknown") == found("success") == set()


def test_episodes_that_were_cut_off_are_in_no_curve_of_success(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 200)
    with closing(sqlite3.connect(run.experience / "index.sqlite")) as index, index:
        index.execute("UPDATE episodes SET ending = 'time_limit', success = 0 WHERE seq > 150")
    shares = [share for _, share in success_curve(distrl.open_run(run.path))]
    assert len(shares) == 15
    assert all(shares)
