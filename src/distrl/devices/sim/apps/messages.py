"""Messages: one thread per person, answers, new texts, pinned and muted threads."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, go, pop, swap, write
from distrl.devices.sim.content_pools import PEOPLE, TEXTS
from distrl.devices.sim.patterns import confirm
from distrl.devices.sim.state import PhoneState, Record, Tables, next_id, put
from distrl.devices.sim.widgets import View, Widget, button, icon, label, row

app = App("messages", "Messages", icon="message", colour="#188038")
app.incidental = {"messages.seen"}

THREAD, SENT, SEEN = "messages.thread", "messages.sent", "messages.seen"
"""A thread's id is the name of the person; what the user sends is a record of its own."""


@app.content
def content(seeder: Seeder) -> Tables:
    """Fourteen chats, four of them unread, and nothing sent."""
    people = seeder.sample(PEOPLE, 14)
    return {
        THREAD: {who: _thread(seeder) for who in people},
        SENT: {},
        SEEN: {who: {"seen": True} for who in people[4:]},
    }


def _thread(seeder: Seeder) -> Record:
    lines = seeder.sample(TEXTS, seeder.random.randint(3, 5))
    told = [f"You: {line}" if seeder.random.random() < 0.4 else line for line in lines[:-1]]
    return {"lines": "\n".join([*told, lines[-1]]), "pinned": False, "muted": False}


@app.screen("home")
def home(ui: Ui) -> View:
    """The chats, new recipients and pinned ones first, with a search field."""
    threads, query = ui.table(THREAD), ui.draft("search").casefold()
    known = sorted(threads, key=lambda who: not threads[who].get("pinned", False))
    strangers = {str(sent["to"]): None for sent in ui.table(SENT).values() if sent["to"] not in threads}
    rows = (_row(ui, who) for who in (*strangers, *known) if query in who.casefold())
    return View(
        title=ui.pick("Messages", "Chats", "Conversations"),
        body=(ui.field("search", ui.pick("Search messages", "Find a chat")), *rows),
        top=(icon("new", "plus", ui.pick("New message", "Start chat", "Compose"), tap=go("messages", "compose")),),
    )


def _row(ui: Ui, who: str) -> Widget:
    record, seen = ui.record(THREAD, who), who in ui.table(SEEN)
    marks = [word for word in ("pinned", "muted") if record.get(word)] + ([] if seen else ["new"])
    opened = do(write(SEEN, who, seen=True), go("messages", "chat", who=who))
    options = go("messages", "options", who=who)
    return row(
        f"thread:{who}",
        who,
        " · ".join(marks),
        tap=opened,
        hold=options,
        icon=f"face:{who}" if seen else f"unread:{who}",
    )


@app.screen("chat")
def chat(ui: Ui) -> View:
    """What was written in one chat, and a field for a reply."""
    who = ui.args["who"]
    lines = str(ui.record(THREAD, who).get("lines", "")).split("\n")
    lines += [f"You: {sent['text']}" for sent in ui.table(SENT).values() if sent["to"] == who]
    told = (label(f"line:{number}", line) for number, line in enumerate(lines) if line)
    return View(
        title=who,
        body=(*told, ui.field("reply", ui.pick("Text message", "Write a reply"), submit=_answer)),
        top=(
            icon("more", "more", ui.pick("More options", "Menu"), tap=go("messages", "options", who=who)),
            icon("send", "send", ui.pick("Send", "Send now"), tap=_answer),
        ),
        style="chat",
    )


def _answer(state: PhoneState) -> PhoneState:
    """Send what stands in the reply field and empty it."""
    place = state.place
    if not place.drafts.get("reply"):
        return state
    state = _send(state, place.args["who"], place.drafts["reply"])
    return swap("messages", "chat", who=place.args["who"])(state)


@app.screen("compose")
def compose(ui: Ui) -> View:
    """The form of a new message."""
    return View(
        title=ui.pick("New message", "New chat"),
        body=(
            ui.field("to", ui.pick("To", "Recipient"), ui.args.get("to", "")),
            ui.field("text", ui.pick("Text message", "Your words"), submit=_post),
        ),
        top=(icon("send", "send", ui.pick("Send", "Send now"), tap=_post),),
    )


def _post(state: PhoneState) -> PhoneState:
    """Send a new message once it has a recipient and a text."""
    place = state.place
    to, text = place.drafts.get("to", place.args.get("to", "")), place.drafts.get("text", "")
    if not (to and text):
        return state
    return swap("messages", "chat", who=to)(_send(state, to, text))


def _send(state: PhoneState, to: str, text: str) -> PhoneState:
    return put(state, SENT, next_id(state.tables[SENT], "s"), to=to, text=text)


@app.screen("options")
def options(ui: Ui) -> View:
    """What can be done with a chat: pin, mute or delete it."""
    who, record = ui.args["who"], ui.record(THREAD, ui.args["who"])
    pinned, muted = bool(record.get("pinned")), bool(record.get("muted"))
    pin = ui.pick("Unpin", "Release from top") if pinned else ui.pick("Pin", "Keep at top")
    mute = ui.pick("Unmute", "Notify me again") if muted else ui.pick("Mute", "Turn off notifications")
    buttons = (
        button("pin", pin, tap=do(write(THREAD, who, pinned=not pinned), back()), icon="pin"),
        button("mute", mute, tap=do(write(THREAD, who, muted=not muted), back()), icon="bell"),
        button(
            "delete",
            ui.pick("Delete chat", "Remove conversation"),
            tap=swap("messages", "delete", who=who),
            look="danger",
            icon="bin",
        ),
    )
    return View(title=who, body=ui.arrange(buttons), shape="dialog", style="menu")


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before a chat is deleted."""
    who = ui.args["who"]
    question = f"{ui.pick('Delete', 'Remove')} the chat with {who}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Remove", "Yes"), effect=do(erase(THREAD, who), _leave))


def _leave(state: PhoneState) -> PhoneState:
    """Close the dialog, and the chat where it was asked from there."""
    state = pop(state)
    return pop(state) if state.place.screen == "chat" else state
