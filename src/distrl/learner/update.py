"""One update: sampled episodes become a batch, the batch a loss, and the loss an optimizer step.

A step whose loss or gradient is NaN or infinite, and one that runs out of memory (OOM), is skipped and counted; too many
in a row are an error with the cause. Beside the weights stands their exponential moving average (EMA):

    ema += (weights - ema) / window,    window = learner.ema_updates

but a fifth of all updates at most, so that a short run is not held back by where it began, and 1 at least. A run ends with
the EMA; workers act with the newest weights all the while, which explore more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.algorithms.base import Algorithm, Loss
from distrl.algorithms.batch import Episode, Groups, Proximal, TrainBatch, make_batch
from distrl.config.schema import Config, LearnerConfig, RunConfig
from distrl.errors import DistrlError, OutOfMemory, RoleCrashed, StoreError
from distrl.experience.replay import Sample
from distrl.policies.base import Policy
from distrl.policies.oom import oom_errors_of
from distrl.policies.weights import swapped_weights


class SkippedUpdate(msgspec.Struct, frozen=True):
    """An update that was not made, and the reason."""

    why: str


class Updater:
    """Trains a policy, and what its algorithm has beside it."""

    def __init__(self, policy: Policy[Any], algorithm: Algorithm, config: Config, groups: Groups) -> None:
        self._policy, self._algorithm, self._config, self._groups = policy, algorithm, config, groups
        algorithm.bind(policy)  # before the optimizer reads its critic
        self._proximal = Proximal(policy, every_updates=algorithm.proximal_every_updates)
        self.optimizer = PolicyOptimizer(policy.network, algorithm.critic, config.learner)
        self.auxiliary_loss: Callable[[], Tensor] | None = None
        """Gives a loss that is added to that of every update; it does not survive the process."""

    def update(
        self, samples: list[Sample[Episode]], *, updates: int, used: float
    ) -> tuple[Loss, float] | SkippedUpdate:
        """Learn from these; the loss and the norm of the policy's gradient, or why the update was skipped."""
        if not samples:
            return SkippedUpdate("the algorithm chose no episodes")
        size = self._config.learner.batch_trajectories
        try:
            with oom_errors_of(self._policy, "learner.batch_trajectories", size):
                loss = self._algorithm.loss(self._read(samples, updates), updates=updates)
                total = loss.total if self.auxiliary_loss is None else loss.total + self.auxiliary_loss()
                norm = self.optimizer.step(total, updates=updates, used=used)
        except OutOfMemory as error:
            self.optimizer.guard.skip(error)
            return SkippedUpdate(error.seen)
        return (loss, norm) if norm is not None else SkippedUpdate("its loss or its gradient is non-finite")

    def _read(self, samples: list[Sample[Episode]], updates: int) -> TrainBatch:
        self._proximal.refresh(updates)
        return make_batch(
            self._policy,
            [sample.item for sample in samples],
            [sample.weight for sample in samples],
            proximal=self._proximal,
            groups=self._groups,
        )


class PolicyOptimizer:
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
        self.guard = GuardedOptimizer(self.optimizer, trained, clip=learning.gradient_clip, what="updates", fix=fix)

    def rate(self, updates: int, *, used: float = 0.0) -> float:
        """The learning rate after so many updates, when this share of the run's budget is used: warm-up, then decay."""
        learning = self._learning
        warm = min(1.0, (updates + 1) / max(1, learning.warmup_updates))
        left = min(1.0, (1.0 - used) / learning.decay_share) if learning.decay_share else 1.0
        return learning.learning_rate * warm * left

    def step(self, loss: Tensor, *, updates: int, used: float = 0.0) -> float | None:
        """One optimizer step at the rate of this moment; the norm of the policy's gradient, None if it was skipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(updates, used=used)
        norm, before = self.guard.step(loss), self.guard.skipped
        self.guard.check()
        return float(norm) if self.guard.skipped == before else None


def budget_share(run: RunConfig, *, collected_s: float, episodes: int) -> float:
    """How much of its budget a run has used, by whichever limit is nearer; 0 where it has none."""
    by_time = collected_s / (60 * run.minutes) if run.minutes else 0.0
    by_episodes = episodes / run.episodes if run.episodes else 0.0
    return min(1.0, max(by_time, by_episodes))


MOST_IN_A_ROW = 20
"""Skipped steps after which something is wrong for good."""


class GuardedOptimizer:
    """A fused `optimizer` that skips steps along NaN; the gradient of each of `parts` is clipped to `clip` on its own.

    Such a step would make every weight NaN. Whether it is one is decided where the gradient is, so that nobody waits for
    a GPU, and counted by `check`. `what` is what people call the steps, `fix` what they can do about many of them.
    """

    def __init__(
        self, optimizer: torch.optim.AdamW, parts: Iterable[Iterable[nn.Parameter]], *, clip: float, what: str, fix: str
    ) -> None:
        self.optimizer, self._clip, self._what, self._fix = optimizer, clip, what, fix
        self._parts = [list(part) for part in parts]
        self._bad: list[Tensor] = []
        self.skipped = 0
        """Steps that were skipped, as of the last check."""
        self._taken = self._in_a_row = 0

    def step(self, loss: Tensor) -> Tensor:
        """One optimizer step if loss and gradient are finite; the norm of the first part's gradient, unclipped."""
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

    def skip(self, why: DistrlError) -> None:
        """Count a step that ended half-way; `why` is raised after too many in a row."""
        for remembered in self.optimizer.state.values():
            # Filled in at the first step, one after the other, and taken as whole at the next.
            if "exp_avg_sq" not in remembered:
                remembered.clear()
        self.skipped, self._in_a_row = self.skipped + 1, self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise why

    def check(self) -> None:
        """Count the steps that were skipped since the last check; `RoleCrashed` after too many in a row."""
        seen, self._bad = self._bad, []
        for bad in torch.stack(seen).tolist() if seen else []:
            self._in_a_row = self._in_a_row + 1 if bad else 0
            self.skipped, self._taken = self.skipped + bool(bad), self._taken + (not bad)
            if self._in_a_row >= MOST_IN_A_ROW:
                raise self._diverged()

    def end(self) -> None:
        """Check for the last time; `RoleCrashed` also where no step was ever taken, however few there were."""
        self.check()
        if self.skipped and not self._taken:
            raise self._diverged()

    def _diverged(self) -> RoleCrashed:
        return RoleCrashed(
            f"the loss or the gradient of the last {self._in_a_row} {self._what} is NaN or infinite",
            expected="finite numbers",
            fix=self._fix,
        )


GROWTH = 0.2
"""Longest window of the EMA, as a share of all updates."""


class EmaWeights:
    """The exponential moving average of a network's trained weights; empty where it is switched off."""

    def __init__(self, network: nn.Module, *, window: int) -> None:
        self._window = window
        trained = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        self._weights = trained if window else {}
        self._average = list[Tensor]()
        """In the order of the weights; empty before the first update."""

    def update(self, *, updates: int) -> None:
        """Take the weights in, after so many updates."""
        if not self._weights:
            return
        present = [weights.detach() for weights in self._weights.values()]
        if not self._average:
            self._average = [weights.clone() for weights in present]
        window = max(1.0, min(self._window, GROWTH * updates))
        torch._foreach_lerp_(self._average, present, 1.0 / window)

    def swapped(self) -> AbstractContextManager[None]:
        """Let the network have the EMA for the length of a block; nothing may be learnt meanwhile."""
        return swapped_weights(list(self._weights.values()), self._average) if self._average else nullcontext()

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


def load_ema(network: nn.Module, data: bytes) -> None:
    """Give the network the average that `EmaWeights.dump` gave, for good; nothing happens where there was none."""
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
