"""Settings: sections of switches and choices, and the facts about the phone."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps.settings import CHOICES, FACTS, SECTIONS, SWITCHES
from support.sims import Finger

PREFS = "settings.pref"
EVERY_SWITCH = [(section, name) for section, names in SWITCHES.items() for name in names]
EVERY_CHOICE = [(section, name) for section, names in CHOICES.items() for name in names]


def test_the_first_screen_leads_to_every_section_and_back() -> None:
    finger = Finger("settings")
    assert set(finger.ids()) == {f"section:{name}" for name in SECTIONS}
    for name in SECTIONS:
        finger.tap(f"section:{name}")
        assert finger.screen == f"settings/{name}"
        finger.back()
    assert finger.changes() == []


@pytest.mark.parametrize(("section", "name"), EVERY_SWITCH)
def test_a_switch_shows_its_state_and_turns_it_round(section: str, name: str) -> None:
    finger = Finger("settings", section)
    before = finger.table(PREFS)[name]["on"]
    assert finger.widgets()[name].checked is before
    finger.tap(name)
    assert finger.changes() == [(PREFS, {"on": not before})]
    assert finger.widgets()[name].checked is not before
    assert finger.tap(name).changes() == []


@pytest.mark.parametrize(("section", "name"), EVERY_CHOICE)
def test_a_choice_is_made_in_a_dialog_that_closes(section: str, name: str) -> None:
    finger = Finger("settings", section).tap(name)
    now = finger.table(PREFS)[name]["choice"]
    options = CHOICES[section][name][1]
    assert [finger.text(id) for id in finger.ids()] == list(options)
    assert [finger.text(id) for id in finger.ids() if finger.widgets()[id].checked] == [now]
    other = next(option for option in options if option != now)
    finger.tap(f"option:{other}")
    assert finger.changes() == [(PREFS, {"choice": other})]
    assert finger.screen == f"settings/{section}"
    assert finger.widgets()[name].detail == other


def test_choosing_what_is_chosen_changes_nothing() -> None:
    finger = Finger("settings", "sound")
    finger.tap("ringtone", f"option:{finger.table(PREFS)['ringtone']['choice']}")
    assert finger.changes() == []


def test_leaving_a_choice_by_back_changes_nothing() -> None:
    finger = Finger("settings", "sound").tap("ringtone").back()
    assert (finger.screen, finger.changes()) == ("settings/sound", [])


def test_the_phone_tells_its_facts() -> None:
    finger = Finger("settings", "about")
    assert {name: finger.text(name) for name in FACTS} == {
        name: fact["value"] for name, fact in finger.table("settings.fact").items()
    }


def test_phones_differ_in_switches_and_facts() -> None:
    phones = [Finger("settings", phone=number) for number in range(8)]
    assert len({str(finger.table(PREFS)) for finger in phones}) == 8
    assert len({str(finger.table("settings.fact")["serial"]) for finger in phones}) == 8


def test_the_switches_of_one_section_are_on_no_other() -> None:
    owners = {name: section for section, name in EVERY_SWITCH}
    for section in SWITCHES:
        shown = set(Finger("settings", section).ids()) & owners.keys()
        assert {owners[name] for name in shown} == {section}
