"""Cloning a few oracle demonstrations, so that practice starts from a policy that sometimes succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import numpy as np
import torch

from distrl.algorithms.base import Episode
from distrl.config.schema import Config, WarmStartConfig, WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import show
from distrl.policies.base import Policy
from distrl.rollout.episode import target_of
from distrl.rollout.scheduler import TaskFeed
from distrl.tasks.play import play_oracle
from distrl.tasks.suites import suite
from distrl.types import Action, Observation, Past, Task

Example = tuple[Any, tuple[int, ...]]
"""An encoded observation and the choice to learn."""
BATCH = 64


def demonstration_tasks(config: Config) -> list[Task]:
    """The training tasks that the oracle shows."""
    tasks = config.tasks
    feed = TaskFeed(
        suite(tasks.suite), "train", seed=f"demonstrations {config.run.seed}", max_oracle_steps=tasks.max_oracle_steps
    )
    return [feed.next() for _ in range(config.warm_start.demonstrations)]


def demonstrate(tasks: Iterable[Task], wild: WildConfig, *, history: int) -> list[tuple[Observation, Action]]:
    """What the oracle saw and did on these tasks."""
    return [pair for task in tasks for pair in _one(task, wild, history)]


def _one(task: Task, wild: WildConfig, history: int) -> list[tuple[Observation, Action]]:
    played = play_oracle(task, wild)
    pairs: list[tuple[Observation, Action]] = []
    recent: list[Past] = []
    for state, action in zip(played.states, played.actions, strict=False):
        elements = elements_of(show(state), state.focus)
        seen = Observation(
            instruction=task.instruction, elements=elements, recent=tuple(recent[-history:] if history else ())
        )
        pairs.append((seen, action))
        recent.append(Past(action=action, target=target_of(action, elements)))
    return pairs if played.verdict.success else []


def clone(
    policy: Policy[Any],
    examples: list[Example],
    config: WarmStartConfig,
    *,
    random: Random,
    beat: Callable[[float], None],
) -> float:
    """Maximum likelihood on the examples; `beat` hears the share done. Returns the last epoch's mean loss."""
    if not examples:
        return 0.0
    optimizer = torch.optim.AdamW(policy.network.parameters(), lr=config.learning_rate, weight_decay=0.01, fused=True)
    batches = -(-len(examples) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=config.epochs * batches)
    loss = 0.0
    for epoch in range(config.epochs):
        order = random.sample(examples, len(examples))
        losses = []
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            scores = policy.score([policy.augment(encoded) for encoded, _ in part], [choice for _, choice in part])
            optimizer.zero_grad(set_to_none=True)
            nll = -scores.logp_N.mean()
            nll.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(policy.network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(nll.detach()))
            beat((epoch * batches + len(losses)) / (config.epochs * batches))
        loss = sum(losses) / len(losses)
    return loss


def examples_for(policy: Policy[Any], pairs: Iterable[tuple[Observation, Action]]) -> list[Example]:
    """The demonstrations in the policy's own grammar; what it cannot say is left out."""
    found = []
    for observation, action in pairs:
        choice = policy.imitate(observation, action)
        if choice is not None:
            found.append((policy.encode(observation), choice))
    return found


def demonstrated(task: Task, policy: Policy[Any], config: Config, *, id: str) -> Episode | None:
    """The oracle's episode as something to imitate; None where it failed or the policy can say none of it.

    It tells a critic nothing: what the oracle achieves is not what the policy may expect.
    """
    pairs = demonstrate([task], config.devices.wild, history=config.rollout.history)
    examples = examples_for(policy, pairs)
    if not examples:
        return None
    yes_T = np.ones(len(examples), np.bool_)
    reward_T = np.zeros(len(examples), np.float32)
    reward_T[-1] = 1.0
    return Episode(
        id=id,
        task=task.id,
        template=task.template,
        instruction=task.instruction,
        version=0,
        success=True,
        terminal=True,
        encoded=tuple(encoded for encoded, _ in examples),
        choices=tuple(choice for _, choice in examples),
        logp_T=np.zeros(len(examples), np.float32),
        reward_T=reward_T,
        valid_T=yes_T,
        changed_T=yes_T,
        teaches_T=yes_T,
        last_value=0.0,
        example=True,
    )
