"""The weights benchmark with its real processes."""

from __future__ import annotations

from pathlib import Path

from distrl.bench.system.weights import PublishSpec, _run_roles, delays


def test_a_learner_and_two_workers_measure_every_version(tmp_path: Path) -> None:
    published, used = _run_roles(PublishSpec(folder=str(tmp_path), size_mb=0.1, versions=2, every_s=0.2, seed=0), 2)
    assert [line.version for line in published] == [0, 1, 2]
    assert all(line.called_s <= line.done_s for line in published)
    assert len(used) == 2
    for lines in used:
        assert [line.version for line in lines] == sorted({line.version for line in lines})
        assert lines[-1].version == 2
        assert min(delays(published, lines)) > 0.0
