"""Every template of every suite: drawn, solved by the oracle, and failed by those who do nothing, too little or too much."""

from __future__ import annotations

from statistics import median

import pytest
from msgspec.structs import replace

from distrl.devices.sim.app import flip
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, put
from distrl.devices.sim.world import start_state
from distrl.tasks.base import refuse_overlap, split_of
from distrl.tasks.sim.oracle import play, play_oracle
from distrl.tasks.sim.suites import GENERAL, SHOPPING
from distrl.types import Finish, Task, Wait
from support.sims import (
    PERTURBED,
    TEMPLATES,
    answer_of,
    is_impossible,
    page_of,
    phone_of,
    solution_of,
    tasks_of,
    verdict_on,
    wants_of,
)

every_template = pytest.mark.parametrize("name", TEMPLATES)
PUNCTUATION = ".,:?!"


def solved(task: Task) -> PhoneState:
    """The phone as the oracle leaves it."""
    played = play_oracle(task)
    assert played.verdict.success, (task.instruction, played.verdict)
    return played.states[-1]


def claim(state: PhoneState) -> Finish:
    assert state.claim is not None
    return state.claim


# --- solvable -------------------------------------------------------------------------------------------------------


@every_template
def test_the_oracle_succeeds_within_the_step_limit(name: str) -> None:
    for task in tasks_of(name):
        played = play_oracle(task)
        assert played.verdict.success, (task.instruction, played.verdict)
        assert played.verdict.progress == 1.0
        assert not played.verdict.false_completion
        assert played.verdict.side_effects == ()
        assert len(played.actions) <= task.max_steps


@every_template
def test_the_oracle_succeeds_under_perturbations(name: str) -> None:
    for task in tasks_of(name)[:4]:
        played = play_oracle(task, PERTURBED)
        assert played.verdict.success, (task.instruction, played.verdict)


@every_template
def test_the_oracle_makes_no_invalid_step_and_ends_with_a_claim(name: str) -> None:
    played = play_oracle(tasks_of(name)[0], PERTURBED)
    assert [isinstance(action, Finish) for action in played.actions] == [False] * (len(played.actions) - 1) + [True]
    for state, action in zip(played.states, played.actions, strict=False):
        assert perform(state, show(state), action).valid, action


# --- not by doing nothing, and not by half --------------------------------------------------------------------------


@every_template
def test_who_does_nothing_until_the_steps_run_out_fails(name: str) -> None:
    for task in tasks_of(name)[:4]:
        verdict = play(task, lambda elements: Wait()).verdict
        assert not verdict.success, task.instruction
        assert not verdict.false_completion, "nothing was claimed"


@every_template
def test_who_says_complete_at_once_fails_and_claims_falsely(name: str) -> None:
    for task in tasks_of(name):
        verdict = verdict_on(task, start_state(task), Finish())
        assert (verdict.success, verdict.false_completion) == (False, True), task.instruction


@every_template
def test_who_gives_up_at_once_is_right_about_impossible_tasks_alone(name: str) -> None:
    for task in tasks_of(name):
        verdict = verdict_on(task, start_state(task), Finish("impossible"))
        assert verdict.success == is_impossible(task), task.instruction
        assert not verdict.false_completion


@every_template
def test_who_does_it_and_says_nothing_fails(name: str) -> None:
    for task in tasks_of(name)[:4]:
        silent = replace(solved(task), claim=None)
        assert not verdict_on(task, silent).success, task.instruction


@every_template
def test_who_does_it_and_gives_up_fails(name: str) -> None:
    for task in tasks_of(name)[:4]:
        wrong = Finish("complete") if is_impossible(task) else Finish("impossible")
        assert not verdict_on(task, solved(task), wrong).success, task.instruction


@every_template
def test_who_stops_before_the_last_change_fails(name: str) -> None:
    for task in tasks_of(name)[:4]:
        states = play_oracle(task).states
        last = max((n for n in range(1, len(states)) if states[n].tables is not states[n - 1].tables), default=0)
        if wants_of(task):
            verdict = verdict_on(task, states[last - 1], claim(states[-1]))
            assert not verdict.success, task.instruction
            assert verdict.progress < 1.0


@every_template
def test_who_ends_elsewhere_fails_where_a_screen_was_asked_for(name: str) -> None:
    for task in tasks_of(name)[:4]:
        if page_of(task) is not None:
            state = solved(task)
            home = replace(state, stack=state.stack[:1])
            assert not verdict_on(task, home).success, task.instruction


# --- not with side effects ------------------------------------------------------------------------------------------


@every_template
def test_who_does_something_else_besides_fails_and_is_told_what(name: str) -> None:
    for task in tasks_of(name)[:4]:
        state = solved(task)
        asked = {(want.table, want.id) for want in wants_of(task)}
        extra = next(pref for pref in ("vibrate", "touch", "rotate") if ("settings.pref", pref) not in asked)
        verdict = verdict_on(task, flip("settings.pref", extra, "on")(state))
        assert not verdict.success, task.instruction
        assert verdict.side_effects == (f"settings.pref/{extra} changed",)
        assert verdict.false_completion == (not is_impossible(task))


@every_template
def test_who_makes_a_record_that_nobody_asked_for_fails(name: str) -> None:
    for task in tasks_of(name)[:2]:
        more = put(solved(task), "photos.sent", "extra", photo="none", to="nobody")
        assert verdict_on(task, more).side_effects == ("photos.sent/extra ('none') was made",), task.instruction


@every_template
def test_traces_of_mere_use_are_no_side_effects(name: str) -> None:
    for task in tasks_of(name)[:2]:
        used = put(solved(task), "mail.seen", "m0", seen=True)
        used = put(used, "maps.recent", "r99", query="tea")
        used = put(used, "system.popup", "rate", accepted=True)
        assert verdict_on(task, used).success, task.instruction


# --- answers --------------------------------------------------------------------------------------------------------


@every_template
def test_an_answer_stands_alone_on_the_last_screen_and_another_is_wrong(name: str) -> None:
    for task in tasks_of(name):
        if not (answer := answer_of(task)):
            continue
        state = solved(task)
        told = [element.text for element in elements_of(show(state), state.focus)]
        assert answer in told, task.instruction
        assert verdict_on(task, state, Finish(answer=f"  {answer.upper()} ")).success, "case and spaces do not matter"
        for wrong in ("", "something else", f"{answer} or so"):
            assert not verdict_on(task, state, Finish(answer=wrong)).success


@every_template
def test_an_answer_is_not_in_the_question(name: str) -> None:
    for task in tasks_of(name):
        if answer := answer_of(task):
            said = {word.strip(PUNCTUATION).casefold() for word in task.instruction.split()}
            assert answer.casefold() not in said, task.instruction


# --- wordings -------------------------------------------------------------------------------------------------------


@every_template
def test_what_is_typed_stands_word_by_word_in_the_instruction(name: str) -> None:
    """A policy copies words of the instruction; it does not make them up."""
    for task in tasks_of(name):
        said = [word.strip(PUNCTUATION) for word in task.instruction.split()]
        for move in solution_of(task):
            typed = [word.strip(PUNCTUATION) for word in move.text.split()] if move.verb == "type" else []
            spans = [said[at : at + len(typed)] for at in range(len(said))]
            assert not typed or typed in spans, (task.instruction, move.text)


@every_template
def test_an_instruction_is_one_clean_line(name: str) -> None:
    for task in tasks_of(name):
        assert task.instruction == " ".join(task.instruction.split())
        assert task.instruction[0].isupper()
        assert len(task.instruction) < 160


@every_template
def test_a_template_has_several_wordings_and_names(name: str) -> None:
    instructions = {task.instruction for task in tasks_of(name, 12)}
    assert len(instructions) >= (8 if TEMPLATES[name].test_only else 16)


@every_template
def test_splits_share_no_instruction_and_the_text_decides_the_split(name: str) -> None:
    tasks = tasks_of(name, 12)
    refuse_overlap(tasks)
    assert all(split_of(task.instruction) == task.split for task in tasks)
    phones = {split: {phone_of(task) for task in tasks if task.split == split} for split in ("train", "tune", "test")}
    assert not phones["train"] & phones["test"]
    assert not phones["train"] & phones["tune"]


@every_template
def test_what_is_to_be_gone_is_there_at_the_start(name: str) -> None:
    for task in tasks_of(name):
        tables = start_state(task).tables
        assert all(want.id in tables[want.table] for want in wants_of(task) if want.absent), task.instruction


# --- all of them together -------------------------------------------------------------------------------------------


def test_the_suites_ask_questions_pose_impossible_tasks_and_keep_templates_for_testing() -> None:
    for templates, least in ((GENERAL, 20), (SHOPPING, 7)):
        tasks = [tasks_of(template.name)[0] for template in templates]
        assert sum(bool(answer_of(task)) for task in tasks) >= least
        assert sum(is_impossible(task) for task in tasks) >= 3
        assert sum(template.test_only for template in templates) >= 5


def test_tasks_are_of_all_lengths() -> None:
    lengths = [len(play_oracle(tasks_of(name)[0]).actions) for name in TEMPLATES]
    assert min(lengths) == 1
    assert max(lengths) <= 16
    assert median(lengths) >= 6
    assert sum(length >= 9 for length in lengths) >= 20


def test_going_home_after_the_work_is_done_undoes_nothing() -> None:
    task = tasks_of("contacts-call")[0]
    state = solved(task)
    assert verdict_on(task, replace(state, stack=state.stack[:1])).success
