"""CUDA out of memory becomes an error that names the setting to lower."""

from __future__ import annotations

import pytest
import torch

from distrl.errors import OutOfMemory
from distrl.policies.oom import oom_errors, vlm_oom_errors


def run_out() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(("present", "advice"), [(64, 32), (7, 3), (2, 1)])
def test_the_advice_is_half_of_what_did_not_fit(present: int, advice: int) -> None:
    with (
        pytest.raises(OutOfMemory, match=rf"batch of {present} \(rollout\.batch_size\)") as caught,
        oom_errors("rollout.batch_size", present),
    ):
        run_out()
    assert f"--rollout.batch_size {advice}," in caught.value.fix
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_a_batch_of_one_cannot_be_halved_so_something_else_is_advised() -> None:
    with pytest.raises(OutOfMemory) as caught, oom_errors("learner.batch_trajectories", 1):
        run_out()
    assert caught.value.fix.startswith("a smaller policy")
    assert "batch_trajectories" not in caught.value.fix


def test_a_model_has_its_own_ways_to_need_less() -> None:
    with pytest.raises(OutOfMemory) as many, vlm_oom_errors("score_batch", 4):
        run_out()
    assert "--policy.vlm.score_batch 2" in many.value.fix
    assert "gradient_checkpointing" in many.value.fix
    with pytest.raises(OutOfMemory) as one, vlm_oom_errors("score_batch", 1):
        run_out()
    assert "image_max_pixels" in one.value.fix


def test_other_errors_stay_what_they_are_and_results_pass_through() -> None:
    with pytest.raises(RuntimeError, match="shapes") as caught, oom_errors("x", 2):
        raise RuntimeError("shapes do not match")
    assert not isinstance(caught.value, OutOfMemory)
    with oom_errors("x", 2):
        fine = 1
    assert fine == 1
