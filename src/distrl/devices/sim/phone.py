"""A simulated phone as two pure functions: what a state shows, and what an action makes of it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from distrl.devices.sim.app import Ui, pop
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.layout import HEIGHT, STATUS_BAR, TITLE_BAR, WIDTH, Screen, lay_out
from distrl.devices.sim.perturbations import on_arrival
from distrl.devices.sim.state import PhoneState, Place
from distrl.devices.sim.widgets import View, Widget
from distrl.types import Action, Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed, Wait

SCROLL_SHARE = 0.7
"""How much of the visible body one swipe moves."""
SHORTEST_SWIPE = 0.05
BACK_ARROW = 44 / WIDTH
"""How far from the left edge the title bar is touched as a back arrow."""


class Outcome(msgspec.Struct, frozen=True):
    """The state after an action, and whether the action was one."""

    state: PhoneState
    valid: bool = True
    why: str = ""


def view_of(state: PhoneState) -> View:
    """What the topmost screen holds."""
    place = state.place
    return SCREENS[place.app, place.screen](Ui(state, place))


def show(state: PhoneState) -> Screen:
    """What the phone shows and a finger can reach."""
    screen = lay_out(view_of(state), state)
    return replace(screen, loading=True, placed=()) if state.loading else screen


def perform(state: PhoneState, screen: Screen, action: Action) -> Outcome:
    """What `action` makes of `state`, which shows `screen`."""
    outcome = _act(state, screen, action)
    after = replace(outcome.state, tick=state.tick + 1, loading=max(0, outcome.state.loading - 1))
    return Outcome(on_arrival(state, after, APPS), outcome.valid, outcome.why)


def _act(state: PhoneState, screen: Screen, action: Action) -> Outcome:
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            return _touch(state, screen, (x, y), hold=isinstance(action, LongPress))
        case Swipe():
            return _swipe(state, screen, action)
        case TypeText(text=text):
            return _type(state, text)
        case Press():
            return _press(state, screen, action)
        case Wait():
            return Outcome(state)
        case Finish():
            return Outcome(replace(state, claim=action))
        case Unparsed(raw=raw):
            return Outcome(state, False, f"not an action: {raw[:80]!r}")


def _press(state: PhoneState, screen: Screen, press: Press) -> Outcome:
    if press.key == "back":
        return Outcome(replace(state, focus="") if state.focus else pop(state))
    if press.key == "home":
        return Outcome(replace(state, stack=state.stack[:1], focus="", loading=0))
    return _enter(state, screen)


def _touch(state: PhoneState, screen: Screen, at: tuple[float, float], *, hold: bool) -> Outcome:
    if not _on_screen(*at):
        return Outcome(state, False, f"({at[0]:.3g}, {at[1]:.3g}) is outside the screen")
    widget = screen.at(*at)
    if widget is None and not hold and _on_back_arrow(state, screen, *at):
        return Outcome(pop(state))
    if widget is None:
        return Outcome(state, False, "nothing is there to touch")
    effect = widget.hold if hold else widget.tap
    if effect is None or not widget.enabled:
        return Outcome(state, why=f"{widget.text or widget.detail!r} does not react to that")
    return Outcome(effect(state))


def has_way_back(state: PhoneState) -> bool:
    """Whether something other than the home screen lies below this page: its title bar shows a back arrow then."""
    return len(state.stack) > 2


def _on_back_arrow(state: PhoneState, screen: Screen, x: float, y: float) -> bool:
    in_bar = STATUS_BAR <= y * HEIGHT < STATUS_BAR + TITLE_BAR
    return screen.view.shape == "page" and in_bar and x < BACK_ARROW and has_way_back(state)


def _swipe(state: PhoneState, screen: Screen, swipe: Swipe) -> Outcome:
    if not (_on_screen(swipe.x, swipe.y) and _on_screen(swipe.to_x, swipe.to_y)):
        return Outcome(state, False, "the swipe leaves the screen")
    across, down = swipe.to_x - swipe.x, swipe.to_y - swipe.y
    if max(abs(across), abs(down)) < SHORTEST_SWIPE:
        return Outcome(state, False, "the finger hardly moved")
    if abs(across) > abs(down):
        return Outcome(_turn_page(state, screen.view, forward=across < 0))
    return Outcome(_scroll(state, screen, by=-down))


def _scroll(state: PhoneState, screen: Screen, *, by: float) -> PhoneState:
    seen = (screen.body.bottom - screen.body.top) * 720
    moved = min(state.place.scroll, screen.overflow) + (SCROLL_SHARE * seen if by > 0 else -SCROLL_SHARE * seen)
    return _replace_place(state, scroll=min(max(moved, 0.0), screen.overflow))


def _turn_page(state: PhoneState, view: View, *, forward: bool) -> PhoneState:
    if len(view.pages) < 2:
        return state
    page = int(state.place.args.get("page", "0")) + (1 if forward else -1)
    page = min(max(page, 0), len(view.pages) - 1)
    return _replace_place(state, args={**state.place.args, "page": str(page)})


def _type(state: PhoneState, text: str) -> Outcome:
    if not text.strip():
        return Outcome(state, False, "there is nothing to type")
    if not state.focus:
        return Outcome(state, False, "no field has the focus: tap one first")
    return Outcome(_replace_place(state, drafts={**state.place.drafts, state.focus: text.strip()}))


def _enter(state: PhoneState, screen: Screen) -> Outcome:
    field = _focused(screen.view, state.focus)
    if field is None:
        return Outcome(state, False, "Enter needs a field with the focus")
    closed = replace(state, focus="")
    return Outcome(field.submit(closed) if field.submit else closed)


def _focused(view: View, focus: str) -> Widget | None:
    return next((widget for widget in view.body if widget.kind == "field" and widget.id == focus), None)


def _replace_place(state: PhoneState, **changes: object) -> PhoneState:
    place: Place = replace(state.place, **changes)
    return replace(state, stack=(*state.stack[:-1], place))


def _on_screen(x: float, y: float) -> bool:
    return 0.0 <= x < 1.0 and 0.0 <= y < 1.0
