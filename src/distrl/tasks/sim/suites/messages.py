"""Tasks in the messages app."""

from __future__ import annotations

from distrl.devices.sim.apps.messages import SENT, THREAD
from distrl.devices.sim.content_pools import PEOPLE, TEXTS, phone_number
from distrl.tasks.sim.templates import Draft, Templates, enter, go_back, hold, open_app, tap, type_in, unused

templates = Templates()


def _last(t: Draft, who: str) -> str:
    return str(t.tables[THREAD][who]["lines"]).split("\n")[-1]


@templates.add
def messages_reply(t: Draft) -> None:
    """Reply in a chat."""
    (who, _), text = t.row(THREAD), t.choose(TEXTS)
    t.say(
        f"Reply to {who} with {text}",
        f"Answer the text from {who} by writing {text}",
        f"In the chat with {who} write {text}",
        f"Let {who} know in our conversation {text}",
        f"Respond to {who} saying {text}",
    )
    t.want(SENT, to=who, text=text)
    t.route(open_app("messages"), tap(f"thread:{who}"), type_in("reply", text), tap("send"))


@templates.add
def messages_new(t: Draft) -> None:
    """Start a chat with someone and write."""
    who, text = unused(t, PEOPLE, t.tables[THREAD]), t.choose(TEXTS)
    t.say(
        f"Text {who} saying {text}",
        f"Send {who} the message {text}",
        f"Start a chat with {who} and write {text}",
        f"Drop {who} a line with the words {text}",
        f"Compose a text to {who} that reads {text}",
    )
    t.want(SENT, to=who, text=text)
    t.route(open_app("messages"), tap("new"), type_in("to", who), type_in("text", text), tap("send"))


@templates.add_for_test
def messages_new_to_number(t: Draft) -> None:
    """Write to a phone number."""
    phone, text = phone_number(t.random), t.choose(TEXTS)
    t.say(
        f"Text the number {phone} saying {text}",
        f"Send a message to {phone} that reads {text}",
        f"Write {text} to the mobile {phone}",
    )
    t.want(SENT, to=phone, text=text)
    t.route(open_app("messages"), tap("new"), type_in("to", phone), type_in("text", text), tap("send"))


@templates.add
def messages_two_people(t: Draft) -> None:
    """Write the same to two people."""
    one, two, text = unused(t, PEOPLE, t.tables[THREAD]), unused(t, PEOPLE, t.tables[THREAD]), t.choose(TEXTS)
    two = unused(t, PEOPLE, [*t.tables[THREAD], one]) if two == one else two
    t.say(
        f"Text both {one} and {two} saying {text}",
        f"Send {text} to {one} and also to {two}",
        f"Tell {one} and separately {two} the words {text}",
        f"Write the message {text} to {one} and then to {two}",
    )
    for who in (one, two):
        t.want(SENT, to=who, text=text)
    t.route(open_app("messages"), tap("new"), type_in("to", one), type_in("text", text), tap("send"), go_back())
    t.route(tap("new"), type_in("to", two), type_in("text", text), tap("send"))


@templates.add
def messages_delete(t: Draft) -> None:
    """Delete a chat."""
    who, _ = t.row(THREAD)
    t.say(
        f"Delete the chat with {who}",
        f"Get rid of the conversation with {who}",
        f"Bin my messages with {who}",
        f"Erase the thread of {who}",
        f"Wipe everything {who} and I wrote to each other",
    )
    t.want_gone(THREAD, who)
    t.route(open_app("messages"), hold(f"thread:{who}"), tap("delete"), tap("confirm:yes"))


@templates.add
def messages_mute(t: Draft) -> None:
    """Mute a chat."""
    who, _ = t.row(THREAD)
    t.say(
        f"Mute the chat with {who}",
        f"Silence messages from {who}",
        f"Stop notifying me about {who}",
        f"I want no more alerts when {who} writes",
        f"Turn off notifications for the conversation with {who}",
    )
    t.want(THREAD, who, muted=True)
    t.route(open_app("messages"), hold(f"thread:{who}"), tap("mute"))


@templates.add
def messages_mute_one_reply_other(t: Draft) -> None:
    """Mute one chat and reply in another."""
    (who, _), text = t.row(THREAD), t.choose(TEXTS)
    other, _ = t.row(THREAD, lambda record: record is not t.tables[THREAD][who])
    t.say(
        f"Mute the chat with {who} and reply to {other} with {text}", f"Silence {who} and then answer {other} by writing {text}",
        f"Stop alerts from {who} and respond to {other} saying {text}", f"No more notifications from {who} please and tell {other} in our chat {text}",
    )  # fmt: skip
    t.want(THREAD, who, muted=True)
    t.want(SENT, to=other, text=text)
    t.route(
        open_app("messages"),
        hold(f"thread:{who}"),
        tap("mute"),
        tap(f"thread:{other}"),
        type_in("reply", text),
        tap("send"),
    )


@templates.add
def messages_ask_last(t: Draft) -> None:
    """Say what someone wrote last."""
    who, _ = t.row(THREAD)
    t.say(
        f"What did {who} text me last?",
        f"Read me the latest message from {who}",
        f"What is the newest thing that {who} wrote?",
        f"Tell me what {who} said in the last text",
        f"What does the most recent message of {who} say?",
    )
    t.want_answer(_last(t, who))
    t.route(open_app("messages"), tap(f"thread:{who}"))


@templates.add
def messages_absent_chat(t: Draft) -> None:
    """Pin a chat that does not exist: impossible."""
    who = unused(t, PEOPLE, t.tables[THREAD])
    t.say(
        f"Delete the chat with {who}",
        f"Mute the conversation with {who}",
        f"What was the last message from {who} about?",
        f"Pin the existing thread of {who}",
        f"Bin all messages from {who}",
    )
    t.cannot_be_done()
    t.route(open_app("messages"), type_in("search", who), enter())
