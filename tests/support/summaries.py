"""The summary of a run that went well."""

from __future__ import annotations

from distrl.runtime.summary import Summary


def a_summary(*, episodes: int = 100) -> Summary:
    """A finished run with nothing lost."""
    return Summary(
        run="20260101-sim", suite="sim-start", success_before=None, success_after=None, success_before_rate=None,
        success_after_rate=None, episodes=episodes, steps=500, wall_s=70.0, collect_s=60.0, policy_version=2, updates=40,
        updates_per_episode=0.4, updates_per_episode_cap=0.5, unacknowledged_episodes=0, device_utilisation=0.9, learner_idle_ratio=0.5, staleness_mean=1.0, staleness_max=2.0,
        kept_share=0.0, lost_episodes=0, duplicate_episodes=0, restarts=0, device_losses=0, interrupted=False, seed=0,
        config_hash="0" * 12,
    )  # fmt: skip
