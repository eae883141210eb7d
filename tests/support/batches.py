"""Builders of what the learner reads: real screens, episodes decided by a tiny policy, and batches made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from zlib import crc32

import msgspec
import torch
from torch import Tensor

from distrl.algorithms.batch import TrainBatch
from distrl.config.schema import PerturbationConfig, PointerConfig
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.policy import PointerPolicy
from distrl.pretraining.demonstrations import demonstrate
from distrl.tasks.sim.suites import suite
from distrl.types import Action, Ending, Observation, SimRoute, Step, Task, Trajectory, Verdict
from support.trajectories import make_trajectory

PERTURBED = PerturbationConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.3)
"""Pop-ups, slow screens and updates often enough to meet all of them in a few tasks."""
SUITES = ("sim-general", "sim-shopping")


def tiny_policy(seed: int = 0, *, string_match: bool = True, spread: float = 0.0) -> PointerPolicy:
    """The smallest pointer; `spread` shakes its weights so that its choices are far from uniform."""
    # As the roles do: on so small a network a second thread costs more than it brings.
    torch.set_num_threads(1)
    config = PointerConfig(width=16, layers=1, string_match=string_match, word_swap_share=0.0)
    policy = PointerPolicy(config, PolicyContext(seed=seed))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.add_(spread * torch.randn(weights.shape, generator=generator))
    return policy


@cache
def some_tasks(name: str, count: int) -> tuple[Task, ...]:
    """Training and test tasks of a suite, half and half, from as many templates as can be."""
    tasks = suite(name)
    return tuple(tasks.task(split, index) for index in range(count // 2) for split in ("train", "test"))


def led_astray(task: Task) -> Task:
    """The same, where the second thing that its oracle looks for is nowhere."""
    assert task.solution is not None
    first, second, *others = task.solution.moves
    moves = (first, msgspec.structs.replace(second, target="nowhere"), *others)
    return msgspec.structs.replace(task, solution=SimRoute(moves=moves))


@cache
def shown_by_the_oracle(count: int = 8) -> tuple[tuple[Observation, Action], ...]:
    """What the oracle sees and does on `count` tasks of each suite, on perturbed phones."""
    tasks = [task for name in SUITES for task in some_tasks(name, count)]
    return tuple(demonstrate(tasks, PERTURBED, history=6))


def screens(count: int, *, tasks: int = 8) -> list[Observation]:
    """Real screens from all over the demonstrations."""
    pairs = shown_by_the_oracle(tasks)
    return [pairs[index * len(pairs) // count][0] for index in range(count)]


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How an episode went, apart from what was decided."""

    num_steps: int = 3
    success: bool = False
    version: int = 0
    ending: Ending = Ending.FINISHED
    invalid: tuple[int, ...] = ()
    """Steps that the device refused."""
    wall_s: float = 2.0
    priority: float = 1.0
    worker: str = "w0"


ORDINARY = Played()


def decided_episode(policy: PointerPolicy, id: str, played: Played = ORDINARY) -> Trajectory:
    """An episode over real screens whose decisions are the policy's own; the id decides which."""
    dice = crc32(id.encode())
    seen = screens(40)[dice % 30 :][: played.num_steps + 1]
    decisions = policy.decide(seen, temperature=1.0, generator=torch.Generator().manual_seed(dice))
    steps = tuple(
        Step(
            observation=seen[t],
            decision=decisions[t],
            version=played.version,
            reward=float(played.success and t == played.num_steps - 1),
            valid=t not in played.invalid,
        )
        for t in range(played.num_steps)
    )
    cut = not played.ending.is_terminal
    return msgspec.structs.replace(
        make_trajectory(id, success=played.success),
        steps=steps,
        ending=played.ending,
        last=seen[played.num_steps] if cut else None,
        last_value=decisions[-1].value if cut else 0.0,
        wall_s=played.wall_s,
        priority=played.priority,
        worker=played.worker,
        **({"verdict": Verdict(outcome="unknown", reason="lost")} if played.ending.is_error else {}),
    )


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a batch made by hand; what is left out is the same on every step."""

    reward: Sequence[float]
    device_reward: Sequence[float] = ()
    """What the device gave; empty: nothing."""
    value: Sequence[float]
    """The critic's probability of success."""
    ratio: Sequence[float] = ()
    """pi / mu; empty: on policy."""
    strayed: Sequence[float] = ()
    """pi / prox; empty: the present policy is the proximal one."""
    chance: Sequence[float] = ()
    """pi(a); empty: 0.4."""
    entropy: Sequence[float] = ()
    valid: Sequence[bool] = ()
    changed: Sequence[bool] = ()
    """Whether the screen looked different after each step; empty: after all of them."""
    decided: Sequence[bool] = ()
    """Whether the policy's decision was finite; empty: on every step."""
    false_claim: bool = False
    """The last step ends the episode with a claim that is not so."""
    bootstrap: float = 0.0
    weight: float = 1.0
    success: bool = False
    known: bool = True
    """False: a fault ended the episode, or its judge failed."""
    example: bool = False
    noop: Sequence[bool] = ()
    """The steps that the no-op filter masks; empty: none."""
    policy_mask: Sequence[bool] = ()
    """The other way round; empty: by `noop`."""
    value_mask: Sequence[bool] = ()
    """Empty: the outcome of every step may train a critic."""
    instruction: str = "do it"
    group: tuple[float, float] = (0.0, 0.0)
    """Mean and deviation of the outcomes of its group."""


def train_batch(*rows: Drawn) -> TrainBatch:
    """A padded batch whose log-probabilities, entropies and value logits are leaves that collect gradients."""
    chance = _pad([row.chance or [0.4] * len(row.reward) for row in rows], filling=1.0)
    ratio = _pad([row.ratio or [1.0] * len(row.reward) for row in rows], filling=1.0)
    logp = chance.log()
    strayed = _pad([row.strayed or [1.0] * len(row.reward) for row in rows], filling=1.0)
    return TrainBatch(
        logp_BT=logp.clone().requires_grad_(),
        entropy_BT=_pad([row.entropy or [1.0] * len(row.reward) for row in rows]).requires_grad_(),
        value_logit_BT=torch.logit(_pad([row.value for row in rows], filling=0.5)).requires_grad_(),
        behaviour_logp_BT=logp - ratio.log(),
        proximal_logp_BT=logp - strayed.log(),
        reward_BT=_pad([row.reward for row in rows]),
        device_reward_BT=_pad([row.device_reward or [0.0] * len(row.reward) for row in rows]),
        valid_BT=_flags([row.valid for row in rows], rows),
        changed_BT=_flags([row.changed for row in rows], rows),
        mask_BT=_flags([() for _ in rows], rows),
        decided_BT=_flags([row.decided for row in rows], rows),
        policy_mask_BT=_flags([row.policy_mask or [not noop for noop in row.noop] for row in rows], rows),
        value_mask_BT=_flags([row.value_mask for row in rows], rows) & ~torch.tensor([[row.example] for row in rows]),
        success_B=torch.tensor([float(row.success) for row in rows]),
        known_B=torch.tensor([row.known for row in rows]),
        example_B=torch.tensor([row.example for row in rows]),
        instructions=tuple(row.instruction for row in rows),
        group_mean_B=torch.tensor([row.group[0] for row in rows]),
        group_std_B=torch.tensor([row.group[1] for row in rows]),
        false_claim_BT=_pad([[0.0] * (len(row.reward) - 1) + [float(row.false_claim)] for row in rows]).bool(),
        bootstrap_B=torch.tensor([row.bootstrap for row in rows]),
        weight_B=torch.tensor([row.weight for row in rows]),
    )


def gradient(leaf: Tensor) -> Tensor:
    """What a leaf has collected; zeros where nothing reached it."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _flags(marks: Sequence[Sequence[bool]], rows: Sequence[Drawn]) -> Tensor:
    """Padded marks; an empty row of them is true on every step."""
    full = [[float(mark) for mark in row] or [1.0] * len(drawn.reward) for row, drawn in zip(marks, rows, strict=True)]
    return _pad(full).bool()


def _pad(rows: Sequence[Sequence[float]], filling: float = 0.0) -> Tensor:
    parts = [torch.tensor(list(row), dtype=torch.float32) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=filling)
