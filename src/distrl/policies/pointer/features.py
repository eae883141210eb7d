"""An observation as small arrays for the pointer, and batches of them as tensors.

Suffixes: B batch, I instruction words, E elements, P past actions, W words of one text, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from distrl.lines import label_of
from distrl.policies.pointer.grammar import KINDS, MAX_ELEMENTS, to_choice
from distrl.policies.pointer.graph import TransitionGraph, View
from distrl.policies.pointer.words import MAX_WORDS, ROWS, Word, read
from distrl.types import Observation, Past, UiElement

CLASSES = (
    "View", "ListItem", "Switch", "CheckBox", "Button", "EditText", "TextView", "Heading", "Card", "ImageButton",
    "Tab", "Title", "ScrollView", "ProgressBar",
)  # fmt: skip
ALIASES = {"RadioButton": "CheckBox", "Link": "Button", "Spinner": "ListItem", "ImageView": "ImageButton"}
"""Classes of other devices that are read as one of these: a new row would make weights of before useless."""
CLASS_ROWS = {name: row for row, name in enumerate(CLASSES)}
CLASS_ROWS |= {name: CLASS_ROWS[known] for name, known in ALIASES.items()}
TEXT_WORDS, DETAIL_WORDS, PAST_WORDS = 6, 4, 5
ELEMENT_FEATURES, WORD_FEATURES, PAST_FEATURES = 16, 3, 3
ANSWERABLE = frozenset(("TextView", "ListItem", "Card", "EditText", "Heading", "CheckBox", "Switch", "Tab"))


OPENING, CLOSING = frozenset("\"'“‘「『《〈【"), frozenset("\"'”’」』》〉】")
NO_GRAPH = np.zeros(0, np.float32)
NO_VIEW = View(NO_GRAPH, NO_GRAPH, NO_GRAPH)


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """One observation as arrays."""

    words_I: NDArray[np.int16]
    word_features_IF: NDArray[np.float32]
    quotes_IQ: NDArray[np.float32]
    """Where quotations begin and end."""
    element_words_EW: NDArray[np.int16]
    element_class_E: NDArray[np.int16]
    element_features_EF: NDArray[np.float32]
    past_kind_P: NDArray[np.int16]
    past_words_PW: NDArray[np.int16]
    past_features_PF: NDArray[np.float32]
    graph_EG: NDArray[np.float32] = NO_GRAPH
    """What the transition graph says of the elements, the past actions and the screen; empty without one."""
    graph_PG: NDArray[np.float32] = NO_GRAPH
    graph_G: NDArray[np.float32] = NO_GRAPH

    @property
    def num_tokens(self) -> int:
        """Tokens of the network's input, without the state token."""
        return len(self.words_I) + len(self.element_class_E) + len(self.past_kind_P)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A padded batch; the masks are true where something stands."""

    words_BI: Tensor
    word_features_BIF: Tensor
    quotes_BIQ: Tensor
    word_mask_BI: Tensor
    element_words_BEW: Tensor
    element_class_BE: Tensor
    element_features_BEF: Tensor
    element_mask_BE: Tensor
    past_kind_BP: Tensor
    past_words_BPW: Tensor
    past_features_BPF: Tensor
    past_mask_BP: Tensor
    graph_BEG: Tensor
    graph_BPG: Tensor
    graph_BG: Tensor


def encode(
    observation: Observation, *, string_match: bool, limit: int = MAX_ELEMENTS, graph: TransitionGraph | None = None
) -> Encoded:
    """The observation as arrays. Without `string_match` the features that say which words stand in both texts are 0."""
    words = read(observation.instruction)[:MAX_WORDS]
    elements, recent = observation.elements[:limit], observation.recent
    said = tuple(word.plain for word in words)
    touched = frozenset(past.target for past in recent if past.target)
    features = [_element_features(element, said, touched, string_match) for element in elements]
    view = graph.view(replace(observation, elements=elements)) if graph is not None else NO_VIEW
    return Encoded(
        words_I=np.array([word.row for word in words], dtype=np.int16),
        word_features_IF=_word_features(said, elements, recent, string_match),
        quotes_IQ=_quotes(observation.instruction, words),
        element_words_EW=np.array([_element_words(e.text, e.description) for e in elements], np.int16).reshape(-1, TEXT_WORDS + DETAIL_WORDS),
        element_class_E=np.array([CLASS_ROWS.get(e.class_name, 0) for e in elements], np.int16),
        element_features_EF=np.array(features, np.float32).reshape(-1, ELEMENT_FEATURES),
        past_kind_P=np.array([_past_kind(past, observation, limit) for past in recent], np.int16),
        past_words_PW=np.array([_rows(past.target, PAST_WORDS) for past in recent], np.int16).reshape(-1, PAST_WORDS),
        past_features_PF=np.array([(past.valid, past.changed, age / 8) for age, past in enumerate(reversed(recent))][::-1], np.float32).reshape(-1, PAST_FEATURES),
        graph_EG=view.elements_EG, graph_PG=view.past_PG, graph_G=view.screen_G,
    )  # fmt: skip


@lru_cache(maxsize=65_536)
def _element_words(text: str, description: str) -> tuple[int, ...]:
    return _rows(text, TEXT_WORDS) + _rows(description, DETAIL_WORDS)


@lru_cache(maxsize=65_536)
def _rows(text: str, count: int) -> tuple[int, ...]:
    rows = tuple(word.row for word in read(text)[:count])
    return rows + (0,) * (count - len(rows))


def _element_features(
    element: UiElement, said: tuple[str, ...], touched: frozenset[str], match: bool
) -> tuple[float, ...]:
    bounds = element.bounds
    label = label_of(element)
    own = _overlap(element.text, said) if match else (0.0, 0.0)
    other = _overlap(element.description, said) if match else (0.0, 0.0)
    return (
        bounds.left, bounds.top, bounds.right, bounds.bottom,
        element.clickable, element.scrollable, element.enabled, element.focused,
        element.checked is True, element.checked is False,
        own[0], own[1], other[0], other[1],
        bool(label) and label in touched,
        element.class_name in ANSWERABLE and bool(label),
    )  # fmt: skip


@lru_cache(maxsize=65_536)
def _overlap(text: str, said: tuple[str, ...]) -> tuple[float, float]:
    """Share of the text's words that stand in the instruction, and whether all of them stand there in a row."""
    words = [word.plain for word in read(text)]
    if not words:
        return 0.0, 0.0
    share = sum(word in said for word in words) / len(words)
    whole = share == 1.0 and any(list(said[i : i + len(words)]) == words for i in range(len(said)))
    return share, float(whole)


def _word_features(
    said: tuple[str, ...], elements: tuple[UiElement, ...], recent: tuple[Past, ...], match: bool
) -> NDArray[np.float32]:
    """For each word of the instruction: on the screen, in a field, touched before."""
    features = np.zeros((len(said), WORD_FEATURES), np.float32)
    if match:
        shown = {word.plain for e in elements for word in read(e.text)}
        held = {word.plain for e in elements if e.class_name == "EditText" for word in read(e.text)}
        touched = {word.plain for past in recent for word in read(past.target)}
        features[:] = [(word in shown, word in held, word in touched) for word in said] or features
    return features


def _quotes(text: str, words: tuple[Word, ...]) -> NDArray[np.float32]:
    return np.array(
        [
            (text[max(0, word.start - 1) : word.start] in OPENING, text[word.end : word.end + 1] in CLOSING)
            for word in words
        ],
        np.float32,
    ).reshape(-1, 2)


def _past_kind(past: Past, observation: Observation, limit: int) -> int:
    choice = to_choice(past.action, observation, limit)
    if choice is not None:
        return choice[0]
    return KINDS.index(
        {"tap": "tap", "long_press": "hold", "type": "type"}.get(str(past.action.__struct_config__.tag), "wait")
    )


def swap_words(item: Encoded, share: float, random: np.random.Generator) -> Encoded:
    """`item` with some of the words that stand both in the instruction and on the screen replaced by others.

    The same word is replaced everywhere at once, so what the observation means stays: training on it teaches to
    match words rather than to know them by heart.
    """
    shown = np.zeros(ROWS, np.bool_)
    shown[item.element_words_EW], shown[item.past_words_PW] = True, True
    shared = np.array(sorted({row for row in item.words_I.tolist() if shown[row]}), np.int16)
    chosen = shared[random.random(len(shared)) < share]
    if not len(chosen):
        return item
    row_of = np.arange(ROWS, dtype=np.int16)
    row_of[chosen] = random.integers(1, ROWS, len(chosen))
    return replace(
        item,
        words_I=row_of[item.words_I],
        element_words_EW=row_of[item.element_words_EW],
        past_words_PW=row_of[item.past_words_PW],
    )


def collate(items: Sequence[Encoded]) -> Batch:
    """A padded batch of encoded observations.

    Where an observation has no word or no element, one empty one stands for it: the choice is then the same in every
    batch, whatever its padding.
    """
    return Batch(
        words_BI=_pad([item.words_I for item in items]),
        word_features_BIF=_pad([item.word_features_IF for item in items]),
        quotes_BIQ=_pad([item.quotes_IQ for item in items]),
        word_mask_BI=_mask([max(1, len(item.words_I)) for item in items]),
        element_words_BEW=_pad([item.element_words_EW for item in items]),
        element_class_BE=_pad([item.element_class_E for item in items]),
        element_features_BEF=_pad([item.element_features_EF for item in items]),
        element_mask_BE=_mask([max(1, len(item.element_class_E)) for item in items]),
        past_kind_BP=_pad([item.past_kind_P for item in items]),
        past_words_BPW=_pad([item.past_words_PW for item in items]),
        past_features_BPF=_pad([item.past_features_PF for item in items]),
        past_mask_BP=_mask([len(item.past_kind_P) for item in items]),
        graph_BEG=_pad([item.graph_EG for item in items]),
        graph_BPG=_pad([item.graph_PG for item in items]),
        graph_BG=_pad([item.graph_G for item in items]),
    )


def _pad(arrays: Sequence[NDArray[np.generic]]) -> Tensor:
    longest = max(1, max(len(array) for array in arrays))
    padded = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    tensor = torch.from_numpy(padded)
    return tensor.long() if padded.dtype == np.int16 else tensor


def _mask(lengths: Sequence[int]) -> Tensor:
    longest = max(1, *lengths) if lengths else 1
    return torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
