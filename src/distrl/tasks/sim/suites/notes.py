"""Tasks in the notes app."""

from __future__ import annotations

from distrl.devices.sim.apps.calendar import EVENT
from distrl.devices.sim.apps.messages import THREAD
from distrl.devices.sim.apps.notes import ITEM, NOTE
from distrl.devices.sim.content_pools import FACTS, ITEMS, NOTES
from distrl.tasks.sim.templates import Draft, Templates, column, enter, hold, open_app, tap, type_in, unused

templates = Templates()


def _note(t: Draft) -> tuple[str, str]:
    """A plain note and its title."""
    id, note = t.row(NOTE, lambda record: not record["list"])
    return id, str(note["title"])


def _list(t: Draft) -> tuple[str, str]:
    """A checklist and its title."""
    id, note = t.row(NOTE, lambda record: bool(record["list"]))
    return id, str(note["title"])


@templates.add
def notes_new(t: Draft) -> None:
    """Write a new note."""
    title, text = unused(t, NOTES, column(t, NOTE, "title")), t.choose(FACTS)
    t.say(
        f"Make a note called {title} that says {text}",
        f"Write down {text} under the title {title}",
        f"Create a note {title} with the text {text}",
        f"Jot down {text} in a new note named {title}",
        f"New note titled {title} reading {text}",
    )
    t.want(NOTE, title=title, text=text)
    t.route(open_app("notes"), tap("new"), type_in("title", title), type_in("text", text), tap("save"))


@templates.add
def notes_edit(t: Draft) -> None:
    """Change the text of a note."""
    (id, title), text = _note(t), unused(t, FACTS, column(t, NOTE, "text"))
    t.say(
        f"Change the text of the note {title} to {text}",
        f"Rewrite the note {title} so that it says {text}",
        f"Replace what stands in {title} by {text}",
        f"Update my note {title} to read {text}",
    )
    t.want(NOTE, id, text=text)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("edit"), type_in("text", text), tap("save"))


@templates.add_for_test
def notes_rename(t: Draft) -> None:
    """Rename a note."""
    (id, title), new = _note(t), unused(t, NOTES, column(t, NOTE, "title"))
    t.say(
        f"Rename the note {title} to {new}",
        f"Change the title of the note {title} to {new}",
        f"The note {title} should be called {new}",
    )
    t.want(NOTE, id, title=new)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("edit"), type_in("title", new), tap("save"))


@templates.add
def notes_delete(t: Draft) -> None:
    """Delete a note."""
    id, title = _note(t)
    t.say(
        f"Delete the note {title}",
        f"Get rid of the note {title}",
        f"Throw {title} out of my notes",
        f"Bin what I wrote down as {title}",
        f"Erase the note called {title}",
    )
    t.want_gone(NOTE, id)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("delete"), tap("confirm:yes"))


@templates.add
def notes_pin(t: Draft) -> None:
    """Pin a note."""
    id, title = _note(t)
    t.say(
        f"Pin the note {title}",
        f"Keep the note {title} at the top",
        f"Make {title} stay first among my notes",
        f"The note {title} should always come first",
    )
    t.want(NOTE, id, pinned=True)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("pin"))


@templates.add
def notes_tick(t: Draft) -> None:
    """Tick an entry of a checklist."""
    list_id, title = _list(t)
    id, item = t.row(ITEM, lambda record: record["note"] == list_id)
    t.say(
        f"Tick {item['text']} on the {title}",
        f"Mark {item['text']} as done in {title}",
        f"Check off {item['text']} from my {title}",
        f"I have got {item['text']} so tick it on the {title}",
        f"{item['text']} on the {title} is settled",
    )
    t.given(ITEM, id, done=False)
    t.want(ITEM, id, done=True)
    t.route(open_app("notes"), tap(f"note:{list_id}"), tap(f"item:{id}"))


@templates.add
def notes_add_item(t: Draft) -> None:
    """Add an entry to a checklist."""
    list_id, title = _list(t)
    text = unused(t, ITEMS, [item["text"] for item in t.tables[ITEM].values() if item["note"] == list_id])
    t.say(
        f"Add {text} to the {title}",
        f"Put {text} on my {title}",
        f"Write {text} on the {title} as well",
        f"Include {text} in the {title}",
        f"We also need {text} on the {title}",
    )
    t.want(ITEM, note=list_id, text=text)
    t.route(open_app("notes"), tap(f"note:{list_id}"), type_in("item", text), enter())


@templates.add
def notes_add_two_items(t: Draft) -> None:
    """Add two entries to a checklist."""
    list_id, title = _list(t)
    taken = [item["text"] for item in t.tables[ITEM].values() if item["note"] == list_id]
    one = unused(t, ITEMS, taken)
    two = unused(t, ITEMS, [*taken, one])
    t.say(
        f"Add {one} and {two} to the {title}",
        f"Put both {one} and {two} on my {title}",
        f"Include {one} and also {two} in the {title}",
        f"We need {one} and {two} on the {title}",
    )
    for text in (one, two):
        t.want(ITEM, note=list_id, text=text)
    t.route(open_app("notes"), tap(f"note:{list_id}"), type_in("item", one), enter(), type_in("item", two), enter())


@templates.add
def notes_ask(t: Draft) -> None:
    """Say what a note says."""
    id, title = _note(t)
    t.say(
        f"What does the note {title} say?",
        f"Read me the note {title}",
        f"What did I write down as {title}?",
        f"Tell me the content of the note {title}",
        f"What stands in my note {title}?",
    )
    t.want_answer(str(t.tables[NOTE][id]["text"]))
    t.route(open_app("notes"), tap(f"note:{id}"))


@templates.add
def notes_ask_open_note(t: Draft) -> None:
    """Say what the note on the screen says."""
    id, title = _note(t)
    t.say(
        f"What does this note on {title} say?",
        f"Read out the text about {title} in front of me",
        f"Here is {title} so tell me the text",
        f"What is written in the note {title} on the screen?",
    )
    t.start_on("notes", "note", id=id)
    t.want_answer(str(t.tables[NOTE][id]["text"]))


@templates.add
def notes_pin_and_cancel(t: Draft) -> None:
    """Pin a note and delete an event."""
    (id, title), (event, record) = _note(t), t.row(EVENT)
    what = record["title"]
    t.say(
        f"Pin the note {title} and cancel the appointment {what}",
        f"Keep {title} at the top of my notes and delete {what} from the calendar",
        f"First pin {title} in the notes then take {what} out of the agenda",
        f"Make {title} my first note and get rid of the event {what}",
    )
    t.want(NOTE, id, pinned=True)
    t.want_gone(EVENT, event)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("pin"))
    t.route(open_app("calendar"), tap(f"event:{event}"), tap("delete"), tap("confirm:yes"))


@templates.add_for_test
def notes_pin_and_mute(t: Draft) -> None:
    """Pin a note and mute a chat."""
    (id, title), (who, _) = _note(t), t.row(THREAD)
    t.say(
        f"Pin the note {title} and mute the chat with {who}",
        f"Keep {title} at the top of my notes and silence messages from {who}",
        f"Make {title} my first note and stop notifying me about {who}",
    )
    t.want(NOTE, id, pinned=True)
    t.want(THREAD, who, muted=True)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("pin"))
    t.route(open_app("messages"), hold(f"thread:{who}"), tap("mute"))
