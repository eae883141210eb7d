"""A round of episodes is given out exactly, whoever plays it and whoever dies on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.rollout.rounds import LOOK_AGAIN_S, Claim, EqualShares, NoRounds, SharedRound, share_of
from distrl.transport.files import FileClaims, forget_claims
from distrl.transport.memory import MemoryEpisodes
from support.trajectories import make_trajectory

LIFETIME_S = 100.0


class Run:
    """A run with a store in memory and a clock that the test turns."""

    def __init__(self, folder: Path, *, episodes: int) -> None:
        self.path, self.episodes = folder / "round.sqlite", episodes
        self.store = MemoryEpisodes()
        self.now_s = 1000.0

    def worker(self, name: str) -> SharedRound:
        """A new incarnation of a worker."""
        claims = FileClaims(self.path, name, self.store, lifetime_s=LIFETIME_S, clock=lambda: self.now_s)
        return SharedRound(self.episodes, claims, clock=lambda: self.now_s)

    def keep(self, version: int) -> None:
        """An episode that this version began is durable."""
        self.store.add(make_trajectory(f"e{self.store.stats().last_seq}", version=version))

    def deliver(self, rounds: SharedRound, claim: Claim) -> None:
        self.keep(claim.version)
        rounds.settle(claim, delivered=True)

    def later(self, seconds: float) -> None:
        self.now_s += seconds


def test_without_rounds_everyone_may_start_as_many_as_they_like() -> None:
    assert [len(NoRounds().claim(0, count)) for count in (1, 16)] == [1, 16]


def test_whoever_is_free_takes_the_next_episode_of_the_round_until_it_is_out(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=5)
    fast, slow = run.worker("fast"), run.worker("slow")
    (long,) = slow.claim(0, 1)
    for _ in range(4):
        (short,) = fast.claim(0, 1)
        run.deliver(fast, short)
    assert (fast.claim(0, 1), slow.claim(0, 1)) == ([], [])
    assert fast.refusal == "all 5 episodes of the round are out"
    run.deliver(slow, long)
    run.later(LOOK_AGAIN_S)
    assert fast.claim(0, 1) == []
    assert len(fast.claim(1, 3)) == 3, "the next version has a round of its own"
    assert len(slow.claim(1, 4)) == 2


def test_an_episode_that_came_to_nothing_is_given_out_again(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=2)
    unlucky, other = run.worker("unlucky"), run.worker("other")
    lost, _ = unlucky.claim(0, 2)
    assert other.claim(0, 1) == []
    unlucky.settle(lost, delivered=False)
    assert other.claim(0, 1) == [], "it does not ask again at once"
    run.later(LOOK_AGAIN_S)
    assert len(other.claim(0, 2)) == 1


def test_what_a_killed_worker_was_playing_is_free_when_it_comes_back(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=6)
    killed, other = run.worker("killed"), run.worker("other")
    first, *rest = killed.claim(0, 4)
    assert len(rest) == 3
    run.deliver(killed, first)
    run.keep(0)  # durable, and killed before it was settled
    assert len(other.claim(0, 6)) == 1, "that one counts twice for now: rather too few than too many"
    run.later(LOOK_AGAIN_S)
    again = run.worker("killed")
    assert len(again.claim(0, 6)) == 3
    assert other.claim(0, 1) == []


def test_a_worker_that_never_comes_back_holds_the_round_up_no_longer_than_an_episode_may_last(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=3)
    gone, other = run.worker("gone"), run.worker("other")
    claims = gone.claim(0, 3)
    assert len(claims) == 3
    run.later(LIFETIME_S - 1.0)
    assert other.claim(0, 3) == []
    run.later(2.0)
    assert len(other.claim(0, 3)) == 3
    for claim in claims:
        gone.settle(claim, delivered=False)
    run.later(LOOK_AGAIN_S)
    assert gone.claim(0, 1) == [], "its late word ends nobody else's claim"


def test_what_waits_behind_others_for_a_slow_disk_is_not_given_out_again(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=4)
    storing, other = run.worker("storing"), run.worker("other")
    for claim in storing.claim(0, 4):
        run.later(LIFETIME_S - 1.0)  # all four were finished long ago, and the disk takes one after the other
        assert other.claim(0, 4) == []
        run.deliver(storing, claim)
    run.later(LIFETIME_S)
    assert other.claim(0, 4) == []


def test_a_late_word_about_one_episode_leaves_the_claims_on_the_others_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=2)
    late, other = run.worker("late"), run.worker("other")
    (old,) = late.claim(0, 1)
    run.later(LIFETIME_S - 1.0)
    (young,) = late.claim(0, 1)
    run.later(2.0)
    (instead,) = other.claim(0, 2)
    late.settle(old, delivered=False)
    run.later(LOOK_AGAIN_S)
    assert other.claim(0, 1) == [], "both places are taken: by the younger claim, and by the one that replaced the old"
    assert len({old.number, young.number, instead.number}) == 3


def test_a_session_begins_without_the_claims_of_the_one_before(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=3)
    assert len(run.worker("worker-0").claim(0, 3)) == 3
    forget_claims(run.path)
    assert len(run.worker("worker-1").claim(0, 3)) == 3


class Breaking(MemoryEpisodes):
    broken = True

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        if self.broken:
            raise ZeroDivisionError
        return super().count_of(version, worker=worker, after=after)


def test_a_claim_that_fails_on_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Breaking()
    claims = FileClaims(tmp_path / "round.sqlite", "worker-0", store, lifetime_s=LIFETIME_S)
    with pytest.raises(ZeroDivisionError):
        claims.take(0, 1, 1)
    store.broken = False
    assert len(claims.take(0, 2, 1)) == 1
    assert claims.take(0, 2, 1) == []
    claims.close()


@pytest.mark.parametrize(
    ("workers", "episodes", "shares"), [(2, 8, [4, 4]), (3, 8, [3, 3, 2]), (3, 2, [1, 1, 0]), (1, 1, [1])]
)
def test_equal_shares_add_up_to_the_round(workers: int, episodes: int, shares: list[int]) -> None:
    assert [share_of(episodes, workers, worker) for worker in range(workers)] == shares
    for share in shares:
        rounds = EqualShares(share, lambda version: 0)
        assert [len(rounds.claim(5, 1)) for _ in range(episodes + 1)] == [1] * share + [0] * (episodes + 1 - share)
        assert str(share) in rounds.refusal


def test_an_equal_share_counts_what_an_earlier_incarnation_delivered_and_gives_out_again_what_came_to_nothing() -> None:
    rounds = EqualShares(6, {3: 4}.get)  # type: ignore[arg-type]
    first, second = rounds.claim(3, 16)
    rounds.settle(first, delivered=True)
    assert rounds.claim(3, 1) == []
    rounds.settle(second, delivered=False)
    assert len(rounds.claim(3, 16)) == 1
