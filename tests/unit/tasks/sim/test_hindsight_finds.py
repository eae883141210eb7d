"""Hindsight names the task that was done: for many templates, whatever had been asked for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.devices.sim.world import start_state
from distrl.tasks.sim.hindsight import Hindsight, LeaningDraft, mentioned_in
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import SimSuite
from distrl.types import Finish, Task, Trajectory
from support.sims import (
    TEMPLATES,
    Finger,
    also_made,
    claiming,
    is_impossible,
    phone_of,
    sim_task,
    start_of,
    verdict_on,
    wants_of,
)
from support.strays import drawn_on, stray

FOUND = (
    "settings-switch", "settings-ringtone", "calendar-delete", "clock-alarm-switch", "clock-delete-alarm",
    "clock-add-city", "contacts-call", "contacts-favourite", "contacts-delete", "mail-archive", "messages-delete",
    "messages-mute", "notes-pin", "notes-delete", "files-star", "maps-save-place", "maps-rate-place", "music-like-song",
    "music-play-song", "photos-like", "photos-delete", "store-install", "store-wish", "add-to-cart",
    "wish", "unwish", "cancel-order", "set-usual-address", "show-category",
)  # fmt: skip
CHANCES = 8
"""Names under which an episode is asked about: the name decides what is drawn."""


def strayed(name: str) -> tuple[Task, Task, Trajectory]:
    """An episode that was asked for something and did a task of this template; both tasks and what was recorded."""
    home = suite("sim-shopping") if name in {t.name for t in suite("sim-shopping").templates} else suite("sim-general")
    for index in range(40):
        asked = home.task("train", index)
        done = drawn_on(asked, TEMPLATES[name], index) if asked.template != name and not start_of(asked) else None
        if done is None or start_of(done):
            continue
        if start_state(asked).tables == start_state(replace(done, id=asked.id)).tables:
            return asked, done, stray(asked, done)
    raise AssertionError(f"no training task lies beside {name}")


def found_in(name: str, episode: Trajectory) -> list[Task]:
    hindsight = Hindsight(SimSuite("small", [TEMPLATES[name]], sizes={"train": 50, "tune": 1, "test": 1}))
    return [task for n in range(CHANCES) for task in hindsight.fitting(replace(episode, id=f"episode-{n}"))]


@pytest.mark.parametrize("name", FOUND)
def test_what_was_done_is_found_under_its_own_template(name: str) -> None:
    _, done, episode = strayed(name)
    assert not episode.verdict.success
    found = found_in(name, episode)
    assert found, done.instruction
    for task in found:
        assert task.template == name
        assert wants_of(task) == wants_of(done)
        assert not is_impossible(task)
        assert phone_of(task) == phone_of(episode.task)


@pytest.mark.parametrize("name", FOUND[:12])
def test_what_was_done_is_not_found_once_something_else_was_done_too(name: str) -> None:
    _, _, episode = strayed(name)
    both = also_made(episode, "photos.sent", "extra", photo="none", to="nobody")
    assert found_in(name, both) == []


def test_nothing_is_found_in_a_suite_that_has_no_such_template() -> None:
    _, _, episode = strayed("contacts-call")
    assert found_in("store-wish", episode) == []


# --- leaning towards what is mentioned ------------------------------------------------------------------------------


def test_an_end_state_mentions_what_changed_what_is_shown_and_what_was_answered() -> None:
    _, done, episode = strayed("contacts-favourite")
    (wanted,) = wants_of(done)
    words = mentioned_in(episode.end)
    assert wanted.id in words
    assert {"contacts", "person"} <= words
    assert "tea at nine" in mentioned_in(claiming(episode, Finish(answer="tea at nine")).end)


def test_a_draft_leans_towards_records_that_were_mentioned() -> None:
    finger = Finger("notes")
    id = finger.ids("note:")[5].removeprefix("note:")
    tables = finger.state.tables
    drawn = [LeaningDraft(7, seed, tables, frozenset({id})).row("notes.note")[0] for seed in range(100)]
    assert 80 <= drawn.count(id) < 100, "now and then another one has a chance"
    plain = [LeaningDraft(7, seed, tables, frozenset()).row("notes.note")[0] for seed in range(100)]
    assert plain.count(id) < 30


def test_a_draft_leans_towards_names_and_values_that_were_mentioned() -> None:
    tables = Finger("notes").state.tables
    pool = [f"name {number}" for number in range(40)]

    def drawn(seed: int) -> str:
        return LeaningDraft(7, seed, tables, frozenset({"name 3"})).choose(pool)

    assert sum(drawn(seed) == "name 3" for seed in range(100)) >= 80
    titles = [note["title"] for note in tables["notes.note"].values()]
    leaning = LeaningDraft(7, 1, tables, frozenset({str(titles[4])}))
    picked = [leaning.row("notes.note")[1]["title"] for _ in range(60)]
    assert picked.count(titles[4]) > 40


def test_a_draft_stays_within_what_its_pools_hold() -> None:
    tables = Finger("notes").state.tables
    draft = LeaningDraft(7, 1, tables, frozenset({"nothing like that"}))
    assert draft.choose(["a", "b", "c"]) in {"a", "b", "c"}
    assert draft.random.sample(["a", "b", "c"], 3) != []
    assert sorted(LeaningDraft(7, 2, tables, frozenset({"b"})).random.sample(["a", "b", "c"], 3)) == ["a", "b", "c"]


def test_a_relabelled_episode_is_judged_a_success_on_its_own_phone() -> None:
    _, done, episode = strayed("notes-pin")
    (task, *_) = found_in("notes-pin", episode)
    finger = Finger(state=start_state(task)).open("notes").tap(f"note:{wants_of(done)[0].id}", "pin").finish()
    assert verdict_on(task, finger.state).success
    assert not verdict_on(sim_task("notes"), finger.state).success
