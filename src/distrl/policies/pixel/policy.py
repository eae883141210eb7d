"""A policy that sees screenshots alone: it points at squares of the screen and copies words from the instruction.

About 21 million parameters at its full size, made to be trained from nothing on one GPU; UI elements are never read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import PixelConfig
from distrl.errors import UsageError
from distrl.policies import weights as weights_file
from distrl.policies.base import Scores, Seat
from distrl.policies.distribution import Spread
from distrl.policies.nonfinite import NO_DECISION, Soundness
from distrl.policies.oom import memory_errors
from distrl.policies.pixel.batches import collate
from distrl.policies.pixel.features import Encoded, draw_tint, read_past, read_text
from distrl.policies.pixel.grammar import KINDS, POINTING, Choice, grid_of, to_action, to_choice
from distrl.policies.pixel.network import Logits, PixelNetwork
from distrl.policies.pixel.pictures import PictureRoom
from distrl.types import Action, Decision, Observation

MOST_THREADS = 8
"""That decode pictures side by side."""
NO_CHOICE: Choice = (KINDS.index("wait"), 0, 0)
"""Stands where only the value is wanted."""


class PixelPolicy:
    """`policies.base.Policy` over a `PixelNetwork`."""

    def __init__(self, config: PixelConfig, seat: Seat, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.config, self._seat = config, seat
        # Made on the CPU, so that a seed gives the same first weights everywhere.
        self.network = PixelNetwork(config).to(seat.device)
        self._grid, self.soundness = grid_of(config), Soundness()
        self._random = np.random.default_rng(seed)
        self._room = PictureRoom(
            (config.picture_width, config.picture_height),
            seat.device,
            shelf=config.shelf if seat.learning else 0,
            threads=min(MOST_THREADS, os.cpu_count() or 1) if seat.learning else 1,
        )

    @property
    def num_dark(self) -> int:
        """Pictures that could not be decoded, and were seen as black ones."""
        return self._room.num_dark

    def encode(self, observation: Observation) -> Encoded:
        if not observation.screenshot:
            raise UsageError(
                "the pixel policy was shown an observation without a picture",
                expected="observations that refer to a screenshot",
                fix="--rollout.keep_screenshots true",
            )
        text = read_text(observation.instruction, self.config.text_bytes)
        return Encoded(
            reference=observation.screenshot,
            picture=self._seat.pictures.get(observation.screenshot),
            text=text,
            past_PC=read_past(observation, self._grid, text.num_words),
        )

    def augment(self, encoded: Encoded) -> Encoded:
        jitter = self.config.jitter
        return msgspec.structs.replace(encoded, tint_C=draw_tint(jitter, self._random)) if jitter else encoded

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
        with memory_errors("rollout.batch_size", len(observations)):
            logits = self._logits([self.encode(observation) for observation in observations])
        sound_B, logits = _sound(logits)
        self.soundness.note(sound_B, "deciding")
        # Drawn on the CPU, with the generator that everyone passes.
        spread = _spread(logits, temperature or 1.0, torch.device("cpu"))
        choices = spread.sample(generator, greedy=temperature == 0)
        logp, entropy = spread.logp(choices).tolist(), spread.entropy().tolist()
        values = torch.sigmoid(logits.value_B).tolist()
        return [
            Decision(
                action=to_action(choice, observation, self._grid),
                choice=choice,
                logp=logp[i],
                entropy=entropy[i],
                value=values[i],
            )
            if sound
            else NO_DECISION
            for i, (choice, observation, sound) in enumerate(zip(choices, observations, sound_B.tolist(), strict=True))
        ]

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        logits = self._logits(encoded)
        spread = _spread(logits, 1.0, self._seat.device)
        triples = [(choice[0], choice[1], choice[2]) if choice else NO_CHOICE for choice in choices]
        return Scores(logp_N=spread.logp(triples), entropy_N=spread.entropy(), value_logit_N=logits.value_B)

    def _logits(self, encoded: Sequence[Encoded]) -> Logits:
        logits: Logits = self.network(self._room.bring(encoded), collate(encoded, self._seat.device))
        return logits

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        num_words = read_text(observation.instruction, self.config.text_bytes).num_words
        return to_choice(action, observation, self._grid, num_words)

    def weights(self) -> dict[str, Tensor]:
        return self.network.state_dict()

    def dump(self) -> bytes:
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        config = self.config
        expected = (
            f"a pixel policy of width {config.width} with {config.vision_layers} + {config.joint_layers} layers "
            f"for {config.picture_width} × {config.picture_height} and {config.text_bytes} bytes"
        )
        weights_file.restore(self.weights(), data, source=source, expected=expected)


def _sound(logits: Logits) -> tuple[Tensor, Logits]:
    """Which rows are numbers throughout, and the same logits with 0 for what is none."""
    parts = msgspec.structs.asdict(logits)
    sound_B = torch.stack([part.reshape(len(part), -1).isfinite().all(1) for part in parts.values()]).all(0)
    return sound_B.cpu(), Logits(**{name: part.nan_to_num(0.0) for name, part in parts.items()})


def _spread(logits: Logits, temperature: float, device: torch.device) -> Spread:
    parts = (part.to(device) for part in (logits.kind_BK, logits.square_BHS, logits.span_BII))
    return Spread(*parts, temperature=temperature)


assert KINDS[: len(POINTING) + 1] == (*POINTING, "type")
