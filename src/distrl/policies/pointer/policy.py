"""The embedded default policy: points at UI elements, copies words from the instruction. Runs on one CPU core."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import PolicyConfig
from distrl.policies import weights as weights_file
from distrl.policies.base import Scores
from distrl.policies.distribution import Spread
from distrl.policies.pointer.features import Encoded, collate, encode, rename
from distrl.policies.pointer.grammar import KINDS, POINTING, Choice, to_action, to_choice
from distrl.policies.pointer.network import Logits, PointerNetwork
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
        spread = _spread(logits, temperature or 1.0)
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
        spread = _spread(logits)
        triples = [(choice[0], choice[1], choice[2]) if (choice := choices[row]) else NO_CHOICE for row in rows]
        return spread.logp(triples), spread.entropy(), logits.value_B

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        return to_choice(action, observation)

    def weights(self) -> dict[str, Tensor]:
        return self.network.state_dict()

    def dump(self) -> bytes:
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        expected = f"a pointer of width {self.config.width} with {self.config.layers} layers"
        weights_file.restore(self.weights(), data, source=source, expected=expected)


def _spread(logits: Logits, temperature: float = 1.0) -> Spread:
    return Spread(logits.kind_BK, logits.element_BHE, logits.span_BII, temperature=temperature)


assert KINDS[: len(POINTING) + 1] == (*POINTING, "type")
