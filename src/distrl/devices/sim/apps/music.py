"""Music: songs, albums and playlists, and a player with shuffle and repeat.

A playlist's entries name the playlist and the song by their titles, so that a task can ask for both before they exist.
"""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, flip, go, push, write
from distrl.devices.sim.content_pools import ARTISTS, PLAYLISTS, RECORDS, SONGS, between
from distrl.devices.sim.patterns import confirm, facts, hits, or_none, prompt, tabs, typed
from distrl.devices.sim.state import PhoneState, Place, Record, Tables, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, card, check, icon, row, switch

app = App("music", "Music", icon="music", colour="#d93083")
app.incidental = {"music.history"}

SONG, ALBUM, LIST, ENTRY = "music.song", "music.album", "music.playlist", "music.entry"
PLAYER, PREFS, HISTORY = "music.player", "music.pref", "music.history"
MODES = {"shuffle": ("Shuffle", "Random order"), "repeat": ("Repeat", "Loop")}


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-six songs on seven albums, five playlists of three songs, and a silent player."""
    random, titles, names = seeder.random, seeder.sample(SONGS, 26), seeder.sample(PLAYLISTS, 5)
    pairs = zip(seeder.sample(RECORDS, 7), seeder.sample(ARTISTS, 7), strict=True)
    albums: dict[str, Record] = {f"b{n}": {"name": name, "artist": artist} for n, (name, artist) in enumerate(pairs)}
    songs = {f"s{n}": _song(random, title, albums[f"b{n % 7}"]) for n, title in enumerate(titles)}
    lists: dict[str, Record] = {f"l{n}": {"name": name} for n, name in enumerate(names, 1)}
    on_lists = [name for name in names for _ in range(3)]
    picks = zip(on_lists, random.sample(titles, len(on_lists)), strict=True)
    entries: dict[str, Record] = {f"e{n}": {"playlist": name, "song": song} for n, (name, song) in enumerate(picks, 1)}
    prefs: dict[str, Record] = {name: {"on": random.random() < 0.5} for name in MODES}
    now: Record = {"kind": "", "name": "", "playing": False}
    return {SONG: songs, ALBUM: albums, LIST: lists, ENTRY: entries, PREFS: prefs, PLAYER: {"now": now}, HISTORY: {}}


def _song(random: Random, title: str, album: Record) -> Record:
    length = f"{between(random, 2, 6)}:{between(random, 0, 59):02d}"
    liked = random.random() < 0.3
    return {"title": title, "artist": album["artist"], "album": album["name"], "length": length, "liked": liked}


@app.screen("home")
def home(ui: Ui) -> View:
    """All songs."""
    rows = (_row(id, song) for id, song in ui.table(SONG).items())
    top = (icon("find", "search", ui.pick("Search", "Find music"), tap=go("music", "search")), _now_playing(ui))
    return View(title=ui.pick("Songs", "All songs"), body=ui.arrange(rows), top=top, bottom=_tabs(ui, "home"))


@app.screen("albums")
def albums(ui: Ui) -> View:
    """The albums with their artists."""
    cards = (
        card(
            f"album:{id}",
            str(album["name"]),
            str(album["artist"]),
            tap=go("music", "album", album=id),
            icon=f"cover:{album['name']}",
        )
        for id, album in ui.table(ALBUM).items()
    )
    return View(title="Albums", body=ui.arrange(cards), top=(_now_playing(ui),), bottom=_tabs(ui, "albums"))


@app.screen("playlists")
def playlists(ui: Ui) -> View:
    """The playlists, and an icon that makes a new one."""
    rows = (
        row(f"list:{id}", str(r["name"]), tap=go("music", "playlist", list=id), icon=f"cover:{r['name']}")
        for id, r in ui.table(LIST).items()
    )
    new = icon("new", "plus", ui.pick("New playlist", "Create a playlist"), tap=go("music", "new"))
    return View(title="Playlists", body=or_none(ui, rows), top=(new, _now_playing(ui)), bottom=_tabs(ui, "playlists"))


@app.screen("search")
def search(ui: Ui) -> View:
    """The field to search for a song by title."""
    submit = typed(
        "search", lambda state, text: push(state, Place(app="music", screen="results", args={"query": text}))
    )
    return View(title="Search", body=(ui.field("search", ui.pick("Song title", "What to play?"), submit=submit),))


@app.screen("results")
def results(ui: Ui) -> View:
    """The songs that a search found."""
    rows = (_row(id, song) for id, song in ui.table(SONG).items() if hits(str(song["title"]), ui.args["query"]))
    return View(title=ui.pick("Results", "Songs found"), body=or_none(ui, rows))


def _tabs(ui: Ui, here: str) -> tuple[Widget, ...]:
    names = (
        ("home", ui.pick("Songs", "Tracks"), "music"),
        ("albums", "Albums", "disc"),
        ("playlists", "Playlists", "list"),
    )
    return tabs("music", here, names)


def _now_playing(ui: Ui) -> Widget:
    return icon("player", "play", ui.pick("Now playing", "Player"), tap=go("music", "player"))


def _row(id: str, song: Record) -> Widget:
    return row(
        f"song:{id}",
        str(song["title"]),
        str(song["artist"]),
        tap=go("music", "song", song=id),
        icon=f"cover:{song['album']}",
    )


def _play(kind: str, name: str) -> Effect:
    def start(state: PhoneState) -> PhoneState:
        state = put(state, HISTORY, next_id(state.tables[HISTORY], "h"), name=name)
        return push(put(state, PLAYER, "now", kind=kind, name=name, playing=True), Place(app="music", screen="player"))

    return start


@app.screen("song")
def song(ui: Ui) -> View:
    """One song: artist, album and length, with buttons to play it and to add it to a playlist."""
    id = ui.args["song"]
    record = ui.record(SONG, id)
    like = ui.pick("Unlike", "No longer a favourite") if record["liked"] else ui.pick("Like", "Make a favourite")
    actions = (
        button("play", ui.pick("Play", "Listen"), tap=_play("song", str(record["title"])), icon="play"),
        button(
            "add",
            ui.pick("Add to playlist", "Put on a list"),
            tap=go("music", "add", song=id),
            look="quiet",
            icon="plus",
        ),
    )
    about = facts(
        ("artist", ui.pick("Artist", "By"), record["artist"]),
        ("album", ui.pick("Album", "From"), record["album"]),
        ("length", ui.pick("Length", "Duration"), record["length"]),
    )
    top = (icon("like", "heart" if record["liked"] else "heart-outline", like, tap=flip(SONG, id, "liked")),)
    return View(
        title=str(record["title"]),
        body=(*ui.arrange(actions), *about),
        top=top,
        style="group",
        picture=f"cover:{record['album']}",
    )


@app.screen("add")
def add(ui: Ui) -> View:
    """The playlists that a song can be added to."""
    title = str(ui.record(SONG, ui.args["song"])["title"])
    has = {entry["playlist"] for entry in ui.table(ENTRY).values() if entry["song"] == title}
    body = (
        check(f"to:{id}", str(r["name"]), r["name"] in has, tap=_add(str(r["name"]), title))
        for id, r in ui.table(LIST).items()
    )
    return View(title=ui.pick("Add to which playlist?", "Choose a list"), body=tuple(body), shape="dialog")


def _add(playlist: str, title: str) -> Effect:
    """Put the song on the list, once, and close the dialog."""

    def run(state: PhoneState) -> PhoneState:
        entry: Record = {"playlist": playlist, "song": title}
        known = entry in state.tables[ENTRY].values()
        return back()(state if known else put(state, ENTRY, next_id(state.tables[ENTRY], "e"), **entry))

    return run


@app.screen("album")
def album(ui: Ui) -> View:
    """The songs of one album, and a button that plays them all."""
    name = str(ui.record(ALBUM, ui.args["album"])["name"])
    rows = (_row(id, song) for id, song in ui.table(SONG).items() if song["album"] == name)
    play = button("play", ui.pick("Play album", "Listen to all"), tap=_play("album", name), icon="play")
    return View(title=name, body=(play, *ui.arrange(rows)), picture=f"cover:{name}")


@app.screen("playlist")
def playlist(ui: Ui) -> View:
    """The songs of one playlist, and a button that plays them all."""
    id = ui.args["list"]
    name = str(ui.record(LIST, id)["name"])
    titles = {entry["song"] for entry in ui.table(ENTRY).values() if entry["playlist"] == name}
    rows = (_row(song_id, song) for song_id, song in ui.table(SONG).items() if song["title"] in titles)
    play = button("play", ui.pick("Play all", "Start the list"), tap=_play("playlist", name), icon="play")
    top = (icon("delete", "bin", ui.pick("Delete playlist", "Remove list"), tap=go("music", "delete", list=id)),)
    return View(title=name, body=(play, *or_none(ui, rows)), top=top, picture=f"cover:{name}")


@app.screen("new")
def new(ui: Ui) -> View:
    """The dialog that asks for the name of a new playlist."""
    return prompt(ui, ui.pick("New playlist", "Name your list"), "", _create)


def _create(state: PhoneState, name: str) -> PhoneState:
    return put(state, LIST, next_id(state.tables[LIST], "l"), name=name)


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before a playlist is deleted with its entries."""
    id = ui.args["list"]
    name = str(ui.record(LIST, id)["name"])
    gone = [entry for entry, record in ui.table(ENTRY).items() if record["playlist"] == name]
    forget = do(erase(LIST, id), *(erase(ENTRY, entry) for entry in gone), back(2))
    return confirm(ui, f"Delete {name}?", yes=ui.pick("Delete", "Yes, remove"), effect=forget)


@app.screen("player")
def player(ui: Ui) -> View:
    """What is playing, with a pause button, shuffle and repeat."""
    now = ui.record(PLAYER, "now")
    playing = bool(now["playing"])
    modes = (
        switch(id, ui.pick(*words), bool(ui.record(PREFS, id)["on"]), tap=flip(PREFS, id, "on"))
        for id, words in MODES.items()
    )
    text = ui.pick("Pause", "Stop") if playing else ui.pick("Play", "Resume")
    toggle = button("toggle", text, tap=write(PLAYER, "now", playing=not playing), icon="pause" if playing else "play")
    return View(
        title=ui.pick("Now playing", "Player"),
        body=(*facts(("now", "Playing", now["name"])), toggle, *ui.arrange(modes)),
        style="group",
        picture=f"cover:{now['name']}",
    )
