"""Tasks in the music app."""

from __future__ import annotations

from distrl.devices.sim.apps.music import ALBUM, ENTRY, LIST, PLAYER, PREFS, SONG
from distrl.devices.sim.content_pools import PLAYLISTS, SONGS
from distrl.devices.sim.state import next_id
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, go_back, open_app, tap, type_in

templates = Templates()


def _some_song(t: Draft) -> tuple[str, str]:
    id, song = t.row(SONG)
    return id, str(song["title"])


def _some_list(t: Draft) -> tuple[str, str]:
    id, record = t.row(LIST)
    return id, str(record["name"])


def _new_name(t: Draft) -> str:
    """A playlist that the phone does not have."""
    name = t.choose(PLAYLISTS)
    if any(record["name"] == name for record in t.tables[LIST].values()):
        raise NoInstance(f"this phone has a playlist {name}")
    return name


def _refuse_entry(t: Draft, playlist: str, title: str) -> None:
    if {"playlist": playlist, "song": title} in t.tables[ENTRY].values():
        raise NoInstance(f"{title} is on {playlist} already")


def _say_play(t: Draft, title: str) -> None:
    t.say(
        f"Play {title}",
        f"Play the song {title} for me",
        f"I would like to listen to {title}",
        f"Put on the track {title}",
        f"Start the tune called {title}",
    )


@templates.add
def music_play_song(t: Draft) -> None:
    """Play a song."""
    id, title = _some_song(t)
    _say_play(t, title)
    t.want(PLAYER, "now", kind="song", name=title, playing=True)
    t.route(open_app("music"), tap(f"song:{id}"), tap("play"))


@templates.add
def music_play_unknown_song(t: Draft) -> None:
    """The words are those of a task that can be done: only looking tells them apart."""
    title = t.choose(SONGS)
    if any(song["title"] == title for song in t.tables[SONG].values()):
        raise NoInstance(f"this phone has {title}")
    _say_play(t, title)
    t.cannot_be_done()
    t.route(open_app("music"), tap("find"), type_in("search", title), enter())


@templates.add
def music_play_album(t: Draft) -> None:
    """Play an album."""
    id, album = t.row(ALBUM)
    name, artist = str(album["name"]), album["artist"]
    t.say(
        f"Play the album {name}",
        f"Put on {name} by {artist}, the whole album",
        f"I want to hear all of the record {name}",
        f"Start the album {name} from the beginning",
    )
    t.want(PLAYER, "now", kind="album", name=name, playing=True)
    t.route(open_app("music"), tap("tab:albums"), tap(f"album:{id}"), tap("play"))


@templates.add
def music_like_song(t: Draft) -> None:
    """Mark a song as a favourite."""
    id, title = _some_song(t)
    t.say(
        f"Like the song {title}",
        f"Make {title} one of my favourite songs",
        f"Give {title} a heart in the music app",
        f"I love {title}, mark it as a favourite song",
    )
    t.given(SONG, id, liked=False)
    t.want(SONG, id, liked=True)
    t.route(open_app("music"), tap(f"song:{id}"), tap("like"))


@templates.add
def music_like_song_shown(t: Draft) -> None:
    """Mark the song on the screen as a favourite."""
    id, title = _some_song(t)
    t.say(
        f"Like {title}, the song on the screen",
        f"The track you see is {title}, make it a favourite",
        f"Give this song, {title}, a heart",
        f"This is {title}, add it to the songs I love",
    )
    t.given(SONG, id, liked=False)
    t.start_on("music", "song", song=id)
    t.want(SONG, id, liked=True)
    t.route(tap("like"))


@templates.add
def music_new_playlist(t: Draft) -> None:
    """Make a playlist."""
    name = _new_name(t)
    t.say(
        f"Create a playlist called {name}",
        f"Make a new playlist and name it {name}",
        f"I need an empty playlist with the name {name}",
        f"Set up the playlist {name} in my music",
        f"Start a list of songs titled {name}",
    )
    t.want(LIST, name=name)
    t.route(open_app("music"), tap("tab:playlists"), tap("new"), type_in("name", name), enter())


@templates.add
def music_add_to_playlist(t: Draft) -> None:
    """Add a song to a playlist."""
    (id, title), (list_id, name) = _some_song(t), _some_list(t)
    _refuse_entry(t, name, title)
    t.say(
        f"Add {title} to the playlist {name}",
        f"Put the song {title} on {name}",
        f"My playlist {name} should have {title} on it",
        f"Include the track {title} in my {name} list",
    )
    t.want(ENTRY, playlist=name, song=title)
    t.route(open_app("music"), tap(f"song:{id}"), tap("add"), tap(f"to:{list_id}"))


@templates.add
def music_add_two_to_playlist(t: Draft) -> None:
    """Add two songs to a playlist."""
    (first, one), (second, other) = t.random.sample(list(t.tables[SONG].items()), 2)
    list_id, name = _some_list(t)
    a, b = str(one["title"]), str(other["title"])
    t.say(
        f"Add {a} and {b} to the playlist {name}",
        f"Put the songs {a} and {b} on {name}",
        f"I want both {a} and {b} in my {name} list",
        f"The playlist {name} should get two more tracks, {a} and {b}",
    )
    for title in (a, b):
        _refuse_entry(t, name, title)
        t.want(ENTRY, playlist=name, song=title)
    put = (tap("add"), tap(f"to:{list_id}"))
    t.route(open_app("music"), tap(f"song:{first}"), *put, go_back(), tap(f"song:{second}"), *put)


@templates.add
def music_new_playlist_with_song(t: Draft) -> None:
    """Make a playlist and add a song to it."""
    (id, title), name = _some_song(t), _new_name(t)
    t.say(
        f"Create a playlist called {name} and add {title} to it",
        f"Make a new playlist {name} with the song {title} on it",
        f"Start a list of songs titled {name}, its first track is {title}",
        f"I need a playlist with the name {name} that holds {title}",
    )
    t.want(LIST, name=name)
    t.want(ENTRY, playlist=name, song=title)
    make = (tap("tab:playlists"), tap("new"), type_in("name", name), enter())
    fill = (tap(f"song:{id}"), tap("add"), tap(f"to:{next_id(t.tables[LIST], 'l')}"))
    t.route(open_app("music"), *make, tap("tab:home"), *fill)


@templates.add
def music_delete_playlist(t: Draft) -> None:
    """Delete a playlist."""
    id, name = _some_list(t)
    t.say(
        f"Delete the playlist {name}",
        f"Remove my playlist {name}",
        f"I am tired of the list {name}, get rid of it in Music",
        f"Throw the song list {name} away",
    )
    t.want_gone(LIST, id)
    for entry, record in t.tables[ENTRY].items():
        if record["playlist"] == name:
            t.want_gone(ENTRY, entry)
    t.route(open_app("music"), tap("tab:playlists"), tap(f"list:{id}"), tap("delete"), tap("confirm:yes"))


@templates.add
def music_play_shuffled(t: Draft) -> None:
    """Play a playlist in random order."""
    id, name = _some_list(t)
    t.say(
        f"Play the playlist {name} on shuffle",
        f"Start my list {name} in random order",
        f"Shuffle the songs of {name} and play them",
        f"I want to hear the playlist {name} mixed up",
        f"Put on {name} with shuffle switched on",
    )
    t.given(PREFS, "shuffle", on=False)
    t.want(PREFS, "shuffle", on=True)
    t.want(PLAYER, "now", kind="playlist", name=name, playing=True)
    t.route(open_app("music"), tap("tab:playlists"), tap(f"list:{id}"), tap("play"), tap("shuffle"))


@templates.add_for_test
def music_repeat_album(t: Draft) -> None:
    """Play an album on repeat."""
    id, album = t.row(ALBUM)
    name = str(album["name"])
    t.say(
        f"Play the album {name} on repeat",
        f"Put on the record {name} and let it loop",
        f"I want to hear the album {name} over and over",
        f"Start the album {name} with repeat switched on",
    )
    t.given(PREFS, "repeat", on=False)
    t.want(PREFS, "repeat", on=True)
    t.want(PLAYER, "now", kind="album", name=name, playing=True)
    t.route(open_app("music"), tap("tab:albums"), tap(f"album:{id}"), tap("play"), tap("repeat"))


@templates.add
def music_pause(t: Draft) -> None:
    """Pause the song that is playing."""
    title = _some_song(t)[1]
    t.say(
        f"Pause {title}",
        f"Stop playing {title}",
        f"{title} is playing, make it stop",
        f"Silence, please: pause the song {title}",
    )
    t.given(PLAYER, "now", kind="song", name=title, playing=True)
    t.want(PLAYER, "now", playing=False)
    t.route(open_app("music"), tap("player"), tap("toggle"))


@templates.add
def music_ask_artist(t: Draft) -> None:
    """Say who sings a song."""
    id, title = _some_song(t)
    t.say(
        f"Who sings {title}?",
        f"Which artist is {title} by?",
        f"Tell me who performs the song {title}",
        f"By whom is the track {title}?",
    )
    t.want_answer(str(t.tables[SONG][id]["artist"]))
    t.route(open_app("music"), tap(f"song:{id}"))


@templates.add
def music_ask_length(t: Draft) -> None:
    """Say how long a song is."""
    id, title = _some_song(t)
    t.say(
        f"How long is the song {title}?",
        f"How many minutes does {title} last?",
        f"What is the duration of the track {title}?",
        f"Tell me the playing time of {title}",
    )
    t.want_answer(str(t.tables[SONG][id]["length"]))
    t.route(open_app("music"), tap(f"song:{id}"))


@templates.add_for_test
def music_like_and_add(t: Draft) -> None:
    """Mark a song as a favourite and add it to a playlist."""
    (id, title), (list_id, name) = _some_song(t), _some_list(t)
    _refuse_entry(t, name, title)
    t.say(
        f"Like the song {title} and add it to the playlist {name}",
        f"Give {title} a heart and put it on {name}",
        f"Make {title} a favourite song, then include it in my {name} list",
        f"I love {title}, mark it and put it on the playlist {name}",
    )
    t.given(SONG, id, liked=False)
    t.want(SONG, id, liked=True)
    t.want(ENTRY, playlist=name, song=title)
    t.route(open_app("music"), tap(f"song:{id}"), tap("like"), tap("add"), tap(f"to:{list_id}"))
