"""Tasks solved in other ways than the oracle's: the judge looks at what is so in the end, and at nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distrl.devices.sim.apps.browser import SITES
from distrl.devices.sim.apps.shop import SHOPS, Shop
from distrl.types import Task
from support.sims import Finger, allowed, answer_of, finger_on, tasks_of, verdict_on, wants_of

Way = Callable[[Finger, Task], None]


def want(task: Task, number: int = 0) -> tuple[str, dict[str, str]]:
    """Id and fields of something that the task asks for."""
    wanted = wants_of(task)[number]
    return wanted.id, {name: str(value) for name, value in wanted.fields.items()}


def record(finger: Finger, table: str, id: str, field: str = "name") -> str:
    return str(finger.table(table)[id][field])


def shop_of(task: Task) -> Shop:
    key = wants_of(task)[0].table.split(".")[0]
    return next(shop for shop in SHOPS if shop.key == key)


def enter_shop(finger: Finger, task: Task) -> Shop:
    """Into the shop by its address, past the banners."""
    shop = shop_of(task)
    finger.open("browser").enter("address", SITES[shop.key][1])
    while "popup:close" in finger.ids():
        finger.tap("popup:close")
    return shop


# --- everyday apps --------------------------------------------------------------------------------------------------


def call_by_search(finger: Finger, task: Task) -> None:
    who = want(task)[1]["who"]
    finger.open("contacts").type("search", who).tap(finger.ids("person:")[0], "call", "hang-up")


def favourite_by_search(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("contacts").type("search", record(finger, "contacts.person", id)).tap(f"person:{id}", "favourite")


def message_from_the_other_app(finger: Finger, task: Task) -> None:
    _, fields = want(task)
    finger.open("messages").tap("new").type("to", fields["to"]).enter("text", fields["text"])


def mute_from_inside(finger: Finger, task: Task) -> None:
    finger.open("messages").tap(f"thread:{want(task)[0]}", "more", "mute")


def archive_by_search(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("mail").tap("find").type("query", record(finger, "mail.mail", id, "subject"))
    finger.tap(f"mail:{id}", "archive")


def delete_event_by_search(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("calendar").type("search", record(finger, "calendar.event", id, "title"))
    finger.tap(f"event:{id}", "delete", "confirm:yes")


def event_after_a_detour(finger: Finger, task: Task) -> None:
    _, fields = want(task)
    finger.open("calendar").tap("new", "day", f"option:{fields['day']}", "time", "option:08:00")
    finger.tap("time", f"option:{fields['time']}").type("title", "Something").type("title", fields["title"]).tap("save")


def city_without_search(finger: Finger, task: Task) -> None:
    finger.open("clock").tap("tab:world", "add", f"add:{want(task)[0]}")


def pin_twice_and_once_more(finger: Finger, task: Task) -> None:
    finger.open("notes").tap(f"note:{want(task)[0]}", "pin", "pin", "pin").home()


def note_in_two_goes(finger: Finger, task: Task) -> None:
    _, fields = want(task)
    finger.open("notes").tap("new").type("title", fields["title"]).tap("save")
    finger.tap(f"note:{finger.made('notes.note')}", "edit").type("text", fields["text"]).tap("save")


def item_and_back(finger: Finger, task: Task) -> None:
    _, fields = want(task)
    finger.open("notes").tap(f"note:{fields['note']}").enter("item", fields["text"]).back()


# --- files, maps, music, photos and the store -----------------------------------------------------------------------


def move_from_the_menu(finger: Finger, task: Task) -> None:
    id, fields = want(task)
    finger.open("files").tap("find").enter("search", record(finger, "files.file", id))
    finger.hold(f"file:{id}").tap("menu:move", f"to:{finger.first('files.folder', name=fields['folder'])}")


def delete_from_the_menu(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("files").tap("find").enter("search", record(finger, "files.file", id))
    finger.hold(f"file:{id}").tap("menu:erase", "confirm:yes")


def save_from_the_list(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("maps").tap(f"kind:{record(finger, 'maps.place', id, 'kind')}", f"place:{id}", "save")


def like_from_the_album(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    album = record(finger, "music.song", id, "album")
    finger.open("music").tap("tab:albums", f"album:{finger.first('music.album', name=album)}", f"song:{id}", "like")


def move_picture_from_the_first_screen(finger: Finger, task: Task) -> None:
    id, fields = want(task)
    finger.open("photos").tap(f"photo:{id}", "move", f"to:{finger.first('photos.album', name=fields['album'])}")


def install_by_search(finger: Finger, task: Task) -> None:
    id, _ = want(task)
    finger.open("store").enter("search", record(finger, "store.app", id)).tap(f"item:{id}", "install", "confirm:yes")


def remove_from_my_apps(finger: Finger, task: Task) -> None:
    finger.open("store").tap("tab:installed", f"item:{want(task)[0]}", "uninstall", "confirm:yes")


# --- shops ----------------------------------------------------------------------------------------------------------


def add_from_the_category(finger: Finger, task: Task) -> None:
    shop, (id, _) = enter_shop(finger, task), want(task)
    category = record(finger, shop.table("product"), id, "category")
    finger.tap(f"category:{category}", f"product:{id}", "add")


def add_and_correct_the_number(finger: Finger, task: Task) -> None:
    """One is added first, and its line brought to the right number in the cart."""
    shop, (id, fields) = enter_shop(finger, task), want(task)
    count = int(fields["quantity"])
    finger.enter("search", record(finger, shop.table("product"), id)).tap(f"product:{id}", "add")
    finger.tap(*(("cart",) if shop.inline else ("to-cart",)), f"line:{id}")
    finger.tap(*(["more"] * (count - 1) if shop.inline else [f"quantity:{count}"]))


def wish_after_a_change_of_mind(finger: Finger, task: Task) -> None:
    shop, (id, _) = enter_shop(finger, task), want(task)
    finger.enter("search", record(finger, shop.table("product"), id)).tap(f"product:{id}", "wish", "wish", "wish")


def address_from_the_account(finger: Finger, task: Task) -> None:
    enter_shop(finger, task)
    finger.tap("tab:account", "address", f"address:{want(task)[1]['choice']}")


BY_HAND: dict[str, Way] = {
    "contacts-call": call_by_search,
    "contacts-favourite": favourite_by_search,
    "contacts-message": message_from_the_other_app,
    "messages-reply": message_from_the_other_app,
    "messages-mute": mute_from_inside,
    "mail-archive": archive_by_search,
    "calendar-delete": delete_event_by_search,
    "calendar-new": event_after_a_detour,
    "clock-add-city": city_without_search,
    "notes-pin": pin_twice_and_once_more,
    "notes-new": note_in_two_goes,
    "notes-add-item": item_and_back,
    "files-move": move_from_the_menu,
    "files-delete": delete_from_the_menu,
    "maps-save-place": save_from_the_list,
    "music-like-song": like_from_the_album,
    "photos-move": move_picture_from_the_first_screen,
    "store-install": install_by_search,
    "store-uninstall": remove_from_my_apps,
    "add-to-cart": add_from_the_category,
    "add-several": add_and_correct_the_number,
    "wish": wish_after_a_change_of_mind,
    "set-usual-address": address_from_the_account,
}


@pytest.mark.parametrize("template", BY_HAND)
def test_another_way_leads_to_the_same_success(template: str) -> None:
    for task in tasks_of(template):
        finger = Finger(state=allowed(finger_on(task).state))
        BY_HAND[template](finger, task)
        verdict = verdict_on(task, finger.finish().state)
        assert verdict.success, (task.instruction, verdict)


@pytest.mark.parametrize("template", BY_HAND)
def test_the_same_way_with_the_wrong_claim_is_a_failure(template: str) -> None:
    task = tasks_of(template)[0]
    finger = Finger(state=allowed(finger_on(task).state))
    BY_HAND[template](finger, task)
    assert not verdict_on(task, finger.finish("impossible").state).success


@pytest.mark.parametrize("template", ["contacts-ask-phone", "mail-ask-sender", "clock-ask-city", "ask-points"])
def test_an_answer_that_is_right_needs_no_look(template: str) -> None:
    """The judge cannot tell knowing from guessing; hindsight is stricter."""
    for task in tasks_of(template):
        finger = finger_on(task).finish(answer=answer_of(task))
        assert verdict_on(task, finger.state).success


def test_doing_it_twice_is_a_side_effect() -> None:
    task = tasks_of("contacts-call")[0]
    finger = finger_on(task)
    call_by_search(finger, task)
    finger.tap("call")
    assert verdict_on(task, finger.finish().state).side_effects == ("contacts.call/c2 ('Jonas Holm') was made",)


def test_doing_it_for_someone_else_is_two_failures_in_one() -> None:
    task = tasks_of("contacts-favourite")[0]
    finger = finger_on(task).open("contacts")
    other = next(id for id in finger.ids("person:") if id != f"person:{want(task)[0]}")
    finger.tap(other, "favourite")
    verdict = verdict_on(task, finger.finish().state)
    assert (verdict.success, verdict.progress, len(verdict.side_effects)) == (False, 0.0, 1)
