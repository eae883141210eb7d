"""Which settings of a run folder name Python code that is no part of distrl, and the refusal to run it unasked.

The `config.toml` of a run can name plug-ins by import path or entry point, and `policy.vlm.trust_remote_code`. A folder may come
from anybody: whoever makes parts from its settings asks here first. What a user names by flags or in a file of their own is theirs.
"""

from __future__ import annotations

from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.plugins import BUILT_IN

FLAG = "--trust-code"


def refuse_code(config: Config, source: str, *, unless: tuple[str, ...] = ()) -> None:
    """Raise where these settings would run code that is no part of distrl; `unless` are keys that the user gave."""
    named = [f"{key} = {value!r}" for key, value in code_of(config).items() if key not in unless]
    if named:
        raise UsageError(
            f"{source} names Python code that would run with your rights: {', '.join(named)[:300]}",
            expected="a run of built-in parts, or your word that you trust this code",
            fix=f"read the code, then give the same command with {FLAG} (in Python: trust_code=True)",
        )


def code_of(config: Config) -> dict[str, str]:
    """The settings that name code which is no part of distrl, by dotted key."""
    names = {
        "devices.kind": (config.devices.kind, BUILT_IN["devices"]),
        "tasks.suite": (config.tasks.suite, BUILT_IN["suites"]),
        "judge.kind": (config.judge.kind, BUILT_IN["judges"]),
        "policy.kind": (config.policy.kind, BUILT_IN["policies"]),
        "algorithm.kind": (config.algorithm.kind, BUILT_IN["algorithms"]),
    }
    found = {key: name for key, (name, built_in) in names.items() if name not in built_in}
    if config.policy.kind == "vlm" and config.policy.vlm.trust_remote_code:
        found["policy.vlm.trust_remote_code"] = "true"
    return found
