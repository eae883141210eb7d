"""The embedded default policy: points at UI elements, copies words from the instruction. Runs on one CPU core."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import PointerConfig
from distrl.policies import weights as weights_file
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.distribution import ActionDistribution, as_runners_up
from distrl.policies.pointer.features import Encoded, collate, encode, swap_words
from distrl.policies.pointer.grammar import KINDS, POINTING, Choice, to_action, to_choice
from distrl.policies.pointer.graph import TransitionGraph
from distrl.policies.pointer.network import Logits, PointerNetwork
from distrl.types import Action, Decision, Observation, Trajectory

MICRO_BATCH = 32
"""Observations scored together, sorted by size: padding would otherwise cost as much as the content."""


NO_CHOICE: Choice = (KINDS.index("wait"), 0, 0)
"""Placeholder where only the value is wanted."""


class PointerPolicy:
    """`policies.base.Policy` over a `PointerNetwork`."""

    def __init__(self, config: PointerConfig, context: PolicyContext) -> None:
        torch.manual_seed(context.seed)
        self.config = config
        self.network = PointerNetwork(config)
        self._random = np.random.default_rng(context.seed)
        self._graph = TransitionGraph() if config.transition_graph else None

    def encode(self, observation: Observation) -> Encoded:
        """The observation as arrays."""
        config = self.config
        return encode(observation, string_match=config.string_match, limit=config.max_elements, graph=self._graph)

    @property
    def is_growing(self) -> bool:
        """Whether it has a transition graph."""
        return self._graph is not None

    def take_played(self, trajectory: Trajectory) -> None:
        """Let the transition graph grow by what an episode showed."""
        if self._graph is not None:
            self._graph.add(trajectory)

    def augment(self, encoded: Encoded) -> Encoded:
        """The same with some words swapped for others, on the screen and in the instruction alike."""
        share = self.config.word_swap_share
        return swap_words(encoded, share, self._random) if share else encoded

    @property
    def augmentation_state(self) -> str:
        """State of the generator that `augment` draws from, as JSON: its integers are wider than 64 bits."""
        return json.dumps(self._random.bit_generator.state)

    @augmentation_state.setter
    def augmentation_state(self, state: str) -> None:
        self._random.bit_generator.state = json.loads(state)

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A decision for each observation."""
        logits = self.network(collate([self.encode(observation) for observation in observations]))
        distribution = _distribution(logits, temperature or 1.0)
        choices = distribution.sample(generator, greedy=temperature == 0)
        logp, entropy = distribution.logp(choices).tolist(), distribution.entropy().tolist()
        values = torch.sigmoid(logits.value_B).tolist()
        others = distribution.runners_up(choices)
        return [
            Decision(
                action=self._act(choice, observation),
                choice=choice,
                logp=logp[i],
                entropy=entropy[i],
                value=values[i],
                runners_up=as_runners_up(others[i], partial(self._act, observation=observation)),
            )
            for i, (choice, observation) in enumerate(zip(choices, observations, strict=True))
        ]

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """Log-probability, entropy and value of given choices, with gradient."""
        order = sorted(range(len(encoded)), key=lambda index: encoded[index].num_tokens)
        parts = [
            self._score_part(encoded, choices, order[at : at + MICRO_BATCH]) for at in range(0, len(order), MICRO_BATCH)
        ]
        back = torch.tensor(order).argsort()
        logp_N, entropy_N, value_N = (torch.cat(column)[back] for column in zip(*parts, strict=True))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def _score_part(
        self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]], rows: list[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.network(collate([encoded[row] for row in rows]))
        distribution = _distribution(logits)
        triples = [(choice[0], choice[1], choice[2]) if (choice := choices[row]) else NO_CHOICE for row in rows]
        return distribution.logp(triples), distribution.entropy(), logits.value_B

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that stands for `action`; None where the grammar cannot express it."""
        return to_choice(action, observation, self.config.max_elements, lines=self.config.answer_lines)

    def _act(self, choice: Choice, observation: Observation) -> Action:
        return to_action(choice, observation, self.config.max_elements, lines=self.config.answer_lines)

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors by name, the transition graph among them."""
        tensors = self.network.state_dict()
        if self._graph is not None:
            self._graph.write(tensors["graph"])
        return tensors

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        expected = f"a pointer of width {self.config.width} with {self.config.layers} layers"
        tensors = self.network.state_dict()
        weights_file.restore(tensors, data, source=source, expected=expected)
        if self._graph is not None:
            self._graph.read(tensors["graph"], source=source)


def _distribution(logits: Logits, temperature: float = 1.0) -> ActionDistribution:
    return ActionDistribution(logits.kind_BK, logits.element_BHE, logits.span_BII, temperature=temperature)


assert KINDS[: len(POINTING) + 1] == (*POINTING, "type")
