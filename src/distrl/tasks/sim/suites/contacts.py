"""Tasks in the contacts app."""

from __future__ import annotations

from distrl.devices.sim.apps.contacts import CALL, PERSON
from distrl.devices.sim.content_pools import COMPANIES, PEOPLE, TEXTS, phone_number
from distrl.tasks.sim.templates import Draft, Templates, column, enter, go_back, open_app, tap, type_in, unused

templates = Templates()


def _person(t: Draft) -> tuple[str, str]:
    id, record = t.row(PERSON)
    return id, str(record["name"])


@templates.add
def contacts_call(t: Draft) -> None:
    """Call a person from the contact list."""
    id, who = _person(t)
    t.say(
        f"Call {who}",
        f"Ring {who}",
        f"Phone {who} for me",
        f"Dial the number of {who}",
        f"I want to speak to {who} on the phone",
    )
    t.want(CALL, who=who)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("call"))


@templates.add
def contacts_favourite(t: Draft) -> None:
    """Mark a person as a favourite."""
    id, who = _person(t)
    t.say(
        f"Add {who} to my favourites",
        f"Mark {who} as a favourite",
        f"Star the contact {who}",
        f"Make {who} one of my preferred people",
        f"I want {who} among the favourites",
    )
    t.given(PERSON, id, favourite=False)
    t.want(PERSON, id, favourite=True)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("favourite"))


@templates.add
def contacts_delete(t: Draft) -> None:
    """Delete a person."""
    id, who = _person(t)
    t.say(
        f"Delete {who} from my contacts",
        f"Get rid of the contact {who}",
        f"Remove {who} from the address book",
        f"Erase the entry of {who}",
        f"I no longer need the contact {who} so bin it",
    )
    t.want_gone(PERSON, id)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("delete"), tap("confirm:yes"))


@templates.add
def contacts_add_with_company(t: Draft) -> None:
    """Add a person with a number and a company."""
    who, phone, company = unused(t, PEOPLE, column(t, PERSON, "name")), phone_number(t.random), t.choose(COMPANIES)
    t.say(
        f"Add {who} from {company} with the number {phone} to my contacts", f"Create a contact for {who} of {company} whose phone is {phone}",
        f"Save {phone} as the number of {who} who works at {company}", f"Put {who} in the address book with {phone} and the firm {company}",
    )  # fmt: skip
    t.want(PERSON, name=who, phone=phone, company=company)
    t.route(
        open_app("contacts"),
        tap("new"),
        type_in("name", who),
        type_in("phone", phone),
        type_in("company", company),
        tap("save"),
    )


@templates.add
def contacts_change_number(t: Draft) -> None:
    """Change a person's number."""
    (id, who), phone = _person(t), phone_number(t.random)
    t.say(
        f"The new number of {who} is {phone} so please update it", f"Change the phone of {who} to {phone}", f"{who} can now be reached at {phone} so correct the contact",
        f"Update the contact {who} with the number {phone}", f"Replace the number of {who} by {phone}",
    )  # fmt: skip
    t.want(PERSON, id, phone=phone)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("edit"), type_in("phone", phone), tap("save"))


@templates.add_for_test
def contacts_change_company(t: Draft) -> None:
    """Change a person's company."""
    (id, who), company = _person(t), unused(t, COMPANIES, column(t, PERSON, "company"))
    t.say(
        f"{who} now works at {company} so update the contact",
        f"Change the company of {who} to {company}",
        f"Note in the address book that {who} has moved to {company}",
    )
    t.want(PERSON, id, company=company)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("edit"), type_in("company", company), tap("save"))


@templates.add
def contacts_ask_phone(t: Draft) -> None:
    """Say a person's number."""
    id, who = _person(t)
    t.say(
        f"What is the phone number of {who}?",
        f"Which number does {who} have?",
        f"Tell me how to ring {who}",
        f"Look up the mobile number of {who}",
        f"I need the digits to dial {who}",
    )
    t.want_answer(str(t.tables[PERSON][id]["phone"]))
    t.route(open_app("contacts"), tap(f"person:{id}"))


@templates.add
def contacts_message(t: Draft) -> None:
    """Find a person in the contact list and send a message."""
    (id, who), text = _person(t), t.choose(TEXTS)
    t.say(
        f"From the contact page of {who} send the text {text}", f"Look up {who} in the address book and text {text}", f"Find {who} in my contacts and send the message {text}",
        f"Open the contact {who} and from there write {text}",
    )  # fmt: skip
    t.want("messages.sent", to=who, text=text)
    t.route(open_app("contacts"), tap(f"person:{id}"), tap("message"), type_in("text", text), tap("send"))


@templates.add_for_test
def contacts_favourite_and_call(t: Draft) -> None:
    """Mark one person as a favourite and call another."""
    id, who = _person(t)
    other_id, record = t.row(PERSON, lambda record: record["name"] != who)
    other = record["name"]
    t.say(
        f"Make {who} a favourite and then call {other}",
        f"Star {who} and ring {other}",
        f"Add {who} to the favourites and phone {other} afterwards",
        f"First mark {who} as preferred then dial {other}",
    )
    t.given(PERSON, id, favourite=False)
    t.want(PERSON, id, favourite=True)
    t.want(CALL, who=other)
    t.route(
        open_app("contacts"), tap(f"person:{id}"), tap("favourite"), go_back(), tap(f"person:{other_id}"), tap("call")
    )


@templates.add
def contacts_absent_call(t: Draft) -> None:
    """Call someone who is not in the contact list: impossible."""
    who = unused(t, PEOPLE, column(t, PERSON, "name"))
    t.say(
        f"Call {who}",
        f"Ring up {who}",
        f"Please phone {who} now",
        f"Delete the contact {who}",
        f"Look up the number of {who}",
    )
    t.cannot_be_done()
    t.route(open_app("contacts"), type_in("search", who), enter())
