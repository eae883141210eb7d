"""A stepped episode is judged as one that a worker played: same screens, same pictures, a deadline, and no error of the judge."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from distrl.experience.frames import FrameCache
from distrl.rollout.episode import attempt_of
from distrl.rollout.stepping import EventLoopThread, SteppedEpisode
from distrl.tasks.judges import LAST_SCREENS, Attempt
from distrl.types import Action, Decision, Finish, Observation, Press, Verdict, Wait
from support.rollouts import LIMITS, a_phone, a_task, ignore_cancellation, make_tools, play

ROUTES: dict[str, tuple[list[Action], int]] = {
    "a claim": ([Press("home"), Wait(), Press("back"), Wait(), Wait(), Finish()], 20),
    "the step limit": ([Press("home"), Wait(), Press("back"), Wait(), Wait()], 5),
    "a claim at once": ([Finish()], 20),
}


class Keeper:
    """A judge that keeps what it was shown, and the picture of the last screen."""

    def __init__(self) -> None:
        self.shown: Attempt | None = None
        self.picture = b""

    async def judge(self, attempt: Attempt) -> Verdict:
        self.shown = attempt
        if attempt.picture is not None:
            self.picture = attempt.picture(attempt.screens[-1].screenshot)
        return Verdict(outcome="success", reason="seen")


class Failing:
    async def judge(self, attempt: Attempt) -> Verdict:
        raise ConnectionResetError("the model does not answer")


class Deaf:
    async def judge(self, attempt: Attempt) -> Verdict:
        await ignore_cancellation()
        return Verdict(outcome="success", reason="too late")


def by_worker(actions: list[Action], max_steps: int) -> Attempt:
    route = iter([*actions, Wait()])  # one more: at the limit, the value of the last screen is asked for

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return Decision(action=next(route), choice=(0,), logp=-1.0, entropy=1.0, value=0.5), 0

    played = asyncio.run(play("e1", a_phone(), a_task(3, max_steps=max_steps), make_tools(decide))).trajectory
    assert played is not None
    return attempt_of(played)


def stepped(actions: list[Action], max_steps: int = 20, frames: FrameCache | None = None) -> SteppedEpisode:
    task = a_task(3, max_steps=max_steps)
    episode = SteppedEpisode(a_phone(), task, history=LIMITS.history, frames=frames)
    for action in actions:
        episode.act(episode.observe(), action)
    return episode


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("looked", [True, False])
def test_a_judge_is_shown_what_it_would_be_shown_of_a_workers_episode(name: str, looked: bool) -> None:
    actions, max_steps = ROUTES[name]
    keeper, episode = Keeper(), stepped(actions, max_steps)
    if looked:  # as an environment does after each step
        episode.observe()
    assert episode.verdict(keeper).success
    assert keeper.shown == by_worker(actions, max_steps)
    assert keeper.shown is not None
    assert len(keeper.shown.screens) == min(LAST_SCREENS, len(actions))


def test_the_pictures_of_the_last_screens_are_there_where_they_are_kept() -> None:
    keeper, frames = Keeper(), FrameCache(2 * LAST_SCREENS)
    stepped([Press("home")] * 12, max_steps=12, frames=frames).verdict(keeper)
    assert keeper.picture.startswith(b"\xff\xd8")
    assert keeper.shown is not None
    assert all(keeper.shown.picture(screen.screenshot) for screen in keeper.shown.screens)  # type: ignore[misc]


def test_screens_of_steps_that_were_taken_back_are_not_shown() -> None:
    keeper, episode = Keeper(), stepped([Press("home")])
    kept = episode.save_state()
    for action in (Wait(), Wait(), Finish()):
        episode.act(episode.observe(), action)
    episode.load_state(kept)
    episode.act(episode.observe(), Finish())
    episode.verdict(keeper)
    assert keeper.shown is not None
    assert [len(screen.recent) for screen in keeper.shown.screens] == [0, 1]


def test_a_judge_that_raises_costs_the_verdict_alone() -> None:
    verdict = stepped([Finish()]).verdict(Failing())
    assert (verdict.outcome, verdict.reason) == (
        "unknown",
        "the judge failed: ConnectionResetError: the model does not answer",
    )


def test_a_judge_that_is_late_costs_the_verdict_alone() -> None:
    assert stepped([Finish()]).verdict(Deaf(), deadline_s=0.05) == Verdict(
        outcome="unknown", reason="the judge took over 0.05 s"
    )


def test_the_same_holds_for_a_device_that_takes_its_time() -> None:
    loop = EventLoopThread(name="environment on a phone", deadline_s=10.0)
    episode = SteppedEpisode(a_phone(), replace(a_task(3), max_steps=1), history=4, drive=loop)
    episode.act(episode.observe(), Wait())
    assert episode.verdict(Deaf(), deadline_s=0.05).reason == "the judge took over 0.05 s"
    assert episode.verdict(Failing()).outcome == "unknown"
    loop.close()


def test_a_verdict_is_given_inside_an_event_loop_too() -> None:
    async def notebook() -> bool:
        return stepped([Finish()]).verdict(Keeper()).success

    assert asyncio.run(notebook())
