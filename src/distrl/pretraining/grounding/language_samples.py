"""Grounding samples for a vision-language model: a screenshot, one row of queries about it as tokens, and labels for OCR.

The prompt of every query is `head` (system message and image) and then its own text, and the head is the same for all of them.
So a screen is encoded once: the queries stand one after the other in a row behind it, and each attends to the head and to itself
alone. The first is the next step, where the task is demonstrated; others reach things by name, or read a text that is named by its
square or by what stands above it. Loads no torch. Suffixes: R tokens of a row, A tokens of its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.devices.sim.layout import HEIGHT, STATUS_BAR, WIDTH
from distrl.devices.sim.paint import Written
from distrl.policies.dialects.grid import COLUMNS, ROWS, square_at
from distrl.policies.pixel.features import decode
from distrl.policies.pixel.grammar import Grid
from distrl.pretraining.grounding.queries import AnnotatedScreen, GroundingQuery, QueryMaker
from distrl.pretraining.grounding.samples import Fields, Views, label_fields, write_labels
from distrl.tasks.base import split_of
from distrl.types import Action, Finish, Observation

ROW_TOKENS, ROW_ANSWERS = 256, 64
"""Tokens of all queries about a screen together, and of their answers; queries beyond that are left out."""
STEP, POINT, READ = 0, 1, 2
"""Kinds of queries."""
WEIGHTS = {STEP: 2, POINT: 1, READ: 1}
"""Of an answer's tokens in the loss."""
READINGS = 4
"""Queries about a screen that read a text, at most."""
NUMBER_READINGS = 2
"""Of these, how many read a text with digits below the status bar, where there are any: nothing but the picture tells its digits."""
OTHERS = 9
"""The next step and things to reach, at most: as many as fill a row, together with readings."""
HISTORY_SHARE = 0.3
"""Of the queries besides the next step, how many keep the history of the step."""
LONGEST_QUERY, LONGEST_READING = 200, 40
"""Characters."""
BELOW_PX = 60.0
"""How far below a line the next one may stand to be the line below it, in pixels."""
READ_FORMS = ("Read {}", "What is written at {}", "What does it say at {}")
BELOW_FORMS = ("What stands below {}", "Read the line below {}", "Which text is under {}")


class Tokens(Protocol):
    """Prompts and answers as tokens: `policies.vlm.prompt_tokens.PromptTokens`."""

    def prompt(self, observation: Observation) -> list[int]:
        """What follows the head."""

    def answer(self, action: Action, observation: Observation) -> list[int] | None:
        """The tokens that print `action`; None where they cannot."""


def picture_size(config: Config) -> tuple[int, int]:
    """Width and height of the screenshots of a run's simulated phones."""
    width = config.devices.sim.screenshot_width
    return width, width * HEIGHT // WIDTH


def language_fields(config: Config) -> Fields:
    """What the samples are made of."""
    small, wide, long = np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.int32)
    width, height = picture_size(config)
    return {
        "picture": (small, (height, width, 3)),
        "token": (long, (ROW_TOKENS,)),
        "segment": (small, (ROW_TOKENS,)),
        "position": (wide, (ROW_TOKENS,)),
        "where": (wide, (ROW_ANSWERS,)),
        "target": (long, (ROW_ANSWERS,)),
        "weight": (small, (ROW_ANSWERS,)),
        "query": (small, (ROW_ANSWERS,)),
        "kind": (small, (ROW_ANSWERS,)),
        **label_fields(len(ROWS) * len(COLUMNS)),
    }


class LanguageSampleWriter:
    """Writes screens as samples; segments are numbered from 1, 0 is padding."""

    def __init__(self, config: Config, tokens: Tokens, random: Random) -> None:
        self._tokens, self._random, self._size = tokens, random, picture_size(config)
        self._queries = QueryMaker(random, longest=LONGEST_QUERY, most=OTHERS)
        self._grid = Grid(columns=len(COLUMNS), rows=len(ROWS))

    def write(self, screen: AnnotatedScreen, into: Views, row: int) -> bool:
        """Write a screen into a row of a block; False, with the row unusable, where its next step cannot be written."""
        pixels = decode(screen.frame, self._size)
        if pixels is None:
            return False
        for name in ("token", "segment", "position", "where", "target", "weight", "query", "kind"):
            into[name][row] = 0
        used, said = 0, 0
        for number, (kind, (seen, action)) in enumerate(self._asked(screen)):
            prompt, answer = self._tokens.prompt(seen), self._tokens.answer(action, seen)
            fits = (
                answer is not None
                and used + len(prompt) + len(answer) <= ROW_TOKENS
                and said + len(answer) <= ROW_ANSWERS
            )
            if answer is None or not fits:
                if kind == STEP:
                    return False
                continue
            ids = [*prompt, *answer[:-1]]  # nothing follows the end token
            place, said_at = slice(used, used + len(ids)), slice(said, said + len(answer))
            into["token"][row][place], into["segment"][row][place] = ids, number + 1
            into["position"][row][place] = range(len(ids))
            into["where"][row][said_at] = range(used + len(prompt) - 1, used + len(ids))
            into["target"][row][said_at], into["weight"][row][said_at] = answer, WEIGHTS[kind]
            into["query"][row][said_at], into["kind"][row][said_at] = number, kind
            used, said = used + len(ids), said + len(answer)
        into["picture"][row] = pixels
        write_labels(screen, self._grid, into, row, side=self._size[0] // self._grid.columns)
        return True

    def _asked(self, screen: AnnotatedScreen) -> Iterator[tuple[int, GroundingQuery]]:
        """The next step where it is demonstrated, then readings and things to reach in random order."""
        asked, plain = self._queries.make(screen), replace(screen.observation, recent=())
        steps, others = (asked[:1], asked[1:]) if screen.demonstrated else ([], asked)
        yield from ((STEP, step) for step in steps)
        kept = HISTORY_SHARE if screen.demonstrated else 0.0
        rest = [(POINT, (self._perhaps_without_history(seen, kept), action)) for seen, action in others]
        rest += [
            (READ, (replace(plain, instruction=text), Finish("complete", said)))
            for text, said in self._readings(screen)
        ]
        yield from self._random.sample(rest, len(rest))

    def _perhaps_without_history(self, seen: Observation, kept: float) -> Observation:
        return seen if self._random.random() < kept else replace(seen, recent=())

    def _readings(self, screen: AnnotatedScreen) -> list[tuple[str, str]]:
        """Texts to read: what to ask, and the text."""
        lines = [line for line in screen.written if line.letters and 0 < len(line.text) <= LONGEST_READING]
        asked = [(self._random.choice(READ_FORMS).format(self._square_of(line)), line.text) for line in lines]
        once = [line.text for line in lines]
        asked += [
            (self._random.choice(BELOW_FORMS).format(above.text), below.text)
            for above, below in _neighbours(lines)
            if once.count(above.text) == 1
        ]
        allowed = [pair for pair in asked if split_of(pair[0]) == "train"]
        lowest = self._size[0] * STATUS_BAR / WIDTH
        numbers = {line.text for line in lines if line.middle > lowest and any(map(str.isdigit, line.text))}
        first = self._some([pair for pair in allowed if pair[1] in numbers], NUMBER_READINGS)
        return first + self._some([pair for pair in allowed if pair not in first], READINGS - len(first))

    def _some(self, pairs: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
        return self._random.sample(pairs, min(most, len(pairs)))

    def _square_of(self, line: Written) -> str:
        """A square that one of the line's letters lies on."""
        width, height = self._size
        inside = [x for x in line.letters if 0 <= x < width] or [0.0]
        return square_at((self._random.choice(inside) / width, min(max(line.middle / height, 0.0), 1.0)))


def _neighbours(lines: list[Written]) -> Iterator[tuple[Written, Written]]:
    """Lines that begin below each other, with no other in between."""
    columns = dict[int, list[Written]]()
    for line in lines:
        columns.setdefault(round(line.letters[0] / 8), []).append(line)
    for column in columns.values():
        below = sorted(column, key=lambda line: line.middle)
        yield from ((one, other) for one, other in pairwise(below) if 0 < other.middle - one.middle <= BELOW_PX)
