"""Dialogs that many apps have: a question before something is lost, and a choice for a field of the screen below."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from distrl.devices.sim.app import Ui, back, do
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.widgets import Effect, View, Widget, button, check


def confirm(ui: Ui, question: str, *, yes: str, effect: Effect) -> View:
    """Ask before `effect` happens; the buttons are `confirm:yes` and `confirm:no`."""
    agree = button("confirm:yes", yes, tap=effect)
    refuse = button("confirm:no", ui.pick("Cancel", "Keep", "No"), tap=back())
    return View(title=question, body=ui.arrange([agree, refuse]), shape="dialog")


def options(field: str, choices: Iterable[str], now: str) -> tuple[Widget, ...]:
    """Choices `option:…` that close this screen and fill in `field` of the one below it."""
    return tuple(check(f"option:{text}", text, text == now, tap=do(back(), fill(field, text))) for text in choices)


def fill(field: str, text: str) -> Effect:
    """Put text into a field of this screen as if it had been typed."""

    def run(state: PhoneState) -> PhoneState:
        place = replace(state.place, drafts={**state.place.drafts, field: text})
        return replace(state, stack=(*state.stack[:-1], place))

    return run
