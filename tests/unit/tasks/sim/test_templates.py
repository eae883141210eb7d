"""How templates become tasks: drafts, suites with disjoint splits, and what several templates share."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from distrl.config.schema import TasksConfig
from distrl.devices.sim.world import content
from distrl.errors import ConfigError, TaskError
from distrl.tasks.base import (
    SPLITS,
    RelabelsEpisodes,
    RenamesTasks,
    Suite,
    find_task,
    refuse_overlap,
    split_of,
    tasks_of,
)
from distrl.tasks.base import find_suite as suite_of
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES
from distrl.tasks.sim.suites import suite as find_suite
from distrl.tasks.sim.templates import (
    PHONES,
    Draft,
    NoInstance,
    SimSuite,
    TemplateFn,
    Templates,
    column,
    enter,
    go_back,
    go_home,
    hold,
    open_app,
    seed_of,
    spoken_time,
    tap,
    type_in,
    unused,
)
from distrl.types import Move, Put, Showing, Split, Want
from support.sims import (
    answer_of,
    finished_draft,
    is_impossible,
    names_of,
    page_of,
    phone_of,
    seed_of_phone,
    setup_of,
    solution_of,
    start_of,
    wants_of,
)
from support.strays import strays

SIZES: dict[Split, int] = {"train": 40, "tune": 10, "test": 20}
POOL = tuple(f"name {number}" for number in range(20))


def a_draft(split: Split = "train", seed: int = 5) -> Draft:
    return Draft(3, seed, split)


def whole(t: Draft) -> Draft:
    """A draft that lacks nothing."""
    t.say("Pin the note")
    t.want("notes.note", "n1", pinned=True)
    t.route(open_app("notes"), tap("note:n1"), tap("pin"))
    return t


def counting(name: str, words: int = 60) -> TemplateFn:
    """A template that says one of many things."""

    def fill(t: Draft) -> None:
        t.say(f"Count to {t.random.randrange(words)}")
        t.cannot_be_done()

    fill.__name__ = name
    return fill


def a_suite(*functions: TemplateFn, test_only: tuple[TemplateFn, ...] = ()) -> SimSuite:
    templates = Templates()
    for function in functions:
        templates.add(function)
    for function in test_only:
        templates.add_for_test(function)
    return SimSuite("small", templates, sizes=SIZES)


# --- drafts ---------------------------------------------------------------------------------------------------------


def test_a_draft_becomes_a_task_with_all_that_was_said() -> None:
    t = whole(a_draft())
    t.given("notes.note", "n1", pinned=False)
    t.without("notes.note", "n2")
    t.start_on("notes", "note", id="n1")
    t.want_gone("notes.note", "n3")
    t.want_showing("notes", "home")
    task = finished_draft(t, "pin-a-note")
    assert (task.id, task.template, task.split, task.instruction) == (
        "by-hand/train/00000",
        "pin-a-note",
        "train",
        "Pin the note",
    )
    assert (phone_of(task), seed_of_phone(task)) == (3, 5)
    assert setup_of(task) == (
        Put(table="notes.note", id="n1", fields={"pinned": False}),
        Put(table="notes.note", id="n2"),
    )
    assert start_of(task) == ("notes", "note")
    assert wants_of(task) == (
        Want(table="notes.note", id="n1", fields={"pinned": True}),
        Want(table="notes.note", id="n3", absent=True),
    )
    assert page_of(task) == Showing(app="notes", screen="home")


def test_the_closing_claim_is_added_and_the_limit_leaves_room() -> None:
    task = finished_draft(whole(a_draft()))
    assert solution_of(task)[-1] == Move(verb="finish", target="complete")
    assert task.max_steps == 2 * 4 + 6


def test_a_question_ends_with_its_answer() -> None:
    t = a_draft()
    t.say("What does it say?")
    t.want_answer("tea")
    task = finished_draft(t)
    assert answer_of(task) == "tea"
    assert solution_of(task) == (Move(verb="finish", target="complete", text="tea"),)


def test_what_cannot_be_done_ends_with_saying_so() -> None:
    t = a_draft()
    t.say("Call the moon")
    t.cannot_be_done()
    task = finished_draft(t)
    assert is_impossible(task)
    assert solution_of(task)[-1].target == "impossible"


@pytest.mark.parametrize(
    ("fill", "complaint"),
    [
        (lambda t: t.want("notes.note", "n1", pinned=True), "says nothing"),
        (lambda t: t.say("Hello"), "has nothing to judge"),
        (lambda t: (t.say("Pin it"), t.want("notes.note", "n1", pinned=True)), "has no oracle"),
        (lambda t: (t.say("Show it"), t.want_showing("notes")), "has no oracle"),
    ],
)
def test_a_draft_that_is_not_whole_is_refused_with_what_it_lacks(fill, complaint: str) -> None:
    t = a_draft()
    fill(t)
    with pytest.raises(TaskError, match=complaint) as caught:
        finished_draft(t, "half")
    assert "template half of by-hand" in str(caught.value)
    assert "t." in caught.value.fix


def test_a_draft_sees_what_its_phone_holds() -> None:
    assert a_draft().tables == content(3, held_out=False)
    assert a_draft("test").tables == content(3, held_out=True)


def test_the_same_seed_draws_the_same() -> None:
    one, other = a_draft(), a_draft()
    assert [one.choose(POOL) for _ in range(5)] == [other.choose(POOL) for _ in range(5)]
    assert one.one_of("a", "b", "c") == other.one_of("a", "b", "c")
    assert one.row("notes.note") == other.row("notes.note")


def test_names_of_the_last_fifth_are_for_test_tasks() -> None:
    drawn = {split: {a_draft(split, seed).choose(POOL) for seed in range(150)} for split in SPLITS}
    assert drawn["train"] == drawn["tune"] == set(POOL[:16])
    assert drawn["test"] == set(POOL)


def test_a_row_fits_or_there_is_no_instance() -> None:
    id, note = a_draft().row("notes.note", lambda record: bool(record["list"]))
    assert note["list"] is True
    assert id.startswith("l")
    with pytest.raises(NoInstance, match=r"no fitting record in notes\.note"):
        a_draft().row("notes.note", lambda record: False)


@pytest.mark.parametrize(
    ("fill", "seen", "expected"),
    [
        (lambda t: t.row("messages.chat"), "no table 'messages.chat'", "one of messages."),
        (
            lambda t: t.want("messages.threads", "n1", pinned=True),
            "no table 'messages.threads'",
            "one of messages.thread",
        ),
        (
            lambda t: t.given("messages.threads", "n1", muted=True),
            "no table 'messages.threads'",
            "one of messages.thread",
        ),
        (lambda t: t.without("notes.notes", "n1"), "no table 'notes.notes'", "one of notes.note"),
        (lambda t: t.want_gone("notes.notes", "n1"), "no table 'notes.notes'", "one of notes.note"),
        (lambda t: column(t, "notes.note", "titel"), "notes.note has no field 'titel'", "one of title"),
        (lambda t: t.want("notes.note", "n1", pined=True), "notes.note has no field 'pined'", "one of pinned"),
        (
            lambda t: t.given("messages.thread", "n1", muetd=True),
            "messages.thread has no field 'muetd'",
            "one of muted",
        ),
        (lambda t: t.want("notes.note", "n1", pinned="yes"), "notes.note: pinned = 'yes' is of type str", "bool"),
        (lambda t: t.want("clock.timer", "timer", minutes=True), "minutes = True is of type bool", "int"),
        (lambda t: t.route(open_app("message")), "no app is called 'message'", "one of messages"),
        (lambda t: t.start_on("notes", "nota"), "notes has no screen 'nota'", "one of note"),
        (lambda t: t.want_showing("note"), "no app is called 'note'", "one of notes"),
    ],
)
def test_a_name_that_no_phone_knows_is_refused_at_once_with_template_and_line(fill, seen: str, expected: str) -> None:
    fill.__name__ = "chat_pin"
    with pytest.raises(TaskError) as caught:
        a_suite(fill, counting("count")).task("train", 0)
    assert caught.value.seen.startswith("template chat-pin of small: ")
    assert seen in caught.value.seen
    assert "test_templates.py:" in caught.value.seen
    assert caught.value.expected.startswith(expected)


def test_a_whole_number_fits_a_field_of_numbers() -> None:
    a_draft().want("kiosko.product", "p1", rating=4)


def test_a_template_that_no_phone_can_pose_is_named() -> None:
    def chat_pin(t: Draft) -> None:
        t.row("messages.thread", lambda record: record["pinned"] == "yes")

    a_suite(counting("count")).refuse_unposable()
    with pytest.raises(
        TaskError, match=r"no phone can pose chat-pin of small in the train split: .* in messages\.thread"
    ):
        a_suite(counting("count"), chat_pin).refuse_unposable()
    with pytest.raises(TaskError, match="in the test split"):
        a_suite(counting("count"), test_only=(chat_pin,)).refuse_unposable()


@pytest.mark.parametrize("name", SUITES)
def test_phones_can_pose_every_template_of_the_built_in_suites(name: str) -> None:
    SUITES[name].refuse_unposable()


def test_one_of_several_wordings_is_drawn() -> None:
    said = set()
    for seed in range(40):
        t = a_draft(seed=seed)
        t.say("one", "two", "three")
        t.cannot_be_done()
        said.add(finished_draft(t).instruction)
    assert said == {"one", "two", "three"}


# --- what templates share -------------------------------------------------------------------------------------------


def test_an_unused_entry_is_new_to_the_phone() -> None:
    drawn = a_draft().choose(POOL)
    assert unused(a_draft(), POOL, [entry for entry in POOL if entry != drawn]) == drawn
    with pytest.raises(NoInstance, match="already"):
        unused(a_draft(), POOL, POOL)


def test_a_column_lists_one_field_of_all_records() -> None:
    t = a_draft()
    assert column(t, "notes.note", "title") == [note["title"] for note in t.tables["notes.note"].values()]


@pytest.mark.parametrize(
    ("time", "spoken"),
    [("14:30", "2:30 pm"), ("00:05", "12:05 am"), ("12:00", "12"), ("09:00", "9"), ("23:45", "11:45 pm")],
)
def test_a_time_is_said_in_two_ways(time: str, spoken: str) -> None:
    said = {spoken_time(a_draft(seed=seed), time) for seed in range(40)}
    assert time in said
    assert any(spoken in way for way in said), said


def test_moves_name_what_they_are_about() -> None:
    assert open_app("notes") == Move(verb="open", target="notes")
    assert tap("pin") == Move(verb="tap", target="pin")
    assert hold("row") == Move(verb="hold", target="row")
    assert type_in("q", "tea") == Move(verb="type", target="q", text="tea")
    assert [move.verb for move in (enter(), go_back(), go_home())] == ["enter", "back", "home"]


# --- suites ---------------------------------------------------------------------------------------------------------


def test_a_task_is_always_the_same() -> None:
    one, other = a_suite(counting("count")), a_suite(counting("count"))
    for split in SPLITS:
        assert list(tasks_of(one, split)) == list(tasks_of(other, split))


def test_a_suite_has_as_many_tasks_as_it_says() -> None:
    suite = a_suite(counting("count"))
    assert {split: len(list(tasks_of(suite, split))) for split in SPLITS} == SIZES
    assert len(list(tasks_of(suite, "train", 7))) == 7
    assert len(list(tasks_of(suite, "tune", 999))) == 10


def test_templates_take_turns() -> None:
    suite = a_suite(counting("one", 500), counting("two", 500))
    count = Counter(task.template for task in tasks_of(suite, "train"))
    assert count == {"one": 20, "two": 20}


def test_templates_for_testing_are_in_no_other_split() -> None:
    suite = a_suite(counting("open"), test_only=(counting("held-out"),))
    assert {task.template for split in ("train", "tune") for task in tasks_of(suite, split)} == {"open"}
    assert {task.template for task in tasks_of(suite, "test")} == {"open", "held-out"}


def test_splits_draw_from_different_phones() -> None:
    suite = a_suite(counting("count"))
    for number, split in enumerate(SPLITS):
        assert all(number * PHONES <= phone_of(task) < (number + 1) * PHONES for task in tasks_of(suite, split))


def test_the_text_alone_decides_the_split() -> None:
    shares = Counter(split_of(f"Do thing number {number}") for number in range(4000))
    assert {split: round(shares[split] / 4000, 1) for split in SPLITS} == {"train": 0.7, "tune": 0.1, "test": 0.2}
    assert split_of("Do This") == split_of("do this")
    for task in tasks_of(a_suite(counting("count")), "tune"):
        assert split_of(task.instruction) == "tune"


def test_an_instruction_in_two_splits_is_refused() -> None:
    task = finished_draft(whole(a_draft("train")))
    other = finished_draft(whole(a_draft("test")))
    refuse_overlap([task, task])
    with pytest.raises(TaskError, match="is in the train split and in the test split"):
        refuse_overlap([task, other])


def test_two_templates_of_one_name_are_refused() -> None:
    with pytest.raises(TaskError, match="two templates called count"):
        a_suite(counting("count"), counting("count"))


def test_a_template_that_this_phone_cannot_pose_leaves_its_turn_to_another() -> None:
    def never(t: Draft) -> None:
        raise NoInstance("not here")

    suite = a_suite(never, counting("count"))
    assert {task.template for task in tasks_of(suite, "train", 6)} == {"count"}
    with pytest.raises(TaskError, match="no instruction of small falls into the train split"):
        a_suite(never).task("train", 0)


@pytest.mark.parametrize("index", [-1, 40, 999])
def test_a_number_that_no_task_has_is_refused(index: int) -> None:
    with pytest.raises(TaskError, match=f"no train task {index}") as caught:
        a_suite(counting("count")).task("train", index)
    assert "0 to 39" in str(caught.value)


def test_a_task_is_found_by_its_id() -> None:
    suite = a_suite(counting("count"))
    task = suite.task("tune", 3)
    assert find_task(suite, "small/tune/3") == find_task(suite, task.id) == task


@pytest.mark.parametrize("id", ["", "small", "small/train", "small/dev/3", "small/train/x", "small/train/-1"])
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(TaskError, match="no task is called"):
        find_task(a_suite(counting("count")), id)


def test_a_task_of_another_suite_is_not_found() -> None:
    with pytest.raises(TaskError, match="no task is called 'large/tune/3'") as caught:
        find_task(a_suite(counting("count")), "large/tune/3")
    assert caught.value.fix == "distrl tasks list --suite small"


def test_a_number_beyond_the_split_is_found_out_with_the_last_one() -> None:
    with pytest.raises(TaskError, match="small has no tune task 10") as caught:
        find_task(a_suite(counting("count")), "small/tune/10")
    assert caught.value.fix == "distrl tasks show small/tune/00009"


# --- as any other suite ---------------------------------------------------------------------------------------------


def test_a_suite_of_simulated_phones_is_a_suite_that_relabels_and_renames() -> None:
    for found in SUITES.values():
        assert isinstance(found, Suite)
        assert isinstance(found, RelabelsEpisodes)
        assert isinstance(found, RenamesTasks)


@pytest.mark.parametrize("name", SUITES)
def test_a_configuration_finds_every_suite_by_its_name(name: str) -> None:
    assert suite_of(TasksConfig(suite=name)) is SUITES[name]
    assert {split: SUITES[name].size(split) for split in SPLITS} == {"train": 6000, "tune": 400, "test": 600}


def test_a_suite_that_no_configuration_knows_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="sim-genral") as caught:
        suite_of(TasksConfig(suite="sim-genral"))
    assert "sim-general" in str(caught.value)


def test_the_size_of_a_split_is_what_can_be_drawn() -> None:
    suite: Suite = a_suite(counting("count"))
    for split, size in SIZES.items():
        assert suite.size(split) == size
        assert suite.task(split, size - 1).id == f"small/{split}/{size - 1:05d}"
        with pytest.raises(TaskError, match=f"no {split} task {size}"):
            suite.task(split, size)


def test_hindsight_of_a_suite_finds_its_own_tasks_within_the_limit() -> None:
    start = SUITES["sim-start"]
    fitting, none = (start.hindsight(max_oracle_steps=limit, flip=0.0) for limit in (0, 1))
    found = [task for episode in strays("sim-start", 12) for task in fitting(episode)]
    assert found
    assert {task.template for task in found} <= {template.name for template in start.templates}
    assert {task.split for task in found} == {"train"}
    assert not [task for episode in strays("sim-start", 12) for task in none(episode)]


def test_a_renamed_task_is_the_same_task_under_other_names_as_the_random_numbers_say() -> None:
    start = SUITES["sim-start"]
    for task in tasks_of(start, "train", 8):
        renamed = start.rename(task, Random(5), 40)
        assert renamed == start.rename(task, Random(5), 40)
        assert (renamed.template, renamed.split) == (task.template, task.split)
        assert renamed.id == f"{task.id}+{names_of(renamed)}"
        assert play_oracle(renamed).verdict.success
    assert start.rename(task, Random(5), 40) != start.rename(task, Random(6), 40)


def test_a_test_task_keeps_its_names() -> None:
    task = SUITES["sim-start"].task("test", 0)
    assert SUITES["sim-start"].rename(task, Random(5), 40) == task


def test_names_of_functions_become_names_of_templates() -> None:
    templates = Templates()
    templates.add(counting("count_to_ten"))
    templates.add_for_test(counting("count_on"))
    assert [(template.name, template.test_only) for template in templates] == [
        ("count-to-ten", False),
        ("count-on", True),
    ]


def test_a_suite_is_found_by_name_or_the_closest_one_is_named() -> None:
    assert find_suite("sim-general") is SUITES["sim-general"]
    with pytest.raises(TaskError, match="unknown suite 'sim-genral'") as caught:
        find_suite("sim-genral")
    assert "sim-general" in str(caught.value)


def test_seeds_depend_on_all_parts() -> None:
    assert seed_of("a", 1) == seed_of("a", 1)
    assert len({seed_of("a", 1), seed_of("a", 2), seed_of("b", 1), seed_of(1, "a")}) == 4
    assert seed_of() >= 0
