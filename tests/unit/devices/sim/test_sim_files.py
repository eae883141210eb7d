"""Files: folders, sorting, search, and files that are renamed, moved, starred and deleted."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps.files import BUSY, in_order
from distrl.devices.sim.content_pools import FOLDERS
from distrl.devices.sim.state import put
from distrl.types import Press
from support.sims import Finger

FILE, FOLDER, PREFS = "files.file", "files.folder", "files.pref"


def folder_id(finger: Finger, name: str) -> str:
    return finger.first(FOLDER, name=name)


def shown_files(finger: Finger) -> list[str]:
    return [id.removeprefix("file:") for id in finger.ids("file:")]


def test_every_folder_is_listed_and_opens() -> None:
    finger = Finger("files")
    assert {finger.text(id) for id in finger.ids("folder:")} == set(FOLDERS)
    for id in finger.ids("folder:"):
        name = finger.text(id)
        finger.tap(id)
        assert finger.title == name
        inside = {id for id, file in finger.table(FILE).items() if file["folder"] == name}
        assert set(shown_files(finger)) == inside
        finger.back()


def test_the_busy_folder_is_longer_than_a_screen() -> None:
    finger = Finger("files")
    assert finger.tap(f"folder:{folder_id(finger, BUSY)}").shown.overflow > 0


@pytest.mark.parametrize(("by", "first"), [("name", min), ("size", max), ("changed", max)])
def test_a_folder_is_sorted_from_a_or_from_the_top(by: str, first) -> None:
    finger = Finger("files")
    finger.tap(f"folder:{folder_id(finger, BUSY)}", "sort", f"by:{by}")
    values = [finger.table(FILE)[id][by] for id in shown_files(finger)]
    assert values[0] == first(values)
    assert values == sorted(values, reverse=by != "name")


def test_the_order_is_kept_for_all_folders_and_is_no_side_effect() -> None:
    finger = Finger("files")
    one, other = finger.ids("folder:")[:2]
    finger.tap(one, "sort", "by:size").back().tap(other, "sort")
    assert [id for id in finger.ids("by:") if finger.widgets()[id].checked] == ["by:size"]
    assert finger.changes() == []


def test_sizes_and_dates_leave_one_largest_and_one_newest_file() -> None:
    for number in range(10):
        files = list(Finger("files", phone=number).table(FILE).items())
        for by in ("size", "changed"):
            in_folder = [entry for entry in files if entry[1]["folder"] == BUSY]
            best = [record[by] for _, record in in_order(in_folder, by)]
            assert best[0] != best[1]


def test_an_empty_folder_says_so() -> None:
    finger = Finger("files").tap("new").enter("name", "Fresh")
    finger.tap(f"folder:{finger.made(FOLDER)}")
    assert "nothing" in finger.ids()
    assert finger.ids("file:") == []


def test_a_new_folder_needs_a_name() -> None:
    finger = Finger("files").tap("new", "name:save")
    assert (finger.screen, finger.changes()) == ("files/new", [])
    finger.type("name", "Fresh").tap("name:save")
    assert finger.changes() == [(FOLDER, {"name": "Fresh"})]
    assert finger.screen == "files/home"


def test_a_file_tells_type_size_date_and_folder() -> None:
    finger = Finger("files", "file", file="f4")
    file = finger.table(FILE)["f4"]
    assert finger.title == file["name"]
    assert [finger.text(name) for name in ("kind", "size", "changed", "folder")] == [
        file["kind"],
        f"{file['size']} KB",
        file["changed"],
        file["folder"],
    ]


@pytest.mark.parametrize("by_enter", [True, False])
def test_a_file_is_renamed_by_enter_or_by_the_button(by_enter: bool) -> None:
    finger = Finger("files", "file", file="f4").tap("rename")
    assert finger.text("name") == finger.table(FILE)["f4"]["name"]
    if by_enter:
        finger.enter("name", "Fresh name")
    else:
        finger.type("name", "Fresh name").tap("name:save")
    assert finger.changes() == [(FILE, {**finger.start.tables[FILE]["f4"], "name": "Fresh name"})]
    assert (finger.screen, finger.title) == ("files/file", "Fresh name")


def test_a_file_moves_to_another_folder() -> None:
    finger = Finger("files", "file", file="f4").tap("move")
    now = finger.table(FILE)["f4"]["folder"]
    assert [finger.text(id) for id in finger.ids("to:") if finger.widgets()[id].checked] == [now]
    other = next(id for id in finger.ids("to:") if finger.text(id) != now)
    name = finger.text(other)
    finger.tap(other)
    assert finger.changes() == [(FILE, {**finger.start.tables[FILE]["f4"], "folder": name})]
    assert finger.text("folder") == name


def test_a_file_can_move_to_a_folder_that_was_just_made() -> None:
    finger = Finger("files").tap("new").enter("name", "Fresh")
    made = finger.made(FOLDER)
    finger.tap("find").enter("search", str(finger.table(FILE)["f4"]["name"])).tap("file:f4", "move", f"to:{made}")
    assert finger.table(FILE)["f4"]["folder"] == "Fresh"


def test_a_star_puts_a_file_on_the_starred_list() -> None:
    finger = Finger("files")
    id = finger.first(FILE, starred=False)
    finger = Finger("files", "file", file=id).tap("star")
    assert finger.changes() == [(FILE, {**finger.start.tables[FILE][id], "starred": True})]
    finger.open("files").tap("starred")
    starred = {id for id, file in finger.table(FILE).items() if file["starred"]}
    assert set(shown_files(finger)) == starred


def test_no_starred_files_are_said_to_be_none() -> None:
    finger = Finger("files")
    for id in finger.table(FILE):
        finger.state = put(finger.state, FILE, id, starred=False)
    assert "nothing" in finger.tap("starred").ids()


def test_a_search_finds_parts_of_names_in_all_folders() -> None:
    finger = Finger("files")
    name = str(finger.table(FILE)["f4"]["name"])
    finger.tap("find").enter("search", name[1:].upper())
    assert "file:f4" in finger.ids()
    assert all(name[1:].casefold() in finger.text(id).casefold() for id in finger.ids("file:"))
    assert "nothing" in finger.back().enter("search", "Nowhere At All").ids()


def test_a_search_for_nothing_goes_nowhere() -> None:
    finger = Finger("files").tap("find", "search")
    assert finger.act(Press("enter")).valid
    assert finger.screen == "files/search"


def test_a_file_goes_with_its_page_after_a_yes() -> None:
    finger = Finger("files")
    finger.tap(f"folder:{folder_id(finger, str(finger.table(FILE)['f4']['folder']))}", "file:f4", "delete")
    finger.tap("confirm:no")
    assert (finger.screen, finger.changes()) == ("files/file", [])
    finger.tap("delete", "confirm:yes")
    assert (finger.screen, finger.changes()) == ("files/folder", [(FILE, None)])


def test_holding_a_file_offers_the_same_over_the_list() -> None:
    finger = Finger("files").tap("find").enter("search", str(Finger("files").table(FILE)["f4"]["name"]))
    finger.hold("file:f4")
    assert set(finger.ids()) == {"menu:rename", "menu:move", "menu:erase"}
    finger.tap("menu:erase", "confirm:yes")
    assert (finger.screen, finger.changes()) == ("files/results", [(FILE, None)])


def test_a_file_renamed_from_its_menu_leads_back_to_the_list() -> None:
    finger = Finger("files")
    finger.tap(f"folder:{folder_id(finger, str(finger.table(FILE)['f4']['folder']))}")
    finger.hold("file:f4").tap("menu:rename").enter("name", "Fresh name")
    assert finger.screen == "files/folder"
    assert finger.table(FILE)["f4"]["name"] == "Fresh name"
