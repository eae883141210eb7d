"""`distrl bench vlm_run`: a whole run with a vision-language model, and what it comes to a second.

`distrl train` as a user starts it, on simulated phones that it sees by their screenshots alone: phones, decisions, judging,
storing, updates and publishing at the same time. The model is a Qwen2.5-VL of the 3B shape with random weights, so no task
is ever fulfilled and every answer has its full length; what is measured is the machinery. Figures are of the whole time in
which workers collected, the first episodes included, for which the learner waits; what is decided and learnt while the run
comes to its end is left out. A second, shorter run has the workers' language model in float8 too. Without a GPU a tiny model
runs for a moment, which shows that it works.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.vlm.model import CPU, GPU, make_folder
from distrl.config.load import config_hash, load_config
from distrl.errors import RoleCrashed
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary
from distrl.telemetry.events import read_events
from distrl.telemetry.heartbeat import Heartbeat
from distrl.telemetry.spans import spans_in

DEADLINE_S = 900.0
KEEP_RUNS = "DISTRL_BENCH_RUNS"
"""Environment variable with a folder in which the runs are left, for whoever wants to read their logs."""
ANSWER_TOKENS = 24
SETTINGS = {
    "policy.kind": "vlm",
    "policy.device": "auto",
    "policy.vlm.dialect": "json",
    "policy.vlm.elements": "false",
    "policy.vlm.answer_tokens": str(ANSWER_TOKENS),
    "rollout.keep_screenshots": "true",
    "rollout.workers": "1",
    "rollout.episode_budget_s": "600",
    "data.hindsight": "false",
    "warm_start.demonstrations": "0",
    "learner.device": "auto",
    "learner.learning_rate": "1e-5",
    "learner.batch_trajectories": "4",
    "learner.first_update_episodes": "8",
    "learner.updates_per_episode": "4",
    "learner.publish_every_s": "20",
    "learner.checkpoint_every_s": "600",
    "evaluation.episodes": "1",
    "evaluation.every_s": "0",
    "runtime.silent_after_s": "300",
    "runtime.start_grace_s": "300",
    "runtime.max_restarts": "1",
}
"""What the run differs in from the defaults, whatever its size."""
LARGE = {
    "devices.per_worker": "64",
    "rollout.batch_size": "64",
    "policy.vlm.decide_batch": "64",
    "policy.vlm.fp8": "tower",
    "run.minutes": "3",
}
FP8_ALL = {"policy.vlm.fp8": "all", "run.minutes": "2"}
"""What the second run differs in from `LARGE`."""
SMALL = {
    "devices.per_worker": "4",
    "rollout.batch_size": "4",
    "policy.vlm.decide_batch": "4",
    "policy.vlm.image_max_pixels": "8000",
    "learner.first_update_episodes": "2",
    "learner.batch_trajectories": "2",
    "run.minutes": "0.5",
}
QUICK_MINUTES = "1"


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    model: str
    device: str
    phones: int
    decisions_per_s: float
    """Decisions that were made in the seconds in which workers collected."""
    samples_per_s: float
    """Steps that went through the model under gradient in the same seconds."""
    gpu_utilisation: float | None
    """As the driver says: the share of time in which something was computed; None without a GPU."""
    device_utilisation: float
    staleness_mean: float
    episode_to_gradient_s: float | None
    """Mean seconds from the end of an episode until the first update that it was in; None where none was."""
    agreement_kl: float | None
    """Between what workers recorded and what the learner recomputed."""
    learner_idle_ratio: float
    collect_s: float
    episodes: int
    updates: int
    versions: int
    lost_episodes: int | None
    restarts: int
    gpu_memory_mb: float | None = None
    """Most memory of the GPU that was in use at once, by all processes together, as the driver says every two seconds."""
    settings: dict[str, str]
    config_hash: str
    run: Summary


class VlmRun(WholeRun, frozen=True, kw_only=True):
    """The figures of the first run, and the others'."""

    fp8_all: WholeRun | None = None
    """With the workers' language model in float8 too; None without a GPU, and in a quick measurement."""


def run(options: BenchOptions) -> VlmRun:
    """Make the model, train, and read what the runs have left."""
    large = torch.cuda.is_available()
    setting = GPU if large else CPU
    settings = {**SETTINGS, **(LARGE if large else SMALL)}
    if options.quick and large:
        settings["run.minutes"] = QUICK_MINUTES
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "model")
        make_folder(setting, folder)
        first = whole_run(settings, setting.shape, folder)
        second = whole_run({**settings, **FP8_ALL}, setting.shape, folder) if large and not options.quick else None
    return VlmRun(**msgspec.structs.asdict(first), fp8_all=second)


def whole_run(settings: dict[str, str], shape: str, model: Path) -> WholeRun:
    """Train with these settings on the model in a folder; its figures."""
    log_progress(f"training for {settings['run.minutes']} minutes")
    with tempfile.TemporaryDirectory() as place:
        root = tempfile.mkdtemp(dir=os.environ.get(KEEP_RUNS) or place)
        trained = _train({**settings, "policy.vlm.path": str(model)}, Path(root))
        return _figures(trained, settings, shape)


def _train(settings: dict[str, str], root: Path) -> Path:
    flags = [word for key, value in settings.items() for word in (f"--{key}", value)]
    command = [sys.executable, "-m", "distrl", "train", "--run.root", str(root), *flags]
    ended = subprocess.run(command, timeout=DEADLINE_S, check=False, stdout=sys.stderr)
    found = list(root.glob("*/summary.json"))
    if ended.returncode or not found:
        raise RoleCrashed(f"the training ended with code {ended.returncode}", fix=" ".join(command))
    return found[0].parent


def _figures(folder: Path, settings: dict[str, str], shape: str) -> WholeRun:
    summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=Summary)
    run = RunFolder(folder)
    events = read_events(run.metrics)
    learnt = [event for event in events if event.get("event") == "learner"]
    collect_s = max(1e-9, summary.collect_s)
    return WholeRun(
        model=f"Qwen2.5-VL {shape} shape, random weights",
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        phones=int(settings["devices.per_worker"]),
        decisions_per_s=_decided(run) / collect_s,
        samples_per_s=_share_in_time(run) * sum(_values(learnt, "learner/num_samples")) / collect_s,
        gpu_utilisation=summary.gpu_utilisation,
        device_utilisation=summary.device_utilisation,
        staleness_mean=summary.staleness_mean,
        episode_to_gradient_s=_mean(_values(learnt, "learner/first_gradient_s")),
        agreement_kl=_mean(_values(learnt, "learner/agreement/kl")),
        learner_idle_ratio=summary.learner_idle_ratio,
        collect_s=summary.collect_s,
        episodes=summary.episodes,
        updates=summary.updates,
        versions=summary.policy_version + 1,
        lost_episodes=summary.lost_episodes,
        restarts=summary.restarts,
        gpu_memory_mb=max(_values(events, "gpu/memory_mb"), default=None),
        settings=settings,
        config_hash=config_hash(load_config(None, settings)),
        run=summary,
    )


def _decided(run: RunFolder) -> float:
    """Decisions that were made for the workers until they were told to stop."""
    beats = [msgspec.json.decode(file.read_bytes(), type=Heartbeat) for file in run.heartbeats.glob("worker-*.json")]
    return sum(beat.figures.get("decisions", 0.0) for beat in beats)


def _share_in_time(run: RunFolder) -> float:
    """Share of the updates that were over when the workers were told to stop; those that follow use what they left."""
    asked_s = [float(event["time_s"]) for event in read_events(run.log("supervisor")) if event["event"] == "collected"]
    spans = [one for event in read_events(run.log("learner")) for one in spans_in(event) if one.name == "updates"]
    in_time = [one for one in spans if one.start_s + one.length_s <= asked_s[-1]]
    return len(in_time) / max(1, len(spans))


def _values(events: Sequence[Any], name: str) -> list[float]:
    return [float(event[name]) for event in events if name in event]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
