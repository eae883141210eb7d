"""The settings of the algorithms: what all of them share, and what only one of them reads."""

from __future__ import annotations

from typing import Literal

from distrl.config.section import Count, CountOrNone, NotNegative, Positive, Section, Share


class DigiRLConfig(Section, frozen=True):
    outcome_decay: Share = 0.5
    """Lambda of the step advantage: with each step before the end the outcome counts less by this factor, and the critic more."""
    step_floor: float = 0.05
    """What the advantage of a step must exceed for the step to be imitated."""
    top_share: Share = 0.5
    """Share of a lesson's episodes that may be imitated: those that went furthest beyond what their instruction promised."""


class ProximalConfig(Section, frozen=True):
    clip: Share = 0.2
    """PPO and GRPO: how far the ratio to the proximal policy may stray from 1 before its gradient stops."""
    every_updates: Count = 4
    """PPO and GRPO: updates after which the present policy becomes the proximal one; 1: they are always the same."""
    reach: NotNegative = 0.0
    """PPO and GRPO: a step is left out once its ratio to the policy that acted is beyond 1 + reach or 1 / (1 + reach), on the side to which it is driven; 0: never."""


class AlgorithmConfig(Section, frozen=True):
    name: Literal["aride", "digirl", "filtered_bc", "grpo", "ppo"] = "aride"
    """Which algorithm updates the policy; all but the default have a file in configs/ with the learning rate and the replay that they need."""
    gamma: Share = 0.95
    """Discount per step."""
    trace: Share = 0.95
    """Lambda of Retrace, and of PPO's returns: how far credit travels."""
    rho_max: Positive = 1.0
    """Clip of the importance ratio."""
    advantage: Literal["signed", "positive", "binary"] = "binary"
    """What the policy learns from: every advantage, the positive ones, or 1 where the advantage is above `advantage_floor`."""
    advantage_floor: float = -0.1
    """With binary advantages, what an advantage must exceed to count: a little below 0 keeps steps that went as expected."""
    learn_from: Literal["all", "successes"] = "successes"
    """Whose steps the policy term may raise: those of every episode, or of successful ones."""
    importance: Literal["none", "targets", "full"] = "targets"
    """Where clipped importance ratios correct for the policy that acted: nowhere, in the value targets, or there and in the policy term (as published). PPO and GRPO: "none" also leaves out `proximal.reach`."""
    scale_advantages: bool = True
    """Divide advantages by their root mean square over the batch (not with binary ones)."""
    weight_by: Literal["max", "mean"] = "mean"
    """What the importance weights of prioritised sampling are divided by."""
    value_weight: NotNegative = 0.5
    """Weight of the critic's loss."""
    entropy_weight: NotNegative = 0.0
    """Weight of the entropy bonus; 0: none."""
    invalid_weight: NotNegative = 0.05
    """Weight of the term that pushes invalid actions down."""
    push_down: Literal["invalid", "certain"] = "invalid"
    """Which steps that term takes: those the device refused, or also those without effect and false claims of failed episodes."""
    critic_warmup_updates: CountOrNone = 40
    """Updates that train the critic alone."""
    digirl: DigiRLConfig = DigiRLConfig()
    proximal: ProximalConfig = ProximalConfig()
