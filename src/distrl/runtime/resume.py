"""What may change between two sessions of a run, and what may not.

A session keeps to the settings that it began with: they are written to `session.toml`, which the roles read. So an
edit of `config.toml` counts from the next `--resume` on, for all roles at once. Settings that the weights, the figures
or the folder hang on are refused there; all others may change, and each change is logged. Options of a plug-in are fixed
where they shape stored data or weights: those of suites, judges, devices and policies, but for the ones that the plug-in
names itself (`MAY_CHANGE`). Those of algorithms may change, as those of built-in ones may.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from distrl import plugins
from distrl.config.load import dump_toml
from distrl.config.reference import flatten
from distrl.config.schema import Config
from distrl.errors import UsageError
from distrl.experience.durable import replace
from distrl.runtime.placement import placement_notices
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.trust import refuse_code
from distrl.telemetry.events import EventLog
from distrl.types import SettingValue, Value

OTHER_TASKS = "the figures before and after would be of different tasks"
FIXED = {
    "run.name": "the folder has its name; rename the folder itself",
    "run.root": "the folder is where it is; move the folder itself",
    "run.seed": "tasks, phones and weights follow from it",
    "tasks.": OTHER_TASKS,
    "judge.": "verdicts would mean something else than before",
    "devices.kind": OTHER_TASKS,
    "devices.options.": OTHER_TASKS,
    "devices.sim.perturbations.": OTHER_TASKS,
    "devices.sim.screenshot_width": "the policy was trained on such pictures",
    "rollout.history": "the policy was trained on it",
    "policy.": "the weights would not fit",
    "warm_start.": "it is over",
    "algorithm.kind": "what it trains beside the policy would not fit",
}
"""Why a setting, or all settings of a section, cannot change once a run has begun."""
MAY_CHANGE = "may_change"
"""The class attribute of a plug-in's settings that names the options which may change: a tuple of their names."""
OPTIONS: dict[str, plugins.Kind] = {
    "tasks.options": "suites",
    "judge.options": "judges",
    "devices.options": "devices",
    "policy.options": "policies",
}
"""The tables of options that are fixed otherwise."""
FREE = (
    "tasks.rename_share",
    "judge.deadline_s",
    "judge.at_once",
    "judge.model.url",
    "judge.model.key_env",
    "judge.model.request_s",
    "judge.model.retries",
    "judge.model.backoff_s",
    "judge.model.per_minute",
    "judge.model.cache",
    "judge.model.price_in",
    "judge.model.price_out",
    "policy.device",
    "policy.pointer.word_swap_share",
    "policy.pixel.jitter",
    "policy.pixel.image_cache",
    "policy.vlm.dtype",
    "policy.vlm.fast",
    "policy.vlm.decide_batch",
    "policy.vlm.score_batch",
    "policy.vlm.gradient_checkpointing",
    "policy.autoui.decide_batch",
    "policy.autoui.score_batch",
)
"""Exceptions: where and how a policy computes, how a model is asked for verdicts, and what only varies the training."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between two sessions."""

    key: str
    was: SettingValue
    now: SettingValue

    @property
    def forbidden(self) -> str:
        """Why it may not change; empty: it may."""
        why = next((why for name, why in FIXED.items() if self.key.startswith(name)), "")
        return "" if self.key in FREE else why


def changes(before: Config, after: Config) -> list[Change]:
    """Every setting that differs."""
    was, now = flatten(before), flatten(after)
    keys = [key for key in dict.fromkeys((*was, *now)) if was.get(key, "") != now.get(key, "")]
    return [Change(key=key, was=was.get(key, ""), now=now.get(key, "")) for key in keys]


def settings_to_resume(run: RunFolder, flags: Mapping[str, SettingValue], *, trust_code: bool = False) -> Config:
    """What a run goes on with: its `config.toml`, then the flags.

    `UsageError` where a setting changes that cannot, or where the file names code (`runtime.trust`) that nobody said to trust.
    """
    config = run.config(flags)
    if not trust_code:
        refuse_code(config, str(run.config_file), unless=flags.keys())
    refused = [
        change
        for change in changes(run.session_config(), config)
        if change.forbidden and not _allowed_by_plugin(change.key, config)
    ]
    if refused:
        raise _refusal(run, refused, flags)
    return config


def _allowed_by_plugin(key: str, config: Config) -> bool:
    """Whether the plug-in whose option this is says that it may change."""
    table, _, option = key.rpartition(".")
    if table not in OPTIONS:
        return False
    kind = OPTIONS[table]
    name = str(flatten(config)[plugins.SETTING[kind]])
    found = None if name in plugins.BUILT_IN[kind] else plugins.settings_type(plugins.load(kind, name))
    return option in getattr(found, MAY_CHANGE, ())


def adopt(run: RunFolder, config: Config) -> None:
    """Begin a session with these settings: changes and notices are logged, and the run's files say so.

    Call it with the run's lock.
    """
    log = EventLog(run.log("supervisor"))
    # Logged first: after a kill in between, the next session finds the same changes again.
    for change in changes(run.session_config(), config):
        log.write("setting", key=change.key, was=_plain(change.was), now=_plain(change.now))
    for text in placement_notices(config):
        log.write("notice", text=text)
    log.close()
    if run.config() != config:
        replace(run.config_file, dump_toml(config).encode())
    replace(run.session_file, dump_toml(config).encode())


def _refusal(run: RunFolder, refused: list[Change], flags: Mapping[str, SettingValue]) -> UsageError:
    first, *more = refused
    others = f", nor can {', '.join(change.key for change in more[:4])}" if more else ""
    back = f"{first.key} = {json.dumps(first.was, ensure_ascii=False)}"
    fix = f"leave --{first.key} out" if first.key in flags else f"write {back} in {run.config_file}"
    was = "not set" if first.was == "" else first.was
    return UsageError(
        f"{first.key} was {was} in the last session and is {first.now} now: it cannot change{others}",
        expected=f"what the run began with: {first.forbidden}",
        fix=f"{fix}, or start a new run with `distrl train --{first.key} {first.now}`",
    )


def _plain(value: SettingValue) -> Value:
    """A value as a log takes it: lists as text."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value
