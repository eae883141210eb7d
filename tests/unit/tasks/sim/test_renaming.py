"""Tasks under made-up names: the same thing to do, nothing to know by heart, and never a text of another split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.names import KNOWN, POOLS, OtherNames, PhoneNames, draw_number, names_in, texts_in, words_of
from distrl.devices.sim.world import content, start_state, training_words
from distrl.experience.store import ExperienceStore
from distrl.tasks.base import split_of
from distrl.tasks.sim.hindsight import Hindsight
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.renaming import playable_under_other_names, rename, rename_text, under_other_names
from distrl.tasks.sim.suites import SUITES, suite
from distrl.tasks.sim.templates import SimSuite
from distrl.types import Move, SimSetup, Task
from support.sims import answer_of, judged, names_of, phone_of, seed_of_phone, with_solution
from support.strays import drawn_on, stray, strays

every_suite = pytest.mark.parametrize("name", SUITES)
PERTURBED = PerturbationConfig(popup_rate=0.2, slow_rate=0.2, update_rate=0.2, variants=True)
MADE_UP, IN_ANOTHER_ORDER = 1030, 20 * POOLS + KNOWN
"""Numbers for words that nobody knows, and for words of training names."""
NAMED = ("sim-start", "sim-touch", "sim-general")
"""Suites whose tasks speak of people and things by name."""


def numbers(seed: int = 0) -> Callable[[], int]:
    random = Random(seed)
    return lambda: random.randrange(1, 2**40)


def some(name: str, num: int) -> Iterator[Task]:
    """Tasks from all over a suite's templates."""
    return (suite(name).task("train", index * 7) for index in range(num))


def names_on(task: Task) -> set[str]:
    return names_in(start_state(task).tables)


# --- the task -------------------------------------------------------------------------------------------------------


@every_suite
def test_the_oracle_fulfils_a_renamed_task_also_under_perturbations(name: str) -> None:
    for task, number in zip(some(name, 40), count(POOLS - 20), strict=False):
        other = rename(task, number if number % 3 else IN_ANOTHER_ORDER)
        assert play_oracle(other).verdict.success, other.instruction
        assert play_oracle(other, PERTURBED).verdict.success, other.instruction


@pytest.mark.parametrize("name", NAMED)
def test_an_instruction_speaks_of_what_is_on_the_phone(name: str) -> None:
    changed = 0
    for task, number in zip(some(name, 60), count(1), strict=False):
        other = rename(task, number)
        changed += other.instruction != task.instruction
        before, after = set(task.instruction.split()), set(other.instruction.split())
        there = {word for text in texts_in(start_state(other).tables) for word in text.split()}
        assert {word.strip(",.?") for word in after - before} <= there
    assert changed > 20


def test_no_name_of_a_phone_stays_and_all_stay_different() -> None:
    task = suite("sim-start").task("train", 0)
    own, made = names_on(task), names_on(rename(task, 5))
    assert not own & made
    # Names with digits are not told from codes and times any more.
    everyone = {str(person["name"]) for person in start_state(rename(task, 5)).tables["contacts.person"].values()}
    assert len(everyone) == len(start_state(task).tables["contacts.person"])
    assert len(own) > 100


def test_a_word_that_two_names_share_is_shared_by_the_made_up_ones_too() -> None:
    people = {name: {"name": name} for name in ("Ruth Whitman", "Noah Whitman", "Feed the cat")}
    other = OtherNames(3, PhoneNames.of({"contacts.person": people}), ())
    ruth, noah = other.of("Ruth Whitman").split(), other.of("Noah Whitman").split()
    assert ruth[1] == noah[1]
    assert ruth[0] != noah[0]
    assert [word[:1].isupper() for word in other.of("Feed the cat").split()][1:] == [False, False]


def test_a_number_stands_for_made_up_words_or_for_known_ones_in_another_order() -> None:
    task, known = suite("sim-start").task("train", 0), set(training_words())
    for number, share in ((MADE_UP, 0.0), (IN_ANOTHER_ORDER, 1.0)):
        words = [word.casefold() for name in names_on(rename(task, number)) for word in name.split()]
        assert sum(word in known for word in words) / len(words) == pytest.approx(share, abs=0.05)
    random = Random(0)
    drawn = [draw_number(random, 7) % POOLS for _ in range(200)]
    assert set(drawn) == {KNOWN, 8}
    assert 60 < drawn.count(KNOWN) < 140


def test_known_words_are_those_of_training_phones_alone() -> None:
    words = {word for phone in range(300) for word in words_of(names_in(content(phone, held_out=False)))}
    held_out = {word for phone in range(600, 620) for word in words_of(names_in(content(phone, held_out=True)))}
    assert set(training_words()) <= words
    assert len(training_words()) > 0.95 * len(words)
    assert len(held_out - words) > 40


def test_alarms_ring_at_other_times_and_only_tasks_about_them_say_so() -> None:
    task = next(task for task in some("sim-touch", 80) if " at " in task.instruction and "clock" in task.template)
    other = rename(task, MADE_UP)
    before, after = (
        {id: str(a["time"]) for id, a in start_state(one).tables["clock.alarm"].items()} for one in (task, other)
    )
    assert before.keys() == after.keys()
    assert len(set(after.values())) == len(after)
    said = {id for id, time in before.items() if time in task.instruction}
    assert {id for id, time in after.items() if time in other.instruction} == said
    elsewhere = with_solution(task, Move(verb="open", target="notes"))
    assert rename(elsewhere, MADE_UP).instruction == task.instruction != other.instruction


def test_a_task_that_was_sent_and_read_again_brings_the_same_phone_back() -> None:
    for task in some("sim-general", 10):
        other = rename(task, 77)
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(other), type=Task)
        assert read == other
        assert start_state(read, PERTURBED) == start_state(other, PERTURBED)
        assert start_state(rename(task, 78)).tables != start_state(other).tables


def test_a_phone_with_its_own_names_is_as_it_was() -> None:
    task = suite("sim-start").task("train", 3)
    bare = replace(task, setup=SimSetup(phone=phone_of(task), seed=seed_of_phone(task)))
    assert names_of(task) == 0
    assert content(phone_of(task), held_out=False).items() <= {**start_state(bare).tables}.items()


def test_of_texts_within_texts_the_longest_counts_and_words_are_taken_whole() -> None:
    others = {"Train": "Bud", "Train window": "Train window", "Ann": "Kip"}
    assert rename_text("Show Train window and Train, Annabel's", others) == "Show Train window and Bud, Annabel's"
    assert rename_text("Ann's list", others) == "Kip's list"


# --- the split ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_a_made_up_name_never_makes_a_text_of_another_split(name: str) -> None:
    draw = numbers()
    tasks = [under_other_names(task, draw) for task in some(name, 60)]
    assert {split_of(task.instruction) for task in tasks} == {"train"}
    assert sum(names_of(task) > 0 for task in tasks) > 50
    # It takes looking: a number as it comes makes such a text now and then.
    assert {split_of(rename(task, draw()).instruction) for task in some(name, 60)} != {"train"}


def test_tasks_of_other_splits_keep_their_names() -> None:
    for split in ("tune", "test"):
        task = suite("sim-start").task(split, 0)
        assert under_other_names(task, numbers()) is task


def test_a_task_that_the_oracle_loses_under_other_names_keeps_its_own() -> None:
    task = suite("sim-touch").task("train", 2)
    assert names_of(playable_under_other_names(task, numbers())) > 0
    lost = with_solution(task, Move(verb="open", target="clock"), Move(verb="tap", target="no such thing"))
    assert playable_under_other_names(lost, numbers()) is lost


# --- hindsight ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sim-start", "sim-touch"])
def test_hindsight_speaks_of_the_names_that_were_on_the_screen(name: str) -> None:
    hindsight, found = Hindsight(suite(name)), 0
    for episode in strays(name, 12, names=MADE_UP):
        own = names_in(content(phone_of(episode.task), held_out=False))
        seen = {text for step in episode.steps for e in step.observation.elements for text in (e.text, e.description)}
        for task in hindsight.fitting(episode):
            found += 1
            assert judged(task, episode.end).success
            assert start_state(task) == start_state(episode.task)
            assert names_of(task) == names_of(episode.task) > 0
            assert split_of(task.instruction) == "train"
            assert not any(text in task.instruction for text in own)
            assert any(text and text in task.instruction for text in seen)
    assert found >= 8


def test_an_answer_is_looked_up_on_the_renamed_phone() -> None:
    templates = {template.name: template for template in suite("sim-general").templates}
    asked = rename(suite("sim-touch").task("train", 2), 9)
    done = drawn_on(asked, templates["messages-ask-last"])
    assert done is not None
    episode, small = (
        stray(asked, done),
        SimSuite("small", [templates["messages-ask-last"]], sizes={"train": 50, "tune": 1, "test": 1}),
    )
    found = [task for n in range(6) for task in Hindsight(small).fitting(replace(episode, id=f"episode-{n}"))]
    assert found
    assert {answer_of(task) for task in found} == {answer_of(done)}


def test_what_was_stored_gets_the_same_hindsight_again(tmp_path: Path) -> None:
    store, episodes = ExperienceStore(tmp_path), strays("sim-start", 6, names=MADE_UP)
    for episode in episodes:
        store.add(episode)
    for episode in episodes:
        read = ExperienceStore(tmp_path).read(episode.id)
        first, again = (list(Hindsight(suite("sim-start")).fitting(one)) for one in (episode, read))
        assert first == again
