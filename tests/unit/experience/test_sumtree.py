from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from distrl.experience.replay import SumTree

weights_lists = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=40)


@settings(deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.floats(0, 1e6)), max_size=40))
def test_any_changes_leave_the_same_leaves_and_total_as_a_plain_array(
    num_leaves: int, changes: list[tuple[int, float]]
) -> None:
    tree, plain = SumTree(num_leaves), np.zeros(num_leaves)
    for leaf, weight in changes:
        tree.set(leaf % num_leaves, weight)
        plain[leaf % num_leaves] = weight
    assert np.array_equal(tree.weights, plain)
    assert np.isclose(tree.total, plain.sum(), rtol=1e-12, atol=0)


@settings(deadline=None)
@given(weights_lists)
def test_assigning_all_is_the_same_as_setting_each(weights: list[float]) -> None:
    one_by_one, at_once = SumTree(len(weights)), SumTree(len(weights))
    for leaf, weight in enumerate(weights):
        one_by_one.set(leaf, weight)
    at_once.assign(np.array(weights))
    assert np.array_equal(one_by_one.weights, at_once.weights)
    assert one_by_one.total == at_once.total


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any), st.data())
def test_a_point_is_found_where_the_cumulative_sum_says(weights: list[int], data: st.DataObject) -> None:
    # Whole numbers make the sums exact, so the answer has to be exact too.
    tree = SumTree(len(weights))
    tree.assign(np.array(weights, dtype=float))
    points = np.array(data.draw(st.lists(st.integers(0, sum(weights) - 1), min_size=1, max_size=20)), dtype=float)
    expected = np.searchsorted(np.cumsum(weights), points, side="right")
    assert np.array_equal(tree.find(points), expected)


@settings(deadline=None)
@given(weights_lists.filter(any), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_leaf_without_weight_is_never_found(weights: list[float], shares: list[float]) -> None:
    tree = SumTree(len(weights))
    tree.assign(np.array(weights))
    # A share of exactly 1 is what rounding can make of a number just below it.
    found = tree.find(np.array(shares) * tree.total)
    assert np.all(np.array(weights)[found] > 0)


def test_no_points_find_no_leaves() -> None:
    assert SumTree(5).find(np.zeros(0)).tolist() == []


def test_uniform_points_fall_on_leaves_as_often_as_their_weights_say() -> None:
    tree = SumTree(6)
    weights = np.array([5.0, 0.5, 1.0, 3.0, 0.25, 2.0])
    tree.assign(weights)
    draws = tree.find(np.random.default_rng(1).random(60_000) * tree.total)
    counts = np.bincount(draws, minlength=6)
    assert chisquare(counts, weights / weights.sum() * counts.sum()).pvalue > 0.001
