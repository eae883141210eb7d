"""A small transformer over instruction, history and UI elements, with heads that point.

Suffixes as in features.py, and D width, T tokens, K kinds, H pointing heads.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.config.schema import PointerConfig
from distrl.policies.pointer.features import (
    CLASSES,
    ELEMENT_FEATURES,
    PAST_FEATURES,
    WORD_FEATURES,
    Batch,
)
from distrl.policies.pointer.grammar import KINDS, LONGEST_SPAN, POINTING
from distrl.policies.pointer.graph import NUM_FEATURES, SIZE_BYTES
from distrl.policies.pointer.words import MAX_WORDS, ROWS

HEADS = 4
NEVER = -1e9
"""Logit of what cannot be chosen; finite, so that entropies stay finite."""


UNFITTING = -12.0
"""Added to the logit of an action that hardly makes sense on a screen; so small a penalty that a demonstration of it has a finite loss."""


CLAIMING = ("back", "done", "answer")
"""Kinds that make sense on every screen of a device whose tasks end with a claim."""
FIRST_WEIGHTS = (6.0, 2.0, 6.0, 3.0, 16.0, 8.0, 4.0)
"""At the beginning, of a tap on the best element by the graph, of one never tried, of the most relevant one as an answer, of a swipe down;
of saying that it is done once what the instruction names was touched, against that where something relevant can still be tapped, and of
an answer where something relevant stands that cannot."""
FIRST_KINDS = {"done": -4.5, "answer": -4.5, "back": -3.0, "down": -2.0, "up": -3.0, "enter": -1.0}
"""Added to the logits of kinds with a transition graph: an episode that ends at once or turns back shows nothing."""
TYPED = {"type": -4.0, "enter": 1.0}
"""Added with a transition graph right after a text was typed."""
QUOTED = 3.0
"""At the beginning, of a span that begins or ends where a quotation does."""


class Logits(msgspec.Struct, frozen=True, kw_only=True):
    """Unnormalised preferences; what cannot be chosen has `NEVER`."""

    kind_BK: Tensor
    element_BHE: Tensor
    span_BII: Tensor
    """First word by last word."""
    value_B: Tensor


class Block(nn.Module):
    """Pre-norm self-attention and an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_in, self.norm_mid = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x_BTD: Tensor, bias_B11T: Tensor) -> Tensor:
        """The tokens after one layer; `bias_B11T` masks padding."""
        batch, tokens, width = x_BTD.shape
        qkv = self.qkv(self.norm_in(x_BTD)).view(batch, tokens, 3, HEADS, width // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        # By hand: on so few tokens the fused kernel for CPUs took half as long again, mostly in its backward pass.
        chance = torch.softmax(query @ key.transpose(-1, -2) * (width // HEADS) ** -0.5 + bias_B11T, dim=-1)
        mixed = chance @ value
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        hidden: Tensor = x_BTD + self.down(F.relu(self.up(self.norm_mid(x_BTD))))
        return hidden


class PointerNetwork(nn.Module):
    """A batch in; logits for kinds, elements and spans, and a value out."""

    is_down: Tensor
    is_done: Tensor
    is_answer: Tensor
    first: Tensor
    typed: Tensor

    def __init__(self, config: PointerConfig) -> None:
        super().__init__()
        width = config.width
        self._fitting, self._claims = config.fitting_actions, config.fitting_claims
        self.word = nn.Embedding(ROWS, width, padding_idx=0)
        self.place = nn.Embedding(MAX_WORDS, width)
        self.kind_of_token = nn.Parameter(torch.zeros(4, width))
        self.word_features = nn.Linear(WORD_FEATURES, width)
        self.element_class = nn.Embedding(len(CLASSES), width)
        self.element_features = nn.Linear(ELEMENT_FEATURES, width)
        self.element_detail = nn.Linear(width, width)
        self.past_kind = nn.Embedding(len(KINDS), width)
        self.past_features = nn.Linear(PAST_FEATURES, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.kind_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(KINDS)))
        self.value_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self.query = nn.Linear(width, len(POINTING) * width)
        self.element_score = nn.Linear(width, len(POINTING))
        self.span_score = nn.Linear(width, 2)
        self.span_length = nn.Parameter(torch.zeros(LONGEST_SPAN))
        self._has_graph = config.transition_graph
        if config.transition_graph:
            self.graph_elements, self.graph_past = nn.Linear(NUM_FEATURES, width), nn.Linear(1, width)
            self.graph_screen, self.graph_weights = nn.Linear(4, width), nn.Parameter(torch.tensor(FIRST_WEIGHTS))
            self.register_buffer("graph", torch.zeros(SIZE_BYTES, dtype=torch.uint8))
            kinds = {
                "is_down": [float(kind == "down") for kind in KINDS],
                "is_done": [float(kind in ("done", "answer")) for kind in KINDS],
                "is_answer": [float(kind == "answer") for kind in KINDS],
                "first": [FIRST_KINDS.get(kind, 0.0) for kind in KINDS],
                "typed": [TYPED.get(kind, 0.0) for kind in KINDS],
            }
            for name, values in kinds.items():
                self.register_buffer(name, torch.tensor(values), persistent=False)
        self._has_quotes = config.quoted_spans
        if config.quoted_spans:
            self.quote_weight = nn.Parameter(torch.tensor(QUOTED))
        nn.init.normal_(self.word.weight, std=0.5)

    def forward(self, batch: Batch) -> Logits:
        """The logits of a padded batch."""
        words_BID, elements_BED, past_BPD = self._words(batch), self._elements(batch), self._past(batch)
        state_B1D = self.kind_of_token[3].expand(len(words_BID), 1, -1)
        if self._has_graph:
            elements_BED = elements_BED + self.graph_elements(batch.graph_BEG)
            state_B1D = state_B1D + self.graph_screen(batch.graph_BG)[:, None]
        x_BTD = torch.cat([state_B1D, words_BID, elements_BED, past_BPD], dim=1)
        here_B1 = torch.ones(len(x_BTD), 1, dtype=torch.bool)
        mask_BT = torch.cat([here_B1, batch.word_mask_BI, batch.element_mask_BE, batch.past_mask_BP], dim=1)
        bias_B11T = torch.where(mask_BT, 0.0, NEVER)[:, None, None, :]
        for block in self.blocks:
            x_BTD = block(x_BTD, bias_B11T)
        x_BTD = self.norm(x_BTD)
        num_words, num_elements = words_BID.shape[1], elements_BED.shape[1]
        words_BID, elements_BED = x_BTD[:, 1 : 1 + num_words], x_BTD[:, 1 + num_words : 1 + num_words + num_elements]
        return self._heads(x_BTD[:, 0], words_BID, elements_BED, batch)

    def _words(self, batch: Batch) -> Tensor:
        places_ID = self.place.weight[: batch.words_BI.shape[1]]
        words: Tensor = self.word(batch.words_BI) + places_ID + self.word_features(batch.word_features_BIF)
        return words + self.kind_of_token[0]

    def _elements(self, batch: Batch) -> Tensor:
        text_BED = self._bag(batch.element_words_BEW[..., :6])
        detail_BED = self.element_detail(self._bag(batch.element_words_BEW[..., 6:]))
        kind_BED = self.element_class(batch.element_class_BE) + self.element_features(batch.element_features_BEF)
        elements: Tensor = text_BED + detail_BED + kind_BED + self.kind_of_token[1]
        return elements

    def _past(self, batch: Batch) -> Tensor:
        seen_BPD = self.past_kind(batch.past_kind_BP) + self.past_features(batch.past_features_BPF)
        past: Tensor = self._bag(batch.past_words_BPW) + seen_BPD + self.kind_of_token[2]
        if self._has_graph:
            past = past + self.graph_past(batch.graph_BPG)
        return past

    def _bag(self, rows_BXW: Tensor) -> Tensor:
        """Mean of the words' vectors."""
        count = (rows_BXW > 0).sum(-1, keepdim=True).clamp(min=1)
        bag: Tensor = self.word(rows_BXW).sum(-2) / count
        return bag

    def _heads(self, state_BD: Tensor, words_BID: Tensor, elements_BED: Tensor, batch: Batch) -> Logits:
        query_BHD = self.query(state_BD).view(len(state_BD), len(POINTING), -1)
        pointed_BHE = torch.einsum("bhd,bed->bhe", query_BHD, elements_BED) / state_BD.shape[-1] ** 0.5
        element_BHE = pointed_BHE + self.element_score(elements_BED).transpose(1, 2)
        selectable_BHE = _selectable(batch)
        kind_BK = self.kind_head(state_BD)
        if self._has_graph:
            element_BHE, kind_BK = self._follow(element_BHE, kind_BK, batch)
        if self._fitting:
            kind_BK = kind_BK + UNFITTING * ~_fitting(batch, claims=self._claims)
        return Logits(
            kind_BK=kind_BK,
            element_BHE=element_BHE.masked_fill(~selectable_BHE, NEVER),
            span_BII=self._spans(words_BID, batch),
            # The critic's gradient stops here: its loss would otherwise undo what the policy has learnt.
            value_B=self.value_head(state_BD.detach()).squeeze(-1),
        )

    def _follow(self, element_BHE: Tensor, kind_BK: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the transition graph adds to the logits, so that a policy of random weights follows it."""
        best, untried, said, down, settled, left, shown = self.graph_weights
        graph_BEG, clickable_BE = batch.graph_BEG, batch.element_features_BEF[..., 4] > 0
        tap_BE = best * graph_BEG[..., 2] + untried * graph_BEG[..., 3] + UNFITTING * graph_BEG[..., 4]
        added_BHE = torch.stack([tap_BE, torch.zeros_like(tap_BE), said * graph_BEG[..., 0]], dim=1)
        left_B1 = torch.where(clickable_BE, graph_BEG[..., 2], 0.0).max(1, keepdim=True).values
        shown_B1 = torch.where(clickable_BE, 0.0, graph_BEG[..., 2]).max(1, keepdim=True).values
        down_BK, done_B1 = batch.graph_BG[:, 2:3] * self.is_down, settled * batch.graph_BG[:, 3:4] - left * left_B1
        latest_BP = batch.past_mask_BP & (batch.past_features_BPF[..., 2] == 0)
        typed_B = (latest_BP & (batch.past_kind_BP == KINDS.index("type"))).any(1)
        added_BK = down * down_BK + done_B1 * self.is_done + shown * shown_B1 * self.is_answer
        added_BK = added_BK + self.first + typed_B[:, None] * self.typed
        return element_BHE + added_BHE, kind_BK + added_BK

    def _spans(self, words_BID: Tensor, batch: Batch) -> Tensor:
        mask_BI, (first_BI, last_BI) = batch.word_mask_BI, self.span_score(words_BID).unbind(-1)
        if self._has_quotes:
            first_BI = first_BI + self.quote_weight * batch.quotes_BIQ[..., 0]
            last_BI = last_BI + self.quote_weight * batch.quotes_BIQ[..., 1]
        size = words_BID.shape[1]
        gap_II = torch.arange(size)[None, :] - torch.arange(size)[:, None]
        fits_BII = (gap_II >= 0) & (gap_II < LONGEST_SPAN) & mask_BI[:, :, None] & mask_BI[:, None, :]
        length_II = self.span_length[gap_II.clamp(0, LONGEST_SPAN - 1)]
        spans_BII: Tensor = first_BI[:, :, None] + last_BI[:, None, :] + length_II
        return spans_BII.masked_fill(~fits_BII, NEVER)


def _selectable(batch: Batch) -> Tensor:
    """Which elements each pointing head may choose: clickable ones, and for an answer those with a label."""
    mask_BE, features_BEF = batch.element_mask_BE, batch.element_features_BEF
    touchable_BE = mask_BE & (features_BEF[..., 4] > 0)
    labelled_BE = mask_BE & (features_BEF[..., 15] > 0)
    touch_BE = torch.where(touchable_BE.any(1, keepdim=True), touchable_BE, mask_BE)
    say_BE = torch.where(labelled_BE.any(1, keepdim=True), labelled_BE, mask_BE)
    return torch.stack([touch_BE, touch_BE, say_BE], dim=1)


def _fitting(batch: Batch, *, claims: bool) -> Tensor:
    """Which kinds make sense on a screen: typing needs a field in focus, a swipe something that scrolls; with `claims`, going back and saying that it is done."""
    features_BEF = batch.element_features_BEF
    focused_B, scrolls_B = (features_BEF[..., 7] > 0).any(1), (features_BEF[..., 5] > 0).any(1)
    fits_BK = torch.zeros(len(focused_B), len(KINDS), dtype=torch.bool)
    for kind in ("tap", *(CLAIMING if claims else ())):
        fits_BK[:, KINDS.index(kind)] = True
    for kind in ("type", "enter"):
        fits_BK[:, KINDS.index(kind)] = focused_B
    for kind in ("down", "up"):
        fits_BK[:, KINDS.index(kind)] = scrolls_B
    return fits_BK
