"""What pages cost while a training runs."""

from __future__ import annotations

from pathlib import Path

from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard.pace import RESTS, Paced
from distrl.dashboard.run_list import RunList
from distrl.runtime.run_folder import take


class Slow:
    """Something that takes a while, on a clock of its own."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.now_s, self.times = takes_s, 0.0, 0

    def make(self) -> int:
        self.times += 1
        self.now_s += self.takes_s
        return self.times

    def clock(self) -> float:
        return self.now_s


def test_what_is_cheap_is_made_again_as_soon_as_it_is_old() -> None:
    slow = Slow(0.01)
    paced = Paced(slow.make, fresh_s=3.0, clock=slow.clock)
    assert [paced.get(), paced.get()] == [1, 1]
    slow.now_s += 3.1
    assert [paced.get(), paced.get()] == [2, 2]


def test_what_takes_long_is_made_so_rarely_that_it_takes_a_tenth_of_the_time() -> None:
    slow = Slow(2.0)
    paced = Paced(slow.make, fresh_s=3.0, clock=slow.clock)
    paced.get()
    slow.now_s += RESTS * 2.0 - 0.1
    assert paced.get() == 1
    slow.now_s += 0.2
    assert paced.get() == 2


def test_the_card_of_a_live_run_is_made_once_for_all_who_look_and_says_when_it_has_ended(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    runs = RunList(tmp_path)
    lock = take(run.lock("supervisor"), wait_s=1, what="it")
    try:
        (first,) = runs.cards()
        (second,) = runs.cards()
        assert first.state == second.state == "live"
        assert all(card is second for card in runs.cards())
    finally:
        lock.release()
    assert RunList(tmp_path).cards()[0].state == "stopped"
