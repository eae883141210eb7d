"""Messages: chats that are read, answered, started, pinned, muted and deleted."""

from __future__ import annotations

from support.sims import Finger


def someone(finger: Finger) -> str:
    return next(iter(finger.table("messages.thread")))


def test_every_chat_is_listed() -> None:
    finger = Finger("messages")
    assert set(finger.ids("thread:")) == {f"thread:{who}" for who in finger.table("messages.thread")}
    assert len(finger.ids("thread:")) == 14


def test_four_chats_are_new_until_they_are_opened() -> None:
    finger = Finger("messages")
    new = [id for id in finger.ids("thread:") if finger.widgets()[id].detail == "new"]
    assert len(new) == 4
    finger.tap(new[0]).back()
    assert finger.widgets()[new[0]].detail == ""


def test_reading_a_chat_is_no_side_effect() -> None:
    finger = Finger("messages")
    finger.tap(f"thread:{someone(finger)}")
    assert finger.state.tables["messages.seen"] == finger.start.tables["messages.seen"] | {
        someone(finger): {"seen": True}
    }
    assert finger.changes() == []


def test_a_chat_shows_its_lines_in_order() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.tap(f"thread:{who}")
    assert finger.title == who
    lines = [finger.text(id) for id in finger.ids("line:")]
    assert "\n".join(lines) == finger.table("messages.thread")[who]["lines"]


def test_an_answer_is_sent_by_enter_and_stands_at_the_end() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.tap(f"thread:{who}").enter("reply", "on my way")
    assert finger.changes() == [("messages.sent", {"to": who, "text": "on my way"})]
    assert finger.text(finger.ids("line:")[-1]) == "You: on my way"
    assert finger.text("reply") == "", "the field is empty again"


def test_an_answer_is_sent_by_the_icon_too() -> None:
    finger = Finger("messages")
    finger.tap(f"thread:{someone(finger)}").type("reply", "on my way").tap("send")
    assert [record["text"] for record in finger.table("messages.sent").values()] == ["on my way"]


def test_nothing_is_sent_while_nothing_is_typed() -> None:
    finger = Finger("messages")
    finger.tap(f"thread:{someone(finger)}", "send", "send")
    assert finger.changes() == []


def test_sending_does_not_deepen_the_way_back() -> None:
    finger = Finger("messages")
    finger.tap(f"thread:{someone(finger)}").enter("reply", "one").enter("reply", "two")
    assert [record["text"] for record in finger.table("messages.sent").values()] == ["one", "two"]
    assert finger.back().screen == "messages/home"


def test_a_new_message_needs_a_recipient_and_a_text() -> None:
    finger = Finger("messages").tap("new").type("text", "hello").tap("send")
    assert (finger.screen, finger.changes()) == ("messages/compose", [])
    finger = Finger("messages").tap("new").type("to", "Zoe Test").tap("send")
    assert (finger.screen, finger.changes()) == ("messages/compose", [])


def test_a_message_to_a_stranger_opens_a_chat_that_comes_first_in_the_list() -> None:
    finger = Finger("messages").tap("new").type("to", "Zoe Test").enter("text", "hello")
    assert (finger.screen, finger.title) == ("messages/chat", "Zoe Test")
    assert finger.changes() == [("messages.sent", {"to": "Zoe Test", "text": "hello"})]
    assert finger.back().ids("thread:")[0] == "thread:Zoe Test"


def test_a_message_to_someone_known_joins_their_chat() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.tap("new").type("to", who).type("text", "hello").tap("send")
    assert len(finger.ids("line:")) > 1
    assert finger.text(finger.ids("line:")[-1]) == "You: hello"
    assert finger.back().ids("thread:").count(f"thread:{who}") == 1


def test_a_search_narrows_the_list() -> None:
    finger = Finger("messages")
    who = someone(finger)
    assert finger.type("search", who.upper()).ids("thread:") == [f"thread:{who}"]
    assert finger.type("search", "Nobody At All").ids("thread:") == []


def test_holding_a_chat_pins_it_to_the_top_and_releases_it() -> None:
    finger = Finger("messages")
    last = finger.ids("thread:")[-1]
    finger.hold(last).tap("pin")
    assert finger.screen == "messages/home"
    assert finger.ids("thread:")[0] == last
    assert "pinned" in finger.widgets()[last].detail
    finger.hold(last).tap("pin")
    assert finger.changes() == []


def test_a_chat_is_muted_from_its_own_menu() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.tap(f"thread:{who}", "more", "mute")
    assert finger.screen == "messages/chat"
    assert finger.changes() == [("messages.thread", {**finger.start.tables["messages.thread"][who], "muted": True})]
    assert "muted" in finger.back().widgets()[f"thread:{who}"].detail


def test_a_chat_goes_after_a_yes_and_the_list_stays() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.hold(f"thread:{who}").tap("delete", "confirm:no")
    assert finger.changes() == []
    finger.hold(f"thread:{who}").tap("delete", "confirm:yes")
    assert finger.changes() == [("messages.thread", None)]
    assert finger.screen == "messages/home"


def test_deleting_from_inside_a_chat_leaves_it() -> None:
    finger = Finger("messages")
    who = someone(finger)
    finger.tap(f"thread:{who}", "more", "delete", "confirm:yes")
    assert finger.screen == "messages/home"
    assert f"thread:{who}" not in finger.ids()


def test_the_chat_of_a_stranger_is_listed_while_something_was_sent_even_after_it_is_muted() -> None:
    finger = Finger("messages").tap("new").type("to", "Zoe Test").enter("text", "hello").back()
    finger.hold("thread:Zoe Test").tap("mute")
    assert finger.ids("thread:").count("thread:Zoe Test") == 1
    assert "muted" in finger.widgets()["thread:Zoe Test"].detail
