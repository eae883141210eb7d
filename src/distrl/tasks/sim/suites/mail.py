"""Tasks in the mail app."""

from __future__ import annotations

from distrl.devices.sim.apps.mail import MAIL, SENT
from distrl.devices.sim.content_pools import PEOPLE, SUBJECTS, TEXTS
from distrl.devices.sim.state import Record
from distrl.tasks.sim.templates import Draft, Templates, column, enter, open_app, tap, type_in, unused

templates = Templates()


def _mail(t: Draft, folder: str = "inbox") -> tuple[str, str]:
    """A mail of a folder, and how the user calls it."""
    id, mail = t.row(MAIL, lambda record: record["folder"] == folder)
    return id, t.one_of(f"from {mail['from']}", f"about {mail['subject']}")


@templates.add
def mail_archive(t: Draft) -> None:
    """Archive a mail."""
    id, which = _mail(t)
    t.say(
        f"Archive the mail {which}",
        f"Store the email {which} away",
        f"Put the message {which} in the archive",
        f"Clear the mail {which} out of the inbox but keep it",
        f"File the email {which} away",
    )
    t.want(MAIL, id, folder="archive")
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("archive"))


@templates.add
def mail_delete_two(t: Draft) -> None:
    """Delete two mails."""
    id, which = _mail(t)
    other, mail = t.row(MAIL, lambda record: record["folder"] == "inbox" and record is not t.tables[MAIL][id])
    also = f"about {mail['subject']}"
    t.say(
        f"Delete the mail {which} and the one {also}",
        f"Bin two emails namely the one {which} and the one {also}",
        f"Get rid of the mails {which} and {also}",
        f"Throw away the message {which} as well as the one {also}",
        f"Move both the email {which} and the one {also} to the rubbish",
    )
    t.want(MAIL, id, folder="bin")
    t.want(MAIL, other, folder="bin")
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("delete"), tap(f"mail:{other}"), tap("delete"))


@templates.add_for_test
def mail_delete_and_star(t: Draft) -> None:
    """Delete one mail and star another."""
    id, which = _mail(t)
    other, mail = t.row(MAIL, lambda record: record["folder"] == "inbox" and record is not t.tables[MAIL][id])
    t.say(
        f"Delete the mail {which} and star the one from {mail['from']}",
        f"Bin the email {which} and flag the one about {mail['subject']}",
        f"Get rid of the message {which} and put a star on the one from {mail['from']}",
    )
    t.given(MAIL, other, starred=False)
    t.want(MAIL, id, folder="bin")
    t.want(MAIL, other, starred=True)
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("delete"), tap(f"mail:{other}"), tap("star"))


@templates.add
def mail_star_and_archive(t: Draft) -> None:
    """Star a mail and archive it."""
    id, which = _mail(t)
    t.say(
        f"Star the mail {which} and archive it",
        f"Flag the email {which} and then store it away",
        f"Mark the message {which} as important and file it",
        f"Put a star on the mail {which} and clear it out of the inbox",
    )
    t.given(MAIL, id, starred=False)
    t.want(MAIL, id, starred=True, folder="archive")
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("star"), tap("archive"))


@templates.add
def mail_restore(t: Draft) -> None:
    """Move an archived mail back to the inbox."""
    id, which = _mail(t, "archive")
    t.say(
        f"Move the archived mail {which} back to the inbox",
        f"Bring the email {which} back from the archive",
        f"Unarchive the message {which}",
        f"I want the stored mail {which} in my inbox again",
    )
    t.want(MAIL, id, folder="inbox")
    t.route(open_app("mail"), tap("folders"), tap("folder:archive"), tap(f"mail:{id}"), tap("restore"))


@templates.add_for_test
def mail_undelete(t: Draft) -> None:
    """Move a mail from the bin back to the inbox."""
    id, which = _mail(t, "bin")
    t.say(
        f"Rescue the mail {which} from the bin",
        f"Undelete the email {which}",
        f"Take the message {which} out of the rubbish and back to the inbox",
    )
    t.want(MAIL, id, folder="inbox")
    t.route(open_app("mail"), tap("folders"), tap("folder:bin"), tap(f"mail:{id}"), tap("restore"))


@templates.add
def mail_reply(t: Draft) -> None:
    """Reply to a mail."""
    (id, which), text = _mail(t), t.choose(TEXTS)
    t.say(
        f"Reply to the mail {which} with {text}",
        f"Answer the email {which} saying {text}",
        f"Write back to the message {which} that {text}",
        f"Respond to the mail {which} with the words {text}",
    )
    t.want(SENT, reply_to=id, body=text)
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("reply"), type_in("body", text), tap("send"))


@templates.add
def mail_reply_and_archive(t: Draft) -> None:
    """Reply to a mail and archive it."""
    (id, which), text = _mail(t), t.choose(TEXTS)
    t.say(
        f"Reply to the mail {which} with {text} and archive it",
        f"Answer the email {which} saying {text} then store it away",
        f"Write back {text} to the message {which} and file it",
        f"Respond with {text} to the mail {which} and clear it out of the inbox",
    )
    t.want(SENT, reply_to=id, body=text)
    t.want(MAIL, id, folder="archive")
    t.route(open_app("mail"), tap(f"mail:{id}"), tap("reply"), type_in("body", text), tap("send"), tap("archive"))


@templates.add
def mail_compose(t: Draft) -> None:
    """Write a new mail to someone."""
    who, subject, text = t.choose(PEOPLE), t.choose(SUBJECTS), t.choose(TEXTS)
    t.say(
        f"Email {who} about {subject} and say {text}", f"Write a mail to {who} with the subject {subject} and the text {text}",
        f"Send {who} an email titled {subject} that reads {text}", f"Compose a message to {who} on {subject} with the words {text}",
    )  # fmt: skip
    t.want(SENT, to=who, subject=subject, body=text)
    t.route(
        open_app("mail"),
        tap("new"),
        type_in("to", who),
        type_in("subject", subject),
        type_in("body", text),
        tap("send"),
    )


def _ask(t: Draft, field: str) -> Record:
    id, mail = t.row(MAIL, lambda record: record["folder"] == "inbox")
    t.want_answer(str(mail[field]))
    t.route(open_app("mail"), tap(f"mail:{id}"))
    return mail


@templates.add
def mail_ask_sender(t: Draft) -> None:
    """Say who sent a mail."""
    subject = _ask(t, "from")["subject"]
    t.say(
        f"Who sent the mail about {subject}?",
        f"Who is the author of the email on {subject}?",
        f"Tell me who wrote to me about {subject}",
        f"From whom is the message with the subject {subject}?",
    )


@templates.add
def mail_absent(t: Draft) -> None:
    """Say who sent a mail that does not exist: impossible."""
    subject = unused(t, SUBJECTS, column(t, MAIL, "subject"))
    t.say(
        f"Archive the mail about {subject}",
        f"Reply to the email about {subject} with a thank you",
        f"Bin the message on {subject}",
        f"Who sent the mail with the subject {subject} to me",
        f"Star the mail about {subject}",
    )
    t.cannot_be_done()
    t.route(open_app("mail"), tap("find"), type_in("query", subject), enter())
