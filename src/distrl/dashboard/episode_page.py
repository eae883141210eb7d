"""One stored episode as the page shows it: every step with what was seen, done, thought and given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from distrl import Config, Run
from distrl.dashboard.catalogue import Entry
from distrl.dashboard.teleoperation import can_be_taken
from distrl.tasks.base import shown_id
from distrl.types import Action, Ending, LongPress, Observation, Step, Tap, Trajectory, UiElement, Verdict

USUAL_GAMMA = USUAL_LAMBDA = 0.95


class ShownRunnerUp(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy might have done instead."""

    action: Action
    hit: int
    probability: float


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    screenshot: str
    app: str
    width_px: int
    height_px: int
    elements: tuple[UiElement, ...]
    action: Action
    hit: int
    """The number of the element that was touched; -1: none."""
    probability: float | None
    """Of the action, under the policy that acted; None: it was not recorded."""
    runners_up: tuple[ShownRunnerUp, ...]
    """The likeliest other actions, the likeliest first."""
    entropy: float
    value: float
    advantage: float
    reward: float
    device_reward: float
    version: int
    staleness: int
    valid: bool
    changed: bool
    device_s: float


class ShownScreen(msgspec.Struct, frozen=True, kw_only=True):
    """What the screen showed after the last step."""

    screenshot: str
    app: str
    width_px: int
    height_px: int
    elements: tuple[UiElement, ...]


class ShownEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode."""

    id: str
    task: str
    template: str
    instruction: str
    source: str
    ending: str
    verdict: Verdict
    claim: str
    """What the agent said at its end."""
    check: str
    """What had to hold, as data."""
    left: str
    """How the device was left, as data; empty: it did not tell."""
    device: str
    worker: str
    wall_s: float
    priority: float
    created_s: float
    gamma: float
    by_hand: bool
    """Whether a person can try its task."""
    newer: str
    """The id of the episode that was stored after it."""
    older: str
    steps: list[ShownStep]
    last: ShownScreen | None


def show(run: Run, entry: Entry, neighbours: tuple[str, str], newest_at_arrival: int) -> ShownEpisode:
    """The episode behind an entry; `StoreError` where its file is damaged or gone."""
    trajectory = run.episode(entry.id)
    config = run.config
    gamma, lambda_ = discounts(config)
    advantages = advantages_of(trajectory, gamma=gamma, lambda_=lambda_)
    claim, left = trajectory.end.claim, trajectory.end.device
    return ShownEpisode(
        id=trajectory.id,
        task=shown_id(trajectory.task.id, config.tasks.suite),
        template=trajectory.task.template,
        instruction=trajectory.task.instruction,
        source=trajectory.source,
        ending=entry.ending,
        verdict=trajectory.verdict,
        claim="" if claim is None else f"{claim.status}{f': {claim.answer}' if claim.answer else ''}",
        check=as_text(trajectory.task.check),
        left="" if left is None else as_text(left),
        device=trajectory.device,
        worker=trajectory.worker,
        wall_s=trajectory.wall_s,
        priority=trajectory.priority,
        created_s=entry.created_s,
        gamma=gamma,
        by_hand=can_be_taken(trajectory.task, config),
        newer=neighbours[0],
        older=neighbours[1],
        steps=[
            _step(step, advantage, max(0, newest_at_arrival - step.version))
            for step, advantage in zip(trajectory.steps, advantages, strict=True)
        ],
        last=None if trajectory.last is None else _screen(trajectory.last),
    )


def _step(step: Step, advantage: float, staleness: int) -> ShownStep:
    seen, decision = step.observation, step.decision
    known = math.isfinite(decision.logp) and (decision.logp != 0.0 or bool(decision.choice))
    return ShownStep(
        screenshot=seen.screenshot,
        app=seen.app,
        width_px=seen.width_px,
        height_px=seen.height_px,
        elements=seen.elements,
        action=decision.action,
        hit=element_hit(decision.action, seen.elements),
        probability=_probability(decision.logp) if known else None,
        runners_up=tuple(
            ShownRunnerUp(
                action=one.action, hit=element_hit(one.action, seen.elements), probability=_probability(one.logp)
            )
            for one in decision.runners_up
            if math.isfinite(one.logp)
        ),
        entropy=finite(decision.entropy),
        value=finite(decision.value),
        advantage=round(finite(advantage), 4),
        reward=finite(step.reward),
        device_reward=finite(step.device_reward),
        version=step.version,
        staleness=staleness,
        valid=step.valid,
        changed=step.changed,
        device_s=step.device_s,
    )


def _probability(logp: float) -> float:
    return round(math.exp(min(0.0, logp)), 6)


def _screen(seen: Observation) -> ShownScreen:
    return ShownScreen(
        screenshot=seen.screenshot,
        app=seen.app,
        width_px=seen.width_px,
        height_px=seen.height_px,
        elements=seen.elements,
    )


def element_hit(action: Action, elements: Sequence[UiElement]) -> int:
    """The number of the element under a touch: one that can be clicked before one that cannot, the smaller before the larger."""
    if not isinstance(action, Tap | LongPress):
        return -1
    under = [number for number, element in enumerate(elements) if element.bounds.contains(action.x, action.y)]
    return min(under, key=lambda number: _preference(elements[number]), default=-1)


def _preference(element: UiElement) -> tuple[bool, float]:
    bounds = element.bounds
    return not element.clickable, (bounds.right - bounds.left) * (bounds.bottom - bounds.top)


def discounts(config: Config) -> tuple[float, float]:
    """Gamma and lambda of the run's algorithm; the usual ones where it has none."""
    settings = getattr(config.algorithm, config.algorithm.kind, None)
    return float(getattr(settings, "gamma", USUAL_GAMMA)), float(getattr(settings, "lambda_", USUAL_LAMBDA))


def advantages_of(trajectory: Trajectory, *, gamma: float, lambda_: float) -> list[float]:
    """Generalised advantage estimates from the values that were recorded while acting.

    td_t = r_t + gamma V(s_{t+1}) - V(s_t)        A_t = td_t + gamma lambda A_{t+1}
    """
    steps = trajectory.steps
    after = 0.0 if trajectory.ending in (Ending.FINISHED, Ending.ENVIRONMENT) else trajectory.last_value
    found, ahead = [0.0] * len(steps), 0.0
    for at in reversed(range(len(steps))):
        value = steps[at].decision.value
        ahead = steps[at].reward + gamma * after - value + gamma * lambda_ * ahead
        found[at], after = ahead, value
    return found


def finite(number: float) -> float:
    """The number, or 0 where it is NaN or infinite, which JSON has not."""
    return number if math.isfinite(number) else 0.0


def environment_of(run: Run) -> str:
    """What the run wrote of its machine, as text; a link is not followed, which might lead out of the folder."""
    path = run.path / "env.json"
    try:
        return "not shown: it is a link" if path.is_symlink() else path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"not known: {error.strerror or error}"


def as_text(record: msgspec.Struct) -> str:
    """A record as JSON with indents, for people."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
