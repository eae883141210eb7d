"""The algorithm seam: a batch of sampled episodes in, a loss, metrics and fresh priorities out.

An algorithm says what it descends (`loss`). It may also choose its batch (`sample`) and what the sampler should prefer
(`priorities`, `first_priority`); the defaults are prioritised replay as in DistRL. In the learner it is given the policy that
it trains (`bind`), to score a batch once more. Whatever stands in `Loss.losses` and `Loss.metrics` is written to the run's
metrics, as the mean over the updates since the last time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.algorithms.batch import Episode, TrainBatch, mean_over
from distrl.config.schema import ReplayConfig
from distrl.experience.priorities import first_priority, priority
from distrl.experience.replay import Replay, Sample
from distrl.policies.base import Policy
from distrl.types import Trajectory

NO_CRITIC = nn.Module()
"""Of an algorithm that trains nothing beside the policy."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What to descend, what to log, and what the sampler may learn about each step."""

    total: Tensor
    losses: dict[str, float] = {}
    """Terms of the loss, written as `learner/loss/<name>`."""
    metrics: dict[str, float] = {}
    """Everything else, written as `learner/<name>`. A count whose last part begins with `num_` is summed, not averaged."""
    td_BT: Tensor | None = None
    """The TD error, or the error of an outcome critic. Like the next two, it is for the default
    `priorities` alone; None counts as 0."""
    ratio_BT: Tensor | None = None
    entropy_BT: Tensor | None = None


class AlgorithmContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an algorithm is told beside its settings."""

    seed: int = 0
    replay: ReplayConfig = ReplayConfig()
    group_size: int = 1
    """Attempts at a task in a row."""


class Algorithm:
    """One way to learn from a batch. Inherit from it and write `loss`."""

    critic: nn.Module = NO_CRITIC
    """What it trains beside the policy, saved with the learner."""
    proximal_every_updates: int = 0
    """Updates between two copies of the policy for `TrainBatch.proximal_logp_BT`; 0: it needs none."""
    gamma: float = 0.95
    """Discount of the TD errors in `first_priority`."""
    rho_max: float = 1.0
    """Clip of the importance ratio in `priorities`."""

    def __init__(self, settings: Any, context: AlgorithmContext) -> None:
        self.settings, self.context = settings, context

    def bind(self, policy: Policy[Any]) -> None:
        """Told to the learner's algorithm once, before weights are restored or an update is made: the policy it trains.

        Workers have algorithms too, for `first_priority`, and theirs are never told. By default nothing is done with it.
        """

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """The loss of this batch after `updates` earlier ones."""
        raise TypeError(f"{type(self).__name__} has no `loss`: write loss(self, batch, *, updates) -> Loss")

    def sample(self, replay: Replay[Episode], count: int) -> list[Sample[Episode]]:
        """The episodes of the next batch: by default `count` draws by priority; none: the update is skipped.

        Others choose among `replay.eligible()` with `replay.random` and return `replay.take(ids)`.
        """
        return replay.sample(count)

    def priorities(self, loss: Loss, samples: Sequence[Sample[Episode]]) -> list[float]:
        """What each sampled episode's priority should be from now on."""
        longest = max((sample.item.num_steps for sample in samples), default=0)
        given = [loss.td_BT, loss.ratio_BT, loss.entropy_BT]
        none_BT = next(
            (one.new_zeros(one.shape) for one in given if one is not None), torch.zeros(len(samples), longest)
        )
        signals = torch.stack([none_BT if one is None else one.detach() for one in given]).cpu().numpy()
        found = []
        for row, sample in enumerate(samples):
            td, ratio, entropy = (signal[row, : sample.item.num_steps] for signal in signals)
            success = sample.item.success
            found.append(priority(td, ratio, entropy, self.context.replay, success=success, rho_max=self.rho_max))
        return found

    def first_priority(self, trajectory: Trajectory) -> float:
        """The priority that a worker attaches, from the values that it recorded while acting."""
        return first_priority(trajectory, self.context.replay, gamma=self.gamma)


def loss_of(
    batch: TrainBatch, td_BT: Tensor, *, total: Tensor, losses: dict[str, Tensor], metrics: dict[str, Tensor]
) -> Loss:
    """The loss with its terms as plain numbers: `total` is descended, all are logged, `td_BT` is the TD error."""
    return Loss(
        total=total,
        losses={name: float(term.detach()) for name, term in {**losses, "total": total}.items()},
        metrics={name: float(term.detach()) for name, term in metrics.items()},
        td_BT=td_BT,
        ratio_BT=batch.ratio_BT,
        entropy_BT=batch.entropy_BT.detach(),
    )


def value_loss(value_logit_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Cross-entropy on the probability of success; targets are clipped to [0, 1]."""
    loss_BT = F.binary_cross_entropy_with_logits(value_logit_BT, target_BT.clamp(0.0, 1.0), reduction="none")
    return mean_over(loss_BT, mask_BT)


def outcome_loss(batch: TrainBatch) -> tuple[Tensor, Tensor]:
    """The loss of a critic that learns known outcomes as they are, and what it has missed of them on each step."""
    outcome_BT = batch.success_B[:, None].expand_as(batch.value_logit_BT)
    known_BT = batch.mask_BT & batch.known_B[:, None]
    missed_BT = (outcome_BT - torch.sigmoid(batch.value_logit_BT.detach())) * known_BT
    return value_loss(batch.value_logit_BT, outcome_BT, batch.outcome_mask_BT), missed_BT
