"""Where roles compute, and what is said where that is not possible."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import torch

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.errors import ConfigError
from distrl.policies.pixel.policy import PixelPolicy
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime import placement
from distrl.runtime.factory import make_frame_cache, make_policy
from distrl.runtime.placement import check_devices, placement_notices, torch_device, uses_gpu
from distrl.runtime.resume import adopt
from distrl.runtime.run_folder import create_run
from distrl.runtime.summary import read_status
from support.learners import small_config
from support.pixels import pixel_config

CONFIGS = Path(__file__).parents[3] / "configs"
TEXT_MODEL = {"policy.kind": "vlm", "policy.vlm.pictures": "false"}
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


@pytest.mark.parametrize(
    ("probe", "refused"), [("import os; os.kill(os.getpid(), 4)", True), (placement.BFLOAT16, False)]
)
def test_a_cpu_that_dies_of_bfloat16_is_refused_with_the_fix(
    probe: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "BFLOAT16", probe)  # the second runs under the limit that tests/conftest.py sets
    config = load_config(None, {**TEXT_MODEL, "policy.device": "cpu", "policy.vlm.dtype": "bfloat16"})
    if refused:
        with pytest.raises(ConfigError, match=r"policy\.vlm\.dtype = bfloat16, and a process .* dies") as caught:
            check_devices(config)
        assert "--policy.vlm.dtype float32, or ONEDNN_MAX_CPU_ISA=" in caught.value.fix
    else:
        check_devices(config)


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
def test_all_gpus_that_are_not_there_are_refused_at_once_with_one_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(CONFIGS / "pixel-h200.toml")]) == 2
    said = capsys.readouterr().err
    assert "policy.device = cuda and learner.device = cuda" in said
    assert "try: --policy.device cpu --learner.device cpu, or configs/pixel-small.toml" in said


@no_gpu
def test_auto_without_a_gpu_is_told_to_whoever_wanted_one() -> None:
    (told,) = placement_notices(pixel_config(policy__device="auto", learner__device="auto"))
    assert told.startswith("policy.device and learner.device = auto")
    (of_one,) = placement_notices(load_config(None, {**TEXT_MODEL, "learner.device": "auto"}))
    assert of_one.startswith("learner.device = auto")
    assert "in float32" in of_one
    assert placement_notices(pixel_config()) == []
    assert placement_notices(small_config(policy={"device": "auto"})) == []


@no_gpu
def test_a_notice_of_the_place_is_logged_for_status(tmp_path: Path) -> None:
    config = pixel_config(policy__device="auto", run__root=str(tmp_path))
    run = create_run(config, now=datetime(2026, 5, 4))
    adopt(run, config)
    assert read_status(run, now_s=0.0).notices == placement_notices(config)


@no_gpu
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert torch_device("auto", key="policy.device") == torch.device("cpu")
    check_devices(pixel_config(policy__device="auto", learner__device="auto"))


@pytest.mark.parametrize(("name", "number"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_a_gpu_comes_with_its_number(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_num_gpus", lambda: 2)
    assert torch_device(name, key="policy.device") == torch.device("cuda", number)
    assert torch_device("cpu", key="policy.device") == torch.device("cpu")


def test_the_kind_decides_which_policy_is_made() -> None:
    assert isinstance(make_policy(small_config()), PointerPolicy)
    assert isinstance(make_policy(pixel_config()), PixelPolicy)


def test_those_who_do_not_look_have_no_sight() -> None:
    assert make_frame_cache(small_config()) is None
    assert make_frame_cache(pixel_config()) is not None


def test_the_gpu_is_watched_only_where_one_may_be_used() -> None:
    assert not uses_gpu(small_config(policy={"device": "auto"}))
    assert not uses_gpu(pixel_config())
    assert uses_gpu(pixel_config(learner__device="auto"))
