"""`distrl bench vlm_48gb`: a whole run with a model of the 7B shape, LoRA, within the memory of a GPU with 48 GB.

One process decides for the worker and the evaluator (`rollout.decide = "actors"`), another one learns; each is held to its
part of the memory. Otherwise it is `distrl bench vlm_run`. Without a GPU a tiny model runs for a moment.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import torch

from distrl.bench.base import BenchOptions
from distrl.bench.vlm.model import CPU, GPU, make_folder
from distrl.bench.vlm.vlm_run import LARGE, SETTINGS, SMALL, WholeRun, whole_run

SHARED = {"rollout.decide": "actors", "inference.deadline_s": "120"}
CARD_MB = 46_068
"""What the driver of an L40S, a card of 48 GB, says that it has."""
WITHIN = {
    "devices.per_worker": "24",
    "rollout.batch_size": "24",
    "policy.vlm.decide_batch": "24",
    "policy.vlm.fp8": "none",
    "policy.gpu_memory_gb": "24",
    "learner.gpu_memory_gb": "22",
    "run.minutes": "1.5",
}
"""What the run differs in from `distrl bench vlm_run`."""


class Vlm48Gb(WholeRun, frozen=True, kw_only=True):
    """The figures of the run, and whether it fitted."""

    card_mb: float = CARD_MB
    fits: bool | None
    """Whether all processes together never had more than `card_mb` of the GPU; None without a GPU."""


def run(options: BenchOptions) -> Vlm48Gb:
    """Make the model, train, and read what the run has left."""
    large = torch.cuda.is_available()
    setting = msgspec.structs.replace(GPU, shape="7b") if large else CPU
    settings = {**SETTINGS, **SHARED, **({**LARGE, **WITHIN} if large else SMALL)}
    if options.quick and large:
        settings["run.minutes"] = "1"
    with tempfile.TemporaryDirectory() as place:
        make_folder(setting, Path(place))
        found = whole_run(settings, setting.shape, Path(place))
    used_mb = found.gpu_memory_mb
    fits = None if used_mb is None else used_mb <= CARD_MB
    return Vlm48Gb(**msgspec.structs.asdict(found), fits=fits)
