"""Other names for everyone and everything on a phone, other phone numbers, and other times for its alarms and its clock.

Whoever learns on a few hundred phones learns their names and their lists by heart, and not how to match or to read.
Names that stand elsewhere each time, and names that nobody has seen before, leave no other way: half of the numbers stand
for the words of training names in another order, the others for words made up letter by letter. A number decides all
names of a phone, so a task that carries it brings the same phone back wherever it is played, judged or looked at again.
The instruction is left to `tasks.renaming`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random

import msgspec

from distrl.devices.sim.state import Record, Table, Tables

NAMED: dict[str, tuple[str, ...]] = {
    "contacts.person": ("name", "company"),
    "mail.mail": ("from", "subject"),
    "notes.note": ("title",),
    "music.song": ("title", "artist", "album"),
    "music.album": ("name", "artist"),
    "music.playlist": ("name",),
    "clock.alarm": ("name",),
    "calendar.event": ("title", "place"),
}
"""Fields that hold names, by table."""
KEYED = "messages.thread"
"""The table whose keys are names."""
ALARM, TIME = "clock.alarm", "time"
NOW, MINUTES = "clock.now", "minutes"
PERSON, NUMBER = "contacts.person", "phone"
DAY = 24 * 60
"""In minutes."""
TIMES = tuple(f"{hour:02d}:{minute:02d}" for hour in range(24) for minute in range(0, 60, 5))
POOLS, POOL_WORDS, KNOWN = 64, 2000, 0
"""Words of a number come from one pool: who draws pictures of few pools draws each word seldom for the first time. That
with number `KNOWN` holds the words of training names, the others hold made-up ones."""
KNOWN_SHARE = 0.5
WAYS = 2**32
"""Numbers of one pool."""
SPARE_WORDS = 64
"""Of a number, for names that a task adds to those of its phone."""
LETTERS, FREQUENCY = (
    "etaoinshrdlcumwfgypbvkxjqz",
    (12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 1, 1, 1),
)
VOWELS, CONSONANTS = "aeiouy", "bcdfghjklmnprstvwxz"
SHORTEST, LONGEST = 3, 9
NUMBER_SHARE, SCATTERED_SHARE = 0.12, 0.35
"""Of the words: those made of digits, as times are, and those of letters in any order."""


def draw_number(random: Random, pool: int) -> int:
    """Some number, 1 or more, whose words are those of training names or come from this pool of made-up ones."""
    chosen = KNOWN if random.random() < KNOWN_SHARE else 1 + pool % (POOLS - 1)
    return chosen + POOLS * random.randrange(1, WAYS)


class PhoneNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names that the apps of a phone hold, all in a fixed order."""

    names: tuple[str, ...]
    words: tuple[str, ...]
    """Of all names, in small letters."""
    times: tuple[str, ...]
    """Of the alarms."""
    numbers: tuple[str, ...]
    """Of the people."""
    others: tuple[str, ...]
    """All texts that are no names: "Train" in "Train window" is none either."""
    tables: tuple[str, ...]
    """The tables that hold names."""

    @classmethod
    def of(cls, tables: Tables) -> PhoneNames:
        """The names, words, times and other texts of these tables."""
        names = names_in(tables)
        return cls(
            names=tuple(sorted(names)),
            words=words_of(names),
            times=tuple(sorted({str(alarm[TIME]) for alarm in tables.get(ALARM, {}).values()})),
            numbers=tuple(
                sorted({str(person[NUMBER]) for person in tables.get(PERSON, {}).values() if NUMBER in person})
            ),
            others=tuple(sorted(texts_in(tables) - names)),
            tables=tuple(name for name, table in tables.items() if texts_of(table) & names),
        )


class OtherNames:
    """Another name for each of a phone; the same word, in whichever name, always becomes the same other word."""

    def __init__(self, number: int, own: PhoneNames, known: Sequence[str]) -> None:
        pool, random = known if number % POOLS == KNOWN else _pool(number % POOLS), Random(f"names {number}")
        made = iter(random.sample(pool, min(len(pool), len(own.words) + SPARE_WORDS)))
        self._words, self._spare = dict(zip(own.words, made, strict=False)), made
        self.names = {name: self.of(name) for name in own.names}
        self.times = dict(zip(own.times, random.sample(TIMES, len(own.times)), strict=True))
        self.numbers = {number: _other_digits(number, random) for number in own.numbers}
        self.later_min = random.randrange(DAY)
        """How much later it is on the phone."""

    def of(self, name: str) -> str:
        """As many words as before, the first letters as large as before."""
        return " ".join(map(self._word, name.split()))

    def _word(self, word: str) -> str:
        small = word.casefold()
        if small not in self._words:
            self._words[small] = next(self._spare, small)
        other = self._words[small]
        return other.capitalize() if word[:1].isupper() else other


def names_in(tables: Tables) -> set[str]:
    """Everything in `tables` that is a name; what has digits may be a code or a time, and is none."""
    found = set(tables.get(KEYED, {}))
    for table, fields in NAMED.items():
        for record in tables.get(table, {}).values():
            found.update(str(record[field]) for field in fields if field in record)
    return {name for name in found if is_name(name)}


def texts_in(tables: Tables) -> set[str]:
    """Every text in `tables`, name or not."""
    return {text for table in tables.values() for text in texts_of(table)}


def texts_of(table: Table) -> set[str]:
    """Every text in one table; also its keys, which some apps show."""
    values = (value for record in table.values() for value in record.values())
    return {value for value in values if isinstance(value, str) and value} | table.keys()


def is_name(text: str) -> bool:
    """Whether a text in a field for names is one."""
    return bool(text) and not any(letter.isdigit() for letter in text)


def words_of(names: Iterable[str]) -> tuple[str, ...]:
    """The words of all names in small letters, each once, in a fixed order."""
    return tuple(sorted({word.casefold() for name in names for word in name.split()}))


def rename_tables(tables: Tables, own: PhoneNames, other: OtherNames) -> Tables:
    """`tables` with all names, phone numbers and times replaced; tables without any are shared, not copied."""
    texts = other.names | other.numbers
    renamed = {name: rename_table(tables[name], texts) for name in own.tables}
    alarms = renamed.get(ALARM, tables.get(ALARM, {}))
    renamed[ALARM] = {id: {**alarm, TIME: other.times[str(alarm[TIME])]} for id, alarm in alarms.items()}
    if NOW in tables:
        clocks = tables[NOW].items()
        renamed[NOW] = {id: {**clock, MINUTES: (int(clock[MINUTES]) + other.later_min) % DAY} for id, clock in clocks}
    return {**tables, **renamed}


def rename_table(table: Table, others: Mapping[str, str]) -> Table:
    """`table` with every key and value that is a name replaced."""
    return {others.get(key, key): rename_record(record, others) for key, record in table.items()}


def rename_record(record: Record, others: Mapping[str, str]) -> Record:
    """`record` with every value that is a name replaced."""
    return {key: others.get(value, value) if isinstance(value, str) else value for key, value in record.items()}


def _other_digits(text: str, random: Random) -> str:
    """`text` with each digit drawn anew; the first is not 0."""
    digits = iter([random.choice("123456789"), *random.choices("0123456789", k=len(text))])
    return "".join(next(digits) if letter.isdigit() else letter for letter in text)


@lru_cache(maxsize=POOLS)
def _pool(number: int) -> tuple[str, ...]:
    random = Random(f"words {number}")
    return tuple(dict.fromkeys(_made_up(random) for _ in range(POOL_WORDS)))


def _made_up(random: Random) -> str:
    kind, size = random.random(), random.randint(SHORTEST, LONGEST)
    if kind < NUMBER_SHARE:
        return _number(random)
    if kind < NUMBER_SHARE + SCATTERED_SHARE:
        return "".join(random.choices(LETTERS, FREQUENCY, k=size))
    begin = random.randrange(2)
    return "".join(random.choice(VOWELS if (at + begin) % 2 else CONSONANTS) for at in range(size))


def _number(random: Random) -> str:
    """A time of day or a number of a few digits."""
    if random.random() < 0.6:
        return f"{random.randrange(24):02d}:{random.randrange(12) * 5:02d}"
    return str(random.randrange(10, 10_000))
