"""Which settings of a run folder name code that is no part of distrl, and the refusal to use it unasked.

The `config.toml` of a run can name plug-ins by import path or entry point, code beside a model, programs of the Android SDK, and the
address of a model that judges, which is sent screens and an API key. A folder may come from anybody: whoever makes parts from its
settings asks here first. What a user names by flags or in a file of their own is theirs.
"""

from __future__ import annotations

from collections.abc import Collection

from distrl import plugins
from distrl.config.load import worker_configs
from distrl.config.reference import flatten, settings
from distrl.config.schema import Config
from distrl.errors import UsageError

FLAG = "--trust-code"
REMOTE_CODE = "policy.vlm.trust_remote_code"
PYTHON = "Python code that would run with your rights"
OTHERS = {
    "run.storage": "a place elsewhere that screens would be written to",
    "devices.android.adb": "a program that would run with your rights",
    "devices.android.host": "an adb server that is not on this machine",
    "devices.android.logcat": "a folder that would be written to",
    "devices.web.chromium": "a program that would run with your rights",
    "devices.web.apps_folder": "programs that would run with your rights",
    "devices.web.allow": "addresses that pages would be opened from",
    "tasks.list.clear": "data that would be deleted on your phones",
    "tasks.list.settings": "settings that would be changed on your phones",
    "tasks.list.open": "what would be opened on your phones",
    "devices.android.emulator.sdk": "programs that would run with your rights",
    "devices.android.emulator.arguments": "arguments of a program that would run with your rights",
    "devices.android.world_python": "a program that would run with your rights",
    "devices.web.gym_folder": PYTHON,
    "devices.web.gym_python": "a program that would run with your rights",
    "tasks.android_world.python": "a program that would run with your rights",
    "tasks.mobilegym.folder": PYTHON,
    "tasks.mobilegym.python": "a program that would run with your rights",
    "tasks.mobilegym.url": "addresses that pages would be opened from",
    "judge.model.url": "an address that screens and your API key would be sent to",
}
"""Settings that are no plug-ins and need as much trust, unless they have their defaults; and what they name."""


def refuse_code(config: Config, source: str, *, unless: Collection[str] = ()) -> None:
    """Raise where these settings would use code that is no part of distrl; `unless` are keys that the user gave."""
    groups = () if "rollout.groups" in unless else worker_configs(config)
    found = {key: value for one in (config, *groups) for key, value in code_of(one).items()}
    found = {key: value for key, value in found.items() if key not in unless}
    if found:
        what = dict.fromkeys(OTHERS.get(key, PYTHON) for key in found)
        named = ", ".join(f"{key} = {value!r}" for key, value in found.items())
        raise UsageError(
            f"{source} names {' and '.join(what)}: {named[:300]}",
            expected="a run of built-in parts, or your word that you trust this one",
            fix=f"read what it names, then give the same command with {FLAG} (in Python: trust_code=True)",
        )


def code_of(config: Config) -> dict[str, str]:
    """The settings that name code which is no part of distrl, by dotted key; every kind of plug-in is looked at."""
    values = flatten(config)
    found = {key: _foreign(kind, values[key]) for kind, key in plugins.SETTING.items()}
    if config.policy.kind == "vlm" and config.policy.vlm.trust_remote_code:
        found[REMOTE_CODE] = "true"
    for key in OTHERS:
        if values[key] != settings()[key].default:
            found[key] = str(values[key])
    return {key: name for key, name in found.items() if name}


def _foreign(kind: plugins.Kind, named: object) -> str:
    """The names in a setting that are not built in; empty: all are."""
    names = named if isinstance(named, tuple) else (named,)
    return ", ".join(str(name) for name in names if name not in plugins.BUILT_IN[kind])
