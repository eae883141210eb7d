"""How an app is declared, what its screens read, and the effects that widgets have."""

from __future__ import annotations

from msgspec.structs import replace

from distrl.devices.sim.app import (
    App,
    Seeder,
    Ui,
    back,
    do,
    erase,
    flip,
    focus,
    go,
    pop,
    push,
    swap,
    write,
)
from distrl.devices.sim.state import Perturbations, PhoneState, Place
from distrl.devices.sim.widgets import View, button, label
from distrl.devices.sim.world import HOME

POOL = tuple(f"name {number}" for number in range(20))
NOTES = Place(app="notes", screen="home")


def a_phone(*places: Place, perturbations: Perturbations = Perturbations(), tick: int = 0) -> PhoneState:  # noqa: B008
    tables = {"lamp": {"desk": {"on": False, "colour": "red"}}}
    return PhoneState(seed=1, tables=tables, stack=(HOME, *places), perturbations=perturbations, tick=tick)


def ui_of(state: PhoneState) -> Ui:
    return Ui(state, state.place)


# --- first content --------------------------------------------------------------------------------------------------


def test_the_last_fifth_of_a_pool_is_left_to_test_phones() -> None:
    drawn = {name for seed in range(60) for name in Seeder(seed, held_out=False).sample(POOL, 8)}
    assert drawn == set(POOL[:16])
    drawn = {name for seed in range(60) for name in Seeder(seed, held_out=True).sample(POOL, 8)}
    assert drawn == set(POOL)


def test_a_sample_has_no_entry_twice_and_no_more_than_there_are() -> None:
    seeder = Seeder(3, held_out=False)
    assert len(set(seeder.sample(POOL, 10))) == 10
    assert sorted(seeder.sample(POOL, 100)) == sorted(POOL[:16])


def test_a_short_pool_holds_nothing_back() -> None:
    assert set(Seeder(0, held_out=False).sample(("a", "b", "c"), 3)) == {"a", "b", "c"}


def test_the_same_seed_draws_the_same() -> None:
    assert Seeder(5, held_out=False).sample(POOL, 6) == Seeder(5, held_out=False).sample(POOL, 6)
    assert Seeder(5, held_out=False).sample(POOL, 6) != Seeder(6, held_out=False).sample(POOL, 6)


def test_one_entry_is_drawn_as_a_sample_of_one() -> None:
    assert Seeder(5, held_out=False).choose(POOL) == Seeder(5, held_out=False).sample(POOL, 1)[0]


# --- declarations ---------------------------------------------------------------------------------------------------


def test_an_app_collects_its_screens_and_its_content() -> None:
    app = App("lamps", "Lamps", icon="lamp", colour="#ffffff")
    assert app.seed(Seeder(0, held_out=False)) == {}

    @app.screen("home")
    def home(ui: Ui) -> View:
        return View(title="Lamps", body=())

    @app.content
    def content(seeder: Seeder) -> dict[str, dict[str, dict[str, bool]]]:
        return {"lamps.lamp": {"desk": {"on": True}}}

    assert app.screens == {"home": home}
    assert app.seed is content
    assert app.permission == ""


# --- what a screen reads --------------------------------------------------------------------------------------------


def test_a_screen_reads_tables_records_and_drafts_and_nothing_is_missing() -> None:
    ui = ui_of(a_phone(replace(NOTES, args={"id": "n1"}, drafts={"title": "Tea"})))
    assert ui.table("lamp") == {"desk": {"on": False, "colour": "red"}}
    assert ui.table("no such table") == {}
    assert ui.record("lamp", "desk")["colour"] == "red"
    assert ui.record("lamp", "floor") == {}
    assert ui.record("no such table", "floor") == {}
    assert ui.args == {"id": "n1"}
    assert (ui.draft("title"), ui.draft("text"), ui.draft("text", "default")) == ("Tea", "", "default")


def test_a_variant_decides_wording_and_order() -> None:
    for variant in range(6):
        ui = ui_of(a_phone(NOTES, perturbations=Perturbations(variant=variant)))
        assert ui.pick("a", "b", "c") == "abc"[variant % 3]
        assert ui.pick("only") == "only"
        widgets = (label("1", "one"), label("2", "two"))
        assert ui.arrange(widgets) == (widgets[::-1] if variant % 2 else widgets)


def test_an_update_changes_its_own_app_from_its_moment_on() -> None:
    updated = Perturbations(update_app="notes", update_tick=4)
    assert [ui_of(a_phone(NOTES, perturbations=updated, tick=tick)).version() for tick in (0, 3, 4, 9)] == [0, 0, 1, 1]
    mail = Place(app="mail", screen="home")
    assert ui_of(a_phone(mail, perturbations=updated, tick=9)).version() == 0
    assert ui_of(a_phone(NOTES, perturbations=updated, tick=9)).pick("old", "new") == "new"


def test_a_field_shows_its_draft_or_its_default_and_takes_the_focus() -> None:
    state = a_phone(NOTES)
    field = ui_of(state).field("title", "Title", "Old words")
    assert (field.kind, field.text, field.detail) == ("field", "Old words", "Title")
    assert field.tap is not None
    assert field.tap(state).focus == "title"
    typed = a_phone(replace(NOTES, drafts={"title": "New words"}))
    assert ui_of(typed).field("title", "Title", "Old words").text == "New words"


# --- effects --------------------------------------------------------------------------------------------------------


def test_going_and_coming_back() -> None:
    state = go("notes", "note", id="n1")(a_phone(NOTES))
    assert state.place == Place(app="notes", screen="note", args={"id": "n1"})
    assert back()(state).place == NOTES
    assert back(2)(state).place == HOME
    assert back(9)(state).stack == (HOME,), "the home screen stays"


def test_a_screen_in_place_of_another() -> None:
    state = swap("notes", "edit")(a_phone(NOTES))
    assert [place.screen for place in state.stack] == ["home", "edit"]


def test_moving_between_screens_closes_the_keyboard() -> None:
    typing = focus("title")(a_phone(NOTES))
    assert typing.focus == "title"
    assert push(typing, NOTES).focus == ""
    assert pop(typing).focus == ""
    alone = focus("title")(a_phone())
    assert pop(alone) is alone, "nothing happens on the home screen"


def test_records_are_written_turned_round_and_erased() -> None:
    state = a_phone(NOTES)
    assert write("lamp", "desk", colour="blue")(state).tables["lamp"]["desk"] == {"on": False, "colour": "blue"}
    assert flip("lamp", "desk", "on")(state).tables["lamp"]["desk"]["on"] is True
    assert erase("lamp", "desk")(state).tables["lamp"] == {}
    assert erase("lamp", "floor")(state).tables == state.tables
    assert state.tables["lamp"]["desk"] == {"on": False, "colour": "red"}, "the first state is as it was"


def test_effects_follow_each_other_in_order() -> None:
    state = do(write("lamp", "desk", colour="blue"), flip("lamp", "desk", "on"), go("mail"))(a_phone(NOTES))
    assert state.tables["lamp"]["desk"] == {"on": True, "colour": "blue"}
    assert state.place.app == "mail"
    assert do()(state) is state


def test_a_button_keeps_its_effect() -> None:
    turn_on = button("on", "Turn on", tap=flip("lamp", "desk", "on"))
    assert turn_on.enabled
    assert turn_on.tap is not None
    assert turn_on.tap(a_phone()).tables["lamp"]["desk"]["on"] is True
