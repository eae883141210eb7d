"""A binary tree of sums over a numpy array: change a leaf, or find the leaf under a point of the total, in O(log n).

Node 1 is the root, node i has the children 2i and 2i+1, and the leaves are the second half of the array. A parent is
always computed anew from its children, so rounding errors never pile up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SumTree:
    """`num_leaves` weights, none of them negative, all 0 at first."""

    def __init__(self, num_leaves: int) -> None:
        self._first = 1 << max(0, num_leaves - 1).bit_length()
        self._nodes: Floats = np.zeros(2 * self._first)
        self._num_leaves = num_leaves

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    @property
    def weights(self) -> Floats:
        """The leaves; a view that nobody may write to."""
        view = self._nodes[self._first : self._first + self._num_leaves]
        view.flags.writeable = False
        return view

    def set(self, leaf: int, weight: float) -> None:
        """Change one weight."""
        node = self._first + leaf
        self._nodes[node] = weight
        while node > 1:
            node //= 2
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def assign(self, weights: Floats) -> None:
        """Change all weights at once, in O(n)."""
        self._nodes[self._first : self._first + self._num_leaves] = weights
        start = self._first
        while start > 1:
            children = self._nodes[start : 2 * start]
            start //= 2
            self._nodes[start : 2 * start] = children[0::2] + children[1::2]

    def find(self, points: Floats) -> Ints:
        """For each point of [0, total) the leaf whose share of the line it falls on; never one of weight 0.

        Call it only where the total is above 0.
        """
        node = np.ones(len(points), dtype=np.int64)
        rest = points.astype(np.float64)
        while len(node) and node[0] < self._first:
            left = self._nodes[2 * node]
            # The second condition matters only when rounding has pushed a point past the end of its subtree.
            right = (rest >= left) & (self._nodes[2 * node + 1] > 0)
            rest = np.where(right, rest - left, rest)
            node = 2 * node + right
        return node - self._first
