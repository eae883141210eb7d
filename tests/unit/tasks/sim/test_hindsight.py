"""What a failed episode did achieve: only what is so, only what may be trained on, and always the same."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.devices.sim.apps.notes import NOTE
from distrl.devices.sim.content_pools import PEOPLE
from distrl.devices.sim.world import start_state
from distrl.tasks.base import split_of, tasks_of
from distrl.tasks.sim.hindsight import Hindsight
from distrl.tasks.sim.suites import SUITES, suite
from distrl.tasks.sim.templates import Draft, SimSuite, TemplateFn, Templates, open_app, tap
from distrl.types import Change, Finish, Showing, Task, Trajectory, Verdict
from support.sims import (
    also_made,
    answer_of,
    claiming,
    judged,
    left_on,
    setup_of,
    solution_of,
    starting,
    with_changes,
    with_record,
    with_solution,
)
from support.strays import careless, play_as, stray, strays

every_suite = pytest.mark.parametrize("name", SUITES)
ASKED = next(
    task for task in tasks_of(suite("sim-start"), "train") if task.template == "contacts-call" and not setup_of(task)
)
IDS = [f"episode-{n}" for n in range(6)]
"""The id decides what is drawn, so that one episode under several names is several chances."""


def a_suite(*functions: TemplateFn) -> SimSuite:
    templates = Templates()
    for function in functions:
        templates.add(function)
    return SimSuite("small", templates, sizes={"train": 50, "tune": 1, "test": 1})


def all_found(tasks: SimSuite, episode: Trajectory) -> list[Task]:
    hindsight = Hindsight(tasks)
    return [task for id in IDS for task in hindsight.fitting(replace(episode, id=id))]


def a_note(task: Task = ASKED) -> str:
    """The first plain note on the phone of a task."""
    return next(id for id, note in start_state(task).tables[NOTE].items() if not note["list"])


def title(task: Task, note: str) -> str:
    return str(start_state(task).tables[NOTE][note]["title"])


def read_note(asked: Task, note: str, *, then: str = "") -> Trajectory:
    """An episode that opens a note, touches something there or not, and answers with its text or just claims."""
    text = str(start_state(asked).tables[NOTE][note]["text"])
    touch = (tap(then),) if then else ()
    route = (open_app("notes"), tap(f"note:{note}"), *touch, replace(solution_of(asked)[-1], text="" if then else text))
    return stray(asked, with_solution(asked, *route))


def pin(t: Draft) -> None:
    id, note = t.row(NOTE, lambda record: not record["list"])
    t.say(*(f"{please} pin the note {note['title']}" for please in ("Do", "Please", "Kindly", "Now", "Just")))
    t.want(NOTE, id, pinned=True)
    t.route(open_app("notes"), tap(f"note:{id}"), tap("pin"))


def pin_and_look(t: Draft) -> None:
    pin(t)
    (want,) = t._wants
    t.want_showing("notes", "note", id=want.id)


def ask(t: Draft) -> None:
    id, note = t.row(NOTE, lambda record: not record["list"])
    t.say(*(f"{tell} me the note {note['title']}" for tell in ("Read", "Tell", "Give", "Recite", "Show")))
    t.want_answer(str(note["text"]))
    t.route(open_app("notes"), tap(f"note:{id}"))


def ask_about_the_open_note(t: Draft) -> None:
    ask(t)
    t.start_on("notes", "note", id=t._route.pop().target.removeprefix("note:"))
    t._route.clear()


# --- what is promised of every task ---------------------------------------------------------------------------------


@every_suite
def test_whatever_is_found_is_a_success_at_a_training_task_with_the_same_phone_and_the_same_end(name: str) -> None:
    hindsight, names = Hindsight(suite(name)), {one.name for one in suite(name).templates if not one.test_only}
    held_out = PEOPLE[len(PEOPLE) - len(PEOPLE) // 5 :]
    count = 0
    for episode in (*strays(name, 20), *careless(name, 20)):
        for task in hindsight.fitting(episode):
            count += 1
            assert judged(task, episode.end).success
            assert (task.split, split_of(task.instruction)) == ("train", "train")
            assert task.template in names
            assert not any(person in task.instruction for person in held_out)
            assert start_state(task) == start_state(episode.task)
            assert task.instruction != episode.task.instruction
            assert (task.id, task.solution) == (f"{episode.id}+hindsight", None)
    assert count >= 15


@every_suite
def test_what_the_oracle_did_on_the_side_is_mostly_found(name: str) -> None:
    hindsight, episodes = Hindsight(suite(name)), strays(name, 20)
    assert sum(any(hindsight.fitting(episode)) for episode in episodes) >= 0.7 * len(episodes)


@every_suite
def test_an_episode_always_gets_the_same_tasks(name: str) -> None:
    first, second = Hindsight(suite(name)), Hindsight(suite(name))
    for episode in strays(name, 6):
        tasks = list(first.fitting(episode))
        list(first.fitting(strays(name, 6)[0]))
        assert list(second.fitting(episode)) == list(first.fitting(episode)) == tasks


@every_suite
def test_who_does_nothing_has_achieved_nothing(name: str) -> None:
    hindsight = Hindsight(suite(name))
    for index in range(12):
        task = starting(suite(name).task("train", index), None)
        idle = play_as(task, lambda elements: Finish())
        assert list(hindsight.fitting(replace(idle, verdict=Verdict(outcome="failure")))) == []


def test_only_failures_that_claim_completion_are_looked_at() -> None:
    hindsight, episode = Hindsight(suite("sim-start")), next(iter(strays("sim-start", 20)))
    assert any(hindsight.fitting(episode))
    success = replace(episode, verdict=Verdict(outcome="success"))
    silent = replace(episode, end=replace(episode.end, claim=None))
    resigned = replace(episode, end=replace(episode.end, claim=Finish(status="impossible")))
    for other in (success, silent, resigned):
        assert not any(hindsight.fitting(other))
        assert not any(Hindsight(suite("sim-start"), flip=1.0).fitting(other))


# --- no luck is taken for a skill -----------------------------------------------------------------------------------


def test_what_was_so_before_is_no_achievement() -> None:
    note = a_note()
    pinned = with_record(ASKED, NOTE, note, pinned=True)
    episode = read_note(pinned, note, then="pin")
    assert all_found(a_suite(pin), episode) == [], "it took the pin off"
    looked = claiming(with_changes(episode), Finish())
    seen = Change(table="mail.seen", id="m1", before=None, after={"seen": True})
    assert all_found(a_suite(pin), looked) == []
    assert all_found(a_suite(pin), with_changes(looked, seen)) == []
    assert all_found(a_suite(pin), read_note(ASKED, note, then="pin")) != []


def test_what_was_so_before_is_no_part_of_an_achievement_either() -> None:
    note = a_note()

    def pin_two(t: Draft) -> None:
        titles = f"{title(ASKED, note)} and {title(ASKED, other)}"
        t.say(*(f"{please} pin the notes {titles}" for please in ("Do", "Please", "Kindly", "Now", "Just")))
        for id in (note, other):
            t.want(NOTE, id, pinned=True)
        t.route(open_app("notes"), tap(f"note:{note}"), tap("pin"))

    notes = start_state(ASKED).tables[NOTE]
    other = next(id for id, record in notes.items() if id != note and not record["list"])
    half_done = with_record(ASKED, NOTE, other, pinned=True)
    episode = read_note(half_done, note, then="pin")
    looked_about = also_made(episode, "mail.seen", "m1", seen=True)
    assert all_found(a_suite(pin_two), looked_about) == []
    assert all_found(a_suite(pin), looked_about) != []


def test_an_answer_counts_only_where_it_was_read() -> None:
    def ask_about_the_twin(t: Draft) -> None:
        there = "n-twin" in t.tables[NOTE]
        id, note = t.row(NOTE, lambda record: record["title"] == "A twin of it" if there else not record["list"])
        t.say(*(f"{tell} me the note {note['title']}" for tell in ("Read", "Tell", "Give", "Recite", "Show")))
        t.want_answer(str(note["text"]))
        t.route(open_app("notes"), tap(f"note:{id}"))

    note = a_note()
    fields = {**start_state(ASKED).tables[NOTE][note], "title": "A twin of it"}
    twins = with_record(ASKED, NOTE, "n-twin", **fields)
    assert all_found(a_suite(ask_about_the_twin), read_note(twins, "n-twin")) != []
    assert all_found(a_suite(ask_about_the_twin), read_note(twins, note)) == []


def test_questions_are_about_the_phone_as_it_was_at_the_start() -> None:
    note = a_note()
    rewritten = with_record(ASKED, NOTE, note, text="Rewritten for this task")
    found = all_found(a_suite(ask), read_note(rewritten, note))
    assert found
    assert {answer_of(task) for task in found} == {"Rewritten for this task"}


def test_what_a_task_takes_as_given_must_have_been_so() -> None:
    note = a_note()

    def ask_of_another_world(t: Draft) -> None:
        t.say(*(f"{tell} me the note {title(ASKED, note)}" for tell in ("Read", "Tell", "Give", "Recite", "Show")))
        t.given(NOTE, note, text=given)
        t.want_answer(text)
        t.route(open_app("notes"), tap(f"note:{note}"))

    text = given = str(start_state(ASKED).tables[NOTE][note]["text"])
    episode = read_note(ASKED, note)
    assert all_found(a_suite(ask_of_another_world), episode) != []
    given = "something else"
    assert all_found(a_suite(ask_of_another_world), episode) == []


def test_a_task_that_begins_on_some_screen_is_found_only_where_the_episode_began_there() -> None:
    note = a_note()
    text = str(start_state(ASKED).tables[NOTE][note]["text"])
    there = starting(ASKED, Showing(app="notes", screen="note", args={"id": note}))
    at_once = play_as(there, lambda elements: Finish(answer=text))
    assert all_found(a_suite(ask_about_the_open_note), at_once) != []
    assert all_found(a_suite(ask_about_the_open_note), read_note(ASKED, note)) == []
    assert all_found(a_suite(ask), at_once) != []


def test_a_claim_with_an_answer_is_no_success_at_what_asks_for_none() -> None:
    note = a_note()
    done = read_note(ASKED, note, then="pin")
    assert all_found(a_suite(pin), done) != []
    assert all_found(a_suite(pin), replace(done, end=replace(done.end, claim=Finish(answer="Done")))) == []


# --- which one is taken ---------------------------------------------------------------------------------------------


def test_the_most_demanding_task_comes_first() -> None:
    found = all_found(a_suite(pin, pin_and_look), read_note(ASKED, a_note(), then="pin"))
    assert [task.template for task in found] == ["pin-and-look", "pin"] * len(IDS)


def test_a_screen_is_asked_for_only_where_it_was_showing() -> None:
    episode = read_note(ASKED, a_note(), then="pin")
    away = left_on(episode, Showing(app="launcher", screen="home"))
    assert [task.template for task in all_found(a_suite(pin, pin_and_look), away)] == ["pin"] * len(IDS)


def test_tasks_beyond_the_limit_of_the_run_are_left_out() -> None:
    episode = read_note(ASKED, a_note(), then="pin")
    short, long = (Hindsight(a_suite(pin), max_oracle_steps=limit) for limit in (3, 4))
    assert not any(short.fitting(episode))
    assert any(long.fitting(episode))


def test_templates_for_test_alone_are_never_asked() -> None:
    templates = Templates()
    templates.add_for_test(pin)
    only_for_test = SimSuite("small", templates, sizes={"train": 1, "tune": 1, "test": 1})
    assert all_found(only_for_test, read_note(ASKED, a_note(), then="pin")) == []


# --- a judge that errs ----------------------------------------------------------------------------------------------


def test_a_judge_that_is_always_wrong_gives_only_tasks_that_were_not_fulfilled() -> None:
    exact, liar = Hindsight(a_suite(pin)), Hindsight(a_suite(pin), flip=1.0)
    right, wrong = read_note(ASKED, a_note(), then="pin"), read_note(ASKED, a_note())
    assert any(exact.fitting(right))
    assert not any(liar.fitting(right))
    assert not any(exact.fitting(wrong))
    (task,) = liar.fitting(wrong)
    assert not judged(task, wrong.end).success
    assert split_of(task.instruction) == "train"


def test_the_share_of_wrong_verdicts_is_as_asked_and_the_id_decides_which() -> None:
    episode = read_note(ASKED, a_note(), then="pin")
    exact, erring = Hindsight(a_suite(pin)), Hindsight(a_suite(pin), flip=0.3)
    under = [replace(episode, id=f"episode-{n}") for n in range(150)]
    found = [one for one in under if any(exact.fitting(one))]
    kept = [one for one in found if any(erring.fitting(one))]
    assert len(found) >= 140
    assert 0.55 < len(kept) / len(found) < 0.85
    assert kept == [one for one in found if any(erring.fitting(one))]
