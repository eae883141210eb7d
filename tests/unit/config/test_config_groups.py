"""Groups of workers: how many, which settings each has, and what may not differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.config.load import config_of, dump_toml, load, load_config, worker_configs
from distrl.config.schema import Config
from distrl.errors import ConfigError, UsageError
from distrl.runtime.base import role_names, worker_names
from distrl.runtime.factory import make_devices
from distrl.runtime.trust import refuse_code

MIXED = ["1 devices.per_worker=3", "2 devices.per_worker=5 devices.sim.latency.profile=instant policy.device=cpu"]


def mixed(**changes: object) -> Config:
    return load_config(None, {"rollout.groups": MIXED, **changes})  # type: ignore[dict-item]


def test_workers_are_counted_over_the_groups_and_each_has_the_settings_of_its_own() -> None:
    config = mixed()
    assert worker_names(config) == ("worker-0", "worker-1", "worker-2")
    assert role_names(config) == ("learner", "worker-0", "worker-1", "worker-2", "evaluator")
    found = [config_of(config, name) for name in worker_names(config)]
    assert [own.devices.per_worker for own in found] == [3, 5, 5]
    assert [own.devices.sim.latency.profile for own in found] == ["emulator", "instant", "instant"]
    assert config_of(config, "learner") == config_of(config, "evaluator") == config
    assert config_of(found[1], "worker-1") == found[1], "what a worker was given is what it makes of it again"


def test_without_groups_all_workers_are_alike() -> None:
    config = load_config(None, {"rollout.workers": 3})
    assert worker_configs(config) == (config,)
    assert config_of(config, "worker-2") is config


def test_devices_are_shared_out_among_the_workers_of_a_group() -> None:
    config = mixed()
    assert len(make_devices(config_of(config, "worker-0"), "worker-0")) == 3
    assert len(make_devices(config_of(config, "worker-2"), "worker-2")) == 5


def test_groups_are_written_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(dump_toml(mixed()))
    assert load(file).config == mixed()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "it is empty"),
        ("two devices.per_worker=3", "no number of workers"),
        ("0", "no number of workers"),
        ("2 devices.per_worker", "no key=value"),
        ("2 run.seed=3", "one and the same for all workers"),
        ("2 policy.kind=pixel", "one and the same for all workers"),
        ("2 devices.per_worker=many", "does not fit"),
        ("2 devices.per_wroker=3", "is no setting"),
        ("2 devices.kind=android devices.sim.latency.profile=instant", "is read by sim alone"),
        ("2 rollout.decide=actors", "starts no actors"),
    ],
)
def test_a_group_that_cannot_be_is_refused(line: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(None, {"rollout.groups": ["1", line]})


def test_code_that_a_group_names_needs_the_same_trust() -> None:
    config = load_config(None, {"rollout.groups": ["1", "1 devices.kind=their.package:make"]})
    with pytest.raises(UsageError, match=r"their\.package:make"):
        refuse_code(config, "a stranger's run")
    refuse_code(config, "my own", unless={"rollout.groups"})
