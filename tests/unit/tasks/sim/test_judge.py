"""The judge of device state: what counts as done, how far it is, and what was done besides."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from distrl.devices.sim.state import PhoneState, drop, end_state, put
from distrl.devices.sim.world import start_state
from distrl.errors import TaskError
from distrl.rollout.stepping import drive
from distrl.tasks.judges import Attempt, Judge, judge_attempt
from distrl.tasks.sim.judge import SimJudge, same
from distrl.types import (
    AndroidEnd,
    Check,
    CustomCheck,
    CustomSetup,
    DeviceEnd,
    Ending,
    EndState,
    Finish,
    RewardCheck,
    Showing,
    SimCheck,
    Task,
    Value,
    Verdict,
    Want,
)
from support.sims import Finger, sim_task, verdict_on, wanting

TASK = sim_task("notes")
START = start_state(TASK)
NOTE = "notes.note"
ONE, OTHER = list(START.tables[NOTE])[:2]
ONE_CALLED, OTHER_CALLED = (f"('{START.tables[NOTE][id]['title']}')" for id in (ONE, OTHER))
DONE = Finish()


def pinned(id: str) -> Want:
    return Want(table=NOTE, id=id, fields={"pinned": True})


# --- equality -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("Tea", "tea", True),
        ("  two   words ", "Two Words", True),
        ("tea", "teas", False),
        ("", "tea", False),
        (3, 3, True),
        (3, "3", False),
        (True, True, True),
        (True, False, False),
        (None, "tea", False),
        (2.5, 2.5, True),
    ],
)
def test_texts_are_equal_but_for_case_and_spaces_and_other_values_exactly(
    left: Value | None, right: Value, equal: bool
) -> None:
    assert same(left, right) is equal


# --- records --------------------------------------------------------------------------------------------------------


def test_a_record_that_holds_the_values_is_a_success() -> None:
    task = wanting(TASK, pinned(ONE))
    verdict = verdict_on(task, put(START, NOTE, ONE, pinned=True), DONE)
    assert verdict.success
    assert (verdict.progress, verdict.side_effects, verdict.false_completion) == (1.0, (), False)


def test_other_fields_of_that_record_must_stay() -> None:
    task = wanting(TASK, pinned(ONE))
    verdict = verdict_on(task, put(START, NOTE, ONE, pinned=True, title="Changed", text="Changed"), DONE)
    assert not verdict.success
    assert verdict.side_effects == (
        f"{NOTE}/{ONE}.text {ONE_CALLED} changed",
        f"{NOTE}/{ONE}.title {ONE_CALLED} changed",
    )
    assert verdict.progress == 1.0


def test_the_wrong_record_is_a_side_effect() -> None:
    verdict = verdict_on(wanting(TASK, pinned(ONE)), put(START, NOTE, OTHER, pinned=True), DONE)
    assert not verdict.success
    assert verdict.progress == 0.0
    assert verdict.side_effects == (f"{NOTE}/{OTHER} {OTHER_CALLED} changed",)


def test_a_half_done_record_is_no_side_effect_but_no_success_either() -> None:
    task = wanting(TASK, Want(table=NOTE, id=ONE, fields={"pinned": True, "title": "Tea"}))
    verdict = verdict_on(task, put(START, NOTE, ONE, pinned=True), DONE)
    assert (verdict.success, verdict.side_effects) == (False, ())


def test_a_record_without_an_id_is_one_that_the_agent_made_or_changed() -> None:
    task = wanting(TASK, Want(table=NOTE, fields={"title": "Tea"}))
    made = put(START, NOTE, "new", title="tea", text="", pinned=False, list=False)
    assert verdict_on(task, made, DONE).success
    assert verdict_on(task, put(START, NOTE, ONE, title="Tea"), DONE).success
    assert not verdict_on(wanting(TASK, Want(table=NOTE, fields={"pinned": False})), START, DONE).success


def test_two_wants_need_two_records() -> None:
    want = Want(table="messages.sent", fields={"text": "hello"})
    task = wanting(TASK, want, want)
    once = put(START, "messages.sent", "s1", to="Ruth", text="hello")
    assert verdict_on(task, once, DONE).progress == 0.5
    twice = put(once, "messages.sent", "s2", to="Noah", text="hello")
    assert verdict_on(task, twice, DONE).success


def test_a_record_that_was_made_beyond_those_asked_for_is_a_side_effect() -> None:
    task = wanting(TASK, Want(table="messages.sent", fields={"text": "hello"}))
    state = put(put(START, "messages.sent", "s1", to="Ruth", text="hello"), "messages.sent", "s2", to="x", text="bye")
    assert verdict_on(task, state, DONE).side_effects == ("messages.sent/s2 ('x') was made",)


def test_a_record_is_to_be_gone() -> None:
    task = wanting(TASK, Want(table=NOTE, id=ONE, absent=True))
    assert verdict_on(task, drop(START, NOTE, ONE), DONE).success
    assert not verdict_on(task, START, DONE).success
    more = drop(drop(START, NOTE, ONE), NOTE, OTHER)
    assert verdict_on(task, more, DONE).side_effects == (f"{NOTE}/{OTHER} {OTHER_CALLED} is gone",)


def test_progress_is_the_share_of_conditions_that_hold() -> None:
    task = wanting(TASK, pinned(ONE), pinned(OTHER), showing=Showing(app="notes", screen="home"), answer="tea")
    assert verdict_on(task, START).progress == 0.25, "the screen"
    state = put(START, NOTE, ONE, pinned=True)
    assert verdict_on(task, state).progress == 0.5
    assert verdict_on(task, state, Finish(answer="tea")).progress == 0.75
    assert verdict_on(task, put(state, NOTE, OTHER, pinned=True), Finish(answer="tea")).success


def test_a_change_that_was_undone_is_none() -> None:
    state = put(put(START, NOTE, OTHER, pinned=True), NOTE, OTHER, pinned=False)
    assert verdict_on(wanting(TASK, pinned(ONE)), state).side_effects == ()


def test_tables_that_change_by_mere_use_are_overlooked() -> None:
    state = put(put(START, NOTE, ONE, pinned=True), "mail.seen", "m0", seen=True)
    assert verdict_on(wanting(TASK, pinned(ONE)), state, DONE).success


def test_a_task_may_ask_for_something_in_such_a_table() -> None:
    task = wanting(TASK, Want(table="files.pref", id="sort", fields={"by": "size"}))
    assert verdict_on(task, put(START, "files.pref", "sort", by="size"), DONE).success
    assert not verdict_on(task, put(START, "files.pref", "sort", by="name"), DONE).success


# --- screens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (Showing(app="notes", screen="note", args={"id": ONE}), True),
        (Showing(app="notes", screen="note"), True),
        (Showing(app="notes", screen=""), True),
        (Showing(app="notes", screen="note", args={"id": OTHER}), False),
        (Showing(app="notes", screen="home"), False),
        (Showing(app="mail", screen=""), False),
    ],
)
def test_a_screen_is_judged_by_app_screen_and_the_arguments_that_are_named(wanted: Showing, shown: bool) -> None:
    finger = Finger(state=START).tap(f"note:{ONE}")
    assert verdict_on(wanting(TASK, showing=wanted), finger.state, DONE).success is shown


def test_arguments_are_compared_like_texts() -> None:
    finger = Finger("browser", "search", query="Warm  SOCKS")
    task = wanting(sim_task("browser"), showing=Showing(app="browser", screen="search", args={"query": "warm socks"}))
    assert verdict_on(task, finger.state, DONE).success


# --- claims ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "success", "false_completion"),
    [(None, False, False), (Finish(), True, False), (Finish("impossible"), False, False)],
)
def test_what_is_done_must_be_claimed(claim: Finish | None, success: bool, false_completion: bool) -> None:
    verdict = verdict_on(wanting(TASK, pinned(ONE)), put(START, NOTE, ONE, pinned=True), claim)
    assert (verdict.success, verdict.false_completion) == (success, false_completion)


@pytest.mark.parametrize(
    ("claim", "success", "false_completion"),
    [(None, False, False), (Finish(), False, True), (Finish("impossible"), True, False)],
)
def test_what_cannot_be_done_must_be_said(claim: Finish | None, success: bool, false_completion: bool) -> None:
    verdict = verdict_on(wanting(TASK, impossible=True), START, claim)
    assert (verdict.success, verdict.false_completion) == (success, false_completion)
    assert verdict.progress == float(success)


def test_an_impossible_task_leaves_everything_as_it_was() -> None:
    state = put(START, NOTE, ONE, pinned=True)
    verdict = verdict_on(wanting(TASK, impossible=True), state, Finish("impossible"))
    assert (verdict.success, verdict.side_effects) == (False, (f"{NOTE}/{ONE} {ONE_CALLED} changed",))


def test_a_claim_of_completion_with_something_missing_is_false() -> None:
    verdict = verdict_on(wanting(TASK, pinned(ONE), pinned(OTHER)), put(START, NOTE, ONE, pinned=True), DONE)
    assert (verdict.success, verdict.false_completion, verdict.progress) == (False, True, 0.5)


@pytest.mark.parametrize(("answer", "right"), [("Tea", True), (" TEA", True), ("", False), ("tea please", False)])
def test_an_answer_is_the_whole_answer(answer: str, right: bool) -> None:
    assert verdict_on(wanting(TASK, answer="tea"), START, Finish(answer=answer)).success is right


def test_the_path_makes_no_difference() -> None:
    task = wanting(TASK, pinned(ONE))
    straight = Finger(state=START).tap(f"note:{ONE}", "pin")
    winding = Finger(state=START).tap("new").back().tap(f"note:{OTHER}").back().type("search", "x").back()
    winding.open("mail").open("notes").tap(f"note:{ONE}", "pin", "pin", "pin").home()
    assert verdict_on(task, straight.state, DONE) == verdict_on(task, winding.state, DONE)
    assert verdict_on(task, winding.state, DONE).success


# --- the judge of a run -----------------------------------------------------------------------------------------------


def attempt_at(task: Task, state: PhoneState, claim: Finish | None = DONE) -> Attempt:
    """An attempt that left the phone of `task` in this state."""
    end = EndState(claim=claim, device=end_state(start_state(task), state))
    return Attempt(task=task, end=end, ending=Ending.FINISHED if claim else Ending.STEP_LIMIT)


def test_it_is_a_judge_that_agrees_with_the_function_behind_it() -> None:
    task, state = wanting(TASK, pinned(ONE)), put(START, NOTE, ONE, pinned=True)
    judge: Judge = SimJudge()
    assert drive(judge.judge(attempt_at(task, state))) == verdict_on(task, state, DONE)


MADE = put(put(START, "messages.sent", "s1", to="Ruth", text="hi"), NOTE, OTHER, pinned=True)


@pytest.mark.parametrize(
    ("task", "state", "claim", "reason"),
    [
        (wanting(TASK, pinned(ONE)), put(START, NOTE, ONE, pinned=True), DONE, ""),
        (
            wanting(TASK, pinned(ONE), pinned(OTHER)),
            START,
            DONE,
            f"2 of 2 conditions do not hold: {NOTE} '{ONE}' {ONE_CALLED} should have pinned 'True'",
        ),
        (
            wanting(TASK, pinned(ONE), pinned(OTHER), answer="tea"),
            put(START, NOTE, ONE, pinned=True),
            Finish(answer="tea"),
            f"1 of 3 conditions do not hold: {NOTE} '{OTHER}' {OTHER_CALLED} should have pinned 'True'",
        ),
        (
            wanting(TASK, Want(table=NOTE, id=ONE, absent=True)),
            START,
            DONE,
            f"{NOTE} '{ONE}' {ONE_CALLED} should be gone",
        ),
        (
            wanting(TASK, Want(table="messages.sent", fields={"to": "Ruth", "text": "hi"})),
            START,
            DONE,
            "there should be a messages.sent with to 'Ruth', text 'hi'",
        ),
        (
            wanting(TASK, answer="tea"),
            START,
            Finish(answer="milk"),
            "the answer should be 'tea' and is 'milk'",
        ),
        (
            wanting(TASK, answer="tea"),
            START,
            None,
            "the answer should be 'tea' and there is none",
        ),
        (
            wanting(TASK, showing=Showing(app="mail", screen="inbox")),
            START,
            DONE,
            "the screen 'inbox' of mail should be shown",
        ),
        (
            wanting(TASK, pinned(ONE)),
            MADE,
            DONE,
            f"changed what nobody asked for: messages.sent/s1 ('Ruth') was made, {NOTE}/{OTHER} {OTHER_CALLED} changed",
        ),
        (
            wanting(TASK, pinned(ONE)),
            put(START, NOTE, ONE, pinned=True),
            None,
            "all conditions hold, but the agent should have claimed 'complete' and claimed nothing",
        ),
        (
            wanting(TASK, pinned(ONE)),
            put(START, NOTE, ONE, pinned=True),
            Finish("impossible"),
            "all conditions hold, but the agent should have claimed 'complete' and claimed impossible",
        ),
        (
            wanting(TASK, impossible=True),
            START,
            DONE,
            "all conditions hold, but the agent should have claimed 'impossible' and claimed complete",
        ),
    ],
    ids=[
        "success",
        "nothing done",
        "half done",
        "not gone",
        "not made",
        "wrong answer",
        "no answer",
        "not shown",
        "side effects",
        "no claim",
        "resigned",
        "not resigned",
    ],
)
def test_a_failure_has_its_reason_and_a_success_none(
    task: Task, state: PhoneState, claim: Finish | None, reason: str
) -> None:
    verdict = drive(SimJudge().judge(attempt_at(task, state, claim)))
    assert (verdict.outcome, verdict.reason) == ("failure" if reason else "success", reason)


def test_of_many_side_effects_three_are_named_in_the_reason_and_all_in_the_verdict() -> None:
    state = START
    for number in range(5):
        state = put(state, "messages.sent", f"s{number}", to="Ruth", text="hi")
    verdict = drive(SimJudge().judge(attempt_at(wanting(TASK, pinned(ONE)), state)))
    assert len(verdict.side_effects) == 5
    assert verdict.reason.count("was made") == 3


@pytest.mark.parametrize("device", [None, AndroidEnd()], ids=["nothing", "that of another phone"])
@pytest.mark.parametrize(
    ("task", "claim"),
    [
        (wanting(TASK, pinned(ONE)), DONE),
        (wanting(TASK, pinned(ONE)), None),
        (wanting(TASK, impossible=True), Finish("impossible")),
    ],
    ids=["claimed", "cut", "impossible"],
)
def test_where_the_phone_did_not_tell_how_it_was_left_the_outcome_is_unknown(
    task: Task, claim: Finish | None, device: DeviceEnd | None
) -> None:
    ending = Ending.FINISHED if claim else Ending.TIME_LIMIT
    attempt = Attempt(task=task, end=EndState(claim=claim, device=device), ending=ending)
    verdict = drive(SimJudge().judge(attempt))
    assert verdict == Verdict(outcome="unknown", reason="the phone did not tell how it was left")


@pytest.mark.parametrize("check", [RewardCheck(), CustomCheck(values={"page": "thanks"})], ids=["reward", "custom"])
def test_a_task_with_a_check_of_another_judge_is_refused_and_the_verdict_unknown(check: Check) -> None:
    attempt = attempt_at(replace(TASK, check=check), START)
    with pytest.raises(TaskError, match=f"has a {type(check).__name__}"):
        drive(SimJudge().judge(attempt))
    verdict = asyncio.run(judge_attempt(SimJudge(), attempt, deadline_s=10.0))
    assert not verdict.known
    assert type(check).__name__ in verdict.reason


def test_a_task_set_up_for_another_device_is_refused() -> None:
    with pytest.raises(TaskError, match="set up by CustomSetup"):
        drive(SimJudge().judge(replace(attempt_at(TASK, START), task=replace(TASK, setup=CustomSetup()))))


# --- checks -----------------------------------------------------------------------------------------------------------


def test_a_check_without_content_is_refused() -> None:
    with pytest.raises(
        TaskError, match="a SimCheck without wants, showing, answer and impossible has nothing to check"
    ):
        SimCheck()
    with pytest.raises(TaskError, match="a CustomCheck without values has nothing to check"):
        CustomCheck(values={})


def test_a_condition_that_every_phone_fulfils_is_refused() -> None:
    with pytest.raises(TaskError, match="a Want on the table 'alarms' without id, fields and absent has nothing to ch"):
        Want(table="alarms")
    with pytest.raises((TaskError, msgspec.ValidationError), match="nothing to check"):
        msgspec.json.decode(b'{"table":"alarms"}', type=Want)
    for some in ({"id": "1"}, {"fields": {"on": True}}, {"absent": True}):
        Want(table="alarms", **some)


def test_a_check_without_content_cannot_come_from_a_file_either() -> None:
    whole = msgspec.json.encode(wanting(TASK, impossible=True))
    empty = whole.replace(b'"impossible":true', b'"impossible":false')
    assert msgspec.json.decode(whole, type=Task) == wanting(TASK, impossible=True)
    assert empty != whole
    with pytest.raises((TaskError, msgspec.ValidationError), match="nothing to check"):
        msgspec.json.decode(empty, type=Task)


@pytest.mark.parametrize(
    "check",
    [
        SimCheck(wants=(pinned(ONE),)),
        SimCheck(showing=Showing(app="notes")),
        SimCheck(answer="tea"),
        SimCheck(impossible=True),
    ],
    ids=["wants", "showing", "answer", "impossible"],
)
def test_any_one_condition_is_enough_and_survives_the_wire(check: SimCheck) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(check), type=SimCheck) == check
