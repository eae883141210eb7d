"""Episodes step by step: who ended them, what they came to, and states to come back to."""

from __future__ import annotations

import asyncio

import pytest

from distrl.errors import UsageError
from distrl.rollout.stepping import SteppedEpisode, drive
from distrl.tasks.judges import AutoJudge, RewardJudge
from distrl.tasks.sim.oracle import play_oracle
from distrl.types import Finish, Press, Tap, Wait
from support.rollouts import Page, a_page_task, a_phone, a_task


def stepped(*, max_steps: int = 20) -> SteppedEpisode:
    return SteppedEpisode(a_phone(), a_task(3, max_steps=max_steps), history=4)


def test_the_oracles_actions_end_in_success() -> None:
    episode = stepped()
    for action in play_oracle(episode.task).actions:
        assert not episode.over
        episode.act(episode.observe(), action)
    assert (episode.terminated, episode.truncated) == (True, False)
    assert episode.verdict(AutoJudge()).success


def test_running_out_of_steps_truncates() -> None:
    episode = stepped(max_steps=2)
    for _ in range(2):
        assert not episode.over
        episode.act(episode.observe(), Wait())
    assert (episode.terminated, episode.truncated, episode.over) == (False, True, True)
    assert not episode.verdict(AutoJudge()).success


def test_a_device_that_ends_the_episode_itself_terminates_it_with_its_rewards() -> None:
    episode = SteppedEpisode(Page(ends_after=2, reward=1.0), a_page_task(at_least=1.25), history=4)
    episode.act(episode.observe(), Press("back"))
    assert not episode.over
    assert episode.act(episode.observe(), Press("back")).done
    assert (episode.terminated, episode.truncated) == (True, False)
    assert episode.verdict(RewardJudge()).success


def test_a_claim_of_failure_terminates_too() -> None:
    episode = stepped()
    episode.act(episode.observe(), Finish(status="impossible"))
    assert episode.terminated
    assert not episode.verdict(AutoJudge()).success


def test_a_saved_state_is_gone_back_to_and_the_episode_goes_on_from_there() -> None:
    episode = stepped()
    first, *rest = play_oracle(episode.task).actions
    episode.act(episode.observe(), first)
    kept, seen, shown, done = episode.save_state(), episode.capture(), episode.observe(), episode.num_steps
    episode.act(episode.observe(), Press("home"))
    episode.act(episode.observe(), Finish())
    assert episode.terminated
    episode.load_state(kept)
    assert not episode.terminated
    assert episode.capture() == seen
    assert (episode.observe(), episode.num_steps) == (shown, done), "history and counters go back too"
    assert episode.save_state() == kept
    for action in rest:
        episode.act(episode.observe(), action)
    assert episode.verdict(AutoJudge()).success


def test_a_device_that_cannot_save_its_state_says_so() -> None:
    episode = SteppedEpisode(Page(), a_page_task(), history=4)
    with pytest.raises(UsageError, match="page-0 cannot save its state"):
        episode.save_state()
    with pytest.raises(UsageError, match="use a device that has save_state"):
        episode.load_state(b"")


def test_bytes_that_are_no_saved_state_are_refused() -> None:
    with pytest.raises(UsageError, match="this is no saved state"):
        stepped().load_state(b"nothing")


def test_a_device_that_takes_its_time_cannot_be_stepped_by_hand() -> None:
    with pytest.raises(UsageError, match="cannot wait for it") as caught:
        drive(asyncio.sleep(0))
    assert "EventLoopThread" in caught.value.fix


def test_it_also_steps_inside_an_event_loop_such_as_a_notebooks() -> None:
    async def scene() -> None:
        episode = stepped()
        assert not episode.act(episode.observe(), Tap(0.99, 0.01)).valid
        assert episode.num_steps == 1

    asyncio.run(scene())
