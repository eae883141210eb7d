"""The scripted agent: how it finds what its moves name, clears its way, and gives up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.apps import APPS
from distrl.errors import TaskError
from distrl.tasks.sim.oracle import NEXT_PAGE, SCROLL_DOWN, Oracle, play, play_oracle
from distrl.tasks.sim.templates import enter, go_back, go_home, hold, open_app, tap, type_in
from distrl.types import Bounds, Finish, LongPress, Move, Press, Tap, Task, TypeText, UiElement, Wait
from support.sims import Finger, finger_on, sim_task, with_solution

END = Move(verb="finish", target="complete")
BOX = Bounds(0.1, 0.2, 0.3, 0.4)


def guided(*moves: Move, task: Task | None = None) -> Oracle:
    return Oracle(with_solution(task or sim_task(), *moves, END))


def element(id: str, **fields: object) -> UiElement:
    return UiElement(bounds=BOX, resource_id=id, **fields)  # type: ignore[arg-type]


def walk(*moves: Move, app: str = "") -> Finger:
    """Where the oracle leads on a phone."""
    task = with_solution(sim_task(app), *moves, END)
    finger = Finger(state=play_oracle(task).states[-1])
    assert finger.state.claim == Finish()
    return finger


# --- moves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", APPS)
def test_it_opens_every_app_from_the_home_screen(app: str) -> None:
    assert walk(open_app(app)).screen == f"{app}/home"


def test_it_goes_home_to_open_another_app() -> None:
    assert walk(open_app("notes"), open_app("mail"), app="contacts").screen == "mail/home"


def test_it_turns_back_when_the_last_page_does_not_have_the_icon() -> None:
    finger = finger_on(sim_task())
    finger.act(NEXT_PAGE)
    first_page = Finger().ids("app:")[0].removeprefix("app:")
    oracle = guided(open_app(first_page))
    for _ in range(4):
        finger.act(oracle.act(finger.elements()))
    assert finger.state.place.app in (first_page, "system")


def test_it_scrolls_down_to_what_is_out_of_sight() -> None:
    finger = Finger("contacts")
    last = finger.ids("person:")[-1]
    assert last not in finger.in_sight()
    assert walk(tap(last), app="contacts").screen == "contacts/person"


def test_it_scrolls_up_again_when_the_end_was_reached() -> None:
    last = Finger("contacts").ids("person:")[-1]
    first = Finger("contacts").ids("person:")[0]
    assert walk(tap(last), go_back(), tap(first), app="contacts").state.place.args == {
        "id": first.removeprefix("person:")
    }


def test_it_holds_types_presses_enter_and_goes_back_and_home() -> None:
    finger = Finger("messages")
    thread = finger.ids("thread:")[0]
    assert walk(hold(thread), app="messages").screen == "messages/options"
    assert walk(type_in("address", "Kiosko"), enter(), app="browser").screen == "browser/search"
    assert walk(tap("new"), go_back(), app="notes").screen == "notes/home"
    assert walk(tap("new"), go_home(), app="notes").screen == "launcher/home"


def test_it_taps_a_field_before_it_types() -> None:
    oracle = guided(type_in("q", "tea"))
    field = element("q", class_name="EditText", clickable=True)
    assert oracle.act((field,)) == Tap(*BOX.centre)
    assert oracle.act((replace(field, focused=True),)) == TypeText("tea")
    assert oracle.act(()) == Finish()


def test_it_closes_the_keyboard_to_find_what_may_lie_below() -> None:
    field = element("q", focused=True)
    assert guided(tap("save")).act((field,)) == Press("back")


def test_a_long_press_is_one() -> None:
    assert guided(hold("row")).act((element("row"),)) == LongPress(*BOX.centre)


@pytest.mark.parametrize(
    ("move", "claim"),
    [
        (Move(verb="finish", target="complete"), Finish()),
        (Move(verb="finish", target="complete", text="tea"), Finish(answer="tea")),
        (Move(verb="finish", target="impossible"), Finish("impossible")),
    ],
)
def test_its_last_move_is_a_claim_and_is_repeated(move: Move, claim: Finish) -> None:
    oracle = Oracle(with_solution(sim_task(), move))
    assert oracle.act(()) == claim
    assert oracle.act(()) == claim


# --- what comes in between ------------------------------------------------------------------------------------------


def test_it_waits_while_a_screen_loads() -> None:
    loading = UiElement(bounds=BOX, class_name="ProgressBar", text="Loading…")
    oracle = guided(tap("row"))
    assert oracle.act((loading,)) == Wait()
    assert oracle.act((element("row"),)) == Tap(*BOX.centre)


@pytest.mark.parametrize("id", ["popup:close", "permission:allow"])
def test_it_clears_what_is_in_the_way_and_goes_on(id: str) -> None:
    other = replace(element(id), bounds=Bounds(0.5, 0.5, 0.7, 0.7))
    oracle = guided(tap("row"))
    assert oracle.act((other, element("row"))) == Tap(*other.bounds.centre)
    assert oracle.act((element("row"),)) == Tap(*BOX.centre)


def test_it_gets_through_the_worst_phone_there_is() -> None:
    worst = PerturbationConfig(popup_rate=1.0, slow_rate=1.0, update_rate=1.0)
    for app in APPS:
        task = with_solution(sim_task(), open_app(app), END)
        last = play_oracle(task, worst).states[-1]
        assert (last.place.app, last.place.screen) == (app, "home")


# --- giving up ------------------------------------------------------------------------------------------------------


def test_what_is_nowhere_to_be_found_is_an_error_that_names_what_is_there() -> None:
    with pytest.raises(TaskError, match="cannot find 'no such thing'") as caught:
        play_oracle(with_solution(sim_task("settings"), tap("no such thing"), END))
    assert "section:network" in str(caught.value)


def test_a_list_that_does_not_have_it_is_searched_until_the_steps_run_out() -> None:
    played = play_oracle(with_solution(sim_task("contacts"), tap("no such thing"), END))
    assert not played.verdict.success
    assert len(played.actions) == 60
    assert SCROLL_DOWN in played.actions


# --- playing --------------------------------------------------------------------------------------------------------


def test_an_episode_ends_with_a_claim_or_with_the_step_limit() -> None:
    task = sim_task("notes")
    assert len(play(task, lambda elements: Wait()).actions) == task.max_steps
    assert len(play(task, lambda elements: Wait(), max_steps=3).actions) == 3
    assert len(play(task, lambda elements: Finish("impossible")).actions) == 1


def test_an_episode_tells_all_its_states_and_the_verdict() -> None:
    played = play(sim_task("notes"), lambda elements: Finish("impossible"))
    assert len(played.states) == 2
    assert played.states[0].claim is None
    assert played.verdict.success, "a task that cannot be done"


def test_an_agent_is_shown_what_is_on_the_screen() -> None:
    seen = list[tuple[UiElement, ...]]()

    def look(elements: tuple[UiElement, ...]) -> Finish:
        seen.append(elements)
        return Finish()

    play(sim_task("notes"), look)
    assert seen == [Finger(state=finger_on(sim_task("notes")).state).elements()]
