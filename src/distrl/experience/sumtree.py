"""Sums over a numpy array: change a weight, or find the leaf under a point of the total, in O(sqrt n).

The leaves stand in rows, and beside each row its sum. Two levels are enough: a few numpy calls over some hundred
numbers take a fraction of what a walk down a binary tree takes in Python. A row's sum is always computed anew from its
leaves, so rounding errors never pile up.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

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
