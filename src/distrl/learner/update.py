"""One update of practice: episodes become a lesson, the lesson a loss, and the loss a step, if it leads anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.algorithms.base import Algorithm, Episode, Lesson, Loss, read_lesson
from distrl.algorithms.groups import Groups
from distrl.algorithms.proximal import Proximal
from distrl.config.schema import Config, LearnerConfig, RunConfig, VlmConfig
from distrl.errors import DistrlError, OutOfMemory, RoleCrashed, StoreError
from distrl.experience.replay import Sample
from distrl.policies.base import Policy
from distrl.policies.oom import memory_errors
from distrl.policies.vlm import room as vlm_room
from distrl.policies.weights import standing_in


class LeftOut(msgspec.Struct, frozen=True):
    """An update that was not made, and the reason."""

    why: str


class Practice:
    """Teaches a policy, and what its algorithm has beside it."""

    def __init__(self, policy: Policy[Any], algorithm: Algorithm, config: Config, groups: Groups) -> None:
        self._policy, self._algorithm, self._config, self._groups = policy, algorithm, config, groups
        self._proximal = Proximal(policy, every_updates=algorithm.proximal_every_updates)
        self.stepper = Stepper(policy.network, algorithm.critic, config.learner)
        self.rehearse: Callable[[], Tensor] | None = None
        """Gives a loss of its own that is added to that of every update; it does not survive the process."""

    def update(self, samples: list[Sample[Episode]], *, updates: int, spent: float) -> tuple[Loss, float] | LeftOut:
        """Learn from these; the loss and the norm of the policy's gradient, or why nothing was learnt.

        What is no number and what does not fit into memory is left out; too much of it in a row is an error.
        """
        size = self._config.learner.batch_trajectories
        try:
            with learning_memory(self._policy, "learner.batch_trajectories", size):
                loss = self._algorithm.loss(self._read(samples, updates), updates=updates)
                total = loss.total if self.rehearse is None else loss.total + self.rehearse()
                norm = self.stepper.step(total, updates=updates, spent=spent)
        except OutOfMemory as error:
            self.stepper.steps.leave_out(error)
            return LeftOut(error.seen)
        return (loss, norm) if norm is not None else LeftOut("its loss or its gradient is no number")

    def _read(self, samples: list[Sample[Episode]], updates: int) -> Lesson:
        self._proximal.keep_up(updates)
        return read_lesson(
            self._policy,
            [sample.item for sample in samples],
            [sample.weight for sample in samples],
            proximal=self._proximal,
            groups=self._groups,
        )


# --- One step downhill after the other: the optimizer, the learning rate and the limits of a gradien ---


class Stepper:
    """Trains the policy and what an algorithm has beside it."""

    def __init__(self, policy: nn.Module, critic: nn.Module, learning: LearnerConfig) -> None:
        # Where the policy computes: what an algorithm trains beside it need not hold the GPU up.
        here = next((weights.device for weights in policy.parameters()), torch.device("cpu"))
        self._learning = learning
        # Each on its own: a critic that is far off must not shorten the policy's step.
        trained = [list(part.parameters()) for part in (policy, critic.to(here))]
        weights = [weights for part in trained for weights in part]
        self.optimizer = torch.optim.AdamW(weights, lr=learning.learning_rate, weight_decay=0.01, fused=True)
        fix = "lower learner.learning_rate, then go on with --resume"
        self.steps = FiniteSteps(self.optimizer, trained, clip=learning.gradient_clip, what="updates", fix=fix)

    def rate(self, updates: int, *, spent: float = 0.0) -> float:
        """The learning rate after so many updates, when this share of the run's budget is spent."""
        learning = self._learning
        risen = min(1.0, (updates + 1) / max(1, learning.rise_updates))
        left = min(1.0, (1.0 - spent) / learning.fall_share) if learning.fall_share else 1.0
        return learning.learning_rate * risen * left

    def step(self, loss: Tensor, *, updates: int, spent: float = 0.0) -> float | None:
        """Go down `loss` once, at the rate of this moment; the norm of the policy's gradient, None if it was left out."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(updates, spent=spent)
        norm, before = self.steps.take(loss), self.steps.left_out
        self.steps.look()
        return float(norm) if self.steps.left_out == before else None


def share_spent(run: RunConfig, *, collected_s: float, episodes: int) -> float:
    """How much of its budget a run has spent, by whichever limit is nearer; 0 where it has none."""
    by_time = collected_s / (60 * run.minutes) if run.minutes else 0.0
    by_episodes = episodes / run.episodes if run.episodes else 0.0
    return min(1.0, max(by_time, by_episodes))


# --- Steps of an optimizer, none of them along what is no number ---


MOST_IN_A_ROW = 20
"""Steps left out after which something is wrong for good."""


class FiniteSteps:
    """Goes downhill with a fused `optimizer`; the gradient of each of `parts` is cut to `clip` on its own.

    `what` is what people call the steps, `fix` what they can do where these are no numbers for good.
    """

    def __init__(
        self, optimizer: torch.optim.AdamW, parts: Iterable[Iterable[nn.Parameter]], *, clip: float, what: str, fix: str
    ) -> None:
        self.optimizer, self._clip, self._what, self._fix = optimizer, clip, what, fix
        self._parts = [list(part) for part in parts]
        self._bad: list[Tensor] = []
        self.left_out = 0
        """Steps that were not taken, as of the last look."""
        self._taken = self._in_a_row = 0

    def take(self, loss: Tensor) -> Tensor:
        """Go down `loss` once if it and its gradient are numbers; the norm of the first part's gradient, uncut."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norms = [torch.nn.utils.clip_grad_norm_(part, self._clip) for part in self._parts]
        bad = (~sum(norms, loss.detach()).isfinite()).float()
        # What torch's own gradient scaler tells a fused optimizer: leave everything as it is.
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        # Flags are stacked, so they have to be in one place; where nothing has a gradient, its norm is on the CPU.
        here = self.optimizer.param_groups[0]["params"][0].device
        self._bad.append(bad.to(here, non_blocking=True))
        return norms[0].detach()

    def leave_out(self, why: DistrlError) -> None:
        """Count a step that ended half-way; `why` is raised after too many in a row."""
        for remembered in self.optimizer.state.values():
            # Filled in at the first step, one after the other, and taken as whole at the next.
            if "exp_avg_sq" not in remembered:
                remembered.clear()
        self.left_out, self._in_a_row = self.left_out + 1, self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise why

    def look(self) -> None:
        """Count the steps that were not taken since the last look; `RoleCrashed` after too many in a row."""
        seen, self._bad = self._bad, []
        for bad in torch.stack(seen).tolist() if seen else []:
            self._in_a_row = self._in_a_row + 1 if bad else 0
            self.left_out, self._taken = self.left_out + bool(bad), self._taken + (not bad)
            if self._in_a_row >= MOST_IN_A_ROW:
                raise self._gone_wrong()

    def end(self) -> None:
        """Look for the last time; `RoleCrashed` also where no step was ever taken, however few there were."""
        self.look()
        if self.left_out and not self._taken:
            raise self._gone_wrong()

    def _gone_wrong(self) -> RoleCrashed:
        return RoleCrashed(
            f"the loss or the gradient of the last {self._in_a_row} {self._what} is no number",
            expected="numbers",
            fix=self._fix,
        )


# --- Too little memory in the middle of an update: which setting to lower depends on who learns ---


def learning_memory(policy: Policy[Any], setting: str, present: int) -> AbstractContextManager[None]:
    """Turn a lack of memory into `OutOfMemory` that names `setting`, or the portions in which the policy learns."""
    config = getattr(policy, "config", None)
    if isinstance(config, VlmConfig):
        return vlm_room.memory_errors("score_batch", config.score_batch)
    return memory_errors(setting, present)


# --- Weights averaged over the last updates: what a run ends with where `learner.average_updates` is ---


GROWTH = 0.2
"""Longest window, as a share of all updates."""


class Averaging:
    """The average of a network's trained weights; that of nothing where it is switched off."""

    def __init__(self, network: nn.Module, *, window: int) -> None:
        self._window = window
        trained = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        self._weights = trained if window else {}
        self._average = list[Tensor]()
        """In the order of the weights; empty before the first update."""

    def follow(self, *, updates: int) -> None:
        """Take the weights in, after so many updates."""
        if not self._weights:
            return
        present = [weights.detach() for weights in self._weights.values()]
        if not self._average:
            self._average = [weights.clone() for weights in present]
        window = max(1.0, min(self._window, GROWTH * updates))
        torch._foreach_lerp_(self._average, present, 1.0 / window)

    def shown(self) -> AbstractContextManager[None]:
        """Let the network have the average for a while; nothing may be learnt meanwhile."""
        return standing_in(list(self._weights.values()), self._average) if self._average else nullcontext()

    def dump(self) -> bytes:
        """The average as a safetensors file; empty where there is none."""
        held = dict(zip(self._weights, (tensor.contiguous() for tensor in self._average), strict=False))
        return save(held) if held else b""

    def restore(self, data: bytes) -> None:
        """Go on from what `dump` gave; from the present weights where it gave nothing."""
        if not data or not self._weights:
            self._average = []
            return
        found = _matched(data, self._weights)
        self._average = [torch.empty_like(one.data).copy_(found[name]) for name, one in self._weights.items()]


def put_average(network: nn.Module, data: bytes) -> None:
    """Give the network the average that `Averaging.dump` gave, for good; nothing happens where there was none."""
    weights = {name: one for name, one in network.named_parameters() if one.requires_grad}
    for name, average in (_matched(data, weights) if data else {}).items():
        weights[name].data.copy_(average)


def _matched(data: bytes, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = load(data)
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in weights.items()}:
        raise StoreError(
            "the averaged weights in the checkpoint fit another policy",
            expected="the policy that the checkpoint was written with",
            fix="take the settings of that run",
        )
    return found
