"""What one data worker draws: its demonstrations for ever, under other names where asked, always the same ones."""

from __future__ import annotations

from itertools import islice
from random import Random

from msgspec.structs import replace

from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.names import names_in
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.world import content, setup_of
from distrl.pretraining.demonstrations import demonstration_tasks
from distrl.pretraining.grounding.data_worker import BLOCK, annotated_screens, blocks, hidden_below_or_above
from distrl.pretraining.grounding.samples import block_bytes, sample_fields
from distrl.tasks.sim.oracle import SCROLL_DOWN, SCROLL_UP, play_oracle
from distrl.tasks.sim.templates import split_of
from distrl.types import Finish
from support.grounding import job, some_screens
from support.pixels import TINY


def test_blocks_have_one_size_and_a_data_worker_draws_the_same_again() -> None:
    first, again = (list(map(bytes, islice(blocks(job()), 2))) for _ in range(2))
    assert first == again
    assert {len(block) for block in first} == {block_bytes(sample_fields(TINY), BLOCK)}
    assert first[0] != first[1]


def test_every_episode_ends_with_a_claim_and_remembers_what_was_done_before() -> None:
    before = 0
    for screen in some_screens(80):
        assert len(screen.observation.recent) == min(before, 6)
        before = 0 if isinstance(screen.action, Finish) else before + 1
    assert sum(isinstance(screen.action, Finish) for screen in some_screens(80)) > 8


def test_the_share_of_phones_under_other_names_is_what_was_asked_for_and_no_text_leaves_the_training_split() -> None:
    own = {task.instruction for task in demonstration_tasks(job().config)}

    def renamed(share: float) -> float:
        drawn = list(
            islice(annotated_screens(job(warm_start__grounding__rename_share=share), Random(1), (64, 128)), 120)
        )
        assert all(split_of(screen.observation.instruction) == "train" for screen in drawn)
        return sum(screen.observation.instruction not in own for screen in drawn) / len(drawn)

    assert renamed(0.0) == 0.0
    assert 0.2 < renamed(0.5) < renamed(1.0)


def test_screens_alone_come_from_further_tasks_and_what_is_demonstrated_keeps_its_names() -> None:
    given = job(warm_start__demonstrations=4, warm_start__grounding__rename_share=1.0)
    warm_start = given.config.warm_start
    warm_start = replace(warm_start, grounding=replace(warm_start.grounding, screens_only=12))
    asked = replace(given, config=replace(given.config, warm_start=warm_start))
    four = {task.instruction for task in demonstration_tasks(asked.config)}
    further = {task.instruction for task in demonstration_tasks(asked.config, 16)} - four
    drawn = list(islice(annotated_screens(asked, Random(1), (64, 128)), 200))
    shown = {screen.observation.instruction for screen in drawn if screen.demonstrated}
    others = {screen.observation.instruction for screen in drawn if not screen.demonstrated}
    assert shown == four
    assert len(others) > 12  # renamed, another way each time
    assert not others & (four | further)


def test_people_on_a_renamed_phone_have_other_names() -> None:
    own = {
        name
        for task in demonstration_tasks(job().config)
        for name in names_in(content(setup_of(task).phone, held_out=False))
    }
    texts = [
        e.text
        for screen in some_screens(60, warm_start__grounding__rename_share=1.0)
        for e in screen.observation.elements
    ]
    plain = [
        e.text
        for screen in some_screens(60, warm_start__grounding__rename_share=0.0)
        for e in screen.observation.elements
    ]
    # Words of training names in another order make one of them now and then.
    assert sum(text in own for text in texts) < 0.05 * sum(text in own for text in plain)


def test_hidden_things_are_what_scrolling_makes_visible_and_nothing_that_is_visible_already() -> None:
    found = {SCROLL_DOWN: 0, SCROLL_UP: 0}
    for task in demonstration_tasks(job().config):
        for state in play_oracle(task).states[:-1]:
            screen = show(state)
            hidden, towards = hidden_below_or_above(screen)
            after = perform(state, screen, towards).state
            seen, then = ({e.text for e in elements_of(show(one), one.focus)} for one in (state, after))
            assert not {names[0] for names in hidden} & seen
            if hidden:
                found[towards] += 1
                assert {names[0] for names in hidden} & then
    assert min(found.values()) > 3


def test_nothing_is_hidden_where_nothing_scrolls_or_all_is_loading() -> None:
    states = [state for task in demonstration_tasks(job().config)[:6] for state in play_oracle(task).states]
    for state in states:
        assert hidden_below_or_above(show(replace(state, loading=2)))[0] == ()
        if not show(state).overflow:
            assert hidden_below_or_above(show(state))[0] == ()
