"""Builders of episodes."""

from __future__ import annotations

from distrl.types import (
    Action,
    Bounds,
    Change,
    Decision,
    Ending,
    EndState,
    Finish,
    Observation,
    Past,
    SimCheck,
    SimEnd,
    SimSetup,
    Step,
    Tap,
    Task,
    Trajectory,
    UiElement,
    Verdict,
    Want,
)

TASK = Task(
    id="settings/wifi/7",
    suite="settings",
    template="wifi",
    split="train",
    instruction="Turn the Wi-Fi on",
    setup=SimSetup(phone=2, seed=7),
    check=SimCheck(wants=(Want(table="settings", id="wifi", fields={"on": True, "level": 3, "share": 0.5}),)),
)


def make_step(index: int, *, version: int = 3, value: float = 0.5, reward: float = 0.0, entries: int = 8) -> Step:
    """A tap on a list of `entries`."""
    elements = tuple(
        UiElement(bounds=Bounds(0.0, n / 10, 1.0, (n + 1) / 10), text=f"Entry {index}-{n}", clickable=True)
        for n in range(entries)
    )
    action: Action = Tap(0.5, 0.25)
    past = Past(action=action, target=f"Entry {index}", changed=False)
    decision = Decision(action=action, choice=(1, index), logp=-0.7, entropy=1.2, value=value)
    observation = Observation(instruction=TASK.instruction, elements=elements, recent=(past,) * min(index, 6))
    return Step(observation=observation, decision=decision, version=version, reward=reward)


def make_trajectory(id: str = "w0-1", *, num_steps: int = 4, success: bool = True, version: int = 3) -> Trajectory:
    """An episode whose last step earns 1 where it succeeds."""
    steps = tuple(
        make_step(index, version=version + index, reward=float(success and index == num_steps - 1))
        for index in range(num_steps)
    )
    change = Change(table="settings", id="wifi", before={"on": False}, after={"on": True})
    return Trajectory(
        id=id,
        task=TASK,
        steps=steps,
        ending=Ending.FINISHED,
        verdict=Verdict(outcome="success" if success else "failure", progress=1.0 if success else 0.25),
        end=EndState(claim=Finish(), device=SimEnd(changes=(change,))),
        worker="w0",
        wall_s=2.5,
    )
