"""What one process draws: its demonstrations for ever, under other names where asked, always the same ones."""

from __future__ import annotations

from itertools import islice
from random import Random

from msgspec.structs import replace

from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.names import names_in
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.world import content
from distrl.pretraining.demonstrations import demonstration_tasks
from distrl.pretraining.grounding.data_worker import BLOCK, blocks, out_of_sight, pages
from distrl.pretraining.grounding.samples import block_bytes
from distrl.tasks.sim.oracle import SCROLL_DOWN, SCROLL_UP, play_oracle
from distrl.tasks.sim.templates import split_of
from distrl.types import Finish
from support.pages import order, some_pages
from support.pixels import TINY


def test_blocks_have_one_size_and_a_process_draws_the_same_again() -> None:
    first, again = (list(map(bytes, islice(blocks(order()), 2))) for _ in range(2))
    assert first == again
    assert {len(block) for block in first} == {block_bytes(TINY, BLOCK)}
    assert first[0] != first[1]


def test_every_episode_ends_with_a_claim_and_remembers_what_was_done_before() -> None:
    before = 0
    for page in some_pages(80):
        assert len(page.observation.recent) == min(before, 6)
        before = 0 if isinstance(page.action, Finish) else before + 1
    assert sum(isinstance(page.action, Finish) for page in some_pages(80)) > 8


def test_the_share_of_phones_under_other_names_is_what_was_asked_for_and_no_text_leaves_the_training_split() -> None:
    own = {task.instruction for task in demonstration_tasks(order().config)}

    def renamed(share: float) -> float:
        drawn = list(islice(pages(order(warm_start__rename_share=share), Random(1)), 120))
        assert all(split_of(page.observation.instruction) == "train" for page in drawn)
        return sum(page.observation.instruction not in own for page in drawn) / len(drawn)

    assert renamed(0.0) == 0.0
    assert 0.2 < renamed(0.5) < renamed(1.0)


def test_people_on_a_renamed_phone_have_other_names() -> None:
    own = {
        name for task in demonstration_tasks(order().config) for name in names_in(content(task.phone, held_out=False))
    }
    texts = [e.text for page in some_pages(60, warm_start__rename_share=1.0) for e in page.observation.elements]
    plain = [e.text for page in some_pages(60, warm_start__rename_share=0.0) for e in page.observation.elements]
    # Words of training names in another order make one of them now and then.
    assert sum(text in own for text in texts) < 0.05 * sum(text in own for text in plain)


def test_what_is_out_of_sight_is_what_scrolling_brings_up_and_nothing_that_can_be_seen() -> None:
    found = {SCROLL_DOWN: 0, SCROLL_UP: 0}
    for task in demonstration_tasks(order().config):
        for state in play_oracle(task).states[:-1]:
            screen = show(state)
            hidden, towards = out_of_sight(screen)
            after = perform(state, screen, towards).state
            seen, then = ({e.text for e in elements_of(show(one), one.focus)} for one in (state, after))
            assert not {names[0] for names in hidden} & seen
            if hidden:
                found[towards] += 1
                assert {names[0] for names in hidden} & then
    assert min(found.values()) > 3


def test_nothing_is_out_of_sight_where_nothing_scrolls_or_all_is_loading() -> None:
    states = [state for task in demonstration_tasks(order().config)[:6] for state in play_oracle(task).states]
    for state in states:
        assert out_of_sight(show(replace(state, loading=2)))[0] == ()
        if not show(state).overflow:
            assert out_of_sight(show(state))[0] == ()
