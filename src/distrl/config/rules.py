"""What settings must be like together. Limits of a single one are part of its type in the schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

from distrl.config.groups import groups_of, num_workers
from distrl.config.kinds import MOST_SECONDS
from distrl.config.schema import Config
from distrl.errors import ConfigError
from distrl.plugins import BUILT_IN

HEARTBEATS_IN_SILENCE = 3
"""Heartbeats that fit into `runtime.silent_after_s`, at least: on a busy machine one of them may be late."""
MOST_PHONES = 100_000
"""Of all workers together."""


def reads_screenshots(config: Config) -> bool:
    """Whether the policy of this run reads screenshots; one of your own may where they are kept."""
    policy = config.policy
    if policy.kind not in BUILT_IN["policies"]:
        return config.rollout.keep_screenshots
    return policy.kind in ("pixel", "autoui") or (policy.kind == "vlm" and policy.vlm.pictures)


def pictures_read(config: Config) -> int:
    """How many pictures of an observation the policy may look at: the present one, and earlier ones; 0: none."""
    if not reads_screenshots(config):
        return 0
    policy = config.policy
    if policy.kind not in BUILT_IN["policies"]:
        return 1 + config.rollout.history
    return 1 + (policy.vlm.history_pictures if policy.kind == "vlm" else 0)


def download(model: str) -> str:
    """How a model with this id on a hub becomes a folder that a run can use."""
    folder = f"models/{model.rpartition('/')[2]}"
    return f"hf download {model} --local-dir {folder}, then --policy.vlm.path {folder}"


def is_hub_id(path: str) -> bool:
    """Whether what was given as a model's folder is rather its id on a hub, such as Qwen/Qwen2.5-VL-3B-Instruct."""
    owner = re.fullmatch(r"([A-Za-z0-9][\w.-]*)/[\w.-]+", path)
    return owner is not None and owner[1] != "models" and not Path(owner[1]).exists()


def _hub_id(config: Config) -> str:
    path = config.policy.vlm.path if config.policy.kind == "vlm" else ""
    return path if is_hub_id(path) else ""


def check(config: Config) -> Config:
    """`config` as it is; `ConfigError` with the fix where two settings do not go together."""
    if reads_screenshots(config) and not config.rollout.keep_screenshots:
        raise ConfigError(
            f"policy.kind = {config.policy.kind} learns from screenshots, and rollout.keep_screenshots is off",
            expected="pictures in the store, for the learner to read",
            fix="--rollout.keep_screenshots true"
            + (", or --policy.vlm.pictures false" if config.policy.kind == "vlm" else "")
            + (f"; and {download(model)}" if (model := _hub_id(config)) else ""),
        )
    if config.policy.kind == "vlm" and config.policy.vlm.history_pictures and config.warm_start.samples:
        raise ConfigError(
            "warm_start.samples clones a stream, which carries the present picture of a step and no earlier ones",
            expected="policy.vlm.history_pictures = 0, or demonstrations that are held in memory",
            fix="--warm_start.samples 0, or --policy.vlm.history_pictures 0",
        )
    if config.policy.kind == "pixel" and config.warm_start.grounding.screens_only:
        raise ConfigError(
            f"warm_start.grounding.screens_only = {config.warm_start.grounding.screens_only}, and every screen of the pixel policy's pretraining has its next step",
            expected="0 for the pixel policy; the setting is for `distrl ground`",
            fix="--warm_start.grounding.screens_only 0",
        )
    _check_failing_phone(config)
    _check_groups(config)
    _check_silence(config)
    _check_fleet(config)
    _check_learner_gpus(config)
    _check_balance(config)
    for key, device in (("policy.device", config.policy.device), ("learner.device", config.learner.device)):
        if config.policy.kind == "pointer" and device.startswith("cuda"):
            raise ConfigError(
                f"{key} = {device}: the pointer runs on the CPU alone",
                expected='"cpu" or "auto"; its network is too small for a GPU to help',
                fix=f"--{key} cpu, or --policy.kind pixel",
            )
    return config


def _check_groups(config: Config) -> None:
    """Raise where GRPO would find nothing to compare and so learn nothing."""
    if config.algorithm.kind == "grpo" and config.rollout.group_size < 2:
        raise ConfigError(
            "grpo compares attempts at one task, and rollout.group_size is 1",
            expected="2 attempts or more at each task",
            fix="--rollout.group_size 8, or start from configs/grpo.toml",
        )


def _check_silence(config: Config) -> None:
    """Raise where healthy roles would be taken for silent ones."""
    runtime = config.runtime
    if HEARTBEATS_IN_SILENCE * runtime.heartbeat_s > runtime.silent_after_s:
        raise ConfigError(
            f"runtime.heartbeat_s = {runtime.heartbeat_s:g} is too long for runtime.silent_after_s = "
            f"{runtime.silent_after_s:g}: roles that are well would be killed",
            expected=f"{HEARTBEATS_IN_SILENCE} heartbeats or more within silent_after_s",
            fix=f"--runtime.heartbeat_s {runtime.silent_after_s / 20:g}, or "
            f"--runtime.silent_after_s {min(20 * runtime.heartbeat_s, MOST_SECONDS):g}",
        )


def _check_learner_gpus(config: Config) -> None:
    """Raise where one GPU is named or shared and several are asked for."""
    device, num = config.learner.device, config.learner.gpus
    if num > 1 and device.startswith("cuda:"):
        raise ConfigError(
            f"learner.gpus = {num} and learner.device = {device}: that is one GPU",
            expected=f'learner.device = "cuda", which takes cuda:0 to cuda:{num - 1}',
            fix="--learner.device cuda, with CUDA_VISIBLE_DEVICES to choose which, or --learner.gpus 1",
        )
    if num > 1 and config.runtime.learner_gpu_share < 1:
        raise ConfigError(
            f"learner.gpus = {num} and runtime.learner_gpu_share = {config.runtime.learner_gpu_share:g}: Ray sets aside a part of one GPU, or several whole ones",
            expected="a share of 1 with several GPUs",
            fix="--runtime.learner_gpu_share 1, or --learner.gpus 1",
        )


def _check_balance(config: Config) -> None:
    """Raise where loads would be balanced that wait for each other by design, or within limits that leave nothing."""
    balance = config.balance
    if balance.enabled and (config.learner.mode == "sync" or config.rollout.lockstep):
        raise ConfigError(
            "balance.enabled with rounds or lock-step: workers and learner then wait for each other on purpose",
            expected='learner.mode = "async" and rollout.lockstep = false',
            fix="--balance.enabled false",
        )
    if balance.least_updates_per_episode > balance.most_updates_per_episode:
        raise ConfigError(
            f"balance.least_updates_per_episode = {balance.least_updates_per_episode:g} is above "
            f"balance.most_updates_per_episode = {balance.most_updates_per_episode:g}",
            expected="the least at or below the most",
            fix=f"--balance.least_updates_per_episode {balance.most_updates_per_episode:g}",
        )


def check_deciding(config: Config) -> None:
    """Raise where workers of a group would ask actors, and the run has none; for the settings of a run, not of a group."""
    asking = any(group.settings.get("rollout.decide") == "actors" for group in groups_of(config))
    if asking and config.rollout.decide != "actors":
        raise ConfigError(
            "rollout.groups has workers whose rollout.decide is actors, and the run's own is local, so that it starts no actors",
            expected="actors for the run, and groups that decide themselves",
            fix="--rollout.decide actors, and rollout.decide=local in the groups that have a policy of their own",
        )


def _check_fleet(config: Config) -> None:
    """Raise where workers and phones are each within their limits and their product is not."""
    workers, phones = num_workers(config), config.devices.per_worker
    if workers * phones > MOST_PHONES:
        raise ConfigError(
            f"{workers} workers (rollout.workers) with devices.per_worker = {phones} make {workers * phones:,} phones",
            expected=f"{MOST_PHONES:,} phones or fewer in a run",
            fix=f"--devices.per_worker {MOST_PHONES // workers}, or --rollout.workers {MOST_PHONES // phones}",
        )


def _check_failing_phone(config: Config) -> None:
    """Raise where the phone that shall crash on purpose is none of this run's, so that nothing would be seen."""
    if config.devices.kind != "sim":
        return
    name, workers, phones = config.devices.sim.faults.fail_device, num_workers(config), config.devices.per_worker
    found = re.fullmatch(r"worker-(0|[1-9]\d*)/phone-(0|[1-9]\d*)", name, re.ASCII)
    if name and not (found and int(found[1]) < workers and int(found[2]) < phones):
        raise ConfigError(
            f"devices.sim.faults.fail_device = {json.dumps(name)} is no phone of this run",
            expected=f"worker-0 to worker-{workers - 1} with phone-0 to phone-{phones - 1}, or nothing",
            fix=f'--devices.sim.faults.fail_device worker-{workers - 1}/phone-{phones - 1}, or "" for none',
        )
