"""What settings must be like together. Limits of a single one are part of its type in the schema."""

from __future__ import annotations

from distrl.config.schema import Config
from distrl.errors import ConfigError


def looks_at_pictures(config: Config) -> bool:
    """Whether the policy of this run reads screenshots."""
    policy = config.policy
    return policy.kind == "pixel" or (policy.kind == "vlm" and policy.vlm.pictures)


def check(config: Config) -> Config:
    """`config` as it is; `ConfigError` with the fix where two settings do not go together."""
    if looks_at_pictures(config) and not config.rollout.keep_screenshots:
        raise ConfigError(
            f"policy.kind = {config.policy.kind} learns from screenshots, and rollout.keep_screenshots is off",
            expected="pictures in the store, for the learner to read",
            fix="--rollout.keep_screenshots true"
            + (", or --policy.vlm.pictures false" if config.policy.kind == "vlm" else ""),
        )
    if config.policy.kind == "vlm" and config.policy.vlm.history_pictures and config.warm_start.samples:
        raise ConfigError(
            "warm_start.samples clones a stream, which carries the present picture of a step and no earlier ones",
            expected="policy.vlm.history_pictures = 0, or demonstrations that are held in memory",
            fix="--warm_start.samples 0, or --policy.vlm.history_pictures 0",
        )
    for key, device in (("policy.device", config.policy.device), ("learner.device", config.learner.device)):
        if config.policy.kind == "pointer" and device.startswith("cuda"):
            raise ConfigError(
                f"{key} = {device}: the pointer runs on the CPU alone",
                expected='"cpu" or "auto"; its network is too small for a GPU to help',
                fix=f"--{key} cpu, or --policy.kind pixel",
            )
    return config
