"""Where roles compute, and what is said where that is not possible."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distrl.cli.main import main
from distrl.errors import ConfigError
from distrl.policies.pixel.policy import PixelPolicy
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime.assembly import make_policy, make_sight
from distrl.runtime.placement import check_devices, torch_device, uses_gpu
from support.learners import small_config
from support.pixels import pixel_config

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@no_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("key", ["policy.device", "learner.device"])
def test_a_gpu_that_is_not_there_is_refused_with_the_setting_and_the_fix(name: str, key: str) -> None:
    config = pixel_config(**{key.replace(".", "__"): name})
    with pytest.raises(ConfigError, match=f"{key} = {name}, and torch .* sees no GPUs here") as caught:
        check_devices(config)
    assert caught.value.exit_code == 2
    assert f"--{key} cpu" in caught.value.fix


@no_gpu
def test_a_run_without_its_gpu_ends_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--policy.kind", "pixel", "--rollout.keep_screenshots", "true", "--learner.device", "cuda"]
    assert main(["train", *flags, "--run.root", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert "learner.device = cuda" in said
    assert "try: " in said
    assert not (tmp_path / "runs").exists()


@no_gpu
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert torch_device("auto", key="policy.device") == torch.device("cpu")
    check_devices(pixel_config(policy__device="auto", learner__device="auto"))


def test_the_kind_decides_which_policy_is_made() -> None:
    assert isinstance(make_policy(small_config()), PointerPolicy)
    assert isinstance(make_policy(pixel_config()), PixelPolicy)


def test_those_who_do_not_look_have_no_sight() -> None:
    assert make_sight(small_config()) is None
    assert make_sight(pixel_config()) is not None


def test_the_gpu_is_watched_only_where_one_may_be_used() -> None:
    assert not uses_gpu(small_config(policy={"device": "auto"}))
    assert not uses_gpu(pixel_config())
    assert uses_gpu(pixel_config(learner__device="auto"))
