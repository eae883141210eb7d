"""The only builder of observations: what a policy sees is made here, whoever plays and wherever.

Workers, evaluation, demonstrations and the Gymnasium environment share it, so a policy meets the same history in all
of them.
"""

from __future__ import annotations

from distrl.devices.base import Capture, Performed
from distrl.types import Action, LongPress, Observation, Past, Tap, TypeText, UiElement


class ObservationBuilder:
    """Turns captures of one episode into observations, with the recent actions."""

    def __init__(self, instruction: str, *, history: int) -> None:
        self._instruction, self._history = instruction, history
        self._recent: list[Past] = []

    @property
    def recent(self) -> tuple[Past, ...]:
        """All actions so far, oldest first; assign it to go back to an earlier moment of the episode."""
        return tuple(self._recent)

    @recent.setter
    def recent(self, recent: tuple[Past, ...]) -> None:
        self._recent = list(recent)

    def observe(self, capture: Capture, *, screenshot: str = "") -> Observation:
        """What the policy is shown of a capture; `screenshot` is the reference to its picture."""
        return Observation(
            instruction=capture.instruction or self._instruction,
            elements=capture.elements,
            screenshot=screenshot,
            width_px=capture.width_px,
            height_px=capture.height_px,
            app=capture.app,
            recent=tuple(self._recent[-self._history :]) if self._history else (),
        )

    def record(self, observation: Observation, action: Action, performed: Performed) -> None:
        """Remember an action and what became of it."""
        self._recent.append(
            Past(
                action=action,
                target=target_of(action, observation.elements),
                valid=performed.valid,
                changed=performed.changed,
                screenshot=observation.screenshot,
            )
        )


def target_of(action: Action, elements: tuple[UiElement, ...]) -> str:
    """The text of what an action touched or typed."""
    if isinstance(action, TypeText):
        return action.text
    if not isinstance(action, Tap | LongPress):
        return ""
    under = [e for e in elements if e.bounds.contains(action.x, action.y) and (e.text or e.description)]
    best = min(under, key=lambda e: (not e.clickable, e.bounds.bottom - e.bounds.top), default=None)
    return (best.text or best.description) if best else ""
