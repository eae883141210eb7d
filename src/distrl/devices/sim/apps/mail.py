"""Mail: folders, reading, stars, archiving, replies and new mails."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, flip, go, pop, swap, write
from distrl.devices.sim.content_pools import PEOPLE, SENTENCES, SUBJECTS, email_of
from distrl.devices.sim.state import PhoneState, Record, Table, Tables, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, choice, heading, icon, label, row

app = App("mail", "Mail", icon="mail", colour="#d93025")
app.incidental = {"mail.seen"}

MAIL, SENT, SEEN = "mail.mail", "mail.sent", "mail.seen"
FOLDERS = {
    "inbox": ("Inbox", "Incoming"),
    "starred": ("Starred", "Flagged"),
    "archive": ("Archive", "Stored"),
    "sent": ("Sent", "Outgoing"),
    "bin": ("Bin", "Rubbish"),
}
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-two mails in inbox, archive and bin; the newest five are unread."""
    folders = ["inbox"] * 14 + ["archive"] * 5 + ["bin"] * 3
    drawn = zip(folders, seeder.sample(PEOPLE, 22), seeder.sample(SUBJECTS, 22), strict=True)
    mails: Table = {f"m{number}": _mail(seeder, *parts) for number, parts in enumerate(drawn)}
    return {MAIL: mails, SENT: {}, SEEN: {f"m{number}": {"seen": True} for number in range(5, 22)}}


def _mail(seeder: Seeder, folder: str, sender: str, subject: str) -> Record:
    random = seeder.random
    return {
        "folder": folder,
        "from": sender,
        "subject": subject,
        "text": random.choice(SENTENCES),
        "when": f"{random.choice(DAYS)} {random.randint(7, 21)}:{random.randint(10, 59)}",
        "reference": f"{random.choice('BCDFGHKLMNPRST')}{random.choice('AEIOU')}{random.randint(1000, 9999)}",
        "starred": random.random() < 0.2,
    }


@app.screen("home")
def home(ui: Ui) -> View:
    """The mails of one folder; the inbox to begin with."""
    folder = ui.args.get("folder", "inbox")
    rows = (
        _sent(ui)
        if folder == "sent"
        else [_row(ui, id, mail) for id, mail in ui.table(MAIL).items() if _lies_in(mail, folder)]
    )
    return View(
        title=ui.pick(*FOLDERS[folder]),
        body=tuple(rows),
        top=(
            icon("find", "search", ui.pick("Search", "Find mail"), tap=go("mail", "find")),
            icon("folders", "folder", ui.pick("Folders", "Mailboxes"), tap=go("mail", "folders", now=folder)),
            icon("new", "edit", ui.pick("Compose", "New mail", "Write"), tap=go("mail", "compose")),
        ),
    )


def _lies_in(mail: Record, folder: str) -> bool:
    return bool(mail["starred"]) if folder == "starred" else mail["folder"] == folder


def _row(ui: Ui, id: str, mail: Record) -> Widget:
    """A mail in a list: some phones put the sender first, others the subject."""
    first, second = ui.pick("from subject", "subject from").split()
    opened = do(write(SEEN, id, seen=True), go("mail", "read", id=id))
    mark = "face" if id in ui.table(SEEN) else "unread"
    return row(f"mail:{id}", str(mail[first]), str(mail[second]), tap=opened, icon=f"{mark}:{mail['from']}")


def _sent(ui: Ui) -> list[Widget]:
    return [
        row(f"sent:{id}", str(sent["to"]), str(sent["subject"]), icon=f"face:{sent['to']}")
        for id, sent in ui.table(SENT).items()
    ]


@app.screen("find")
def find(ui: Ui) -> View:
    """A search field, and the mails whose sender or subject it finds."""
    query = ui.draft("query").casefold()
    found = [
        _row(ui, id, mail)
        for id, mail in ui.table(MAIL).items()
        if query and (query in str(mail["from"]).casefold() or query in str(mail["subject"]).casefold())
    ]
    return View(
        title=ui.pick("Search", "Find mail"),
        body=(ui.field("query", ui.pick("Sender or subject", "Search for")), *found),
    )


@app.screen("folders")
def folders(ui: Ui) -> View:
    """The folders to choose from."""
    now = ui.args["now"]
    body = [
        choice(f"folder:{name}", ui.pick(*words), name == now, tap=do(back(), swap("mail", folder=name)))
        for name, words in FOLDERS.items()
    ]
    return View(title=ui.pick("Folders", "Mailboxes"), body=tuple(body), shape="dialog")


@app.screen("read")
def read(ui: Ui) -> View:
    """One mail, with icons to star, archive and delete it."""
    id, mail = ui.args["id"], ui.record(MAIL, ui.args["id"])
    body: list[Widget] = [heading("subject", str(mail["subject"]))]
    for name, words in (
        ("from", ("From", "Sender")),
        ("when", ("Received", "Arrived")),
        ("reference", ("Reference", "Our code")),
    ):
        body += [heading(f"{name}:title", ui.pick(*words)), label(name, str(mail[name]))]
    return View(
        title=ui.pick("Mail", "Message"),
        body=(*body, label("text", str(mail["text"]))),
        top=(
            icon(
                "star",
                "star",
                ui.pick("Unstar", "Unflag") if mail["starred"] else ui.pick("Star", "Flag"),
                tap=flip(MAIL, id, "starred"),
            ),
            *ui.arrange(
                (_keep(ui, id, mail), icon("delete", "trash", ui.pick("Delete", "Move to bin"), tap=_move(id, "bin")))
            ),
        ),
        bottom=(
            button("reply", ui.pick("Reply", "Answer", "Write back"), tap=go("mail", "reply", id=id), icon="reply"),
        ),
        style="letter",
        picture=f"face:{mail['from']}",
        picture_at="aside",
    )


def _keep(ui: Ui, id: str, mail: Record) -> Widget:
    """What the box icon does: put a mail of the inbox away, or bring any other back."""
    if mail["folder"] == "inbox":
        return icon("archive", "archive", ui.pick("Archive", "Store away"), tap=_move(id, "archive"))
    return icon("restore", "inbox", ui.pick("Move to inbox", "Restore"), tap=_move(id, "inbox"))


def _move(id: str, folder: str) -> Effect:
    return do(write(MAIL, id, folder=folder), back())


@app.screen("reply")
def reply(ui: Ui) -> View:
    """The form of an answer."""
    mail = ui.record(MAIL, ui.args["id"])
    body = (label("to", str(mail["from"])), ui.field("body", ui.pick("Your reply", "Write here")))
    return View(title=f"Re: {mail['subject']}", body=body, top=(_send_icon(ui, _answer),))


def _answer(state: PhoneState) -> PhoneState:
    mail = state.tables[MAIL][state.place.args["id"]]
    return _send(state, {"to": mail["from"], "subject": f"Re: {mail['subject']}", "reply_to": state.place.args["id"]})


@app.screen("compose")
def compose(ui: Ui) -> View:
    """The form of a new mail."""
    fields = (("to", ("To", "Recipient")), ("subject", ("Subject", "About")), ("body", ("Message", "Text")))
    body = tuple(ui.field(name, ui.pick(*hints)) for name, hints in fields)
    return View(title=ui.pick("New mail", "Compose"), body=body, top=(_send_icon(ui, _post),))


def _post(state: PhoneState) -> PhoneState:
    drafts = state.place.drafts
    return _send(state, {"to": drafts["to"], "subject": drafts.get("subject", "")}) if drafts.get("to") else state


def _send(state: PhoneState, head: Record) -> PhoneState:
    if not (body := state.place.drafts.get("body")):
        return state
    record: Record = {**head, "address": email_of(str(head["to"])), "body": body}
    return pop(put(state, SENT, next_id(state.tables[SENT], "s"), **record))


def _send_icon(ui: Ui, effect: Effect) -> Widget:
    return icon("send", "send", ui.pick("Send", "Send now"), tap=effect)
