"""UI patterns that screens of many apps share: headed facts, tabs, search fields and dialogs.

They are plain functions over widgets and effects; an app uses those that fit and writes the rest itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from distrl.devices.sim.app import Ui, back, do, swap
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.widgets import Effect, Look, View, Widget, button, choice, heading, label, tab
from distrl.types import Value

Then = Callable[[PhoneState, str], PhoneState]
"""What is to be done with a text that was typed."""


def facts(*entries: tuple[str, str, Value | None]) -> tuple[Widget, ...]:
    """For each (id, heading, value) a heading and, alone in its label, the value."""
    pairs = ((heading(f"{id}:title", title), label(id, str(value))) for id, title, value in entries)
    return tuple(widget for pair in pairs for widget in pair)


def typed(field: str, then: Then) -> Effect:
    """`then` with what was typed into a field of this screen; nothing happens while it is empty."""

    def run(state: PhoneState) -> PhoneState:
        text = state.place.drafts.get(field, "").strip()
        return then(state, text) if text else state

    return run


def prompt(ui: Ui, title: str, default: str, then: Then) -> View:
    """A dialog that asks for a name, does `then` with it and closes."""
    save = typed("name", lambda state, text: then(back()(state), text))
    field = ui.field("name", ui.pick("Name", "Enter a name", "Title"), default, submit=save)
    return View(title=title, body=(field, button("name:save", ui.pick("OK", "Save", "Done"), tap=save)), shape="dialog")


def tabs(app: str, here: str, names: Iterable[tuple[str, str, str]]) -> tuple[Widget, ...]:
    """The bottom bar of an app, from (screen, text, pictogram)."""
    return tuple(
        tab(f"tab:{screen}", text, screen == here, tap=swap(app, screen), icon=icon) for screen, text, icon in names
    )


def hits(text: str, query: str) -> bool:
    """Whether a search for `query` finds `text`."""
    return query.casefold() in text.casefold()


def or_none(ui: Ui, found: Iterable[Widget]) -> tuple[Widget, ...]:
    """What was found, in this phone's order, or a line that says that there is nothing."""
    return ui.arrange(found) or (label("nothing", ui.pick("No results", "Nothing found", "Nothing here")),)


# --- dialogs --------------------------------------------------------------------------------------------------------


def confirm(ui: Ui, question: str, *, yes: str, effect: Effect, look: Look = "danger") -> View:
    """Ask before `effect` happens; the buttons are `confirm:yes` and `confirm:no`."""
    agree = button("confirm:yes", yes, tap=effect, look=look)
    refuse = button("confirm:no", ui.pick("Cancel", "Keep", "No"), tap=back(), look="quiet")
    return View(title=question, body=ui.arrange([agree, refuse]), shape="dialog")


def options(field: str, choices: Iterable[str], now: str) -> tuple[Widget, ...]:
    """Choices `option:…` that close this screen and fill in `field` of the one below it."""
    return tuple(choice(f"option:{text}", text, text == now, tap=do(back(), fill(field, text))) for text in choices)


def fill(field: str, text: str) -> Effect:
    """Put text into a field of this screen as if it had been typed."""

    def run(state: PhoneState) -> PhoneState:
        place = replace(state.place, drafts={**state.place.drafts, field: text})
        return replace(state, stack=(*state.stack[:-1], place))

    return run
