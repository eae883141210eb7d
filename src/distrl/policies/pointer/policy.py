"""The embedded default policy: points at UI elements, copies words from the instruction. Runs on one CPU core."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import PolicyConfig
from distrl.errors import StoreError
from distrl.policies.base import Scores
from distrl.policies.pointer.features import Encoded, collate, encode, rename
from distrl.policies.pointer.grammar import KINDS, POINTING, TYPE, Choice, to_action, to_choice
from distrl.policies.pointer.network import Logits, PointerNetwork
from distrl.policies.tensors import pack, unpack
from distrl.types import Action, Decision, Observation

PART = 32
"""Observations scored together, sorted by size: padding would otherwise cost as much as the content."""


NO_CHOICE: Choice = (KINDS.index("wait"), 0, 0)
"""Stands where only the value is wanted."""


class PointerPolicy:
    """`policies.base.Policy` over a `PointerNetwork`."""

    def __init__(self, config: PolicyConfig, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.config = config
        self.network = PointerNetwork(config)
        self._random = np.random.default_rng(seed)

    def encode(self, observation: Observation) -> Encoded:
        return encode(observation, string_match=self.config.string_match)

    def augment(self, encoded: Encoded) -> Encoded:
        share = self.config.rename_share
        return rename(encoded, share, self._random) if share else encoded

    @property
    def variation(self) -> str:
        """State of the generator that `augment` draws from, as JSON: its integers are wider than 64 bits."""
        return json.dumps(self._random.bit_generator.state)

    @variation.setter
    def variation(self, state: str) -> None:
        self._random.bit_generator.state = json.loads(state)

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        logits = self.network(collate([self.encode(observation) for observation in observations]))
        spread = _Spread(logits, temperature or 1.0)
        choices = spread.sample(generator, greedy=temperature == 0)
        logp, entropy = spread.logp(choices).tolist(), spread.entropy().tolist()
        values = torch.sigmoid(logits.value_B).tolist()
        return [
            Decision(
                action=to_action(choice, observation), choice=choice, logp=logp[i], entropy=entropy[i], value=values[i]
            )
            for i, (choice, observation) in enumerate(zip(choices, observations, strict=True))
        ]

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        order = sorted(range(len(encoded)), key=lambda index: encoded[index].num_tokens)
        parts = [self._score_part(encoded, choices, order[at : at + PART]) for at in range(0, len(order), PART)]
        back = torch.tensor(order).argsort()
        logp_N, entropy_N, value_N = (torch.cat(column)[back] for column in zip(*parts, strict=True))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def _score_part(
        self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]], rows: list[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.network(collate([encoded[row] for row in rows]))
        spread = _Spread(logits, 1.0)
        triples = [(choice[0], choice[1], choice[2]) if (choice := choices[row]) else NO_CHOICE for row in rows]
        return spread.logp(triples), spread.entropy(), logits.value_B

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        return to_choice(action, observation)

    def weights(self) -> dict[str, Tensor]:
        return self.network.state_dict()

    def dump(self) -> bytes:
        return b"".join(pack(self.weights()))

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        try:
            tensors = unpack(data)
        except ValueError as error:
            raise StoreError(
                f"{source} cannot be read: {error}",
                expected="a safetensors file",
                fix="pick another version or checkpoint",
            ) from error
        own = self.network.state_dict()
        strange = [name for name in own.keys() | tensors.keys() if _shape(own, name) != _shape(tensors, name)]
        if strange:
            raise StoreError(
                f"{source} holds weights of another architecture: {min(strange)} does not fit",
                expected=f"a pointer of width {self.config.width} with {self.config.layers} layers",
                fix="use the config.toml that lies beside these weights",
            )
        self.network.load_state_dict(tensors)


def _shape(tensors: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


class _Spread:
    """The distribution over choices: a kind, then what the kind needs. Entropy is exact, not estimated."""

    def __init__(self, logits: Logits, temperature: float) -> None:
        self._kind_BK = torch.log_softmax(logits.kind_BK / temperature, dim=-1)
        self._element_BHE = torch.log_softmax(logits.element_BHE / temperature, dim=-1)
        self._words = logits.span_BII.shape[-1]
        self._span_BS = torch.log_softmax(logits.span_BII.flatten(1) / temperature, dim=-1)

    def sample(self, generator: torch.Generator, *, greedy: bool) -> list[Choice]:
        def draw(logp: Tensor) -> Tensor:
            return logp.argmax(-1) if greedy else torch.multinomial(logp.exp(), 1, generator=generator).squeeze(-1)

        kinds, spans = draw(self._kind_BK).tolist(), draw(self._span_BS).tolist()
        elements = draw(self._element_BHE.flatten(0, 1)).view(-1, len(POINTING)).tolist()
        return [self._choice(kind, elements[i], spans[i]) for i, kind in enumerate(kinds)]

    def _choice(self, kind: int, elements: list[int], span: int) -> Choice:
        if kind < len(POINTING):
            return kind, elements[kind], 0
        return (TYPE, span // self._words, span % self._words) if kind == TYPE else (kind, 0, 0)

    def logp(self, choices: Sequence[Choice]) -> Tensor:
        kind, first, last = torch.tensor(choices).unbind(-1)
        rows = torch.arange(len(choices))
        logp_B = self._kind_BK[rows, kind]
        pointing = kind < len(POINTING)
        head = kind.clamp(max=len(POINTING) - 1)
        logp_B = logp_B + pointing * self._element_BHE[rows, head, first.where(pointing, torch.zeros_like(first))]
        typing = kind == TYPE
        span = (first * self._words + last).where(typing, torch.zeros_like(first))
        return logp_B + torch.where(typing, self._span_BS[rows, span], torch.zeros_like(logp_B))

    def entropy(self) -> Tensor:
        """Of the kind, plus what each kind's own choice adds, weighted by how likely the kind is."""
        chance_BK = self._kind_BK.exp()
        own_BH, span_B = _entropy(self._element_BHE), _entropy(self._span_BS)
        return _entropy(self._kind_BK) + (chance_BK[:, : len(POINTING)] * own_BH).sum(-1) + chance_BK[:, TYPE] * span_B


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1)


assert KINDS[: len(POINTING)] == POINTING
