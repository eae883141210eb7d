"""A scripted agent that knows each task's route: it proves tasks solvable and supplies demonstrations."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distrl.config.schema import NO_PERTURBATIONS, PerturbationConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, end_state
from distrl.devices.sim.world import start_state
from distrl.errors import TaskError, closest
from distrl.tasks.base import id_under
from distrl.tasks.sim.judge import check_of, judge, plain
from distrl.types import (
    Action,
    EndState,
    Finish,
    LongPress,
    Move,
    Press,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Verdict,
    Wait,
)

SCROLL_DOWN = Swipe(0.5, 0.6, 0.5, 0.25)
SCROLL_UP = Swipe(0.5, 0.3, 0.5, 0.65)
NEXT_PAGE = Swipe(0.8, 0.45, 0.2, 0.45)
PREVIOUS_PAGE = Swipe(0.2, 0.45, 0.8, 0.45)
MOST_STEPS = 60
"""Of an oracle: one that takes more does not find what it looks for."""
IN_THE_WAY = ("popup:close", "permission:allow")


def route_of(task: Task) -> tuple[Move, ...]:
    """The oracle's route; `TaskError` for a task whose solution nobody knows."""
    if task.solution is None:
        raise TaskError(f"no solution of {task.id} is known", fix="take a task of a sim- suite, as drawn by the suite")
    return task.solution.moves


class Oracle:
    """Plays one task. It looks for what the route names, scrolls to find it and clears the way."""

    def __init__(self, task: Task) -> None:
        self._task, self._route = task, route_of(task)
        self._next = 0
        self._seen: tuple[UiElement, ...] = ()
        self._backwards = False

    @property
    def looks_for(self) -> str:
        """What the next move of its route touches; empty: the route is done, or that is a key."""
        return self._route[self._next].target if self._next < len(self._route) - 1 else ""

    def act(self, elements: tuple[UiElement, ...]) -> Action:
        """What to do on a screen that shows `elements`."""
        if any(element.class_name == "ProgressBar" for element in elements):
            return Wait()
        by_id = {element.resource_id: element for element in elements if element.resource_id}
        for id in IN_THE_WAY:
            if id in by_id:
                return Tap(*by_id[id].bounds.centre)
        return self._follow(self._route[self._next], by_id, elements)

    def _follow(self, move: Move, by_id: dict[str, UiElement], elements: tuple[UiElement, ...]) -> Action:
        match move.verb:
            case "open":
                return self._open(f"app:{move.target}", by_id, elements)
            case "tap" | "hold":
                if move.target not in by_id:
                    return self._search(move.target, elements)
                centre = by_id[move.target].bounds.centre
                return self._done(Tap(*centre) if move.verb == "tap" else LongPress(*centre))
            case "type":
                return self._type(move, by_id, elements)
            case "enter" | "back" | "home":
                return self._done(Press(move.verb))
            case "finish":
                impossible = move.target == "impossible"
                return self._done(Finish("impossible") if impossible else Finish(answer=move.text))

    def _done(self, action: Action) -> Action:
        self._next = min(self._next + 1, len(self._route) - 1)
        self._seen, self._backwards = (), False
        return action

    def _open(self, icon: str, by_id: dict[str, UiElement], elements: tuple[UiElement, ...]) -> Action:
        if icon in by_id:
            return self._done(Tap(*by_id[icon].bounds.centre))
        if not any(id.startswith("app:") for id in by_id):
            return Press("home")
        return PREVIOUS_PAGE if self._turned_round(elements) else NEXT_PAGE

    def _type(self, move: Move, by_id: dict[str, UiElement], elements: tuple[UiElement, ...]) -> Action:
        field = by_id.get(move.target)
        if field is None:
            return self._search(move.target, elements)
        return self._done(TypeText(move.text)) if field.focused else Tap(*field.bounds.centre)

    def _search(self, id: str, elements: tuple[UiElement, ...]) -> Action:
        """Bring `id` into sight: close the keyboard, then scroll down, then up."""
        if any(element.focused for element in elements):
            return Press("back")
        if not any(element.scrollable for element in elements):
            shown = ", ".join(element.resource_id for element in elements if element.resource_id)
            raise TaskError(
                f"the oracle of {self._task.id} ({self._task.template}) cannot find {id!r}",
                expected=f"one of {shown[:300]}",
                fix=f"mend its route; `distrl tasks try {self._task.id} --ids` shows every screen",
            )
        return SCROLL_UP if self._turned_round(elements) else SCROLL_DOWN

    def _turned_round(self, elements: tuple[UiElement, ...]) -> bool:
        """Whether the end was reached, so that the search goes the other way."""
        self._backwards = self._backwards or elements == self._seen
        self._seen = elements
        return self._backwards


# --- playing at once --------------------------------------------------------------------------------------------------


Act = Callable[[tuple[UiElement, ...]], Action]


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """An episode played at once."""

    actions: tuple[Action, ...]
    states: tuple[PhoneState, ...]
    """From the start to the end: one more than actions."""
    valid: tuple[bool, ...]
    """Whether the phone took each action as one."""
    verdict: Verdict


def play(
    task: Task, act: Act, perturbations: PerturbationConfig = NO_PERTURBATIONS, *, max_steps: int | None = None
) -> Played:
    """Let `act` play `task` until it finishes or runs out of steps."""
    states, actions, valid = [start_state(task, perturbations)], [], []
    for _ in range(task.max_steps if max_steps is None else max_steps):
        screen = show(states[-1])
        actions.append(act(elements_of(screen, states[-1].focus)))
        outcome = perform(states[-1], screen, actions[-1])
        states.append(outcome.state)
        valid.append(outcome.valid)
        if states[-1].claim is not None:
            break
    end = EndState(claim=states[-1].claim, device=end_state(states[0], states[-1]))
    verdict = judge(task, states[0], end)
    return Played(actions=tuple(actions), states=tuple(states), valid=tuple(valid), verdict=verdict)


def solved_at_start(task: Task) -> bool:
    """Whether a claim at once is a success: there is nothing to do."""
    return play(task, lambda elements: Finish(), max_steps=1).verdict.success


def play_oracle(task: Task, perturbations: PerturbationConfig = NO_PERTURBATIONS) -> Played:
    """The oracle's episode."""
    return play(task, Oracle(task).act, perturbations, max_steps=MOST_STEPS)


def solve(task: Task, found_as: str = "") -> Played:
    """The oracle's episode on a phone without perturbations; `TaskError` where its route does not lead to success or never shows the answer.

    The error names the task after what its suite was found as, where that is told.
    """
    if found_as:
        task = msgspec.structs.replace(task, id=id_under(task, found_as))
    oracle, texts = Oracle(task), set[str]()

    def act(elements: tuple[UiElement, ...]) -> Action:
        texts.update(text for element in elements for text in (element.text, element.description) if text)
        return oracle.act(elements)

    played = play(task, act, max_steps=MOST_STEPS)
    if not played.verdict.success:
        looks_for = f"it has not found {oracle.looks_for!r}, and " if oracle.looks_for else ""
        why = played.verdict.reason or "not what was wanted"
        raise TaskError(
            f"the oracle of {task.id} ({task.template}) fails: {looks_for}{why}",
            expected="a route that ends in what the task wants",
            fix=f"mend its route or goal; `distrl tasks try {task.id}` shows every screen",
        )
    _refuse_unseen_answer(task, texts)
    return played


def _refuse_unseen_answer(task: Task, texts: set[str]) -> None:
    """`TaskError` where the wanted answer stands in none of the `texts` that the oracle saw, so that nobody could learn it."""
    check = check_of(task)
    if not check.answer or not check.answer_shown or any(plain(check.answer) in plain(text) for text in texts):
        return
    raise TaskError(
        f"the answer {check.answer!r} of {task.id} ({task.template}) stands on no screen of the oracle's way",
        expected=closest(check.answer, texts),
        fix=f"the text as it stands there (`distrl tasks try {task.id}` shows every screen), "
        "or t.want_answer(..., shown=False) where the agent has to work it out",
    )
