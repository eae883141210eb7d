"""The algorithm seam: episodes from replay in, a loss and fresh priorities out.

Every algorithm sees the same `Lesson`: the sampled episodes scored by the present policy, padded to a rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.algorithms.groups import Groups
from distrl.algorithms.proximal import Proximal
from distrl.algorithms.targets import Course
from distrl.experience.waste import wasted
from distrl.policies.base import Policy
from distrl.types import Trajectory

NO_CRITIC = nn.Module()
"""Of an algorithm that trains nothing beside the policy."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory as the learner keeps it: what the policy read, and plain arrays over its steps."""

    id: str
    task: str
    """The id of its task: attempts at one task form a group."""
    template: str
    instruction: str
    version: int
    success: bool
    terminal: bool
    encoded: tuple[Any, ...]
    """The policy's own reading of each observation; one more than steps where the episode was cut off."""
    choices: tuple[tuple[int, ...], ...]
    logp_T: NDArray[np.float32]
    reward_T: NDArray[np.float32]
    valid_T: NDArray[np.bool_]
    changed_T: NDArray[np.bool_]
    teaches_T: NDArray[np.bool_]
    """False on the steps that were cut."""
    last_value: float
    example: bool = False
    """Something to imitate that was no attempt at this instruction: a failure under another name, or a demonstration."""

    @property
    def num_steps(self) -> int:
        return len(self.choices)


def prepare(trajectory: Trajectory, policy: Policy[Any], *, cut: bool = False, example: bool = False) -> Episode:
    """What the learner keeps of a trajectory; with `cut`, the wasted steps of a success teach nothing."""
    steps = trajectory.steps
    # A failure is imitated nowhere, and where an algorithm pushes down what failed, waste is the first thing to push.
    cut = cut and trajectory.verdict.success
    seen = [step.observation for step in steps] + ([trajectory.last] if trajectory.last else [])
    return Episode(
        id=trajectory.id,
        task=trajectory.task.id,
        template=trajectory.task.template,
        instruction=trajectory.task.instruction,
        version=trajectory.version,
        success=trajectory.verdict.success,
        terminal=trajectory.ending.terminal,
        encoded=tuple(policy.encode(observation) for observation in seen),
        choices=tuple(step.decision.choice for step in steps),
        logp_T=np.array([step.decision.logp for step in steps], np.float32),
        reward_T=np.array([step.reward for step in steps], np.float32),
        valid_T=np.array([step.valid for step in steps], np.bool_),
        changed_T=np.array([step.changed for step in steps], np.bool_),
        teaches_T=~wasted(trajectory) if cut else np.ones(len(steps), np.bool_),
        last_value=trajectory.last_value,
        example=example,
    )


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled episodes scored by the present policy, on its device; suffixes B episodes, T steps."""

    logp_BT: Tensor
    entropy_BT: Tensor
    value_logit_BT: Tensor
    behaviour_logp_BT: Tensor
    proximal_logp_BT: Tensor
    """Under the proximal policy, without gradient; the present one's where the algorithm asks for no other."""
    reward_BT: Tensor
    valid_BT: Tensor
    changed_BT: Tensor
    mask_BT: Tensor
    """True on real steps, false on padding."""
    teaches_BT: Tensor
    """True on the steps that the policy term may use."""
    tells_BT: Tensor
    """True on the steps whose outcome may train a critic."""
    success_B: Tensor
    example_B: Tensor
    """True on episodes that are to be imitated and were no attempts at their instruction: relabelled failures and
    demonstrations. They count as successes, their ratio is 1, and they tell a critic nothing."""
    instructions: tuple[str, ...]
    group_mean_B: Tensor
    """Mean outcome of the latest attempts at each episode's task."""
    group_std_B: Tensor
    """Standard deviation of these outcomes; 0 where there is nothing to compare."""
    false_claim_BT: Tensor
    """True on the last step of an episode that the agent ended and that failed."""
    bootstrap_B: Tensor
    """V after the last step: 0 where the episode truly ended."""
    weight_B: Tensor
    """Importance weights of prioritised sampling."""

    @property
    def attempts_BT(self) -> Tensor:
        """What a policy gradient may use: the steps that teach, without examples, which nobody sampled."""
        return self.teaches_BT & ~self.example_B[:, None]

    @property
    def ratio_BT(self) -> Tensor:
        """pi / mu, without gradient."""
        return (self.logp_BT.detach() - self.behaviour_logp_BT).exp() * self.mask_BT

    @property
    def course(self) -> Course:
        """What value targets are made of, without gradient."""
        return Course(
            value_BT=torch.sigmoid(self.value_logit_BT.detach()),
            reward_BT=self.reward_BT,
            ratio_BT=self.ratio_BT,
            bootstrap_B=self.bootstrap_B,
            mask_BT=self.mask_BT,
        )


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What to descend, what to log, and what the sampler should think of each episode."""

    total: Tensor
    metrics: dict[str, float]
    td_BT: Tensor
    ratio_BT: Tensor
    entropy_BT: Tensor


def loss_of(lesson: Lesson, td_BT: Tensor, **terms: Tensor) -> Loss:
    """The loss whose terms these are: `total` is descended, all are logged, `td_BT` is what surprised."""
    return Loss(
        total=terms["total"],
        metrics={name: float(term.detach()) for name, term in terms.items()},
        td_BT=td_BT,
        ratio_BT=lesson.ratio_BT,
        entropy_BT=lesson.entropy_BT.detach(),
    )


class Algorithm(Protocol):
    """One way to learn from a lesson."""

    @property
    def critic(self) -> nn.Module:
        """What it trains beside the policy, saved with the learner; `NO_CRITIC` where there is nothing."""

    @property
    def proximal_every_updates(self) -> int:
        """Updates between two copies of the policy for `Lesson.proximal_logp_BT`; 0: it needs none."""

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        """The loss of this lesson after `updates` earlier ones."""


def read_lesson(
    policy: Policy[Any],
    episodes: Sequence[Episode],
    weights: Sequence[float],
    *,
    proximal: Proximal | None = None,
    groups: Groups | None = None,
) -> Lesson:
    """Score the episodes with the present policy, under gradient, in one pass."""
    encoded = [policy.augment(item) for episode in episodes for item in episode.encoded]
    choices = [choice for episode in episodes for choice in _padded_choices(episode)]
    # Before the pass under gradient, whose graph must not meet the proximal weights.
    proximal_N = proximal.logp(encoded, choices) if proximal is not None else None
    scores = policy.score(encoded, choices)
    here = scores.logp_N.device
    spreads = [groups.spread(episode.task) if groups is not None else (0.0, 0.0) for episode in episodes]
    rows, last = _rows(episodes)
    mask_BT = _stack([np.ones(episode.num_steps, np.float32) for episode in episodes], here).bool()
    example_B = torch.tensor([episode.example for episode in episodes]).to(here)
    logp_BT = _gather(scores.logp_N, rows)
    acted_BT = _stack([episode.logp_T for episode in episodes], here)
    return Lesson(
        logp_BT=logp_BT,
        entropy_BT=_gather(scores.entropy_N, rows),
        value_logit_BT=_gather(scores.value_logit_N, rows),
        behaviour_logp_BT=torch.where(example_B[:, None], logp_BT.detach(), acted_BT),
        proximal_logp_BT=_gather(scores.logp_N.detach() if proximal_N is None else proximal_N, rows),
        reward_BT=_stack([episode.reward_T for episode in episodes], here),
        valid_BT=_stack([episode.valid_T for episode in episodes], here).bool(),
        changed_BT=_stack([episode.changed_T for episode in episodes], here).bool(),
        mask_BT=mask_BT,
        teaches_BT=_stack([episode.teaches_T for episode in episodes], here).bool(),
        tells_BT=mask_BT & ~example_B[:, None],
        success_B=_send([float(episode.success) for episode in episodes], here),
        example_B=example_B,
        instructions=tuple(episode.instruction for episode in episodes),
        group_mean_B=_send([mean for mean, _ in spreads], here),
        group_std_B=_send([std for _, std in spreads], here),
        false_claim_BT=_stack([_false_claims(episode) for episode in episodes], here).bool(),
        bootstrap_B=_bootstrap(episodes, last, scores.value_logit_N.detach()),
        weight_B=_send(weights, here),
    )


def _bootstrap(episodes: Sequence[Episode], last: Sequence[int | None], value_logit_N: Tensor) -> Tensor:
    """V after the last step: nothing after a true end, the critic's word on what was seen after a cut, or the actor's."""
    here = value_logit_N.device
    known_B = _send([0.0 if episode.terminal else episode.last_value for episode in episodes], here)
    seen = [not episode.terminal and at is not None for episode, at in zip(episodes, last, strict=True)]
    rows_B = torch.tensor([at or 0 for at in last]).to(here)
    return torch.where(torch.tensor(seen).to(here), torch.sigmoid(value_logit_N)[rows_B], known_B)


def _false_claims(episode: Episode) -> NDArray[np.bool_]:
    claims = np.zeros(episode.num_steps, np.bool_)
    claims[-1] = episode.terminal and not episode.success
    return claims


def _padded_choices(episode: Episode) -> list[tuple[int, ...]]:
    """One choice per encoded observation: what stands after the last step is scored for its value alone."""
    extra = len(episode.encoded) - episode.num_steps
    return [*episode.choices, *([()] * extra)]


def _rows(episodes: Sequence[Episode]) -> tuple[list[range], list[int | None]]:
    """Where each episode's steps lie in the flat scores, and where the observation after its end does."""
    rows: list[range] = []
    last: list[int | None] = []
    start = 0
    for episode in episodes:
        end = start + episode.num_steps
        rows.append(range(start, end))
        last.append(end if len(episode.encoded) > episode.num_steps else None)
        start += len(episode.encoded)
    return rows, last


def _gather(flat_N: Tensor, rows: Sequence[range]) -> Tensor:
    parts = [flat_N[row.start : row.stop] for row in rows]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)


def _stack(arrays: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    parts = [torch.from_numpy(np.asarray(array, np.float32)) for array in arrays]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(device)


def _send(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float32).to(device)


def mean_over(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the steps in `mask_BT`; 0 where there are none."""
    return (x_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1)
