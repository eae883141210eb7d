"""An exported language model acts as the run that it came from does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import distrl
from distrl.cli.main import main
from distrl.errors import ConfigError
from distrl.runtime.factory import make_policy
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Observation
from support.learners import make_version
from support.trained import small_run
from support.trajectories import make_trajectory
from support.vlms import tiny_model


def trained_model(root: Path, model: Path) -> Path:
    """A run whose adapters and value head are no longer what they were at first."""
    settings = {"policy__vlm__path": str(model), "policy__vlm__pictures": False, "policy__vlm__lora_rank": 4}
    run = small_run(root, policy__kind="vlm", **settings)
    policy = make_policy(run.config())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in policy.weights().values():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator).to(tensor))
    WeightsFolder(run.weights).publish(policy, make_version(1))
    return run.path


def seen() -> Observation:
    return make_trajectory().steps[2].observation


@pytest.mark.parametrize("form", ["--adapter", "--merged"])
def test_an_export_of_a_language_model_decides_as_its_run(form: str, tmp_path: Path) -> None:
    model = tiny_model("text")
    run, out = trained_model(tmp_path / "runs", model), tmp_path / "out"
    assert main(["export", str(run), str(out), form]) == 0
    torch.set_flush_denormal(False)
    of_run, of_export = (distrl.load_policy(path).decide(seen(), temperature=0.0) for path in (run, out))
    fresh = make_policy(distrl.open_run(run).config)
    (before,) = fresh.decide([seen()], temperature=0.0, generator=torch.Generator())
    assert of_export.choice == of_run.choice
    assert of_export.value == pytest.approx(of_run.value, abs=1e-3)
    assert of_export.logp == pytest.approx(of_run.logp, abs=1e-2)
    assert abs(before.value - of_run.value) > 2e-3  # else the test would see nothing


def test_adapters_find_their_model_where_it_lies_on_this_machine(tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_model("text"), tmp_path / "model"))
    run, out = trained_model(tmp_path / "runs", model), tmp_path / "out"
    assert main(["export", str(run), str(out)]) == 0
    torch.set_flush_denormal(False)
    expected = distrl.load_policy(run).decide(seen(), temperature=0.0)
    moved = model.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is no model folder"):
        distrl.load_policy(out)
    assert distrl.load_policy(out, model=moved).decide(seen(), temperature=0.0).choice == expected.choice
