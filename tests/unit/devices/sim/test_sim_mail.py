"""Mail: folders, reading, stars, the archive and the bin, search, replies and new mails."""

from __future__ import annotations

import pytest

from distrl.devices.sim.content_pools import email_of
from support.sims import Finger


def in_folder(finger: Finger, folder: str) -> list[str]:
    return [id for id, mail in finger.table("mail.mail").items() if mail["folder"] == folder]


@pytest.mark.parametrize(("folder", "count"), [("inbox", 14), ("archive", 5), ("bin", 3)])
def test_a_folder_lists_its_mails(folder: str, count: int) -> None:
    finger = Finger("mail").tap("folders", f"folder:{folder}")
    assert finger.ids("mail:") == [f"mail:{id}" for id in in_folder(finger, folder)]
    assert len(finger.ids("mail:")) == count


def test_starred_mails_of_all_folders_are_listed_together() -> None:
    finger = Finger("mail").tap("folders", "folder:starred")
    starred = {f"mail:{id}" for id, mail in finger.table("mail.mail").items() if mail["starred"]}
    assert set(finger.ids("mail:")) == starred


def test_the_open_folder_is_ticked_and_choosing_another_does_not_deepen_the_way_back() -> None:
    finger = Finger("mail").tap("folders")
    ticked = [id for id in finger.ids("folder:") if finger.widgets()[id].checked]
    assert ticked == ["folder:inbox"]
    finger.tap("folder:bin", "folders", "folder:sent")
    assert finger.back().state.place.app == "launcher"


def test_a_mail_tells_sender_time_and_reference() -> None:
    finger = Finger("mail")
    id = in_folder(finger, "inbox")[0]
    mail = finger.table("mail.mail")[id]
    finger.tap(f"mail:{id}")
    for field in ("subject", "from", "when", "reference", "text"):
        assert finger.text(field) == mail[field]


def test_reading_marks_a_mail_as_read_and_is_no_side_effect() -> None:
    finger = Finger("mail")
    unread = [id for id in in_folder(finger, "inbox") if id not in finger.table("mail.seen")]
    assert len(unread) == 5
    assert finger.widgets()[f"mail:{unread[0]}"].icon.startswith("unread:")
    finger.tap(f"mail:{unread[0]}").back()
    assert finger.widgets()[f"mail:{unread[0]}"].icon.startswith("face:")
    assert finger.changes() == []


def test_a_star_is_put_on_and_taken_off() -> None:
    finger = Finger("mail")
    id = in_folder(finger, "inbox")[0]
    before = finger.table("mail.mail")[id]["starred"]
    finger.tap(f"mail:{id}", "star")
    assert finger.table("mail.mail")[id]["starred"] is not before
    finger.tap("star")
    assert finger.changes() == []


@pytest.mark.parametrize(("icon", "folder"), [("archive", "archive"), ("delete", "bin")])
def test_a_mail_of_the_inbox_is_put_away(icon: str, folder: str) -> None:
    finger = Finger("mail")
    id = in_folder(finger, "inbox")[0]
    finger.tap(f"mail:{id}", icon)
    assert finger.changes() == [("mail.mail", {**finger.start.tables["mail.mail"][id], "folder": folder})]
    assert finger.screen == "mail/home"
    assert f"mail:{id}" not in finger.ids()


@pytest.mark.parametrize("folder", ["archive", "bin"])
def test_a_mail_of_another_folder_is_brought_back(folder: str) -> None:
    finger = Finger("mail")
    id = in_folder(finger, folder)[0]
    finger.tap("folders", f"folder:{folder}", f"mail:{id}")
    assert "archive" not in finger.ids()
    finger.tap("restore")
    assert finger.table("mail.mail")[id]["folder"] == "inbox"


def test_a_search_finds_senders_and_subjects_in_all_folders() -> None:
    finger = Finger("mail")
    id = in_folder(finger, "bin")[0]
    mail = finger.table("mail.mail")[id]
    finger.tap("find")
    assert finger.ids("mail:") == [], "nothing is found before something is typed"
    for words in (mail["from"], mail["subject"]):
        finger.type("query", str(words).lower())
        assert f"mail:{id}" in finger.ids()
    assert finger.type("query", "no such thing").ids("mail:") == []


def test_a_reply_goes_to_the_sender_under_the_same_subject() -> None:
    finger = Finger("mail")
    id = in_folder(finger, "inbox")[0]
    mail = finger.table("mail.mail")[id]
    finger.tap(f"mail:{id}", "reply")
    assert finger.text("to") == mail["from"]
    finger.type("body", "thank you").tap("send")
    assert finger.screen == "mail/read"
    assert finger.changes() == [
        (
            "mail.sent",
            {
                "to": mail["from"],
                "subject": f"Re: {mail['subject']}",
                "reply_to": id,
                "address": email_of(str(mail["from"])),
                "body": "thank you",
            },
        )
    ]


def test_a_reply_without_words_is_not_sent() -> None:
    finger = Finger("mail")
    finger.tap(f"mail:{in_folder(finger, 'inbox')[0]}", "reply", "send")
    assert (finger.screen, finger.changes()) == ("mail/reply", [])


def test_a_new_mail_needs_a_recipient_and_words_but_no_subject() -> None:
    finger = Finger("mail").tap("new").type("body", "hello").tap("send")
    assert finger.changes() == []
    finger.type("to", "Zoe Test").tap("send")
    assert finger.changes() == [
        ("mail.sent", {"to": "Zoe Test", "subject": "", "address": "zoe.test@post.example", "body": "hello"})
    ]
    assert finger.screen == "mail/home"


def test_what_was_sent_stands_in_its_folder() -> None:
    finger = Finger("mail").tap("folders", "folder:sent")
    assert finger.ids("sent:") == []
    finger.tap("new").type("to", "Zoe Test").type("subject", "Tea").type("body", "hello").tap("send")
    row = finger.widgets()[f"sent:{finger.made('mail.sent')}"]
    assert (row.text, row.detail) == ("Zoe Test", "Tea")
    assert row.tap is None
