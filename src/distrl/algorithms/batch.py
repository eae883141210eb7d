"""From trajectories to the rectangle that every algorithm sees.

A trajectory becomes an `Episode`, which the replay holds. Sampled episodes, scored by the present policy and padded,
become a `TrainBatch`. `Groups` remembers the outcomes of attempts at one task, `Proximal` the policy of a few updates ago,
`ReferencePolicy` the one before the first update.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.algorithms.targets import ReturnInputs
from distrl.experience.noop import noop_steps
from distrl.policies.base import Policy
from distrl.policies.weights import swapped_weights
from distrl.types import Ending, Trajectory


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory as the learner keeps it: what the policy read, and plain arrays over its steps."""

    id: str
    task: str
    """The id of its task: attempts at one task form a group."""
    template: str
    instruction: str
    version: int
    success: bool
    known: bool = True
    """False where nobody knows the outcome: a fault ended it, or the judge failed."""
    terminal: bool
    claimed: bool = True
    """The agent itself ended it."""
    encoded: tuple[Any, ...]
    """The policy's own reading of each observation; one more than steps where the episode was cut off."""
    choices: tuple[tuple[int, ...], ...]
    logp_T: NDArray[np.float32]
    reward_T: NDArray[np.float32]
    device_reward_T: NDArray[np.float32]
    valid_T: NDArray[np.bool_]
    changed_T: NDArray[np.bool_]
    policy_mask_T: NDArray[np.bool_]
    """False on no-op steps, which nobody should imitate."""
    last_value: float
    example: bool = False
    """Something to imitate that was no attempt at this instruction: a failure under another name, or a demonstration."""
    versions: tuple[int, ...] = ()
    """The version that chose each step."""

    @property
    def num_steps(self) -> int:
        return len(self.choices)

    @property
    def decided_T(self) -> NDArray[np.bool_]:
        """False where the policy's decision was skipped because it was not finite: nobody chose that step."""
        return np.array([bool(choice) for choice in self.choices], np.bool_)


def prepare(trajectory: Trajectory, policy: Policy[Any], *, filter_noops: bool = False) -> Episode:
    """What the learner keeps of a trajectory; with `filter_noops`, the no-op steps of a success are masked."""
    steps, example = trajectory.steps, trajectory.source != "played"
    # A failure is imitated nowhere, and where an algorithm lowers what failed, its no-ops come first.
    filter_noops = filter_noops and trajectory.verdict.success and not example
    seen = [step.observation for step in steps] + ([trajectory.last] if trajectory.last else [])
    # What the device gave for one task says nothing about another that the episode is relabelled as.
    device_rewards = [0.0 if trajectory.source == "hindsight" else step.device_reward for step in steps]
    return Episode(
        id=trajectory.id,
        task=trajectory.task.id,
        template=trajectory.task.template,
        instruction=trajectory.task.instruction,
        version=trajectory.version,
        success=trajectory.verdict.success,
        known=trajectory.verdict.known,
        terminal=trajectory.ending.is_terminal,
        claimed=trajectory.ending is Ending.FINISHED,
        encoded=tuple(policy.encode(observation) for observation in seen),
        choices=tuple(step.decision.choice for step in steps),
        logp_T=np.array([step.decision.logp for step in steps], np.float32),
        reward_T=np.array([step.reward for step in steps], np.float32),
        device_reward_T=np.array(device_rewards, np.float32),
        valid_T=np.array([step.valid for step in steps], np.bool_),
        changed_T=np.array([step.changed for step in steps], np.bool_),
        policy_mask_T=~noop_steps(trajectory) if filter_noops else np.ones(len(steps), np.bool_),
        last_value=trajectory.last_value,
        example=example,
        versions=tuple(step.version for step in steps),
    )


class StepScores(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a batch under a policy's weights of this moment, with gradient; 0 on padding."""

    logp_BT: Tensor
    entropy_BT: Tensor
    value_logit_BT: Tensor


class TrainBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled episodes scored by the present policy, on its device; suffixes B episodes, T steps."""

    logp_BT: Tensor
    entropy_BT: Tensor
    value_logit_BT: Tensor
    behaviour_logp_BT: Tensor
    proximal_logp_BT: Tensor
    """Under the proximal policy, without gradient; the present one's where the algorithm asks for no other."""
    reward_BT: Tensor
    """1 on the last step of a success, minus the penalty of no-ops."""
    device_reward_BT: Tensor
    """What the device itself gave for each step; 0 where it gives nothing, and on relabelled failures."""
    valid_BT: Tensor
    changed_BT: Tensor
    mask_BT: Tensor
    """True on real steps, false on padding."""
    decided_BT: Tensor
    """True on the steps that the policy chose; false where its decision was skipped as non-finite. Their ratio is 1."""
    policy_mask_BT: Tensor
    """True on the steps that the policy term may use."""
    value_mask_BT: Tensor
    """True on the steps that may train a critic."""
    success_B: Tensor
    """1 for a success, 0 for a failure and also where nobody knows the outcome: use it with `known_B` or `outcome_mask_BT`."""
    known_B: Tensor
    """False where nobody knows the outcome: such an episode is no failure."""
    example_B: Tensor
    """True on episodes that are to be imitated and were no attempts at their instruction: relabelled failures and
    demonstrations. They count as successes, their ratio is 1, and no critic learns from them."""
    instructions: tuple[str, ...]
    templates: tuple[str, ...] = ()
    """The template of each episode's task, for algorithms that tell templates apart."""
    group_mean_B: Tensor
    """Mean outcome of the latest attempts at each episode's task."""
    group_std_B: Tensor
    """Standard deviation of these outcomes; 0 where there is nothing to compare."""
    false_claim_BT: Tensor
    """True on the last step of an episode that the agent ended with a false claim."""
    bootstrap_B: Tensor
    """V after the last step: 0 where the episode truly ended."""
    weight_B: Tensor
    """Importance weights of prioritised sampling."""
    encoded: tuple[Any, ...] = ()
    """What the policy read, augmented as it was scored: N observations, episode after episode. An episode that was cut off
    has one more than steps: what was seen after the last one."""
    choices: tuple[tuple[int, ...], ...] = ()
    """What was chosen on each of them; empty where nothing was."""
    rows: tuple[range, ...] = ()
    """Where each episode's steps lie among the N."""

    def score(self, policy: Policy[Any]) -> StepScores:
        """The same steps once more, under the weights that the policy has now."""
        scores = policy.score(self.encoded, self.choices)
        return StepScores(
            logp_BT=_gather(scores.logp_N, self.rows),
            entropy_BT=_gather(scores.entropy_N, self.rows),
            value_logit_BT=_gather(scores.value_logit_N, self.rows),
        )

    @property
    def outcome_mask_BT(self) -> Tensor:
        """The steps whose outcome may train a critic of outcomes."""
        return self.value_mask_BT & self.known_B[:, None]

    @property
    def attempts_BT(self) -> Tensor:
        """What a policy gradient may use: the policy mask without examples, which nobody sampled."""
        return self.policy_mask_BT & ~self.example_B[:, None]

    @property
    def ratio_BT(self) -> Tensor:
        """pi / mu, without gradient."""
        return (self.logp_BT.detach() - self.behaviour_logp_BT).exp() * self.mask_BT

    @property
    def return_inputs(self) -> ReturnInputs:
        """What value targets are made of, without gradient."""
        return ReturnInputs(
            value_BT=torch.sigmoid(self.value_logit_BT.detach()),
            reward_BT=self.reward_BT,
            ratio_BT=self.ratio_BT,
            bootstrap_B=self.bootstrap_B,
            mask_BT=self.mask_BT,
        )


def make_batch(
    policy: Policy[Any],
    episodes: Sequence[Episode],
    weights: Sequence[float],
    *,
    proximal: Proximal | None = None,
    groups: Groups | None = None,
) -> TrainBatch:
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
    decided_BT = _stack([episode.decided_T for episode in episodes], here).bool()
    logp_BT = _gather(scores.logp_N, rows)
    acted_BT = _stack([episode.logp_T for episode in episodes], here)
    return TrainBatch(
        logp_BT=logp_BT,
        entropy_BT=_gather(scores.entropy_N, rows),
        value_logit_BT=_gather(scores.value_logit_N, rows),
        behaviour_logp_BT=torch.where(example_B[:, None] | ~decided_BT, logp_BT.detach(), acted_BT),
        proximal_logp_BT=_gather(scores.logp_N.detach() if proximal_N is None else proximal_N, rows),
        reward_BT=_stack([episode.reward_T for episode in episodes], here),
        device_reward_BT=_stack([episode.device_reward_T for episode in episodes], here),
        valid_BT=_stack([episode.valid_T for episode in episodes], here).bool(),
        changed_BT=_stack([episode.changed_T for episode in episodes], here).bool(),
        mask_BT=mask_BT,
        decided_BT=decided_BT,
        policy_mask_BT=_stack([episode.policy_mask_T for episode in episodes], here).bool() & decided_BT,
        value_mask_BT=mask_BT & ~example_B[:, None],
        success_B=_send([float(episode.success) for episode in episodes], here),
        known_B=torch.tensor([episode.known for episode in episodes]).to(here),
        example_B=example_B,
        instructions=tuple(episode.instruction for episode in episodes),
        templates=tuple(episode.template for episode in episodes),
        group_mean_B=_send([mean for mean, _ in spreads], here),
        group_std_B=_send([std for _, std in spreads], here),
        false_claim_BT=_stack([_false_claims(episode) for episode in episodes], here).bool(),
        bootstrap_B=_bootstrap(episodes, last, scores.value_logit_N.detach()),
        weight_B=_send(weights, here),
        encoded=tuple(encoded),
        choices=tuple(choices),
        rows=tuple(rows),
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
    claims[-1] = episode.claimed and episode.known and not episode.success
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


# --- groups -----------------------------------------------------------------------------------------------------------


MAX_TASKS = 4096


class Groups:
    """Outcomes by task."""

    def __init__(self, size: int, *, max_tasks: int = MAX_TASKS) -> None:
        # Two at least: where tasks are not repeated in a row, an attempt is still compared with the one before.
        self._size, self._max_tasks = max(2, size), max_tasks
        self._outcomes: dict[str, deque[bool]] = {}

    def __len__(self) -> int:
        """Tasks remembered."""
        return len(self._outcomes)

    def add(self, task: str, success: bool) -> None:
        """Remember an attempt; the oldest at the task makes room."""
        outcomes = self._outcomes.pop(task, None) or deque(maxlen=self._size)
        outcomes.append(success)
        self._outcomes[task] = outcomes
        if len(self._outcomes) > self._max_tasks:
            del self._outcomes[next(iter(self._outcomes))]

    def spread(self, task: str) -> tuple[float, float]:
        """Mean and standard deviation of the outcomes at a task; zeros where there are none."""
        outcomes = self._outcomes.get(task)
        if not outcomes:
            return 0.0, 0.0
        mean = sum(outcomes) / len(outcomes)
        return mean, (mean * (1.0 - mean)) ** 0.5


# --- the proximal policy ----------------------------------------------------------------------------------------------


class Proximal:
    """A copy of a policy's weights, and what they think of given choices."""

    def __init__(self, policy: Policy[Any], *, every_updates: int) -> None:
        self._policy, self._every_updates = policy, every_updates
        self._weights: list[Tensor] = []
        self._same = True

    def refresh(self, updates: int) -> None:
        """To be called before each update: copies the present weights when it is time to, or for the first time."""
        if not self._every_updates:
            return
        self._same = not self._weights or updates % self._every_updates == 0
        if self._same:
            self._weights = [weights.detach().clone() for weights in self._trained()]

    @torch.no_grad()
    def logp(self, encoded: Sequence[Any], choices: Sequence[tuple[int, ...]]) -> Tensor | None:
        """Log-probabilities of the choices; None where the present policy is the proximal one."""
        if self._same:
            return None
        with swapped_weights(self._trained(), self._weights):
            return self._policy.score(encoded, choices).logp_N

    def _trained(self) -> list[nn.Parameter]:
        return _trained_weights(self._policy)


def _trained_weights(policy: Policy[Any]) -> list[nn.Parameter]:
    return [weights for weights in policy.network.parameters() if weights.requires_grad]


# --- the reference policy ---------------------------------------------------------------------------------------------


class ReferencePolicy(nn.Module):
    """A policy as it was when `score` was first called, frozen: what a KL term holds on to.

    Its weights are buffers. An algorithm that makes it in `bind` and keeps it in `self.critic` finds them again on resume.
    """

    taken: Tensor

    def __init__(self, policy: Policy[Any]) -> None:
        super().__init__()
        self._policy = (policy,)  # in a tuple, so that the trained network is no part of this module
        self.register_buffer("taken", torch.zeros((), dtype=torch.bool))
        for number, weights in enumerate(_trained_weights(policy)):
            self.register_buffer(f"weights_{number}", weights.detach().clone())

    @torch.no_grad()
    def score(self, batch: TrainBatch) -> StepScores:
        """The steps of the batch under the reference, without gradient."""
        (policy,) = self._policy
        trained = _trained_weights(policy)
        frozen = [self.get_buffer(f"weights_{number}") for number in range(len(trained))]
        if not self.taken:
            for mine, weights in zip(frozen, trained, strict=True):
                mine.copy_(weights)
            self.taken.fill_(True)
        with swapped_weights(trained, frozen):
            return batch.score(policy)
