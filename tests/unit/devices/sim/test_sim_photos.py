"""Photos: pictures that are marked, moved, renamed, sent and deleted."""

from __future__ import annotations

import pytest

from distrl.devices.sim.content_pools import ALBUMS, SCREENS_NEARBY
from distrl.devices.sim.state import put
from support.sims import Finger

PHOTO, ALBUM, SENT = "photos.photo", "photos.album", "photos.sent"


def test_all_pictures_are_shown_as_cards() -> None:
    finger = Finger("photos")
    assert set(finger.ids("photo:")) == {f"photo:{id}" for id in finger.table(PHOTO)}
    assert {finger.widgets()[id].kind for id in finger.ids("photo:")} == {"card"}


def test_an_album_holds_its_pictures() -> None:
    finger = Finger("photos").tap("tab:albums")
    assert {finger.text(id) for id in finger.ids("album:")} == set(ALBUMS)
    for id in finger.ids("album:"):
        name = finger.text(id)
        finger.tap(id)
        inside = {id for id, photo in finger.table(PHOTO).items() if photo["album"] == name}
        assert {id.removeprefix("photo:") for id in finger.ids("photo:")} == inside
        finger.back()


def test_a_picture_tells_date_town_and_album() -> None:
    finger = Finger("photos", "photo", photo="i3")
    photo = finger.table(PHOTO)["i3"]
    assert [finger.text(name) for name in ("taken", "town", "album")] == [
        photo["taken"],
        photo["town"],
        photo["album"],
    ]


def test_a_heart_puts_a_picture_on_the_tab() -> None:
    finger = Finger("photos")
    id = finger.first(PHOTO, liked=False)
    finger.tap(f"photo:{id}", "like")
    assert finger.changes() == [(PHOTO, {**finger.start.tables[PHOTO][id], "liked": True})]
    assert f"photo:{id}" in finger.back().tap("tab:liked").ids()


def test_no_favourites_are_said_to_be_none() -> None:
    finger = Finger("photos")
    for id in finger.table(PHOTO):
        finger.state = put(finger.state, PHOTO, id, liked=False)
    assert "nothing" in finger.tap("tab:liked").ids()


def test_a_caption_is_edited() -> None:
    finger = Finger("photos", "photo", photo="i3").tap("caption")
    assert finger.text("name") == finger.table(PHOTO)["i3"]["name"]
    finger.enter("name", "Better words")
    assert finger.changes() == [(PHOTO, {**finger.start.tables[PHOTO]["i3"], "name": "Better words"})]
    assert finger.title == "Better words"


def test_a_picture_moves_to_another_album() -> None:
    finger = Finger("photos", "photo", photo="i3").tap("move")
    other = next(id for id in finger.ids("to:") if finger.text(id) != finger.table(PHOTO)["i3"]["album"])
    name = finger.text(other)
    finger.tap(other)
    assert finger.changes() == [(PHOTO, {**finger.start.tables[PHOTO]["i3"], "album": name})]
    assert finger.text("album") == name


def test_a_picture_can_go_to_an_album_that_was_just_made() -> None:
    finger = Finger("photos").tap("tab:albums", "new").enter("name", "Fresh album")
    made = finger.made(ALBUM)
    finger.tap("tab:home", "photo:i15", "move", f"to:{made}")
    assert finger.table(PHOTO)["i15"]["album"] == "Fresh album"
    assert finger.open("photos").tap("tab:albums", f"album:{made}").ids("photo:") == ["photo:i15"]


def test_a_new_album_needs_a_name_and_is_empty() -> None:
    finger = Finger("photos").tap("tab:albums", "new", "name:save")
    assert finger.changes() == []
    finger.enter("name", "Fresh album")
    assert finger.changes() == [(ALBUM, {"name": "Fresh album"})]
    assert "nothing" in finger.tap(f"album:{finger.made(ALBUM)}").ids()


@pytest.mark.parametrize("screen", SCREENS_NEARBY[:3])
def test_a_picture_is_sent_to_a_screen_nearby(screen: str) -> None:
    finger = Finger("photos", "photo", photo="i3").tap("share", f"send:{screen}")
    assert finger.changes() == [(SENT, {"photo": finger.table(PHOTO)["i3"]["name"], "to": screen})]
    assert finger.screen == "photos/photo"


def test_sending_twice_is_two_records() -> None:
    finger = Finger("photos", "photo", photo="i3")
    for screen in SCREENS_NEARBY[:2]:
        finger.tap("share", f"send:{screen}")
    assert [sent["to"] for sent in finger.table(SENT).values()] == list(SCREENS_NEARBY[:2])


def test_a_picture_goes_with_its_page_after_a_yes() -> None:
    finger = Finger("photos").tap("photo:i2", "delete", "confirm:no")
    assert (finger.screen, finger.changes()) == ("photos/photo", [])
    finger.tap("delete", "confirm:yes")
    assert (finger.screen, finger.changes()) == ("photos/home", [(PHOTO, None)])
    assert "photo:i2" not in finger.ids()
