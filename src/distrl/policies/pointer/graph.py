"""A UI transition graph: which screens the elements of an app led to, and how near what an instruction names lies behind each.

Its nodes are elements (by app and label) and screens (by the elements on them); an edge says that a tap on an element, or a swipe
down on a screen, led to a screen. It grows with every episode that was played, whatever became of it, and is published with the
weights. For an instruction, a label's relevance is the tf-idf weight of what both say, and the value of an element follows by value
iteration, `V(e) = gamma * mean over s' of max over e' in s' of max(relevance(e'), V(e'))`.

The name is that of the literature on testing of apps (DroidBot, Li et al. 2017). What differs: nodes are merged by label, so that a screen
with another list on it is not a new world, and the graph answers for instructions that it has never seen.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import lru_cache
from math import log

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.errors import StoreError
from distrl.lines import label_of
from distrl.policies.pointer.words import UNSPACED, read
from distrl.types import LongPress, Observation, Swipe, Tap, Trajectory, TypeText, UiElement

NUM_FEATURES = 5
SIZE_BYTES, HEADER = 1 << 20, 16
"""Of the tensor that it travels in, and of what stands before the graph there: its stamp and its size."""
GAMMA, SWEEPS = 0.75, 10
MOST_SCREENS, MOST_LED, LONGEST_LABEL = 2500, 6, 40
KEPT_SHARE = 0.6
"""Of its screens, where there are too many: those seen most often."""
PLACES = 8
"""Rows and columns of the screen that tell elements without a label apart."""
_DIGITS = re.compile(r"\d+")
_RUN = re.compile(rf"[{UNSPACED}]+")

NOWHERE, STAYS = -1, -2
"""Where an element leads that changes nothing, and one that changes something on the screen that it is on."""

Node = str
FIELD = "EditText"
DOWN, TEXT = "\x1fdown", "\x1ftext"
"""Ends of nodes that are a swipe, and of those that cannot be tapped."""
USED = 0.2
"""What remains of the weight of a term once a label that has it was touched."""
UNKNOWN = 0.15
"""Weight of a term that no label of an app has: it may be no name at all, or one of a screen that was never seen."""
AGAIN = 0.6
"""What remains of an element's worth for each time that it was touched in this episode."""
NAMED = 0.35
"""Relevance of what was touched, from which on it was what the instruction names."""
SURE = 0.7
"""Relevance of a label that hardly stands there by chance: two rare terms and nothing else."""


class Screen(msgspec.Struct, array_like=True):
    """One screen of an app."""

    app: str
    nodes: list[int]
    seen: int = 1


class Held(msgspec.Struct, array_like=True):
    """The whole graph as it travels."""

    stamp: int
    nodes: list[str]
    screens: list[Screen]
    edges: dict[int, dict[int, int]]
    """Element to screen to how often."""
    asked: dict[str, dict[str, int]]
    """How many instructions of an app have a term, and of all apps."""


class View(msgspec.Struct, frozen=True):
    """What the graph says of one observation; nearly all of it between 0 and 1."""

    elements_EG: NDArray[np.float32]
    """Relevance, value, the better of both against the best on the screen (less where nothing known is very relevant), how near
    something lies that was never tried, and whether it has just been tried without effect."""
    past_PG: NDArray[np.float32]
    """Relevance of what was touched."""
    screen_G: NDArray[np.float32]
    """Best relevance and best value on the screen, value of a swipe down (-1: the last one had no effect), share of what the instruction names that was touched."""


class _App(msgspec.Struct):
    """One app, ready for value iteration."""

    rows: NDArray[np.int32]
    """The nodes of it."""
    terms: list[frozenset[str]]
    df: dict[str, int]
    flat: NDArray[np.int32]
    """Elements of all screens, end to end."""
    starts: NDArray[np.int32]
    edge_from: NDArray[np.int32]
    edge_to: NDArray[np.int32]
    edge_share: NDArray[np.float32]


class _Values(msgspec.Struct):
    weights: dict[str, float]
    value: dict[int, float]
    best: float
    known: frozenset[str]
    """Terms of the instruction that some label of the app has."""

    def share(self, used: frozenset[str]) -> float:
        """How much of what the instruction names was touched or typed; what no label of the app has counts for less."""
        named = sum(
            weight * (1.0 if term in self.known or term in used else UNKNOWN) for term, weight in self.weights.items()
        )
        return sum(weight for term, weight in self.weights.items() if term in used) / max(named, 1e-6)


class TransitionGraph:
    """The graph of one policy."""

    def __init__(self) -> None:
        self._held = Held(0, [], [], {}, {})
        self._numbers: dict[Node, int] = {}
        self._screens: dict[tuple[str, frozenset[int]], int] = {}
        self._instructions: set[str] = set()
        self._apps: dict[str, _App] = {}
        self._values: dict[tuple[str, str, frozenset[str]], _Values] = {}
        self._frontiers: dict[str, dict[int, float]] = {}

    @property
    def stamp(self) -> int:
        """Changes with the graph."""
        return self._held.stamp

    @property
    def num_screens(self) -> int:
        """Different ones that were seen."""
        return len(self._held.screens)

    # growing

    def add(self, trajectory: Trajectory) -> None:
        """Take in what an episode showed."""
        seen = [step.observation for step in trajectory.steps] + ([trajectory.last] if trajectory.last else [])
        places = [self._screen(each) for each in seen]
        for number, (step, before) in enumerate(zip(trajectory.steps, seen[:-1], strict=False)):
            node = self._touched(before, step.decision.action)
            if node is not None and step.valid and before.app:
                led, to = self._held.edges.setdefault(node, {}), places[number + 1]
                to = to if to != places[number] else STAYS if step.changed else NOWHERE
                led[to] = led.get(to, 0) + 1
                if len(led) > MOST_LED:
                    del led[min(led, key=lambda one: led[one])]
        for app, asked in {(each.app, each.instruction) for each in seen if each.app}:
            if asked not in self._instructions:
                self._instructions.add(asked)
                for counts in (self._held.asked.setdefault(app, {}), self._held.asked.setdefault("", {})):
                    for term in terms_of(asked) | {""}:
                        counts[term] = counts.get(term, 0) + 1
        if len(self._held.screens) > MOST_SCREENS:
            self._trim(int(MOST_SCREENS * KEPT_SHARE))
        self._changed(self._held.stamp + 1)

    def _screen(self, seen: Observation) -> int:
        """The number of a screen; what says something that was typed in this episode is none of the app's own words."""
        typed = {past.target for past in seen.recent if isinstance(past.action, TypeText) and past.target}
        nodes = [
            self._number(node_of(each, seen.app))
            for each in seen.elements
            if (each.clickable or label_of(each)) and not any(text in each.text for text in typed)
        ]
        key = (seen.app, frozenset(nodes))
        if (found := self._screens.get(key)) is None:
            found = self._screens[key] = len(self._held.screens)
            down = self._number(f"{seen.app}{found}{DOWN}")
            self._held.screens.append(Screen(seen.app, [*dict.fromkeys(nodes), down]))
        else:
            self._held.screens[found].seen += 1
        return found

    def _number(self, node: Node) -> int:
        if (found := self._numbers.get(node)) is None:
            found = self._numbers[node] = len(self._held.nodes)
            self._held.nodes.append(node)
        return found

    def _touched(self, seen: Observation, action: object) -> int | None:
        match action:
            case Tap(x=x, y=y) | LongPress(x=x, y=y):
                under = [each for each in seen.elements if each.clickable and each.bounds.contains(x, y)]
                best = min(under, key=lambda each: each.bounds.bottom - each.bounds.top, default=None)
                return None if best is None else self._number(node_of(best, seen.app))
            case Swipe(y=y, to_y=to_y) if to_y < y:
                return self._down(seen)
        return None

    def _down(self, seen: Observation) -> int | None:
        nodes = [
            self._numbers.get(node_of(each, seen.app)) for each in seen.elements if each.clickable or label_of(each)
        ]
        if None in nodes:
            return None
        screen = self._screens.get((seen.app, frozenset(each for each in nodes if each is not None)))
        return None if screen is None else self._held.screens[screen].nodes[-1]

    def _trim(self, most: int) -> None:
        """Keep the screens that were seen most often, and the elements on them."""
        held = self._held
        order = sorted(range(len(held.screens)), key=lambda one: (-held.screens[one].seen, -one))
        kept = sorted(order[:most])
        new_screen = {old: new for new, old in enumerate(kept)}
        used = sorted({node for old in kept for node in held.screens[old].nodes})
        new_node = {old: new for new, old in enumerate(used)}
        screens = [
            Screen(held.screens[old].app, [new_node[node] for node in held.screens[old].nodes], held.screens[old].seen)
            for old in kept
        ]
        edges = {}
        for node, led in held.edges.items():
            left = {
                new_screen.get(one, one): count for one, count in led.items() if one in new_screen or one == NOWHERE
            }
            if left and node in new_node:
                edges[new_node[node]] = left
        names = [held.nodes[old] for old in used]
        self._take(Held(held.stamp, names, screens, edges, held.asked))

    def _take(self, held: Held) -> None:
        self._held = held
        self._numbers = {node: number for number, node in enumerate(held.nodes)}
        self._screens = {(one.app, frozenset(one.nodes[:-1])): number for number, one in enumerate(held.screens)}
        self._changed(held.stamp)

    def _changed(self, stamp: int) -> None:
        self._held.stamp = stamp
        self._apps.clear()
        self._values.clear()
        self._frontiers.clear()

    # travelling

    def write(self, tensor: Tensor) -> None:
        """Put the graph into the tensor that it is published in, unless it is there; the rarest screens are forgotten where there is no room."""
        if _header(tensor)[0] == self._held.stamp:
            return
        while len(data := zlib.compress(msgspec.msgpack.encode(self._held), 1)) > SIZE_BYTES - HEADER:
            self._trim(len(self._held.screens) // 2)
        held = self._held.stamp.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data
        tensor[: len(held)] = torch.frombuffer(bytearray(held), dtype=torch.uint8)

    def read(self, tensor: Tensor, *, source: str) -> None:
        """Become the graph in a tensor."""
        stamp, size = _header(tensor)
        if stamp == self._held.stamp:
            return
        data = tensor[HEADER : HEADER + size].numpy().tobytes()
        try:
            self._take(msgspec.msgpack.decode(zlib.decompress(data), type=Held))
        except (zlib.error, msgspec.DecodeError) as error:
            raise StoreError(
                f"{source} holds a transition graph that cannot be read: {error}",
                expected="a graph of this version of distrl",
                fix="pick another version or checkpoint",
            ) from None

    # answering

    def view(self, seen: Observation) -> View:
        """What it says of an observation."""
        used = _used(seen)
        values = self._values_of(seen.app, seen.instruction, used)
        relevance = [_relevance(terms_of(label_text(each)), values.weights) for each in seen.elements]
        nodes = [self._numbers.get(node_of(each, seen.app), -1) for each in seen.elements]
        value = [values.value.get(node, 0.0) for node in nodes]
        best = max(values.best, *relevance, 1e-6) if relevance else max(values.best, 1e-6)
        down = self._down(seen)
        down_value = values.value.get(down, 0.0) / best if down is not None else 0.0
        if seen.recent and isinstance(seen.recent[-1].action, Swipe) and not seen.recent[-1].changed:
            down_value = -1.0
        r, v = np.array(relevance, np.float32) / best, np.array(value, np.float32) / best
        useless = np.array([self._useless(node) for node in nodes], np.float32)
        better = np.maximum(r * (1 - useless), v)
        inert = _inert(seen)
        better[inert > 0] = 0.0
        again, top = _again(seen), max(float(better.max(initial=0.0)), 1e-6)
        better *= again
        frontier = self._frontier(seen.app)
        unknown = np.array([frontier.get(node, 1.0) for node in nodes], np.float32) * again
        sure = min(1.0, best / SURE)
        whole = self._values_of(seen.app, seen.instruction, frozenset())
        touched = [_relevance(terms_of(each.target), whole.weights) for each in seen.recent]
        past = [min(1.0, each / max(whole.best, 1e-6)) for each in touched]
        surest = max((each for each, was in zip(touched, seen.recent, strict=True) if was.changed), default=0.0)
        settled = whole.share(used) * min(1.0, surest / NAMED)
        return View(
            np.stack([r, v, sure * better / top, unknown, inert], axis=1) if len(r) else np.zeros((0, NUM_FEATURES), np.float32),
            np.array(past, np.float32).reshape(-1, 1),
            np.array(
                [r.max(initial=0.0), v.max(initial=0.0), down_value, settled], np.float32
            ),
        )  # fmt: skip

    def _useless(self, node: int) -> float:
        """How sure it is that an element does nothing."""
        led = self._held.edges.get(node)
        return led.get(NOWHERE, 0) / (1 + sum(led.values())) if led else 0.0

    def _values_of(self, app: str, instruction: str, used: frozenset[str]) -> _Values:
        key = (app, instruction, used)
        if (found := self._values.get(key)) is None:
            if len(self._values) > 512:
                self._values.clear()
            found = self._values[key] = self._iterate(self._app(app), self._weights(app, instruction, used))
        return found

    def _weights(self, app: str, instruction: str, used: frozenset[str]) -> dict[str, float]:
        """How much each term of an instruction says: little where many labels or many instructions have it, of the app or of all."""
        compiled, asked = self._app(app), self._held.asked
        own, every = asked.get(app, {}), asked.get("", {})
        return {
            term: _rarity(compiled.df.get(term, 0), len(compiled.rows))
            * min(_rarity(counts.get(term, 0), counts.get("", 0)) for counts in (own, every))
            * (USED if term in used else 1.0)
            for term in terms_of(instruction)
        }

    def _iterate(self, app: _App, weights: dict[str, float]) -> _Values:
        relevance = np.array([_relevance(terms, weights) for terms in app.terms], np.float32)
        value = _value(app, relevance)
        best = float(relevance.max(initial=0.0))
        known = frozenset(term for term in weights if app.df.get(term))
        return _Values(weights, dict(zip(app.rows.tolist(), value.tolist(), strict=True)), best, known)

    def _frontier(self, name: str) -> dict[int, float]:
        """By element: 1 where it was never tried, less the further away such a one is; optimism in the face of uncertainty."""
        if (found := self._frontiers.get(name)) is None:
            app, held = self._app(name), self._held
            told = app.rows.tolist()
            new = [node not in held.edges and not held.nodes[node].endswith((TEXT, DOWN)) for node in told]
            reward = np.array(new, np.float32)
            near = np.maximum(reward, _value(app, reward))
            found = self._frontiers[name] = dict(zip(told, near.tolist(), strict=True))
        return found

    def _app(self, name: str) -> _App:
        if (found := self._apps.get(name)) is None:
            found = self._apps[name] = self._compile(name)
        return found

    def _compile(self, name: str) -> _App:
        held = self._held
        own = [number for number, one in enumerate(held.screens) if one.app == name]
        rows = sorted({node for number in own for node in held.screens[number].nodes})
        row_of, screen_of = (
            {node: row for row, node in enumerate(rows)},
            {number: row for row, number in enumerate(own)},
        )
        terms = [terms_of(text_of_node(held.nodes[node])) for node in rows]
        sizes = [len(held.screens[number].nodes) for number in own]
        edges = [
            (row_of[node], screen_of[screen], count / sum(held.edges[node].values()))
            for node in rows
            if node in held.edges
            for screen, count in held.edges[node].items()
            if screen in screen_of
        ]
        return _App(
            np.array(rows, np.int32), terms, dict(Counter(term for each in terms for term in each)),
            np.array([row_of[node] for number in own for node in held.screens[number].nodes], np.int32),
            np.array(np.cumsum([0, *sizes[:-1]]) if sizes else [], np.int32),
            np.array([edge[0] for edge in edges], np.int32), np.array([edge[1] for edge in edges], np.int32),
            np.array([edge[2] for edge in edges], np.float32),
        )  # fmt: skip


def _used(seen: Observation) -> frozenset[str]:
    """Terms of what was touched or typed with effect: what the instruction named once is seldom asked for again."""
    return frozenset(term for past in seen.recent if past.changed and past.target for term in terms_of(past.target))


def _inert(seen: Observation) -> NDArray[np.float32]:
    """Which elements were touched without effect since the screen last changed."""
    touched = []
    for past in reversed(seen.recent):
        if past.changed:
            break
        if isinstance(past.action, Tap | LongPress):
            touched.append(past.action)
    return np.array(
        [any(each.bounds.contains(action.x, action.y) for action in touched) for each in seen.elements], np.float32
    )


def _again(seen: Observation) -> NDArray[np.float32]:
    """By element, less the more often it was touched in this episode: who touches it again and again goes round in circles."""
    touched = Counter(past.target for past in seen.recent if isinstance(past.action, Tap | LongPress))
    return np.array([AGAIN ** touched[label_of(each)] if label_of(each) else 1.0 for each in seen.elements], np.float32)


def node_of(element: UiElement, app: str) -> Node:
    """What an element is told by: its label without numbers, or where it stands."""
    label = _DIGITS.sub("#", label_text(element))[:LONGEST_LABEL]
    if not element.text or element.class_name == FIELD:
        x, y = element.bounds.centre
        label += f"\x1f{element.class_name}{int(x * PLACES)},{int(y * PLACES)}"
    return f"{app}\x1e{label}" + ("" if element.clickable else TEXT)


def text_of_node(node: Node) -> str:
    """The label of a node."""
    return node.partition("\x1e")[2].partition("\x1f")[0]


def label_text(element: UiElement) -> str:
    """All that an element says; of a field what it is for, and not what was typed into it."""
    return element.description if element.class_name == FIELD else f"{element.text} {element.description}".strip()


@lru_cache(maxsize=65_536)
def terms_of(text: str) -> frozenset[str]:
    """What a text is compared by: words, and in scripts without spaces pairs of characters; a single character where it stands alone."""
    terms = {word.plain for word in read(text) if not _RUN.fullmatch(word.plain)}
    for run in _RUN.findall(text):
        terms.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return frozenset(terms)


def _value(app: _App, reward: NDArray[np.float32]) -> NDArray[np.float32]:
    """By element, what a tap on it is worth."""
    value = np.zeros(len(app.rows), np.float32)
    if len(app.flat) and len(app.edge_from):
        for _ in range(SWEEPS):
            screen = np.maximum.reduceat(np.maximum(reward, value)[app.flat], app.starts)
            value = np.zeros_like(value)
            np.add.at(value, app.edge_from, GAMMA * app.edge_share * screen[app.edge_to])
    return value


def _rarity(count: int, total: int) -> float:
    """1 for what none of so many has, 0 for what nearly all have."""
    return max(0.0, log((total + 2) / (1 + count)) / log(total + 2))


def _relevance(terms: frozenset[str], weights: dict[str, float]) -> float:
    """Weight of what is in both, against the root of all that the label says: short labels that say just this count most."""
    shared = [weights[term] for term in terms if term in weights]
    return sum(shared) / len(terms) ** 0.5 if shared else 0.0


def _header(tensor: Tensor) -> tuple[int, int]:
    data = tensor[:HEADER].numpy().tobytes()
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
