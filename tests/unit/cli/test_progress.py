"""What a person sees of a run as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from distrl.cli.progress import Progress, figures, line
from distrl.cli.status import evaluations
from distrl.config.schema import Config
from distrl.evaluation.report import wilson
from distrl.experience.store import StoreStats
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import RunSnapshot
from distrl.telemetry.heartbeat import Heartbeat, Phase
from distrl.transport.files import BudgetUsed
from support.terminal import Terminal

HEIGHT = 40


def role(name: str, what: str = "playing: 112 episodes", *, phase: Phase = "doing", **numbers: float) -> RoleStatus:
    heartbeat = Heartbeat(role=name, pid=1, phase=phase, what=what, since_s=0.0, beat_s=0.0, figures=numbers)
    return RoleStatus(role=name, alive=True, restarts=0, note="", heartbeat=heartbeat)


WORKER = {"progress": 1.0, "version": 7, "episodes": 300, "healthy": 112, "recent": 200, "success/recent": 0.6}
ROLES = [
    role("learner", "training", progress=9, version=7, updates=120, idle=0.25),
    role("worker-0", **WORKER),
    role("worker-1", **WORKER),
    role("evaluator", "its next turn", phase="waiting", progress=1, version=6, success=0.65, n=60),
]


def moment(roles: list[RoleStatus] = ROLES, collect_s: float = 60.0) -> RunSnapshot:
    return RunSnapshot(
        run=RunFolder(Path("runs/20260504-120000-first-run")),
        config=Config(),
        phase="training",
        budget=BudgetUsed(wall_s=70.0, collect_s=collect_s),
        roles=roles,
        stats=StoreStats(episodes=600, steps=4800, successes=360, wall_s=1.0, size_bytes=1, last_seq=600),
    )


class Show:
    """A live table on a terminal in which something stands already, with a clock that the test turns."""

    def __init__(self, width: int) -> None:
        self.terminal = Terminal(width, HEIGHT)
        self.terminal.write("$ make train\nrun folder runs/20260504-120000-first-run\n")
        self.console = Console(file=self.terminal, force_terminal=True, width=width, height=HEIGHT, color_system=None)
        self.now_s = 0.0
        self.progress = Progress(self.console, clock=lambda: self.now_s)

    def resize(self, width: int) -> None:
        self.terminal.resize(width)
        self.console.size = (width, HEIGHT)

    def show(self) -> list[str]:
        """What stands on the screen once the next moment is shown, from the table's first row on."""
        self.now_s += 1.0
        self.progress.show(moment(collect_s=60.0 + self.now_s))
        rows = self.terminal.visible()
        return rows[next(at for at, row in enumerate(rows) if row.startswith("20260504")) :]


def test_skipped_updates_stand_beside_those_that_were_made() -> None:
    assert "120 updates · " in figures(ROLES[0].heartbeat)
    spoilt = role("learner", "training", progress=9, version=7, updates=120, skipped_updates=3)
    assert "120 updates (3 skipped) · " in figures(spoilt.heartbeat)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_every_moment_is_painted_over_the_one_before(width: int) -> None:
    show = Show(width)
    with show.progress:
        first = show.show()
        assert [len(show.show()) for _ in range(5)] == [len(first)] * 5
        assert all(len(row) <= width for row in first)
        assert show.terminal.visible()[0] == "$ make train"


@pytest.mark.parametrize("widths", [(140, 80, 60), (60, 80, 140), (140, 60, 140, 80), (80, 79, 78, 77)])
def test_a_terminal_that_changes_its_size_shows_the_table_and_nothing_else(widths: tuple[int, ...]) -> None:
    show = Show(widths[0])
    with show.progress:
        show.show()
        for width in widths[1:]:
            show.resize(width)
            shown = show.show()
            assert shown == show.terminal.visible()  # nothing is left above it
            fresh = Show(width)
            fresh.now_s = show.now_s - 1.0
            with fresh.progress:
                assert [row for row in fresh.show() if "success" not in row] == [
                    row for row in shown if "success" not in row
                ]
            assert show.show()[0].startswith("20260504")


def test_at_the_end_the_table_makes_room_also_where_the_size_has_just_changed() -> None:
    show = Show(140)
    with show.progress:
        show.show()
        show.resize(60)
    assert show.terminal.visible() == []


def test_a_moment_that_comes_too_soon_is_not_painted() -> None:
    show = Show(80)
    with show.progress:
        show.show()
        before = show.terminal.visible()
        show.progress.show(moment([role("learner", "something else")]))
        assert show.terminal.visible() == before


def test_the_held_out_figure_says_how_many_tasks_it_is_on() -> None:
    show = Show(140)
    with show.progress:
        assert any("held-out 65% of 60 (version 6)" in row for row in show.show())
    assert "held-out 65% of 60" in line(moment())
    assert figures(ROLES[-1].heartbeat) == "version 6: 65% of 60"
    assert "held-out" not in line(moment(ROLES[:-1]))


@pytest.mark.parametrize("name", ["learner", "worker-0"])
def test_before_the_first_weights_there_is_no_version(name: str) -> None:
    early = role(name, "cloning", progress=0, version=-1)
    assert "no version yet" in figures(early.heartbeat)
    assert "no version yet" in line(moment([early]))
    assert "-1" not in figures(early.heartbeat) + line(moment([early]))


def test_evaluations_are_told_in_their_order_and_a_long_run_stays_on_one_screen() -> None:
    found = {"before": wilson(30, 300), **{f"v{n:06d}": wilson(n, 60) for n in range(1, 41)}, "after": wilson(200, 300)}
    told = evaluations(found)
    assert [row.partition(":")[0] for row in told] == [
        "success before",
        *(f"success at version {n}" for n in range(36, 41)),
        "success after",
    ]
    assert told[-1].endswith("66.7%  [61.2%, 71.8%] on 300 held-out tasks")
    assert evaluations({}) == []
