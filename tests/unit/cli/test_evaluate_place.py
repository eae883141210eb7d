from __future__ import annotations

from distrl.cli.evaluate import _on_this_machine
from support.pixels import pixel_config


def test_a_run_that_had_a_gpu_is_evaluated_without_one_where_there_is_none() -> None:
    assert _on_this_machine(pixel_config(policy__device="cuda:1")).policy.device == "auto"
    assert _on_this_machine(pixel_config()).policy.device == "cpu"
