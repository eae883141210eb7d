"""Training with a fixed seed repeats to the last bit of the weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from distrl.bench.base import BenchOptions, find
from distrl.bench.learning import fixed_seed
from distrl.bench.learning.fixed_seed import CASES, CHUNK, COMMON, QUICK_EPISODES
from distrl.bench.learning.methods import resolve
from distrl.errors import UsageError

SMALL = {"policy.pointer.width": "16", "policy.pointer.layers": "1", "warm_start.epochs": "1"}
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(autouse=True, scope="module")
def _torch_as_it_was() -> Iterator[None]:
    """A benchmark prepares torch for its whole process, which is that of all other tests here."""
    threads, cudnn = torch.get_num_threads(), torch.backends.cuda.cudnn_sdp_enabled()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
    torch.backends.cuda.enable_cudnn_sdp(cudnn)


def test_two_runs_in_one_process_give_the_same_curve_losses_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_seed, "COMMON", {**COMMON, **SMALL})
    quick, again = (fixed_seed.run(BenchOptions(quick=True)) for _ in range(2))
    assert again == quick
    (case,) = quick.cases.values()
    assert [point.episodes for point in case.curve] == [0, QUICK_EPISODES]
    assert case.curve[-1].updates == 2 * QUICK_EPISODES
    assert case.losses["total"] != 0.0
    assert len(case.policy_sha256) == 64


def test_another_seed_gives_other_weights() -> None:
    one, same, other = (fixed_seed.train(resolve({**SMALL, "run.seed": seed}), CHUNK) for seed in ("3", "3", "4"))
    assert one.policy_sha256 == same.policy_sha256 != other.policy_sha256


def test_every_algorithm_has_a_case_that_fits_the_schema() -> None:
    kinds = [resolve({**COMMON, **settings}).algorithm.kind for settings in CASES.values()]
    assert kinds == ["aride", "aride", "digirl", "filtered_bc", "ppo", "grpo"]
    assert all(resolve({**COMMON, **settings}).run.seed == 3 for settings in CASES.values())


def test_more_than_one_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="one seed"):
        find("fixed_seed").run(BenchOptions(quick=True, seeds=2))


def test_the_kept_results_are_of_the_cases_as_they_are_now() -> None:
    found = json.loads((RESULTS / "fixed_seed.json").read_bytes())
    assert found["settings"] == {name: {**COMMON, **settings} for name, settings in CASES.items()}
    assert found["cases"].keys() == CASES.keys()
    assert all(len(case["curve"]) == 3 for case in found["cases"].values())
