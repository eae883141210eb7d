"""Domain randomisation: pop-ups, slow loads, layout variants and updates, at their rates and from the seed."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.apps import APPS
from distrl.devices.sim.perturbations import VARIANTS, draw_perturbations
from distrl.devices.sim.state import Perturbations
from distrl.devices.sim.world import NO_PERTURBATIONS, start_state
from distrl.types import Wait
from support.sims import Finger, allowed, finger_on, sim_task

ALWAYS = PerturbationConfig(popup_rate=1.0, slow_rate=0.0, update_rate=0.0, variants=False)
SLOW = PerturbationConfig(popup_rate=0.0, slow_rate=1.0, update_rate=0.0, variants=False)


def opened(app: str, config: PerturbationConfig, seed: int = 7) -> Finger:
    """A phone on which someone has just opened an app."""
    return Finger(state=allowed(start_state(sim_task(seed=seed), config))).open(app)


# --- what is drawn --------------------------------------------------------------------------------------------------


def test_a_phone_without_perturbations_has_none() -> None:
    assert all(draw_perturbations(NO_PERTURBATIONS, seed, APPS) == Perturbations() for seed in range(50))


def test_the_seed_alone_decides() -> None:
    config = PerturbationConfig(update_rate=0.5)
    drawn = [draw_perturbations(config, seed, APPS) for seed in range(50)]
    assert drawn == [draw_perturbations(config, seed, APPS) for seed in range(50)]
    assert len({(one.variant, one.update_app, one.update_tick) for one in drawn}) > 20


def test_rates_do_not_disturb_each_other() -> None:
    one = draw_perturbations(PerturbationConfig(popup_rate=0.1, update_rate=1.0), 3, APPS)
    other = draw_perturbations(PerturbationConfig(popup_rate=0.9, update_rate=1.0), 3, APPS)
    assert replace(one, popup_rate=0.9) == other


def test_variants_are_equally_likely_and_can_be_switched_off() -> None:
    count = Counter(draw_perturbations(PerturbationConfig(), seed, APPS).variant for seed in range(1200))
    assert set(count) == set(range(VARIANTS))
    assert all(130 < times < 270 for times in count.values())
    alike = {draw_perturbations(PerturbationConfig(variants=False), seed, APPS).variant for seed in range(50)}
    assert alike == {0}


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_updates_come_at_their_rate_to_some_app_early_in_the_episode(rate: float) -> None:
    drawn = [draw_perturbations(PerturbationConfig(update_rate=rate), seed, APPS) for seed in range(600)]
    updated = [one for one in drawn if one.update_app]
    assert len(updated) / 600 == pytest.approx(rate, abs=0.07)
    assert {one.update_app for one in updated} <= set(APPS)
    assert all(2 <= one.update_tick <= 8 for one in updated)
    assert all(one.update_tick == 0 for one in drawn if not one.update_app)


# --- pop-ups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS)
def test_a_popup_comes_over_an_app_that_is_opened(app: str) -> None:
    finger = opened(app, ALWAYS)
    assert finger.screen == "system/popup"
    assert finger.tap("popup:close").screen == f"{app}/home"


def test_a_popup_comes_with_opening_alone_and_not_with_going_deeper_or_back() -> None:
    finger = opened("notes", ALWAYS).tap("popup:close")
    assert finger.tap("new").screen == "notes/edit"
    assert finger.back().screen == "notes/home"
    assert finger.home().screen == "launcher/home"


def test_all_kinds_of_popups_come() -> None:
    kinds = {opened("notes", ALWAYS, seed).state.place.args["kind"] for seed in range(60)}
    assert kinds == {"rate", "battery", "offer", "update"}


def test_popups_come_at_their_rate() -> None:
    config = PerturbationConfig(popup_rate=0.25, slow_rate=0.0, update_rate=0.0)
    times = sum(opened("notes", config, seed).screen == "system/popup" for seed in range(400))
    assert 70 < times < 130


def test_a_question_for_permission_comes_before_any_popup() -> None:
    finger = finger_on(sim_task(), ALWAYS).open("maps")
    assert finger.screen == "system/permission"
    assert finger.tap("permission:allow").screen == "maps/home"


# --- slow loads -----------------------------------------------------------------------------------------------------


def test_a_slow_screen_loads_for_a_few_moments_and_is_whole_then() -> None:
    finger = opened("notes", SLOW)
    waited = 0
    while finger.shown.loading:
        assert finger.in_sight() == set()
        finger.act(Wait())
        waited += 1
    assert waited in (1, 2)
    assert finger.ids("note:")


def test_both_lengths_of_loading_come() -> None:
    assert {opened("notes", SLOW, seed).state.loading for seed in range(40)} == {1, 2}


def test_slow_loads_come_at_their_rate_also_deeper_in_an_app() -> None:
    config = PerturbationConfig(popup_rate=0.0, slow_rate=0.3, update_rate=0.0)
    times = 0
    for seed in range(300):
        finger = opened("notes", config, seed)
        while finger.shown.loading:
            finger.act(Wait())
        times += finger.tap("new").shown.loading
    assert 60 < times < 120


def test_going_back_never_loads() -> None:
    finger = opened("notes", SLOW)
    while finger.shown.loading:
        finger.act(Wait())
    finger.tap("new")
    while finger.shown.loading:
        finger.act(Wait())
    assert not finger.back().shown.loading


# --- variants and updates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS)
def test_variants_change_words_or_order_and_never_ids(app: str) -> None:
    shown = []
    for variant in range(VARIANTS):
        finger = Finger(app)
        finger.state = replace(finger.state, perturbations=Perturbations(variant=variant))
        assert set(finger.ids()) == set(Finger(app).ids())
        shown.append((finger.title, tuple(finger.ids()), tuple(w.detail + w.text for w in finger.widgets().values())))
    assert len(set(shown)) > 1


def test_an_update_in_the_middle_of_an_episode_changes_the_app_once() -> None:
    finger = Finger("notes")
    finger.state = replace(finger.state, perturbations=Perturbations(update_app="notes", update_tick=3))
    titles = []
    for _ in range(6):
        titles.append(finger.title)
        finger.act(Wait())
    assert titles[:3] == [titles[0]] * 3
    assert titles[3:] == [titles[3]] * 3
    assert titles[0] != titles[3]


def test_perturbations_never_touch_the_content() -> None:
    config = PerturbationConfig(popup_rate=1.0, slow_rate=1.0, update_rate=1.0)
    task = sim_task("notes")
    assert start_state(task, config).tables == start_state(task).tables
