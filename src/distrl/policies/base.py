"""The policy seam: observations in, decisions out, and the same decisions scored again under gradient.

A policy owns its prompt, its tokens and its action grammar. `choice` in a decision is the action in that grammar;
nobody but the policy reads it. What `encode` returns is opaque too: the learner keeps it in replay memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import torch
from torch import Tensor, nn

from distrl.errors import StoreError
from distrl.types import Action, Decision, Observation

Encoded = TypeVar("Encoded")


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy now thinks of given choices, one entry per step N, with gradient."""

    logp_N: Tensor
    entropy_N: Tensor
    value_logit_N: Tensor
    """Logit of the probability that the episode succeeds."""


class Policy(Protocol, Generic[Encoded]):
    """Something that decides what to do on a screen."""

    @property
    def network(self) -> nn.Module:
        """What the learner optimises."""

    def encode(self, observation: Observation) -> Encoded:
        """What the policy reads of an observation, ready for memory and batches."""

    def augment(self, encoded: Encoded) -> Encoded:
        """A varied reading of the same observation, to train on; itself where the policy knows no variation."""

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A decision for each observation; temperature 0 takes the likeliest."""

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """The given choices under the present weights, with gradient; an empty choice is scored for its value alone."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that comes to `action`, for cloning; None where the grammar cannot say it."""

    def weights(self) -> dict[str, Tensor]:
        """What is published and saved, by name: the tensors themselves, not copies."""

    def dump(self) -> bytes:
        """The weights as the bytes of a safetensors file."""

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Take weights of the same architecture; anything else is an error that names `source`."""


@runtime_checkable
class Varying(Protocol):
    """What a policy may have besides, where `augment` draws at random: checkpoints then hold its generator too."""

    variation: str
    """State of that generator; assign it to draw on from there."""


@runtime_checkable
class Telling(Protocol):
    """What a policy may have besides, where it cannot work quite as its settings ask."""

    notices: list[str]
    """What its owner should know, a sentence each."""


def notices_of(policy: Policy[Encoded]) -> list[str]:
    """What the owner of a run should know of its policy; nothing of most."""
    return policy.notices if isinstance(policy, Telling) else []


# --- How a policy gets at the picture that an observation refers to ---


class Pictures(Protocol):
    """Encoded screenshots by reference: the frame store of a run, or the newest ones in memory."""

    def get(self, reference: str) -> bytes:
        """The picture behind `reference`, JPEG or PNG; `StoreError` where it is malformed, unknown or damaged."""


class NoPictures:
    """For those who never look."""

    def get(self, reference: str) -> bytes:
        """Refuse."""
        raise StoreError(
            f"nobody has kept the picture {reference[:80]!r}",
            expected="a source of pictures for a policy that looks at them",
            fix="pass `pictures` to make_policy: a FrameStore or RecentFrames",
        )


# --- Where a policy that looks sits: what it sees with, and what it computes on ---


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a role gives to its policy."""

    pictures: Pictures
    device: torch.device = torch.device("cpu")
    learning: bool = False
    """Whether it sees the same pictures again and again, so that it pays to keep them at hand."""
