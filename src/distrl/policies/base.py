"""The policy protocol: observations in, decisions out, and the same decisions scored again under gradient.

A policy owns its prompt, its tokens and its action grammar. `choice` in a decision is the action in that grammar;
nobody but the policy reads it. What `encode` returns is opaque too: the learner keeps it in replay memory.
Every policy class is built as `SomePolicy(settings, context)`: its own table of the configuration, and a `PolicyContext`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import torch
from torch import Tensor, nn

from distrl.errors import StoreError
from distrl.experience.frames import FrameReader
from distrl.policies import weights as weights_file
from distrl.types import Action, Decision, Observation, Trajectory

Encoded = TypeVar("Encoded")


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Given choices under the present weights, one entry per step N, with gradient."""

    logp_N: Tensor
    entropy_N: Tensor
    value_logit_N: Tensor
    """Logit of the probability that the episode succeeds."""


@runtime_checkable
class Policy(Protocol, Generic[Encoded]):
    """Something that decides what to do on a screen."""

    @property
    def network(self) -> nn.Module:
        """What the learner optimises."""

    def encode(self, observation: Observation) -> Encoded:
        """What the policy reads of an observation, ready for memory and batches."""

    def augment(self, encoded: Encoded) -> Encoded:
        """The same observation with data augmentation, to train on; itself where the policy has none."""

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A decision for each observation; temperature 0 takes the likeliest."""

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """The given choices under the present weights, with gradient; an empty choice is scored for its value alone."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that stands for `action`, for behaviour cloning; None where the grammar cannot express it."""

    def weights(self) -> dict[str, Tensor]:
        """What is published and saved, by name: the tensors themselves, not copies."""

    def dump(self) -> bytes:
        """The weights as the bytes of a safetensors file."""

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Take weights of the same architecture; anything else is an error that names `source`."""


@runtime_checkable
class ContinuousPolicy(Protocol):
    """Optional part of a policy that takes in observations while it answers others."""

    @property
    def is_continuous(self) -> bool:
        """Whether it does so with its settings, on its device."""

    def ask(self, observations: Mapping[int, Observation], *, temperature: float, generator: torch.Generator) -> None:
        """Ask about observations, each by a ticket; the weights must not change before all have been answered."""

    def advance(self) -> list[tuple[int, Decision]]:
        """Go on for a moment; the tickets and decisions that are made. After `OutOfMemory`, nothing is under way."""


@runtime_checkable
class Prepares(Protocol):
    """Optional part of a policy that answers continuously: what it does on the CPU for an observation can be done beforehand."""

    def prepare(self, observations: Sequence[Observation]) -> None:
        """Do that, on another thread than the one that asks, and keep what comes of it until they are asked about."""


@runtime_checkable
class RandomAugmentation(Protocol):
    """Optional part of a policy whose `augment` draws at random: checkpoints then hold its generator too."""

    augmentation_state: str
    """State of that generator; assign it to continue from there."""


@runtime_checkable
class TakesPlayed(Protocol):
    """Optional part of a policy that keeps something of the episodes themselves, beside what is learnt by gradients."""

    @property
    def is_growing(self) -> bool:
        """Whether it does so with its settings. What it reads of an observation then changes as it grows."""

    def take_played(self, trajectory: Trajectory) -> None:
        """Take in an episode that was played; called in the learner, after `encode` of its steps."""


def is_growing(policy: Policy[Encoded]) -> bool:
    """Whether a policy keeps something of the episodes that were played."""
    return isinstance(policy, TakesPlayed) and policy.is_growing


@runtime_checkable
class HasNotices(Protocol):
    """Optional part of a policy that cannot work quite as its settings ask."""

    notices: list[str]
    """What the owner of the run should know, a sentence each."""


def notices_of(policy: Policy[Encoded]) -> list[str]:
    """What the owner of a run should know about its policy; empty for most."""
    return policy.notices if isinstance(policy, HasNotices) else []


class NoFrames:
    """`FrameReader` of policies that read no screenshots."""

    def get(self, reference: str) -> bytes:
        """Refuse."""
        raise StoreError(
            f"there is no source for the screenshot {reference[:80]!r}",
            expected="a frame reader, for a policy that reads screenshots",
            fix="pass `frames` to make_policy or to PolicyContext: a FrameStore or FrameCache",
        )


class PolicyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a role gives to the policy that it builds, beside the policy's own settings."""

    frames: FrameReader = NoFrames()
    device: torch.device = torch.device("cpu")
    learning: bool = False
    """True in the learner, which reads the same screenshots again and again: caching them then pays."""
    seed: int = 0
    """Decides the first weights and the data augmentation."""


class NetworkPolicy:
    """What a `Policy` of your own with one network may inherit: no data augmentation, and all tensors of `network` are published and saved."""

    network: nn.Module

    def augment(self, encoded: Encoded) -> Encoded:
        """No data augmentation."""
        return encoded

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors by name."""
        return self.network.state_dict()

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        weights_file.restore(self.weights(), data, source=source, expected=f"weights of a {type(self).__name__}")
