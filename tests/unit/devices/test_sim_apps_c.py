"""Maps, the app store, music, files and photos, touched the way a finger would."""

from __future__ import annotations

import random

import pytest

from distrl.config.schema import WildConfig
from distrl.devices.sim import places
from distrl.devices.sim.apps import APPS
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, put
from distrl.devices.sim.world import start_state
from distrl.types import Action, Goal, LongPress, Press, Showing, Split, Swipe, Tap, Task, TypeText

MINE = ("files", "maps", "music", "photos", "store")
WILD = WildConfig(popup_rate=0.1, slow_rate=0.1, update_rate=0.5)


def task_on(start: Showing, phone: int = 3, split: Split = "train") -> Task:
    return Task(
        id="t", suite="t", template="t", split=split, instruction="t", phone=phone, seed=phone, goal=Goal(), start=start
    )


def phone(app: str, screen: str = "home", **args: str) -> PhoneState:
    """A phone that shows a screen and has been allowed everything."""
    state = start_state(task_on(Showing(app=app, screen=screen, args=args)))
    for id in ("Maps.location", "Files.files"):
        state = put(state, "system.permission", id, allowed=True)
    return state


def act(state: PhoneState, action: Action) -> PhoneState:
    outcome = perform(state, show(state), action)
    assert outcome.valid, outcome.why
    return outcome.state


def tap(state: PhoneState, *ids: str, hold: bool = False) -> PhoneState:
    """Touch these one after the other, scrolling down to them."""
    for id in ids:
        for _ in range(8):
            found = {element.resource_id: element.bounds.centre for element in elements_of(show(state), state.focus)}
            if id in found:
                break
            state = act(state, Swipe(0.5, 0.6, 0.5, 0.25))
        state = act(state, LongPress(*found[id]) if hold else Tap(*found[id]))
    return state


def enter(state: PhoneState, field: str, text: str) -> PhoneState:
    return act(act(tap(state, field), TypeText(text)), Press("enter"))


def texts(state: PhoneState) -> dict[str, str]:
    return {element.resource_id: element.text for element in elements_of(show(state), state.focus)}


def first(state: PhoneState, table: str, **fields: object) -> str:
    rows = state.tables[table].items()
    return next(id for id, row in rows if all(row[name] == value for name, value in fields.items()))


def test_maps_asks_for_the_location_once() -> None:
    state = act(start_state(task_on(Showing(app="maps", screen="home"))), Press("home"))
    while "app:maps" not in texts(state):
        state = act(state, Swipe(0.8, 0.45, 0.2, 0.45))
    state = tap(state, "app:maps", "permission:allow", "kind:Hotel")
    assert (state.place.app, state.place.screen) == ("maps", "results")


def test_a_place_is_found_by_name_whatever_the_case_and_can_be_saved() -> None:
    state = phone("maps")
    id = first(state, "maps.place", saved=False)
    name = str(state.tables["maps.place"][id]["name"])
    state = tap(enter(state, "search", name.upper()), f"place:{id}", "save")
    assert state.tables["maps.place"][id]["saved"] is True


def test_directions_start_by_the_chosen_way_and_say_how_long_it_takes() -> None:
    state = tap(phone("maps", "place", place="p3"), "directions", "mode:walk")
    assert texts(state)["time"] == f"{12 * int(state.tables['maps.place']['p3']['km']) + 1} min"
    state = tap(state, "start")
    assert state.tables["maps.trip"]["now"] == {"place": "p3", "mode": "walk"}
    assert tap(state, "stop").tables["maps.trip"]["now"]["place"] == ""


def test_a_search_that_finds_nothing_says_so() -> None:
    for app, way in (("maps", ()), ("store", ()), ("music", ("find",)), ("files", ("find",))):
        assert "nothing" in texts(enter(tap(phone(app), *way), "search", "Nowhere At All")), app


def test_an_app_is_installed_only_after_a_yes() -> None:
    state = phone("store")
    id = first(state, "store.app", installed=False)
    asked = tap(phone("store", "item", item=id), "install")
    assert tap(asked, "confirm:no").tables["store.app"][id]["installed"] is False
    done = tap(asked, "confirm:yes")
    assert done.tables["store.app"][id]["installed"] is True
    assert "uninstall" in texts(done)


def test_updating_everything_empties_the_list_of_updates() -> None:
    state = tap(put(phone("store"), "store.app", "a1", installed=True, stale=True), "tab:updates")
    assert "item:a1" in texts(state)
    state = tap(state, "update:all")
    assert not any(item["stale"] for item in state.tables["store.app"].values())
    assert "nothing" in texts(state)


def test_a_new_playlist_can_take_a_song_once() -> None:
    state = enter(tap(phone("music"), "tab:playlists", "new"), "name", "Test Mix")
    list_id = first(state, "music.playlist", name="Test Mix")
    for _ in range(2):
        state = tap(state, "tab:home", "song:s20", "add", f"to:{list_id}")
        state = act(state, Press("back"))
    title = state.tables["music.song"]["s20"]["title"]
    assert list(state.tables["music.entry"].values()).count({"playlist": "Test Mix", "song": title}) == 1


def test_deleting_a_playlist_takes_its_entries_along() -> None:
    state = phone("music")
    name = state.tables["music.playlist"]["l2"]["name"]
    state = tap(state, "tab:playlists", "list:l2", "delete", "confirm:yes")
    assert "l2" not in state.tables["music.playlist"]
    assert all(entry["playlist"] != name for entry in state.tables["music.entry"].values())
    assert state.place.screen == "playlists"


def test_playing_opens_a_player_that_can_pause() -> None:
    state = tap(phone("music"), "tab:albums", "album:b2", "play")
    assert state.tables["music.player"]["now"]["playing"] is True
    assert tap(state, "toggle").tables["music.player"]["now"]["playing"] is False


def test_a_file_is_renamed_by_typing_and_enter() -> None:
    state = enter(tap(phone("files", "file", file="f4"), "rename"), "name", "Fresh name")
    assert state.tables["files.file"]["f4"]["name"] == "Fresh name"
    assert state.place.screen == "file"


def test_an_empty_name_changes_nothing() -> None:
    state = tap(phone("files"), "new")
    assert tap(state, "name:save").tables is state.tables


def test_holding_a_file_offers_to_delete_it_and_stays_in_the_list() -> None:
    state = enter(tap(phone("files"), "find"), "search", str(phone("files").tables["files.file"]["f4"]["name"]))
    state = tap(tap(state, "file:f4", hold=True), "menu:erase", "confirm:yes")
    assert "f4" not in state.tables["files.file"]
    assert state.place.screen == "results"


def test_sorting_by_size_puts_the_largest_file_first() -> None:
    state = phone("files")
    state = tap(state, f"folder:{first(state, 'files.folder', name='Downloads')}", "sort", "by:size")
    inside = [file for file in state.tables["files.file"].values() if file["folder"] == "Downloads"]
    shown = [element.text for element in elements_of(show(state), "") if element.resource_id.startswith("file:")]
    assert shown[0] == max(inside, key=lambda file: int(file["size"]))["name"]


def test_the_busy_folder_is_longer_than_a_screen() -> None:
    state = phone("files")
    assert show(tap(state, f"folder:{first(state, 'files.folder', name='Downloads')}")).overflow > 0


def test_a_picture_goes_to_a_new_album_and_to_a_screen_nearby() -> None:
    state = enter(tap(phone("photos"), "tab:albums", "new"), "name", "Fresh album")
    album = first(state, "photos.album", name="Fresh album")
    state = tap(state, "tab:home", "photo:i15", "move", f"to:{album}", "share", "send:Old laptop")
    assert state.tables["photos.photo"]["i15"]["album"] == "Fresh album"
    assert [sent["to"] for sent in state.tables["photos.sent"].values()] == ["Old laptop"]


def test_deleting_a_picture_leaves_its_page() -> None:
    state = tap(phone("photos"), "photo:i2", "delete", "confirm:yes")
    assert "i2" not in state.tables["photos.photo"]
    assert state.place.screen == "home"


@pytest.mark.parametrize("name", [name for name, pool in vars(places).items() if name.isupper() and len(pool) >= 20])
def test_pools_hold_distinct_names_that_can_be_typed(name: str) -> None:
    pool = vars(places)[name]
    assert len({entry.casefold() for entry in pool}) == len(pool)
    assert all(entry and entry.replace(" ", "").isalpha() for entry in pool)


def test_held_out_names_stay_off_training_phones() -> None:
    for number in range(20):
        shown = {
            str(song["title"])
            for song in start_state(task_on(Showing(app="music", screen="home"), number)).tables["music.song"].values()
        }
        assert not shown & set(places.SONGS[-len(places.SONGS) // 5 :])


@pytest.mark.parametrize("app", MINE)
def test_no_series_of_touches_breaks_an_app(app: str) -> None:
    monkey, seen = random.Random(app), set()
    for number in range(6):
        home = state = start_state(task_on(Showing(app=app, screen="home"), number, "test"), WILD)
        for _ in range(150):
            screen = show(state)
            seen.add(state.place.screen)
            state = perform(state, screen, _any_action(monkey, state)).state
            state = home if state.place.app == "launcher" else state
    assert len(seen & APPS[app].screens.keys()) > len(APPS[app].screens) // 2


def _any_action(monkey: random.Random, state: PhoneState) -> Action:
    centre = monkey.choice(elements_of(show(state), state.focus)).bounds.centre
    actions: list[Action] = [Tap(*centre), LongPress(*centre), Press("back"), Swipe(0.5, 0.6, 0.5, 0.25)]
    actions += [Tap(*centre)] * 5
    if state.focus:
        actions += [TypeText("Old"), Press("enter")] * 5
    return monkey.choice(actions)
