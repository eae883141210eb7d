"""`distrl bench vlm` on a tiny model: it runs without a GPU, and its figures and pages say what they are there to say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from distrl.bench.vlm import decisions as vlm_decisions
from distrl.bench.vlm import training as vlm_training
from distrl.bench.vlm.decisions import logprob_difference
from distrl.bench.vlm.model import CPU, add_trained_adapters, build_model, prompts
from distrl.cli.main import main
from distrl.policies.vlm.adapters import AdapterMerger

PROMISED = {
    "model", "batch", "decisions_per_s", "stock_decisions_per_s", "train_samples_per_s", "stock_train_samples_per_s",
    "matrix_rate_share", "max_logprob_difference",
}  # fmt: skip
"""Names that readers of results files rely on."""


def tiny() -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return build_model("tiny", CPU)


@pytest.fixture
def plain_torch() -> Any:
    """What a role prepares torch with, as torch has it by itself before and after the test."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.set_flush_denormal(False)


def test_a_quick_look_gives_every_figure_and_measures_as_the_roles_compute(
    plain_torch: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered: list[bool] = []
    stock = vlm_decisions._stock_answers

    def watched(model: Any, inputs: Any) -> torch.Tensor:
        answered.append(torch.backends.cuda.cudnn_sdp_enabled())
        return stock(model, inputs)

    learnt: list[bool] = []
    backward = vlm_training._stock_backward

    def watched_backward(network: Any, whole: Any) -> Callable[[], None]:
        step = backward(network, whole)
        return lambda: (learnt.append(torch.backends.cuda.cudnn_sdp_enabled()), step())[1]

    monkeypatch.setattr(vlm_decisions, "_stock_answers", watched)
    monkeypatch.setattr(vlm_training, "_stock_backward", watched_backward)
    assert main(["bench", "vlm", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found.keys() >= PROMISED
    (row,) = found["by_batch"]
    speeds = [value for name, value in (*found.items(), *row.items()) if name.endswith("_per_s")]
    assert len(speeds) == 14
    assert min(speed for speed in speeds if speed is not None) > 0  # float8 is of a GPU
    assert row["decisions_per_s"] == found["decisions_per_s"]
    # In float32 no figure has rounding to hide behind.
    differences = {name: value for name, value in found.items() if "_difference" in name and value is not None}
    assert len(differences) >= 12
    assert max(differences.values()) < 1e-4, differences
    assert found["stock_gradient_difference"] > 0  # sums in another order
    # The roles do without cuDNN's attention, and stock transformers has it.
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert answered
    assert learnt
    assert all(answered + learnt)


def test_the_adapters_of_the_measurement_have_an_effect() -> None:
    model = tiny()
    inputs = prompts(model, 1)
    with torch.no_grad():
        before = model(**inputs, logits_to_keep=1).logits
        adapted = add_trained_adapters(model)
        after = model(**inputs, logits_to_keep=1).logits
        assert not torch.allclose(before, after, atol=1e-4)
        AdapterMerger(adapted).merge()
        torch.testing.assert_close(model(**inputs, logits_to_keep=1).logits, after, atol=1e-5, rtol=1e-4)


def test_answers_of_weights_that_the_adapters_did_not_make_are_noticed() -> None:
    model = tiny()
    adapted = add_trained_adapters(model)

    class Careless(AdapterMerger):
        def merge(self) -> None:
            super().merge()
            with torch.no_grad():
                adapted.get_base_model().model.language_model.layers[0].mlp.down_proj.base_layer.weight.mul_(1.5)

    assert logprob_difference(model, CPU, AdapterMerger(adapted))[0] < 1e-4
    assert logprob_difference(model, CPU, Careless(adapted))[0] > 1e-3


TRAINING = (("train_samples", ""), ("train_samples", "_new_screens"), ("stock_train_samples", ""))


def test_the_pages_show_the_figures_of_the_results_file_at_every_batch_size() -> None:
    root = Path(__file__).parents[2]
    kept = json.loads((root / "docs" / "results" / "vlm.json").read_text(encoding="utf-8"))
    results, page = ((root / "docs" / name).read_text(encoding="utf-8") for name in ("results/README.md", "vlm.md"))
    fastest = max(row["decisions_per_s"] for row in kept["by_batch"])
    for row in kept["by_batch"]:
        ours, stock = row["decisions_per_s"], row["stock_decisions_per_s"]
        assert f"{ours:.1f} · {stock:.1f} ({ours / stock:.1f} ×)" in results
        share = kept["matrix_rate_share"] * ours / fastest
        speed = f"| {stock:.1f} | {ours:.1f} | {ours / stock:.1f} × | {100 * share:.0f} % |"
        assert f"| decisions per second, batch {row['batch']} {speed}" in page
    ours, new, stock = (kept[f"{what}_per_s{which}"] for what, which in TRAINING)
    share = 100 * kept["train_matrix_rate_share"]
    assert f"{ours:.1f} · {stock:.1f} ({ours / stock:.1f} ×)" in results
    assert f"| {stock:.1f} | {ours:.1f} | {ours / stock:.1f} × | |" in page
    assert f"| {stock:.1f} | {new:.1f} | {new / stock:.1f} × | {share:.0f} % |" in page
