"""How much there is to learn from a trajectory, as one number.

    p_tau = w1 * mean|td_t| + w2 * mean( min(rho_t, rho_max) ) + w3 * mean( H_t ) + eps

plus w4 for a success. DPER of DistRL (arXiv 2410.14803), which has no w4. Workers attach a first value from their own
estimates, where rho is 1 because they acted themselves; the learner refreshes it whenever it replays the trajectory.
Pure: arrays in, a number out.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import numpy.typing as npt

from distrl.config.schema import ReplayConfig
from distrl.types import Trajectory

Floats = npt.NDArray[np.floating]

EPS = 1e-3
"""Keeps a trajectory without any surprise drawable; small beside w2 * rho, which is about 1."""


def priority(
    td: Floats, ratio: Floats, entropy: Floats, config: ReplayConfig, *, success: bool = False, rho_max: float = 1.0
) -> float:
    """The priority of a trajectory from its per-step values; `EPS` alone where it has no step or they are not finite."""
    if not len(td):
        return EPS
    surprise = config.td_weight * np.abs(td).mean()
    match = config.ratio_weight * np.minimum(ratio, rho_max).mean()
    bonus = config.success_weight if success else 0.0
    found = float(surprise + match + config.entropy_weight * entropy.mean() + bonus + EPS)
    return found if isfinite(found) else EPS


def td_errors(values: Floats, rewards: Floats, last_value: float, *, gamma: float) -> Floats:
    """`r_t + gamma * V(s_{t+1}) - V(s_t)`; `last_value` follows the last step and is 0 after a terminal one."""
    following = np.append(values[1:], last_value)[: len(values)]
    errors: Floats = rewards + gamma * following - values
    return errors


def first_priority(trajectory: Trajectory, config: ReplayConfig, *, gamma: float, rho_max: float = 1.0) -> float:
    """The priority that the worker attaches, from the values that it recorded while acting."""
    steps = trajectory.steps
    values = np.array([step.decision.value for step in steps])
    rewards = np.array([step.reward for step in steps])
    entropy = np.array([step.decision.entropy for step in steps])
    last_value = 0.0 if trajectory.ending.is_terminal else trajectory.last_value
    td = td_errors(values, rewards, last_value, gamma=gamma)
    success = trajectory.verdict.success
    return priority(td, np.ones(len(steps)), entropy, config, success=success, rho_max=rho_max)
