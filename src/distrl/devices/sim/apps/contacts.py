"""Contacts: people with numbers, favourites, and calls made from here."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, flip, go, pop, swap
from distrl.devices.sim.content_pools import COMPANIES, PEOPLE, email_of, phone_number
from distrl.devices.sim.patterns import confirm
from distrl.devices.sim.state import PhoneState, Record, Tables, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, heading, icon, label, row, tab

app = App("contacts", "Contacts", icon="person", colour="#1a73e8")

PERSON, CALL = "contacts.person", "contacts.call"
FIELDS = {
    "name": ("Name", "Full name"),
    "phone": ("Phone", "Mobile number"),
    "email": ("Email", "Mail address"),
    "company": ("Company", "Works at"),
}


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-four people and no calls."""
    names = sorted(seeder.sample(PEOPLE, 24))
    return {PERSON: {f"p{number}": _person(seeder, name) for number, name in enumerate(names)}, CALL: {}}


def _person(seeder: Seeder, name: str) -> Record:
    return {
        "name": name,
        "phone": phone_number(seeder.random),
        "email": email_of(name),
        "company": seeder.choose(COMPANIES),
        "favourite": seeder.random.random() < 0.2,
    }


@app.screen("home")
def home(ui: Ui) -> View:
    """Everyone or the favourites, by name, with a search field."""
    favourites, query = ui.args.get("tab") == "favourites", ui.draft("search").casefold()
    found = sorted(
        (str(person["name"]), id)
        for id, person in ui.table(PERSON).items()
        if query in str(person["name"]).casefold() and (person["favourite"] or not favourites)
    )
    rows = (row(f"person:{id}", name, tap=go("contacts", "person", id=id), icon=f"face:{name}") for name, id in found)
    return View(
        title=ui.pick("Contacts", "People", "Phone book"),
        body=(ui.field("search", ui.pick("Search contacts", "Find someone")), *rows),
        top=(icon("new", "plus", ui.pick("Add contact", "New person", "Create"), tap=go("contacts", "edit")),),
        bottom=ui.arrange(
            (
                tab("tab:all", ui.pick("All", "Everyone"), not favourites, tap=swap("contacts"), icon="people"),
                tab(
                    "tab:favourites",
                    ui.pick("Favourites", "Starred"),
                    favourites,
                    tap=swap("contacts", tab="favourites"),
                    icon="star",
                ),
            )
        ),
    )


@app.screen("person")
def person(ui: Ui) -> View:
    """One person: number, address and company, with buttons to call and to write."""
    id, who = ui.args["id"], ui.record(PERSON, ui.args["id"])
    body: list[Widget] = []
    for name in ("phone", "email", "company"):
        body += [heading(f"{name}:title", ui.pick(*FIELDS[name])), label(name, str(who[name]))]
    star = ui.pick("Remove from favourites", "Unstar") if who["favourite"] else ui.pick("Add to favourites", "Star")
    message = go("messages", "compose", to=str(who["name"]))
    return View(
        title=str(who["name"]),
        body=tuple(body),
        top=(
            icon("favourite", "star" if who["favourite"] else "star-outline", star, tap=flip(PERSON, id, "favourite")),
            icon("edit", "edit", ui.pick("Edit", "Change"), tap=go("contacts", "edit", id=id)),
            icon("delete", "trash", ui.pick("Delete", "Remove"), tap=go("contacts", "delete", id=id)),
        ),
        bottom=ui.arrange(
            (
                button("call", ui.pick("Call", "Dial"), tap=_call(who), icon="call"),
                button("message", ui.pick("Message", "Send text"), tap=message, look="quiet", icon="message"),
            )
        ),
        style="group",
        picture=f"face:{who['name']}",
        picture_at="aside",
    )


def _call(who: Record) -> Effect:
    def run(state: PhoneState) -> PhoneState:
        id = next_id(state.tables[CALL], "c")
        state = put(state, CALL, id, who=who["name"], phone=who["phone"])
        return go("contacts", "calling", id=id)(state)

    return run


@app.screen("calling")
def calling(ui: Ui) -> View:
    """A call that is being made."""
    call = ui.record(CALL, ui.args["id"])
    body = (
        label("who", str(call["who"])),
        label("phone", str(call["phone"])),
        button("hang-up", "Hang up", tap=back(), look="danger", icon="call"),
    )
    return View(title=ui.pick("Calling", "Dialling"), body=body, style="call", picture=f"face:{call['who']}")


@app.screen("edit")
def edit(ui: Ui) -> View:
    """The form of a new person or of one that is changed."""
    who = ui.record(PERSON, ui.args.get("id", ""))
    fields = (ui.field(name, ui.pick(*hints), str(who.get(name, ""))) for name, hints in FIELDS.items())
    title = ui.pick("Edit contact", "Change contact") if who else ui.pick("New contact", "Add a person")
    return View(
        title=title, body=tuple(fields), top=(icon("save", "check", ui.pick("Save", "Done", "Keep"), tap=_save),)
    )


def _save(state: PhoneState) -> PhoneState:
    typed = {name: text for name, text in state.place.drafts.items() if name in FIELDS}
    if id := state.place.args.get("id"):
        return pop(put(state, PERSON, id, **typed))
    if not typed.get("name"):
        return state
    blank: Record = {**dict.fromkeys(FIELDS, ""), "favourite": False}
    return pop(put(state, PERSON, next_id(state.tables[PERSON], "p"), **{**blank, **typed}))


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before a person is deleted."""
    id = ui.args["id"]
    question = f"{ui.pick('Delete', 'Remove')} {ui.record(PERSON, id)['name']}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Remove", "Yes"), effect=do(back(2), erase(PERSON, id)))
