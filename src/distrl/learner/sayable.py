"""Where a policy can say nothing of what it was shown: a reason to stop, since cloning would leave it as it was."""

from __future__ import annotations

from distrl.config.schema import PolicyConfig
from distrl.errors import ConfigError


def nothing_sayable(shown: int, policy: PolicyConfig, *, otherwise: str) -> ConfigError:
    """The error for `shown` steps of which none can be said; `otherwise` is what helps besides another grammar."""
    seen = f"the policy can say none of the {shown} steps that it was shown"
    if policy.kind != "vlm":
        return ConfigError(seen, expected="tasks whose steps are in its grammar", fix=otherwise)
    vlm = policy.vlm
    return ConfigError(
        seen,
        expected=f"steps that the dialect {vlm.dialect!r} has words for, of at most {vlm.answer_tokens} tokens",
        fix=f"policy.vlm.answer_tokens above {vlm.answer_tokens}, another policy.vlm.dialect, or {otherwise}",
    )
