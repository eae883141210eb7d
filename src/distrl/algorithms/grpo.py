"""GRPO (arXiv 2402.03300) over groups of episodes of one task, with the decoupled clipping of `ppo`.

    L = - mean( w_tau m_t min(prox/mu, rho_max) min( ratio_t A, clip(ratio_t, 1 - eps, 1 + eps) A ) )
        - beta mean( H(pi(.|s_t)) )
        + k_v  mean( cross-entropy( V(s_t), R ) )

    A = (R - mean of the group) / (deviation of the group + eps_0), the same for every step of an episode

R is the outcome, 0 or 1. The group is what has arrived of the latest attempts at the task. An episode whose group has
no spread is left out of the first two means. The critic gives no advantage: it can feed the sampler's priorities.
Batches are drawn like those of any algorithm or, with `whole_groups`, made of groups with spread.
docs/algorithms/grpo.md says what differs from the paper and why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from torch import Tensor

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import Episode, TrainBatch, mean_over
from distrl.algorithms.ppo import clipped_gain, trust_region_mask
from distrl.config.schema import GRPOConfig
from distrl.experience.replay import Replay, Sample

EPS = 1e-4


class GRPO(Algorithm):
    """Clipped policy gradient; the other attempts at a task take the place of a critic."""

    def __init__(self, settings: GRPOConfig, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self._config, self.gamma, self.rho_max = settings, settings.gamma, settings.rho_max
        self.proximal_every_updates = settings.every_updates

    def sample(self, replay: Replay[Episode], count: int) -> list[Sample[Episode]]:
        """Draws by priority, or groups with spread where they are asked for and there are any."""
        groups = groups_with_spread(replay.eligible(), self.context.group_size) if self._config.whole_groups else []
        if not groups:
            return replay.sample(count)
        order = [groups[at] for at in replay.random.permutation(len(groups))]
        return replay.take(whole_groups(order, count))

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """The clipped surrogate over compared episodes, the entropy bonus and a critic of the outcome."""
        config = self._config
        compared_BT = ((batch.group_std_B > 0) & batch.known_B)[:, None] & batch.mask_BT
        advantage_BT = group_advantage(batch)[:, None]
        gain_BT = clipped_gain(batch, advantage_BT, config)
        policy = -mean_over(gain_BT, compared_BT & batch.attempts_BT)
        bonus = config.entropy_weight * mean_over(batch.entropy_BT, compared_BT)
        value, missed_BT = outcome_loss(batch)
        return loss_of(
            batch,
            missed_BT,
            total=policy - bonus + config.value_weight * value,
            losses={"policy": policy, "value": value},
            metrics={
                "entropy": mean_over(batch.entropy_BT, batch.mask_BT),
                "compared_share": mean_over(compared_BT.float(), batch.mask_BT),
                "trust_region_share": mean_over(
                    trust_region_mask(batch, advantage_BT, config).float(), compared_BT & batch.attempts_BT
                ),
            },
        )


def group_advantage(batch: TrainBatch) -> Tensor:
    """How much better each episode went than its group, in deviations; means nothing where the group has no spread."""
    return (batch.success_B - batch.group_mean_B) / (batch.group_std_B + EPS)


def groups_with_spread(eligible: Mapping[str, Episode], size: int) -> list[list[str]]:
    """The ids of the latest `size` attempts at each task, where some of them succeeded and some failed."""
    attempts: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in eligible.values():
        if episode.known and not episode.example:
            attempts[episode.task].append(episode)
    latest = (group[-size:] for group in attempts.values())
    return [[episode.id for episode in group] for group in latest if len({episode.success for episode in group}) > 1]


def whole_groups(groups: Iterable[list[str]], count: int) -> list[str]:
    """The first groups that fit into `count` episodes; the very first one however large it is."""
    taken: list[str] = []
    for group in groups:
        if not taken or len(taken) + len(group) <= count:
            taken += group
    return taken
