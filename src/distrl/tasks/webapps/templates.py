"""What is asked for on the three apps. A template draws one task from a seed: what the app holds, and what has to come of it.

Names, subjects and amounts are drawn without repetition, so that a record can be told by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from distrl.types import AppCheck, AppSetup, Put, Value, Want

KINDS = ("Old", "New", "Summer", "Winter", "Family", "Office", "Cheap", "Spare", "Green", "Sunday")
THINGS = (
    "bread", "garden", "holiday", "camera", "bicycle", "piano", "boiler", "passport", "marathon", "aquarium", "roof", "printer", "wine",
    "coats", "books", "car", "stamps", "telescope", "beehives", "radio", "tent",
)  # fmt: skip
NOTES = tuple(f"{kind} {thing}" for kind in KINDS for thing in THINGS)
TEXTS = (
    "ask Ruth first", "look at it in May", "the key is in the drawer", "costs too much", "call before noon", "two of them are enough", "needs new batteries",
    "wait for the rain to stop", "Omar has done it before", "take the blue one", "only on Mondays", "it is under the stairs", "measure it again", "return by Friday",
)  # fmt: skip
TAGS = ("urgent", "home", "later", "ideas", "shared", "spring", "done", "costs")
SUBJECTS = (
    "Invoice for March", "Dentist on Tuesday", "Your parcel is here", "Class reunion", "New house rules", "Water meter reading", "Train strike", "Concert tickets",
    "Library reminder", "Lost umbrella", "Recipe for Sunday", "Heating service", "Board meeting", "School play", "Photo prints ready", "Parking permit",
)  # fmt: skip
SENDERS = ("amina", "bruno", "clara", "dmitri", "elif", "farid", "greta", "hugo", "irene", "jonas")
BANKS = tuple(
    f"{name.title()} {kind}"
    for name in SENDERS
    for kind in (
        "checking",
        "savings",
        "cash",
        "travel",
        "rainy day",
        "rent",
        "pocket money",
        "gifts",
        "emergency",
        "car",
    )
)
CATEGORIES: dict[str, Value] = {
    "Food": "Usual Expenses", "General": "Usual Expenses", "Bills": "Usual Expenses", "Bills (Flexible)": "Usual Expenses",
    "Savings": "Investments and Savings",
}  # fmt: skip
"""Categories of expenses that a new budget has, and their groups."""
RENAMED = ("Groceries", "Household", "Rent", "Hobbies", "Doctor", "Clothes", "Pets", "Presents")


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a template."""

    instruction: str
    setup: AppSetup
    check: AppCheck
    max_steps: int = 20


Template = Callable[[Random], Drawn]


# --- wiki -------------------------------------------------------------------------------------------------------------


def _notes(random: Random, count: int) -> list[Put]:
    texts = random.sample(TEXTS, count)
    tags = [random.choice(TAGS[:4]) if random.random() < 0.4 else "" for _ in range(count)]
    return [
        Put(table="notes", id=title, fields={"text": text, "tags": tag})
        for title, text, tag in zip(random.sample(NOTES, count), texts, tags, strict=True)
    ]


def wiki_create(random: Random) -> Drawn:
    """A new note."""
    notes = _notes(random, 4)
    title = random.choice([each for each in NOTES if each not in {note.id for note in notes}])
    text = random.choice(TEXTS)
    return Drawn(
        instruction=f'Write a new note with the title "{title}" and the text "{text}"',
        setup=AppSetup(app="wiki", records=tuple(notes[1:])),
        check=AppCheck(wants=(Want(table="notes", id=title, fields={"text": text, "tags": ""}),)),
    )


def wiki_delete(random: Random) -> Drawn:
    """One note less."""
    notes = _notes(random, 4)
    return Drawn(
        instruction=f'Delete the note "{notes[0].id}"',
        setup=AppSetup(app="wiki", records=tuple(sorted(notes, key=lambda note: note.id))),
        check=AppCheck(wants=(Want(table="notes", id=notes[0].id, absent=True),)),
    )


def wiki_rewrite(random: Random) -> Drawn:
    """Another text for a note."""
    notes = _notes(random, 4)
    text = random.choice([each for each in TEXTS if each not in {(note.fields or {})["text"] for note in notes}])
    return Drawn(
        instruction=f'Replace the text of the note "{notes[0].id}" by "{text}"',
        setup=AppSetup(app="wiki", records=tuple(sorted(notes, key=lambda note: note.id))),
        check=AppCheck(wants=(Want(table="notes", id=notes[0].id, fields={"text": text}),)),
    )


def wiki_tag(random: Random) -> Drawn:
    """A tag for a note that has none."""
    notes = _notes(random, 4)
    tag = random.choice(TAGS[4:])
    first = msgspec.structs.replace(notes[0], fields={**(notes[0].fields or {}), "tags": ""})
    return Drawn(
        instruction=f'Give the note "{first.id}" the tag "{tag}"',
        setup=AppSetup(app="wiki", records=tuple(sorted([first, *notes[1:]], key=lambda note: note.id))),
        check=AppCheck(wants=(Want(table="notes", id=first.id, fields={"tags": tag}),)),
    )


def wiki_question(random: Random) -> Drawn:
    """What a note says."""
    notes = _notes(random, 4)
    answer = str(random.randrange(100, 10_000))
    text = f"{random.choice(TEXTS)}; the number is {answer}"
    first = msgspec.structs.replace(notes[0], fields={"text": text, "tags": ""})
    return Drawn(
        instruction=f'Which number is in the note "{first.id}"? Answer with the number alone',
        setup=AppSetup(app="wiki", records=tuple(sorted([first, *notes[1:]], key=lambda note: note.id))),
        check=AppCheck(answer=answer),
    )


# --- mail -------------------------------------------------------------------------------------------------------------


def _messages(random: Random, count: int) -> list[Put]:
    people, texts = random.sample(SENDERS, count), random.sample(TEXTS, count)
    return [
        Put(table="messages", id=subject, fields={"from": f"{person}@mail.test", "text": text, "read": False})
        for subject, person, text in zip(random.sample(SUBJECTS, count), people, texts, strict=True)
    ]


def _sender(message: Put) -> str:
    return str((message.fields or {})["from"])


def mail_delete(random: Random) -> Drawn:
    """One message less."""
    messages = _messages(random, 5)
    asked = random.choice(messages)
    return Drawn(
        instruction=f'Delete the message "{asked.id}" from {_sender(asked)}',
        setup=AppSetup(app="mail", records=tuple(messages)),
        check=AppCheck(wants=(Want(table="messages", id=asked.id, absent=True),)),
    )


def mail_open(random: Random) -> Drawn:
    """One message read, and the others not."""
    messages = _messages(random, 5)
    asked = random.choice(messages)
    return Drawn(
        instruction=f'Open the message "{asked.id}" from {_sender(asked)}, and no other',
        setup=AppSetup(app="mail", records=tuple(messages)),
        check=AppCheck(wants=(Want(table="messages", id=asked.id, fields={"read": True}),)),
    )


def mail_read_all(random: Random) -> Drawn:
    """All messages marked as read."""
    messages = _messages(random, random.randint(3, 6))
    return Drawn(
        instruction=f'Mark all messages as read, from "{messages[0].id}" to "{messages[-1].id}"',
        setup=AppSetup(app="mail", records=tuple(messages)),
        check=AppCheck(wants=tuple(Want(table="messages", id=each.id, fields={"read": True}) for each in messages)),
    )


def mail_question(random: Random) -> Drawn:
    """What a message says."""
    messages = _messages(random, 5)
    place, answer = random.randrange(5), str(random.randrange(1000, 10_000))
    fields = {**(messages[place].fields or {}), "text": f"{random.choice(TEXTS)}; the code is {answer}"}
    messages[place] = msgspec.structs.replace(messages[place], fields=fields)
    return Drawn(
        instruction=f'Which code is in the message "{messages[place].id}" from {_sender(messages[place])}? Answer with the code alone',
        setup=AppSetup(app="mail", records=tuple(messages)),
        check=AppCheck(answer=answer),
    )


# --- budget -----------------------------------------------------------------------------------------------------------


def _books(random: Random, count: int) -> list[Put]:
    accounts = [
        Put(table="accounts", id=name, fields={"balance": 100 * random.randrange(20, 900), "closed": False})
        for name in random.sample(BANKS, count)
    ]
    categories = [
        Put(table="categories", id=name, fields={"group": group, "hidden": False, "budgeted": 0})
        for name, group in CATEGORIES.items()
    ]
    return [*accounts, *categories]


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def budget_account(random: Random) -> Drawn:
    """A new account."""
    books = _books(random, 3)
    name, cents = books[0].id, 100 * random.randrange(20, 900)
    return Drawn(
        instruction=f'Add a local account with the name "{name}" and a balance of {_money(cents)}',
        setup=AppSetup(app="budget", records=tuple(books[1:])),
        check=AppCheck(wants=(Want(table="accounts", id=name, fields={"balance": cents, "closed": False}),)),
    )


def budget_amount(random: Random) -> Drawn:
    """Money for a category."""
    books = _books(random, 2)
    category, cents = random.choice(sorted(CATEGORIES)), 100 * random.randrange(5, 400)
    return Drawn(
        instruction=f'Budget {_money(cents)} for "{category}" this month',
        setup=AppSetup(app="budget", records=tuple(books)),
        check=AppCheck(wants=(Want(table="categories", id=category, fields={"budgeted": cents}),)),
    )


def budget_rename(random: Random) -> Drawn:
    """Another name for a category."""
    books = _books(random, 2)
    category, name = random.choice(sorted(CATEGORIES)), random.choice(RENAMED)
    fields: dict[str, Value] = {"group": CATEGORIES[category], "hidden": False, "budgeted": 0}
    wants = (Want(table="categories", id=category, absent=True), Want(table="categories", id=name, fields=fields))
    return Drawn(
        instruction=f'Rename the category "{category}" to "{name}"',
        setup=AppSetup(app="budget", records=tuple(books)),
        check=AppCheck(wants=wants),
    )


def budget_question(random: Random) -> Drawn:
    """How much there is."""
    books = _books(random, 4)
    asked = books[random.randrange(4)]
    return Drawn(
        instruction=f'What is the balance of the account "{asked.id}"? Answer like 1,234.00',
        setup=AppSetup(app="budget", records=tuple(books)),
        check=AppCheck(answer=_money(int((asked.fields or {})["balance"]))),
    )


TEMPLATES: dict[str, Template] = {
    "budget.account": budget_account,
    "budget.amount": budget_amount,
    "budget.question": budget_question,
    "budget.rename": budget_rename,
    "mail.delete": mail_delete,
    "mail.open": mail_open,
    "mail.question": mail_question,
    "mail.read_all": mail_read_all,
    "wiki.create": wiki_create,
    "wiki.delete": wiki_delete,
    "wiki.question": wiki_question,
    "wiki.rewrite": wiki_rewrite,
    "wiki.tag": wiki_tag,
}
