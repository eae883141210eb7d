"""Prioritised replay over whole trajectories (DPER), in memory and bounded by steps.

    P(tau) = p_tau^alpha / sum over the eligible        w_tau = (N * P(tau))^-beta / max or mean of the draw

N counts the eligible. A trajectory is eligible while its staleness, the learner's version minus the oldest version
that acted in it, is at most `max_staleness`; with `keep_successes` a success stays eligible for good. A pinned
trajectory, such as a kept demonstration, stays eligible for good and is never evicted.

The slots form a circle. A trajectory takes one slot, whole, and the oldest leave before a new one comes in, so no slot
is ever half overwritten. What an item is, is left to the learner; what is evicted stays in the store on disk.

`sample` draws by priority. Who wants other batches, such as whole groups, chooses among `eligible` with `random` and asks
for them with `take`.

Draws come from a sum tree of two levels: O(sqrt n), a few numpy calls over some hundred numbers, which take a fraction of
what a walk down a binary tree takes in Python. A row's sum is always computed anew, so rounding errors never pile up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import isqrt
from typing import Generic, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from distrl.config.schema import ReplayConfig
from distrl.errors import ConfigError, DistrlError

T = TypeVar("T")
WeightBy = Literal["max", "mean"]
PINNED_SHARE = 0.5
"""Most of the capacity that pinned trajectories may fill; more of them are held like all others."""
UNBALANCED = -1
"""The kind of a trajectory that is left out of the balance: it counts for no kind and weighs as one of mean number."""


class Sample(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One drawn trajectory."""

    id: str
    """What `refresh` wants back."""
    item: T
    probability: float
    """Of each draw; 1 where it was asked for by its id."""
    weight: float
    """The importance weight; 1 where it was asked for by its id."""
    staleness: int


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """How stale the draws were, over the life of a replay. What is kept beyond the bound is counted apart."""

    num: int = 0
    staleness_sum: int = 0
    staleness_max: int = 0
    num_kept: int = 0
    """Draws beyond `max_staleness`: successes that are kept, and pinned trajectories."""

    @property
    def staleness_mean(self) -> float:
        """Over the fresh draws; 0 before there was one."""
        return self.staleness_sum / max(1, self.num - self.num_kept)

    @property
    def kept_share(self) -> float:
        """Share of the draws that were kept beyond the bound."""
        return self.num_kept / max(1, self.num)


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint needs besides the trajectories, which the store has. Oldest first."""

    learner_version: int
    ids: tuple[str, ...]
    priorities: tuple[float, ...]
    drawn: Drawn
    first_slot: int = 0
    """Where on the circle the oldest stands: the same random numbers draw by the order of the slots."""


class Replay(Generic[T]):
    """The circle of slots. One owner: not for use from several threads."""

    def __init__(self, config: ReplayConfig, random: np.random.Generator) -> None:
        self._config = config
        self.random = random
        """What draws. Checkpoints hold its state, so an algorithm that chooses with it goes on alike after a resume."""
        # Every trajectory has a step at least, so there are never more of them than steps.
        self._num_slots = config.capacity_steps
        self._tree = SumTree(self._num_slots)
        self._priority: Floats = np.zeros(self._num_slots)
        self._version: Ints = np.zeros(self._num_slots, dtype=np.int64)
        self._steps: Ints = np.zeros(self._num_slots, dtype=np.int64)
        self._success: npt.NDArray[np.bool_] = np.zeros(self._num_slots, dtype=np.bool_)
        self._pinned: npt.NDArray[np.bool_] = np.zeros(self._num_slots, dtype=np.bool_)
        self._kind: Ints = np.zeros(self._num_slots, dtype=np.int64)
        self._kinds: dict[tuple[str, bool], int] = {}
        self._class_weights: Floats = np.ones(0)
        self._held: dict[int, tuple[str, T]] = {}
        self._slot_of: dict[str, int] = {}
        self._oldest = 0
        self._num_steps = self._num_pinned_steps = 0
        self._num_eligible = 0
        self._learner_version = 0
        self.drawn = Drawn()
        """How stale everything was that has been sampled so far."""

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: str) -> bool:
        return id in self._slot_of

    @property
    def num_steps(self) -> int:
        """Steps held, of at most `capacity_steps`."""
        return self._num_steps

    @property
    def num_eligible(self) -> int:
        """Trajectories that `sample` may draw."""
        return self._num_eligible

    def add(
        self,
        id: str,
        item: T,
        *,
        steps: int,
        version: int,
        success: bool,
        priority: float,
        kind: str | None = "",
        pin: bool = False,
    ) -> bool:
        """Take a trajectory in, the oldest making room for it; False, and nothing changed, where its id is held.

        `kind` is what trajectories are balanced by, such as the template of their task; None leaves one out of the balance,
        such as one of unknown outcome. With `pin` it is never evicted and always eligible, as long as the pinned fill no
        more than half of the capacity.
        """
        if id in self._slot_of:
            return False
        _check_priority(id, priority)
        self._check_steps(id, steps)
        while self._num_steps + steps > self._config.capacity_steps:
            self._evict_oldest()
        slot = (self._oldest + len(self)) % self._num_slots
        self._held[slot], self._slot_of[id] = (id, item), slot
        self._priority[slot], self._version[slot] = priority, version
        self._steps[slot], self._success[slot] = steps, success
        self._pinned[slot] = pin and self._num_pinned_steps + steps <= PINNED_SHARE * self._config.capacity_steps
        self._num_pinned_steps += steps if self._pinned[slot] else 0
        self._kind[slot] = UNBALANCED if kind is None else self._kinds.setdefault((kind, success), len(self._kinds))
        self._num_steps += steps
        self._num_eligible += self._weigh(slot)
        return True

    def sample(self, count: int) -> list[Sample[T]]:
        """`count` independent draws, with replacement; none at all while nothing is eligible."""
        if not self._num_eligible:
            return []
        slots = self._tree.find(self.random.random(count) * self._tree.total)
        probabilities = self._tree.weights[slots] / self._tree.total
        weights = importance_weights(probabilities, self._num_eligible, self._config.beta, by=self._config.weight_by)
        staleness = self._staleness(slots)
        self._note(staleness)
        return [
            Sample(id=id, item=item, probability=float(probability), weight=float(weight), staleness=int(age))
            for (id, item), probability, weight, age in zip(
                map(self._held.__getitem__, slots.tolist()), probabilities, weights, staleness, strict=True
            )
        ]

    def eligible(self) -> dict[str, T]:
        """Every trajectory that may be drawn, by id, oldest first."""
        slots = self._slots()
        return dict(self._held[slot] for slot in slots[self._eligible(slots)].tolist())

    def take(self, ids: Sequence[str]) -> list[Sample[T]]:
        """These trajectories, in this order, each with weight 1; all of them must be eligible."""
        slots = np.array([self._eligible_slot(id) for id in ids], dtype=np.int64)
        staleness = self._staleness(slots)
        self._note(staleness)
        return [
            Sample(id=id, item=self._held[slot][1], probability=1.0, weight=1.0, staleness=age)
            for id, slot, age in zip(ids, slots.tolist(), staleness.tolist(), strict=True)
        ]

    def refresh(self, id: str, priority: float) -> None:
        """Give a trajectory its new priority; one that is gone by now is skipped."""
        _check_priority(id, priority)
        slot = self._slot_of.get(id)
        if slot is not None:
            self._priority[slot] = priority
            self._weigh(slot)

    def set_version(self, learner_version: int) -> None:
        """Tell how far the learner is, which decides who is eligible."""
        self._learner_version = learner_version
        slots = self._slots()
        eligible = slots[self._eligible(slots)]
        weights = np.zeros(self._num_slots)
        kind = self._kind[eligible]
        balanced = kind != UNBALANCED
        self._class_weights = class_weights(kind[balanced], len(self._kinds), self._config.class_balance)
        even = np.ones(len(eligible))
        even[balanced] = self._class_weights[kind[balanced]]
        weights[eligible] = self._priority[eligible] ** self._config.alpha * even
        self._tree.assign(weights)
        self._num_eligible = len(eligible)

    def priorities(self) -> dict[str, float]:
        """The priority of every trajectory held, oldest first."""
        return {id: float(self._priority[slot]) for id, slot in self._slot_of.items()}

    def state(self) -> ReplayState:
        """What `restore` wants; the random generator belongs to whoever passed it in.

        Templates are counted anew, as they will be then: who goes on from here and who was never away draw alike.
        """
        self.set_version(self._learner_version)
        priorities = self.priorities()
        return ReplayState(
            learner_version=self._learner_version,
            ids=tuple(priorities),
            priorities=tuple(priorities.values()),
            drawn=self.drawn,
            first_slot=self._oldest,
        )

    def begin_at(self, slot: int) -> None:
        """Let the first trajectory that comes in stand here on the circle; call it only while nothing is held."""
        self._oldest = slot % self._num_slots

    def restore(self, state: ReplayState) -> None:
        """Go on from `state`, after `begin_at` its first slot and its trajectories added again in the order of its ids."""
        for id, priority in zip(state.ids, state.priorities, strict=True):
            self.refresh(id, priority)
        self.drawn = state.drawn
        self.set_version(state.learner_version)

    def _slots(self) -> Ints:
        """The slots in use, oldest first."""
        slots: Ints = (self._oldest + np.arange(len(self))) % self._num_slots
        return slots

    def _evict_oldest(self) -> None:
        """Let the oldest go that is not pinned; the pinned ones before it move behind the newest."""
        while self._pinned[self._oldest] and self._num_pinned_steps < self._num_steps:
            self._move_oldest_behind()
        slot = self._oldest
        # Pinned where nothing else is left: what comes in is longer than the rest of the capacity.
        self._num_pinned_steps -= int(self._steps[slot]) if self._pinned[slot] else 0
        self._oldest = (slot + 1) % self._num_slots
        self._num_eligible -= self._is_eligible(slot)
        self._tree.set(slot, 0.0)
        self._num_steps -= int(self._steps[slot])
        id, _ = self._held.pop(slot)
        del self._slot_of[id]

    def _move_oldest_behind(self) -> None:
        old, new = self._oldest, (self._oldest + len(self)) % self._num_slots
        self._oldest = (old + 1) % self._num_slots
        held = self._held.pop(old)
        self._held[new] = held
        del self._slot_of[held[0]]  # behind the others in the order of the ids as well
        self._slot_of[held[0]] = new
        for column in (self._priority, self._version, self._steps, self._success, self._pinned, self._kind):
            column[new] = column[old]
        self._tree.set(old, 0.0)
        self._weigh(new)

    def _weigh(self, slot: int) -> bool:
        """Put a slot's share into the tree; whether it has one."""
        eligible = self._is_eligible(slot)
        self._tree.set(slot, self._share(slot) if eligible else 0.0)
        return eligible

    def _share(self, slot: int) -> float:
        kind = int(self._kind[slot])
        # 1 where it is new since the last version, or is not balanced.
        even = float(self._class_weights[kind]) if 0 <= kind < len(self._class_weights) else 1.0
        return float(float(self._priority[slot]) ** self._config.alpha * even)

    def _eligible(self, slots: Ints) -> npt.NDArray[np.bool_]:
        fresh = self._staleness(slots) <= self._config.max_staleness
        return fresh | self._pinned[slots] | (self._success[slots] & self._config.keep_successes)

    def _is_eligible(self, slot: int) -> bool:
        """The same for one slot, many times as fast as numpy would say."""
        fresh = self._learner_version - int(self._version[slot]) <= self._config.max_staleness
        return fresh or bool(self._pinned[slot]) or (self._config.keep_successes and bool(self._success[slot]))

    def _eligible_slot(self, id: str) -> int:
        slot = self._slot_of.get(id)
        if slot is None or not self._is_eligible(slot):
            raise DistrlError(
                f"trajectory {id} was asked for, and it is {'not held' if slot is None else 'too stale'}",
                expected="ids that `Replay.eligible` gives",
                fix="choose among replay.eligible() anew in each call of the algorithm's `sample`",
            )
        return slot

    def _staleness(self, slots: Ints) -> Ints:
        # A learner that went back to a checkpoint may be behind its workers: that is not stale.
        return np.maximum(self._learner_version - self._version[slots], 0)

    def _note(self, staleness: Ints) -> None:
        before, fresh = self.drawn, staleness[staleness <= self._config.max_staleness]
        self.drawn = Drawn(
            num=before.num + len(staleness),
            staleness_sum=before.staleness_sum + int(fresh.sum()),
            staleness_max=max(before.staleness_max, int(fresh.max(initial=0))),
            num_kept=before.num_kept + len(staleness) - len(fresh),
        )

    def _check_steps(self, id: str, steps: int) -> None:
        if not 1 <= steps <= self._config.capacity_steps:
            raise ConfigError(
                f"trajectory {id} has {steps} steps",
                expected=f"1 to {self._config.capacity_steps}, which is replay.capacity_steps",
                fix=f"--replay.capacity_steps {max(10 * steps, 1000)}",
            )


def importance_weights(probabilities: Floats, num: int, beta: float, *, by: WeightBy) -> Floats:
    """`(num * P)^-beta` for each draw, divided by the largest or by the mean of them."""
    if not len(probabilities):
        return probabilities
    weights: Floats = (num * probabilities) ** -beta
    weights /= weights.max() if by == "max" else weights.mean()
    return weights


def class_weights(kind_N: Ints, num_kinds: int, balance: float) -> Floats:
    """What a trajectory of each kind counts for: `(its number / the mean number)^-balance`."""
    count_K = np.maximum(np.bincount(kind_N, minlength=num_kinds), 1)
    even_K: Floats = (count_K / max(1.0, len(kind_N) / max(1, num_kinds))) ** -balance
    return even_K


def _check_priority(id: str, priority: float) -> None:
    if not (math.isfinite(priority) and priority > 0):
        raise DistrlError(
            f"the priority of trajectory {id} is {priority}",
            expected="a finite number above 0",
            fix="lower learner.learning_rate: values that are not finite mean that the critic diverged",
        )


# --- the sum tree -----------------------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SumTree:
    """`num_leaves` weights, none of them negative, all 0 at first."""

    def __init__(self, num_leaves: int) -> None:
        self._num_leaves = num_leaves
        self._width = isqrt(num_leaves - 1) + 1 if num_leaves else 1
        num_rows = -(-num_leaves // self._width)
        self._leaves_RW: Floats = np.zeros((num_rows, self._width))
        self._sums_R: Floats = np.zeros(num_rows)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._sums_R.sum())

    @property
    def weights(self) -> Floats:
        """The leaves; a view that nobody may write to."""
        view = self._leaves_RW.reshape(-1)[: self._num_leaves]
        view.flags.writeable = False
        return view

    def set(self, leaf: int, weight: float) -> None:
        """Change one weight."""
        row, place = divmod(leaf, self._width)
        leaves_W = self._leaves_RW[row]
        leaves_W[place] = weight
        self._sums_R[row] = leaves_W.sum()

    def assign(self, weights: Floats) -> None:
        """Change all weights at once, in O(n)."""
        self._leaves_RW.reshape(-1)[: self._num_leaves] = weights
        self._sums_R = self._leaves_RW.sum(axis=1)

    def find(self, points: Floats) -> Ints:
        """For each point of [0, total) the leaf whose share of the line it falls on; never one of weight 0.

        Call it only where the total is above 0.
        """
        ends_R = self._sums_R.cumsum()
        row_P = np.searchsorted(ends_R, points, side="right")
        # Here and below: rounding may have pushed a point past the end, or before the beginning of its row.
        row_P = np.minimum(row_P, _last_above_0(self._sums_R))
        leaves_PW = self._leaves_RW[row_P]
        rest_P = np.maximum(points - (ends_R[row_P] - self._sums_R[row_P]), 0.0)
        place_P = (leaves_PW.cumsum(axis=1) <= rest_P[:, None]).sum(axis=1)
        found: Ints = row_P * self._width + np.minimum(place_P, _last_above_0(leaves_PW))
        return found


def _last_above_0(values: Floats) -> Ints:
    """Where the last number above 0 stands, along the last axis."""
    last: Ints = values.shape[-1] - 1 - np.argmax(values[..., ::-1] > 0, axis=-1)
    return last
