"""Success with its interval, a row per template, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.evaluation.report import Rate, gains_by_seen, gains_by_template, make_report, read_rate, wilson
from distrl.types import Trajectory, Verdict
from support.trajectories import TASK, make_trajectory


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Published values: Newcombe (1998), Statistics in Medicine 17, table I, method 3, and the ends of the scale.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_the_interval_is_wilsons(successes: int, n: int, low: float, high: float) -> None:
    rate = wilson(successes, n)
    assert rate.low == pytest.approx(low, abs=6e-5)
    assert rate.high == pytest.approx(high, abs=6e-5)
    assert rate.value == successes / n


def test_nothing_played_says_nothing() -> None:
    assert wilson(0, 0) == Rate(value=0.0, low=0.0, high=1.0, n=0)
    assert make_report([], suite="s", version=3).n == 0


def test_a_report_sums_up_and_has_a_row_for_each_template() -> None:
    other = replace(make_trajectory("c", success=False, num_steps=2), task=replace(TASK, template="volume"))
    bad = Verdict(outcome="failure", progress=0.5, false_completion=True, side_effects=("contacts/1 changed",))
    report = make_report(
        [make_trajectory("a"), replace(make_trajectory("b"), verdict=bad), other], suite="settings", version=7
    )
    assert (report.n, report.policy_version) == (3, 7)
    shares = [report.success, report.progress, report.false_completion, report.side_effects]
    assert shares == pytest.approx([1 / 3, (1 + 0.5 + 0.25) / 3, 1 / 3, 1 / 3])
    assert [(row.template, row.n, row.success, row.steps) for row in report.per_task] == [
        ("volume", 1, 0.0, 2.0),
        ("wifi", 2, 0.5, 4.0),
    ]
    assert report.low < report.success < report.high


def test_gains_are_told_per_template_least_first_and_with_unseen_templates_apart() -> None:
    def played(template: str, wins: int, n: int) -> list[Trajectory]:
        task = replace(TASK, template=template)
        return [replace(make_trajectory(f"{template}-{at}", success=at < wins), task=task) for at in range(n)]

    early = [*played("wifi", 1, 4), *played("volume", 0, 2), *played("alarm", 0, 2)]
    late = [*played("wifi", 4, 4), *played("volume", 1, 2), *played("alarm", 0, 2)]
    before, after = (make_report(found, suite="s", version=0, unseen={"alarm"}) for found in (early, late))
    assert [(row.name, row.n, row.before, row.after) for row in gains_by_template(before, after)] == [
        ("alarm", 2, 0.0, 0.0),
        ("volume", 2, 0.0, 0.5),
        ("wifi", 4, 0.25, 1.0),
    ]
    assert [(row.name, row.n, row.before, row.after) for row in gains_by_seen(before, after)] == [
        ("all of seen templates", 6, pytest.approx(1 / 6), pytest.approx(5 / 6)),
        ("all of unseen templates", 2, 0.0, 0.0),
    ]
    assert [row.before for row in gains_by_template(None, after)] == [None] * 3
    assert gains_by_seen(before, make_report(late, suite="s", version=1)) == []


def test_invalid_steps_are_a_share_of_all_steps() -> None:
    trajectory = make_trajectory(num_steps=4)
    steps = (replace(trajectory.steps[0], valid=False), *trajectory.steps[1:])
    assert make_report([replace(trajectory, steps=steps)], suite="s", version=0).invalid_steps == 0.25


def test_a_rate_is_read_back_from_a_report(tmp_path: Path) -> None:
    report = make_report([make_trajectory()], suite="s", version=0)
    (tmp_path / "after.json").write_bytes(msgspec.json.encode(report))
    assert read_rate(tmp_path / "after.json") == wilson(1, 1)
    assert read_rate(tmp_path / "before.json") is None


def test_a_damaged_report_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "after.json").write_bytes(b'{"success": 0.')
    with pytest.raises(StoreError, match="train --resume"):
        read_rate(tmp_path / "after.json")


def test_attempts_without_an_outcome_count_as_no_success_and_are_told_of() -> None:
    unknown = replace(make_trajectory("b", success=False), verdict=Verdict(outcome="unknown", reason="lost"))
    report = make_report([make_trajectory("a"), unknown, replace(unknown, steps=())], suite="s", version=0)
    assert (report.n, report.unknown, report.success) == (3, 2, pytest.approx(1 / 3))
    assert report.unknown_because == {"lost": 2}
