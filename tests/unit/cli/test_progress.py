"""What a person sees of a run as it goes."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from distrl.cli.progress import Progress, figures, line, role_table, success_by_template
from distrl.cli.status import evaluations
from distrl.config.schema import Config
from distrl.evaluation.report import Report, TemplateRow, make_report, wilson
from distrl.experience.store import StoreStats
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import RunSnapshot
from distrl.telemetry.heartbeat import Heartbeat, Phase
from distrl.transport.base import BudgetUsed
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


def test_an_inference_actor_is_shown_with_its_decisions() -> None:
    actor = role(
        "inference-0", "deciding: 12 decisions", progress=900, version=7, decisions=900, **{"batch/mean": 7.25}
    )
    assert figures(actor.heartbeat) == "version 7 · 900 decisions · 7.2 in a batch"


def test_what_the_learner_waits_for_is_told_once() -> None:
    waits = role("learner", "episodes: 3 of the first 64 are in", phase="waiting", version=0)
    nothing = StoreStats(episodes=0, steps=0, successes=0, wall_s=0.0, size_bytes=0, last_seq=0)
    early = replace(moment([waits]), stats=nothing)
    assert line(early).count("3 of the first 64") == 1


def test_the_held_out_figure_says_how_many_tasks_it_is_on() -> None:
    show = Show(140)
    with show.progress:
        assert any("held-out 65% of 60 (version 6)" in row for row in show.show())
    assert "held-out 65% of 60" in line(moment())
    assert figures(ROLES[-1].heartbeat) == "version 6: 65% of 60"
    assert "held-out" not in line(moment(ROLES[:-1]))
    unjudged = role("evaluator", "its next turn", phase="waiting", version=6, success=0.0, n=60, unknown=59)
    assert "held-out 0% of 60, 59 without an outcome" in line(moment([unjudged]))


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


def a_report(successes: dict[str, float], unseen: tuple[str, ...] = ()) -> Report:
    """One with three tasks of each template."""
    rows = tuple(
        TemplateRow(template=name, n=3, success=share, progress=share, steps=4.0, seen=name not in unseen)
        for name, share in successes.items()
    )
    return replace(make_report([], suite="s", version=1), per_task=rows)


def test_the_templates_with_the_least_success_are_told_and_where_the_others_are() -> None:
    names = [f"template-{number:02d}" for number in range(20)]
    after = a_report({name: number / 20 for number, name in enumerate(names)}, unseen=("template-19",))
    told = success_by_template(a_report(dict.fromkeys(names, 0.0)), after, "distrl report runs/a")
    assert told[0] == "success by template, least first (before → after):"
    assert [row.split()[0] for row in told[1:13]] == names[:12]
    assert told[12] == "  template-11                  3 tasks     0% →  55%"
    assert told[13] == "  … and 8 more: distrl report runs/a"
    assert told[14:] == [
        "  all of seen templates       57 tasks     0% →  45%",
        "  all of unseen templates      3 tasks     0% →  95%",
    ]
    assert success_by_template(None, a_report({"wifi": 1.0}), "")[1:] == ["  wifi      3 tasks   100%"]


def test_a_table_of_templates_with_long_names_fits_80_columns() -> None:
    named = a_report({"t" * 200: 1.0, "short": 1.0})
    assert max(map(len, success_by_template(named, named, "distrl report runs/a"))) <= 80


def test_while_the_learner_starts_again_the_line_names_the_published_version(tmp_path: Path) -> None:
    starting = role("learner", "loading its libraries", phase="starting")
    snapshot = replace(moment([starting]), run=RunFolder(tmp_path))
    assert "no version yet" in line(snapshot)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "latest.json").write_text('{"version": 12, "file": "v000012.safetensors"}')
    assert "version 12" in line(snapshot)
    (tmp_path / "weights" / "latest.json").write_text("{")
    assert "no version yet" in line(snapshot)


# trouble, and nobody who reads


def silent(name: str, seconds: int) -> RoleStatus:
    return msgspec.structs.replace(role(name), note=f"silent for {seconds} s")


def test_a_silent_role_is_named_with_what_it_was_doing() -> None:
    assert "worker-1: silent for 4 s" in line(moment([ROLES[0], silent("worker-1", 4)]))
    console = Console(file=io.StringIO(), width=120)
    console.print(role_table([silent("worker-1", 4)]))
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "silent for 4 s while playing: 112 episodes · logs/worker-1.jsonl" in said


def test_trouble_is_told_at_once_and_not_with_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = [0.0]
    progress = Progress(Console(file=io.StringIO()), clock=lambda: now_s[0])
    for seconds, roles in ((0.0, ROLES), (1.0, ROLES), (2.0, [silent("worker-1", 3)]), (3.0, [silent("worker-1", 4)])):
        now_s[0] = seconds
        progress.show(moment(roles))
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 2, "the first line, and the one with the trouble"
    assert "worker-1: silent for 3 s" in shown[1]


class Closed(io.StringIO):
    """A pipe or terminal that nobody reads any more."""

    def __init__(self, error: OSError, *, terminal: bool) -> None:
        super().__init__()
        self._error, self._terminal, self.writes = error, terminal, 0

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self.writes += 1
        raise self._error


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "Input/output error")], ids=["pipe", "terminal"])
def test_where_nobody_reads_it_goes_quiet(monkeypatch: pytest.MonkeyPatch, error: OSError, terminal: bool) -> None:
    nobody, now_s = Closed(error, terminal=terminal), [0.0]
    monkeypatch.setattr("sys.stderr", nobody)
    with Progress(Console(file=nobody, force_terminal=terminal), clock=lambda: now_s[0]) as progress:
        for _ in range(3):
            now_s[0] += 100.0
            progress.show(moment())
    assert 1 <= nobody.writes <= 4
