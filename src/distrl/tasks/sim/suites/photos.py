"""Tasks in the photos app."""

from __future__ import annotations

from distrl.devices.sim.apps.photos import ALBUM, PHOTO, SENT
from distrl.devices.sim.content_pools import CAPTIONS, NEW_ALBUMS, SCREENS_NEARBY
from distrl.devices.sim.state import next_id
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, go_back, open_app, tap, type_in

templates = Templates()


class _Photo:
    """A picture that a task is about, reached through its album."""

    def __init__(self, t: Draft) -> None:
        self.id, record = t.row(PHOTO)
        self.name, self.album = str(record["name"]), str(record["album"])
        album = next(id for id, entry in t.tables[ALBUM].items() if entry["name"] == self.album)
        self.way = (open_app("photos"), tap("tab:albums"), tap(f"album:{album}"), tap(f"photo:{self.id}"))


@templates.add
def photos_like(t: Draft) -> None:
    """Mark a picture as a favourite."""
    photo = _Photo(t)
    t.say(
        f"Make {photo.name} in the album {photo.album} a favourite",
        f"Add the picture {photo.name} from {photo.album} to my favourites",
        f"I love the photo {photo.name} in {photo.album}, give it a heart",
        f"Open the album {photo.album} and like {photo.name}",
    )
    t.given(PHOTO, photo.id, liked=False)
    t.want(PHOTO, photo.id, liked=True)
    t.route(*photo.way, tap("like"))


@templates.add
def photos_unlike(t: Draft) -> None:
    """Remove a picture from the favourites."""
    photo = _Photo(t)
    t.say(
        f"Take the picture {photo.name} out of my favourites",
        f"The photo {photo.name} should no longer be a favourite",
        f"Remove the heart from the picture {photo.name}",
        f"Among my favourite photos, drop {photo.name}",
    )
    t.given(PHOTO, photo.id, liked=True)
    t.want(PHOTO, photo.id, liked=False)
    t.route(open_app("photos"), tap("tab:liked"), tap(f"photo:{photo.id}"), tap("like"))


@templates.add
def photos_delete(t: Draft) -> None:
    """Delete a picture."""
    photo = _Photo(t)
    t.say(
        f"Delete the picture {photo.name} from {photo.album}",
        f"Throw away the photo {photo.name} in the album {photo.album}",
        f"Get rid of {photo.name}, a picture in {photo.album}",
        f"Open the album {photo.album} and erase {photo.name}",
    )
    t.want_gone(PHOTO, photo.id)
    t.route(*photo.way, tap("delete"), tap("confirm:yes"))


@templates.add
def photos_delete_shown(t: Draft) -> None:
    """Delete the picture on the screen."""
    photo = _Photo(t)
    t.say(
        f"Delete {photo.name}, the picture on the screen",
        f"Throw away the photo you see, {photo.name}",
        f"This picture, {photo.name}, can go",
        f"Get rid of the photo that is open, {photo.name}",
    )
    t.start_on("photos", "photo", photo=photo.id)
    t.want_gone(PHOTO, photo.id)
    t.route(tap("delete"), tap("confirm:yes"))


@templates.add
def photos_new_album(t: Draft) -> None:
    """Make an album."""
    name = t.choose(NEW_ALBUMS)
    t.say(
        f"Create a photo album called {name}",
        f"Make a new album for pictures and name it {name}",
        f"I need an album with the title {name}",
        f"Start the album {name} in my photos",
    )
    t.want(ALBUM, name=name)
    t.route(open_app("photos"), tap("tab:albums"), tap("new"), type_in("name", name), enter())


@templates.add
def photos_move(t: Draft) -> None:
    """Move a picture to another album."""
    photo = _Photo(t)
    id, album = t.row(ALBUM, lambda entry: entry["name"] != photo.album)
    t.say(
        f"Move the picture {photo.name} from {photo.album} to the album {album['name']}",
        f"Put {photo.name}, a photo in {photo.album}, into {album['name']}",
        f"The photo {photo.name} belongs in the album {album['name']}, not in {photo.album}",
        f"Take {photo.name} out of the album {photo.album} and file it under {album['name']}",
    )
    t.want(PHOTO, photo.id, album=str(album["name"]))
    t.route(*photo.way, tap("move"), tap(f"to:{id}"))


@templates.add
def photos_move_to_new_album(t: Draft) -> None:
    """Make an album and move a picture there."""
    photo, name = _Photo(t), t.choose(NEW_ALBUMS)
    t.say(
        f"Create an album called {name} and move {photo.name} from {photo.album} into it",
        f"Make a new album {name}, then put the photo {photo.name} from {photo.album} there",
        f"The picture {photo.name} in {photo.album} should go into a new album named {name}",
        f"Start the album {name} with the picture {photo.name}, which is in {photo.album} now",
    )
    t.want(ALBUM, name=name)
    t.want(PHOTO, photo.id, album=name)
    make = (tap("new"), type_in("name", name), enter())
    t.route(*photo.way[:2], *make, *photo.way[2:], tap("move"), tap(f"to:{next_id(t.tables[ALBUM], 'k')}"))


@templates.add
def photos_edit_caption(t: Draft) -> None:
    """Change the caption of a picture."""
    photo, name = _Photo(t), t.choose(CAPTIONS)
    if any(other["name"] == name for other in t.tables[PHOTO].values()):
        raise NoInstance(f"this phone has a picture {name}")
    t.say(
        f"Change the caption of {photo.name} in {photo.album} to {name}",
        f"Rename the picture {photo.name} in the album {photo.album} to {name}",
        f"The photo {photo.name} in {photo.album} should be called {name} instead",
        f"Open {photo.album} and give the picture {photo.name} the title {name}",
    )
    t.want(PHOTO, photo.id, name=name)
    t.route(*photo.way, tap("caption"), type_in("name", name), enter())


@templates.add
def photos_send(t: Draft) -> None:
    """Send a picture to a screen nearby."""
    photo, screen = _Photo(t), t.one_of(*SCREENS_NEARBY)
    t.say(
        f"Send the picture {photo.name} from {photo.album} to the {screen}",
        f"Share {photo.name} in the album {photo.album} with the {screen}",
        f"Show the photo {photo.name} from {photo.album} on the {screen}",
        f"I want {photo.name}, a picture in {photo.album}, on the {screen}",
    )
    t.want(SENT, photo=photo.name, to=screen)
    t.route(*photo.way, tap("share"), tap(f"send:{screen}"))


@templates.add
def photos_send_two(t: Draft) -> None:
    """Send two pictures to a screen nearby."""
    album_id, album = t.row(ALBUM)
    inside = [(id, str(p["name"])) for id, p in t.tables[PHOTO].items() if p["album"] == album["name"]]
    ((first, a), (second, b)), screen = t.random.sample(inside, 2), t.one_of(*SCREENS_NEARBY)
    t.say(
        f"Send {a} and {b} from the album {album['name']} to the {screen}",
        f"Share two pictures in {album['name']}, {a} and {b}, with the {screen}",
        f"Show {a} and then {b} from {album['name']} on the {screen}",
    )
    t.want(SENT, photo=a, to=screen)
    t.want(SENT, photo=b, to=screen)
    send = (tap("share"), tap(f"send:{screen}"))
    way = (open_app("photos"), tap("tab:albums"), tap(f"album:{album_id}"))
    t.route(*way, tap(f"photo:{first}"), *send, go_back(), tap(f"photo:{second}"), *send)


@templates.add
def photos_ask_town(t: Draft) -> None:
    """Say where a picture was taken."""
    photo = _Photo(t)
    t.say(
        f"Where was the picture {photo.name} taken?",
        f"In which town was the photo {photo.name} made?",
        f"What place does the picture {photo.name} come from?",
        f"Tell me where I took {photo.name}",
    )
    t.want_answer(str(t.tables[PHOTO][photo.id]["town"]))
    t.route(open_app("photos"), tap(f"photo:{photo.id}"))


@templates.add
def photos_ask_date(t: Draft) -> None:
    """Say when a picture was taken."""
    photo = _Photo(t)
    t.say(
        f"When was {photo.name} in the album {photo.album} taken?",
        f"What is the date of the picture {photo.name} in {photo.album}?",
        f"On which day did I take {photo.name}? It is in {photo.album}",
        f"Look in {photo.album} and tell me the day of the photo {photo.name}",
    )
    t.want_answer(str(t.tables[PHOTO][photo.id]["taken"]))
    t.route(*photo.way)


@templates.add_for_test
def photos_send_and_delete(t: Draft) -> None:
    """Send a picture to a screen nearby and delete it."""
    photo, screen = _Photo(t), t.one_of(*SCREENS_NEARBY)
    t.say(
        f"Send the picture {photo.name} from {photo.album} to the {screen} and then delete it",
        f"Share {photo.name} in the album {photo.album} with the {screen}, after that throw it away here",
        f"Show the photo {photo.name} from {photo.album} on the {screen} and get rid of it on this phone",
    )
    t.want(SENT, photo=photo.name, to=screen)
    t.want_gone(PHOTO, photo.id)
    t.route(*photo.way, tap("share"), tap(f"send:{screen}"), tap("delete"), tap("confirm:yes"))


@templates.add_for_test
def photos_like_and_move(t: Draft) -> None:
    """Mark a picture as a favourite and move it to another album."""
    photo = _Photo(t)
    id, album = t.row(ALBUM, lambda entry: entry["name"] != photo.album)
    t.say(
        f"Like {photo.name} in {photo.album} and move it to the album {album['name']}",
        f"Make the picture {photo.name} from {photo.album} a favourite and put it into {album['name']}",
        f"Give {photo.name} in the album {photo.album} a heart, then file it under {album['name']}",
    )
    t.given(PHOTO, photo.id, liked=False)
    t.want(PHOTO, photo.id, liked=True, album=str(album["name"]))
    t.route(*photo.way, tap("like"), tap("move"), tap(f"to:{id}"))
