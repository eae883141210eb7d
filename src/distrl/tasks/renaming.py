"""The same task on a phone where everyone and everything has another name, made up letter by letter.

Whoever learns to read from few names learns the names and not the letters. Names that nobody has seen before, in the
instruction and on the phone alike, leave letters as the only way.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from msgspec.structs import replace

from distrl.devices.sim.state import PhoneState, Record, Tables
from distrl.types import Goal, Move, Put, Showing, Task, Value, Want

NAMED: dict[str, tuple[str, ...]] = {
    "contacts.person": ("name", "company"),
    "mail.mail": ("from", "subject"),
    "messages.thread": (),
    "notes.note": ("title",),
    "music.song": ("title", "artist", "album"),
    "music.album": ("name", "artist"),
    "music.playlist": ("name",),
    "clock.alarm": ("name",),
    "calendar.event": ("title", "place"),
}
"""Fields that hold names, by table. The keys of `messages.thread` are names too."""
KEYED = "messages.thread"
LETTERS, FREQUENCY = (
    "etaoinshrdlcumwfgypbvkxjqz",
    (12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 1, 1, 1),
)
VOWELS, CONSONANTS = "aeiouy", "bcdfghjklmnprstvwxz"
SHORTEST, LONGEST = 3, 9


class Renaming:
    """Makes names up, from so many words: drawing a word for the first time takes long."""

    def __init__(self, random: Random, *, words: int = 2000) -> None:
        self._random = random
        self._words = [_made_up(random) for _ in range(words)]

    def rename(self, task: Task, state: PhoneState) -> tuple[Task, PhoneState]:
        """`task` and the state that it starts from with other names; what is no name stays as it is."""
        others = {name: self._other(name) for name in _names(state.tables)}
        return _task(task, others), replace(state, tables=_tables(state.tables, others))

    def _other(self, name: str) -> str:
        """As many words as before, the first letters as large as before."""
        made = [self._random.choice(self._words) for _ in name.split()]
        return " ".join(
            new.capitalize() if old[:1].isupper() else new for old, new in zip(name.split(), made, strict=True)
        )


def _made_up(random: Random) -> str:
    size = random.randint(SHORTEST, LONGEST)
    if random.random() < 0.4:
        return "".join(random.choices(LETTERS, FREQUENCY, k=size))
    begin = random.randrange(2)
    return "".join(random.choice(VOWELS if (at + begin) % 2 else CONSONANTS) for at in range(size))


def _names(tables: Tables) -> set[str]:
    found = set(tables.get(KEYED, {}))
    for table, fields in NAMED.items():
        for record in tables.get(table, {}).values():
            found.update(str(record[field]) for field in fields if field in record)
    return {name for name in found if name and not any(letter.isdigit() for letter in name)}


def _tables(tables: Tables, others: Mapping[str, str]) -> Tables:
    return {
        name: {others.get(key, key): _record(record, others) for key, record in table.items()}
        for name, table in tables.items()
    }


def _record(record: Record, others: Mapping[str, str]) -> Record:
    return {key: _value(value, others) for key, value in record.items()}


def _value(value: Value, others: Mapping[str, str]) -> Value:
    return others.get(value, value) if isinstance(value, str) else value


def _task(task: Task, others: Mapping[str, str]) -> Task:
    return replace(
        task,
        instruction=_sentence(task.instruction, others),
        goal=_goal(task.goal, others),
        setup=tuple(_put(put, others) for put in task.setup),
        route=tuple(_move(move, others) for move in task.route),
    )


def _sentence(text: str, others: Mapping[str, str]) -> str:
    """Every name in a sentence replaced; of names within names, the longest."""
    for name in sorted((name for name in others if name in text), key=len, reverse=True)[:2]:
        text = text.replace(name, others[name])
    return text


def _goal(goal: Goal, others: Mapping[str, str]) -> Goal:
    return replace(
        goal,
        wants=tuple(_want(want, others) for want in goal.wants),
        showing=None if goal.showing is None else _showing(goal.showing, others),
    )


def _want(want: Want, others: Mapping[str, str]) -> Want:
    return replace(want, id=others.get(want.id, want.id), fields=_record(want.fields, others))


def _showing(showing: Showing, others: Mapping[str, str]) -> Showing:
    return replace(showing, args={key: others.get(value, value) for key, value in showing.args.items()})


def _put(put: Put, others: Mapping[str, str]) -> Put:
    fields = None if put.fields is None else _record(put.fields, others)
    return replace(put, id=others.get(put.id, put.id), fields=fields)


def _move(move: Move, others: Mapping[str, str]) -> Move:
    kind, colon, name = move.target.partition(":")
    return replace(move, target=f"{kind}{colon}{others.get(name, name)}", text=others.get(move.text, move.text))
