"""Pure maths of the value targets: tensors in, tensors out, nothing else touched.

Suffixes: B trajectories, T steps, padded on the right; `mask_BT` is true on real steps. No target ever reaches over
the end of its own trajectory.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What the critic should say, and how much better than expected each action was."""

    td_BT: Tensor
    value_BT: Tensor
    advantage_BT: Tensor


class ReturnInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Padded trajectories: the critic's values, rewards, importance ratios, and V after the last step.

    `bootstrap_B` is 0 where the episode truly ended and V(s_T) where it was cut off.
    """

    value_BT: Tensor
    reward_BT: Tensor
    ratio_BT: Tensor
    bootstrap_B: Tensor
    mask_BT: Tensor


@torch.no_grad()
def retrace(inputs: ReturnInputs, *, gamma: float, lambda_: float, rho_max: float) -> Targets:
    """Retrace targets over whole trajectories.

    td_t = r_t + gamma V(s_{t+1}) - V(s_t)
    v_t  = V(s_t) + min(rho_max, rho_t) td_t + gamma lambda min(1, rho_t) (v_{t+1} - V(s_{t+1}))
    A_t  = r_t + gamma v_{t+1} - V(s_t)
    """
    value_BT, mask_BT = inputs.value_BT, inputs.mask_BT
    after_BT = _after(inputs)
    td_BT = (inputs.reward_BT + gamma * after_BT - value_BT) * mask_BT
    clipped_BT, traced_BT = inputs.ratio_BT.clamp(max=rho_max), lambda_ * inputs.ratio_BT.clamp(max=1.0)
    excess_B = torch.zeros_like(inputs.bootstrap_B)
    excess_BT, ahead_BT = torch.zeros_like(value_BT), torch.zeros_like(value_BT)
    for t in reversed(range(value_BT.shape[1])):
        ahead_BT[:, t] = excess_B
        excess_B = (clipped_BT[:, t] * td_BT[:, t] + gamma * traced_BT[:, t] * excess_B) * mask_BT[:, t]
        excess_BT[:, t] = excess_B
    advantage_BT = (inputs.reward_BT + gamma * (after_BT + ahead_BT) - value_BT) * mask_BT
    return Targets(td_BT=td_BT, value_BT=(value_BT + excess_BT) * mask_BT, advantage_BT=advantage_BT)


def lambda_returns(inputs: ReturnInputs, *, gamma: float, lambda_: float) -> Targets:
    """Plain lambda returns, whoever acted, and the generalised advantage estimates that belong to them.

    v_t = V(s_t) + td_t + gamma lambda (v_{t+1} - V(s_{t+1}))        A_t = v_t - V(s_t)
    """
    as_if_on_policy = msgspec.structs.replace(inputs, ratio_BT=torch.ones_like(inputs.ratio_BT))
    targets = retrace(as_if_on_policy, gamma=gamma, lambda_=lambda_, rho_max=1.0)
    advantage_BT = targets.value_BT - inputs.value_BT * inputs.mask_BT
    return msgspec.structs.replace(targets, advantage_BT=advantage_BT)


@torch.no_grad()
def doubly_robust(inputs: ReturnInputs, outcome_B: Tensor, *, decay: float) -> Tensor:
    """DigiRL's step advantage: near the end by the outcome R, far from it by the critic; H is the last step.

    A_h = decay^(H-h) R + (1 - decay^(H-h)) (V(s_{h+1}) + r_h - V(s_h))
    """
    mask_BT = inputs.mask_BT
    left_BT = (mask_BT.flip(1).cumsum(1).flip(1) - 1).clamp(min=0)
    near_BT = torch.pow(decay, left_BT)
    rise_BT = _after(inputs) + inputs.reward_BT - inputs.value_BT
    return (near_BT * outcome_B[:, None] + (1.0 - near_BT) * rise_BT) * mask_BT


def _after(inputs: ReturnInputs) -> Tensor:
    """V(s_{t+1}) for every step, with the bootstrap after each trajectory's last one."""
    bootstrap_B = inputs.bootstrap_B
    after_BT = torch.cat([inputs.value_BT[:, 1:], torch.zeros_like(bootstrap_B)[:, None]], dim=1)
    last_B = inputs.mask_BT.sum(1) - 1
    after_BT[torch.arange(len(after_BT), device=last_B.device), last_B] = bootstrap_B
    return after_BT
