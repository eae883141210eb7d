"""The policy: a small network over hashed words that compares the instruction with each button's label.

A choice is the number of a clickable element. Where a screen has none, the only choice is to finish.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated
from zlib import crc32

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from distrl.policies import weights as weights_file
from distrl.policies.base import PolicyContext, Scores
from distrl.types import Action, Decision, Finish, Observation, Tap, UiElement


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.options]` of the policy."""

    width: Annotated[int, msgspec.Meta(ge=4)] = 32
    """Size of a word's vector."""
    rows: Annotated[int, msgspec.Meta(ge=2)] = 1024
    """Rows of the embedding that words are hashed into."""


class Encoded(msgspec.Struct, frozen=True):
    """One observation: rows of the words of the instruction, and of each label."""

    instruction_W: Tensor
    label_EL: Tensor


class Network(nn.Module):
    """Scores each label against the instruction."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__()
        width = settings.width
        self.words = nn.EmbeddingBag(settings.rows, width, mode="sum", padding_idx=0)
        nn.init.normal_(self.words.weight, std=0.3)  # small, so that all choices are about as likely at first
        self.point = nn.Sequential(nn.Linear(3 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 1))
        self.value = nn.Linear(2 * width, 1)

    def forward(self, instruction_NW: Tensor, label_NEL: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the labels, and the logit of success."""
        num, most, _ = label_NEL.shape
        text_ND = self.words(instruction_NW)
        label_NED = self.words(label_NEL.flatten(0, 1)).view(num, most, -1)
        same_NED = text_ND[:, None].expand_as(label_NED)
        logit_NE = self.point(torch.cat([same_NED, label_NED, same_NED * label_NED], -1)).squeeze(-1)
        logit_NE = logit_NE.masked_fill(~(label_NEL > 0).any(-1), -1e9)  # padding is never chosen
        value_N = self.value(torch.cat([text_ND, label_NED.sum(1)], -1).detach()).squeeze(-1)
        return logit_NE, value_N


class LabelPolicy:
    """`distrl.policies.base.Policy`."""

    Settings = PolicySettings

    def __init__(self, settings: PolicySettings, context: PolicyContext) -> None:
        torch.manual_seed(context.seed)
        self._settings, self._device = settings, context.device
        self.network = Network(settings).to(context.device)

    def encode(self, observation: Observation) -> Encoded:
        """Hashed words."""
        labels = [self._rows(element.text) for element in buttons(observation)] or [self._rows("finish")]
        return Encoded(self._rows(observation.instruction), pad_sequence(labels, batch_first=True))

    def _rows(self, text: str) -> Tensor:
        words = re.findall(r"\w+", text.lower()) or [""]
        return torch.tensor([1 + crc32(word.encode()) % (self._settings.rows - 1) for word in words])

    def augment(self, encoded: Encoded) -> Encoded:
        """No data augmentation."""
        return encoded

    def _forward(self, encoded: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
        most, longest = (max(one.label_EL.shape[axis] for one in encoded) for axis in (0, 1))
        label_NEL = torch.zeros(len(encoded), most, longest, dtype=torch.long)
        for row, one in zip(label_NEL, encoded, strict=True):
            row[: one.label_EL.shape[0], : one.label_EL.shape[1]] = one.label_EL
        instruction_NW = pad_sequence([one.instruction_W for one in encoded], batch_first=True)
        logits: tuple[Tensor, Tensor] = self.network(instruction_NW.to(self._device), label_NEL.to(self._device))
        return logits

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A button each, or the end."""
        logit_NE, value_N = self._forward([self.encode(observation) for observation in observations])
        logp_NE = (logit_NE / (temperature or 1.0)).log_softmax(-1).cpu()
        choice_N = torch.multinomial(logp_NE.exp(), 1, generator=generator)[:, 0] if temperature else logp_NE.argmax(-1)
        logp_N, entropy_N = logp_NE.gather(1, choice_N[:, None])[:, 0], _entropy(logp_NE)
        found = zip(observations, *(x.tolist() for x in (choice_N, logp_N, entropy_N, value_N.sigmoid())), strict=True)
        return [
            Decision(action=_action(seen, choice), choice=(choice,), logp=logp, entropy=entropy, value=value)
            for seen, choice, logp, entropy, value in found
        ]

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """Given choices with gradient; an empty one is scored for its value alone."""
        logit_NE, value_N = self._forward(encoded)
        logp_NE = logit_NE.log_softmax(-1)
        choice_N = torch.tensor([choice[0] if choice else 0 for choice in choices], device=self._device)
        logp_N = logp_NE.gather(1, choice_N[:, None])[:, 0]
        return Scores(logp_N=logp_N, entropy_N=_entropy(logp_NE), value_logit_N=value_N)

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The button under a tap; None for what is no button."""
        found = buttons(observation)
        if isinstance(action, Finish) and not found:
            return (0,)
        hit = [n for n, b in enumerate(found) if isinstance(action, Tap) and b.bounds.contains(action.x, action.y)]
        return (hit[0],) if hit else None

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors by name."""
        return self.network.state_dict()

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        weights_file.restore(self.weights(), data, source=source, expected=f"a LabelPolicy with {self._settings}")


def buttons(observation: Observation) -> list[UiElement]:
    """What can be pressed."""
    return [element for element in observation.elements if element.clickable]


def _action(observation: Observation, choice: int) -> Action:
    found = buttons(observation)
    return Tap(*found[choice].bounds.centre) if found else Finish()


def _entropy(logp_NE: Tensor) -> Tensor:
    return -(logp_NE.exp() * logp_NE).sum(-1)
