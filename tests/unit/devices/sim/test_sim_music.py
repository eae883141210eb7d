"""Music: songs, albums, playlists and the player."""

from __future__ import annotations

import pytest

from support.sims import Finger

SONG, ALBUM, LIST, ENTRY, PLAYER = "music.song", "music.album", "music.playlist", "music.entry", "music.player"


def test_songs_albums_and_playlists_have_tabs() -> None:
    finger = Finger("music")
    assert len(finger.ids("song:")) == 26
    assert len(finger.tap("tab:albums").ids("album:")) == 7
    assert len(finger.tap("tab:playlists").ids("list:")) == 5
    assert finger.back().state.place.app == "launcher"


def test_an_album_lists_its_songs_alone() -> None:
    finger = Finger("music").tap("tab:albums", "album:b2")
    name = finger.table(ALBUM)["b2"]["name"]
    shown = {id.removeprefix("song:") for id in finger.ids("song:")}
    assert shown == {id for id, song in finger.table(SONG).items() if song["album"] == name}
    assert len(shown) >= 3


def test_a_song_tells_artist_album_and_length() -> None:
    finger = Finger("music", "song", song="s5")
    song = finger.table(SONG)["s5"]
    assert [finger.text(name) for name in ("artist", "album", "length")] == [
        song["artist"],
        song["album"],
        song["length"],
    ]


def test_the_songs_of_an_album_share_its_artist() -> None:
    finger = Finger("music")
    artists = {album["name"]: album["artist"] for album in finger.table(ALBUM).values()}
    assert all(song["artist"] == artists[song["album"]] for song in finger.table(SONG).values())


def test_a_heart_is_given_and_taken_back() -> None:
    finger = Finger("music")
    id = finger.first(SONG, liked=False)
    finger.tap(f"song:{id}", "like")
    assert finger.changes() == [(SONG, {**finger.start.tables[SONG][id], "liked": True})]
    assert finger.tap("like").changes() == []


def test_a_search_finds_titles() -> None:
    finger = Finger("music")
    title = str(finger.table(SONG)["s5"]["title"])
    finger.tap("find").enter("search", title.lower())
    assert "song:s5" in finger.ids()
    assert "nothing" in finger.back().enter("search", "Nowhere At All").ids()


@pytest.mark.parametrize(
    ("way", "kind", "table", "id"),
    [
        (("song:s5", "play"), "song", SONG, "s5"),
        (("tab:albums", "album:b2", "play"), "album", ALBUM, "b2"),
        (("tab:playlists", "list:l2", "play"), "playlist", LIST, "l2"),
    ],
)
def test_playing_opens_the_player(way: tuple[str, ...], kind: str, table: str, id: str) -> None:
    finger = Finger("music").tap(*way)
    name = finger.table(table)[id]["title" if kind == "song" else "name"]
    assert finger.screen == "music/player"
    assert finger.text("now") == name
    assert finger.changes() == [(PLAYER, {"kind": kind, "name": name, "playing": True})]


def test_the_player_pauses_and_resumes() -> None:
    finger = Finger("music", "song", song="s5").tap("play", "toggle")
    assert finger.table(PLAYER)["now"]["playing"] is False
    assert finger.tap("toggle").table(PLAYER)["now"]["playing"] is True


def test_a_silent_player_can_be_opened_too() -> None:
    finger = Finger("music").tap("player")
    assert finger.text("now") == ""
    assert finger.changes() == []


@pytest.mark.parametrize("mode", ["shuffle", "repeat"])
def test_modes_are_switches_of_the_player(mode: str) -> None:
    finger = Finger("music", "player")
    before = finger.table("music.pref")[mode]["on"]
    finger.tap(mode)
    assert finger.changes() == [("music.pref", {"on": not before})]


def test_a_new_playlist_needs_a_name_and_is_empty() -> None:
    finger = Finger("music").tap("tab:playlists", "new", "name:save")
    assert (finger.screen, finger.changes()) == ("music/new", [])
    finger.enter("name", "Test Mix")
    assert finger.changes() == [(LIST, {"name": "Test Mix"})]
    finger.tap(f"list:{finger.made(LIST)}")
    assert "nothing" in finger.ids()


def test_a_song_goes_on_a_playlist_once() -> None:
    finger = Finger("music").tap("tab:playlists", "new").enter("name", "Test Mix")
    made = finger.made(LIST)
    title = finger.table(SONG)["s20"]["title"]
    finger.tap("tab:home", "song:s20", "add", f"to:{made}", "add")
    assert finger.widgets()[f"to:{made}"].checked
    finger.tap(f"to:{made}")
    assert list(finger.table(ENTRY).values()).count({"playlist": "Test Mix", "song": title}) == 1
    finger.back().tap("tab:playlists", f"list:{made}")
    assert finger.ids("song:") == ["song:s20"]


def test_a_playlist_lists_its_songs() -> None:
    finger = Finger("music").tap("tab:playlists", "list:l2")
    name = finger.table(LIST)["l2"]["name"]
    titles = {entry["song"] for entry in finger.table(ENTRY).values() if entry["playlist"] == name}
    assert {finger.text(id) for id in finger.ids("song:")} == titles
    assert len(titles) == 3


def test_a_playlist_goes_with_its_entries_after_a_yes() -> None:
    finger = Finger("music").tap("tab:playlists", "list:l2", "delete", "confirm:no")
    assert finger.changes() == []
    name = finger.table(LIST)["l2"]["name"]
    finger.tap("delete", "confirm:yes")
    assert finger.screen == "music/playlists"
    assert sorted(table for table, _ in finger.changes()) == [ENTRY] * 3 + [LIST]
    assert all(entry["playlist"] != name for entry in finger.table(ENTRY).values())
