"""A policy that reads screenshots alone: it points at squares of the screen and copies words from the instruction.

About 21 million parameters at its full size, made to be trained from random weights on one GPU; UI elements are never read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import PixelConfig
from distrl.errors import UsageError
from distrl.policies import weights as weights_file
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.distribution import ActionDistribution, as_runners_up
from distrl.policies.nonfinite import SKIPPED_DECISION, NonFiniteGuard
from distrl.policies.oom import oom_errors
from distrl.policies.pixel.batches import ImageLoader, collate
from distrl.policies.pixel.features import Encoded, draw_tint, read_past, read_text
from distrl.policies.pixel.grammar import KINDS, POINTING, Choice, grid_of, to_action, to_choice
from distrl.policies.pixel.network import Logits, PixelNetwork
from distrl.types import Action, Decision, Observation

MAX_DECODE_THREADS = 8
NO_CHOICE: Choice = (KINDS.index("wait"), 0, 0)
"""Placeholder where only the value is wanted."""


class PixelPolicy:
    """`policies.base.Policy` over a `PixelNetwork`."""

    def __init__(self, config: PixelConfig, context: PolicyContext) -> None:
        torch.manual_seed(context.seed)
        self.config, self._frames, self._device = config, context.frames, context.device
        # Made on the CPU, so that a seed gives the same first weights everywhere.
        self.network = PixelNetwork(config).to(context.device)
        self._grid, self.nonfinite = grid_of(config), NonFiniteGuard()
        self._random = np.random.default_rng(context.seed)
        self._images = ImageLoader(
            (config.picture_width, config.picture_height),
            context.device,
            cache=config.image_cache if context.learning else 0,
            threads=min(MAX_DECODE_THREADS, os.cpu_count() or 1) if context.learning else 1,
        )

    @property
    def num_undecodable(self) -> int:
        """Screenshots that could not be decoded and were replaced by black ones."""
        return self._images.num_undecodable

    def encode(self, observation: Observation) -> Encoded:
        """The observation as arrays, with its screenshot still encoded; `UsageError` without a screenshot."""
        if not observation.screenshot:
            raise UsageError(
                "the pixel policy got an observation without a screenshot",
                expected="observations that refer to a screenshot",
                fix="--rollout.keep_screenshots true",
            )
        text = read_text(observation.instruction, self.config.text_bytes)
        return Encoded(
            reference=observation.screenshot,
            image=self._frames.get(observation.screenshot),
            text=text,
            past_PC=read_past(observation, self._grid, text.num_words),
        )

    def augment(self, encoded: Encoded) -> Encoded:
        """The same with colour jitter."""
        jitter = self.config.jitter
        return msgspec.structs.replace(encoded, tint_C=draw_tint(jitter, self._random)) if jitter else encoded

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
        """A decision for each observation; non-finite ones become `SKIPPED_DECISION`."""
        with oom_errors("rollout.batch_size", len(observations)):
            logits = self._logits([self.encode(observation) for observation in observations])
        finite_B, logits = _split_finite(logits)
        self.nonfinite.check(finite_B, "deciding")
        # Drawn on the CPU, with the generator that everyone passes.
        distribution = _distribution(logits, temperature or 1.0, torch.device("cpu"))
        choices = distribution.sample(generator, greedy=temperature == 0)
        logp, entropy = distribution.logp(choices).tolist(), distribution.entropy().tolist()
        values = torch.sigmoid(logits.value_B).tolist()
        others = distribution.runners_up(choices)
        return [
            Decision(
                action=to_action(choice, observation, self._grid),
                choice=choice,
                logp=logp[i],
                entropy=entropy[i],
                value=values[i],
                runners_up=as_runners_up(others[i], partial(to_action, observation=observation, grid=self._grid)),
            )
            if finite
            else SKIPPED_DECISION
            for i, (choice, observation, finite) in enumerate(
                zip(choices, observations, finite_B.tolist(), strict=True)
            )
        ]

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """Log-probability, entropy and value of given choices, with gradient."""
        logits = self._logits(encoded)
        distribution = _distribution(logits, 1.0, self._device)
        triples = [(choice[0], choice[1], choice[2]) if choice else NO_CHOICE for choice in choices]
        return Scores(logp_N=distribution.logp(triples), entropy_N=distribution.entropy(), value_logit_N=logits.value_B)

    def _logits(self, encoded: Sequence[Encoded]) -> Logits:
        logits: Logits = self.network(self._images.load(encoded), collate(encoded, self._device))
        return logits

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that stands for `action`; None where the grammar cannot express it."""
        num_words = read_text(observation.instruction, self.config.text_bytes).num_words
        return to_choice(action, observation, self._grid, num_words)

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors by name."""
        return self.network.state_dict()

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        config = self.config
        expected = (
            f"a pixel policy of width {config.width} with {config.vision_layers} + {config.joint_layers} layers "
            f"for {config.picture_width} × {config.picture_height} and {config.text_bytes} bytes"
        )
        weights_file.restore(self.weights(), data, source=source, expected=expected)


def _split_finite(logits: Logits) -> tuple[Tensor, Logits]:
    """Which rows are finite throughout, and the same logits with 0 in place of NaN."""
    parts = msgspec.structs.asdict(logits)
    finite_B = torch.stack([part.reshape(len(part), -1).isfinite().all(1) for part in parts.values()]).all(0)
    return finite_B.cpu(), Logits(**{name: part.nan_to_num(0.0) for name, part in parts.items()})


def _distribution(logits: Logits, temperature: float, device: torch.device) -> ActionDistribution:
    parts = (part.to(device) for part in (logits.kind_BK, logits.square_BHS, logits.span_BII))
    return ActionDistribution(*parts, temperature=temperature)


assert KINDS[: len(POINTING) + 1] == (*POINTING, "type")
