"""Settings that do not go together are refused before anything starts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.reference import settings
from distrl.config.rules import check, reads_screenshots
from distrl.config.schema import Config, DevicesConfig, FaultConfig, SimConfig
from distrl.errors import ConfigError


def test_a_policy_that_looks_needs_pictures_to_be_kept() -> None:
    with pytest.raises(ConfigError, match="keep_screenshots is off") as caught:
        load_config(None, {"policy.kind": "pixel"})
    assert caught.value.fix == "--rollout.keep_screenshots true"
    assert load_config(None, {"policy.kind": "pixel", "rollout.keep_screenshots": "true"}).policy.kind == "pixel"


def test_every_screen_of_the_pixel_policy_has_its_next_step() -> None:
    pixel = {"policy.kind": "pixel", "rollout.keep_screenshots": "true", "warm_start.grounding.screens_only": "5"}
    with pytest.raises(ConfigError, match="screens_only = 5"):
        load_config(None, pixel)
    assert load_config(None, {**pixel, "warm_start.grounding.screens_only": "0"})


@pytest.mark.parametrize("key", ["policy.device", "learner.device"])
def test_the_pointer_takes_no_gpu(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = cuda:1: the pointer runs on the CPU alone"):
        load_config(None, {key: "cuda:1"})
    load_config(None, {key: "auto"})


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", ""])
def test_a_device_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        load_config(None, {"policy.device": name})


def test_a_model_that_looks_needs_pictures_too_unless_it_reads_elements_alone() -> None:
    with pytest.raises(ConfigError, match="keep_screenshots is off") as caught:
        load_config(None, {"policy.kind": "vlm"})
    assert caught.value.fix == "--rollout.keep_screenshots true, or --policy.vlm.pictures false"
    with pytest.raises(ConfigError, match="keep_screenshots is off") as caught:
        load_config(None, {"policy.kind": "vlm", "policy.vlm.path": "Qwen/Qwen2.5-VL-3B-Instruct"})
    assert caught.value.fix.endswith(
        "; and hf download Qwen/Qwen2.5-VL-3B-Instruct --local-dir models/Qwen2.5-VL-3B-Instruct, "
        "then --policy.vlm.path models/Qwen2.5-VL-3B-Instruct"
    )
    load_config(None, {"policy.kind": "vlm", "policy.vlm.pictures": "false"})


def test_a_stream_carries_no_earlier_pictures() -> None:
    streamed = {"policy.kind": "vlm", "rollout.keep_screenshots": "true", "warm_start.samples": "100"}
    load_config(None, {**streamed})
    with pytest.raises(ConfigError, match="no earlier ones") as caught:
        load_config(None, {**streamed, "policy.vlm.history_pictures": "1"})
    assert "--warm_start.samples 0" in caught.value.fix


FLEET = {"rollout.workers": "2", "devices.per_worker": "3"}


@pytest.mark.parametrize(
    "name", ["worker-2/phone-0", "worker-0/phone-3", "worker-9/phone-3", "phone-0", "worker-0/phone-01", "worker-0/"]
)
def test_a_phone_that_is_not_there_cannot_be_made_to_fail(name: str) -> None:
    with pytest.raises(ConfigError, match="is no phone of this run") as caught:
        load_config(None, {**FLEET, "devices.sim.faults.fail_device": name})
    assert name in str(caught.value)
    assert "--devices.sim.faults.fail_device worker-1/phone-2" in caught.value.fix


@pytest.mark.parametrize("name", ["", "worker-0/phone-0", "worker-1/phone-2"])
def test_a_phone_that_is_there_can_be_made_to_fail(name: str) -> None:
    assert load_config(None, {**FLEET, "devices.sim.faults.fail_device": name}).devices.sim.faults.fail_device == name


def test_a_policy_of_ones_own_reads_screenshots_where_they_are_kept() -> None:
    own = {"policy.kind": "my.policy:MyPolicy"}
    assert not reads_screenshots(load_config(None, own))
    assert reads_screenshots(load_config(None, {**own, "rollout.keep_screenshots": "true"}))
    assert not reads_screenshots(load_config(None, {"rollout.keep_screenshots": "true"}))  # the pointer never does


@pytest.mark.parametrize("heartbeat_s", [20, 10, 9.9, 3.4])
def test_several_heartbeats_come_before_a_role_counts_as_silent(heartbeat_s: float) -> None:
    given = {"runtime.heartbeat_s": heartbeat_s, "runtime.silent_after_s": 10}
    with pytest.raises(ConfigError, match=r"is too long for runtime\.silent_after_s = 10") as caught:
        load_config(None, given)
    assert "--runtime.heartbeat_s 0.5" in caught.value.fix
    load_config(None, {**given, "runtime.heartbeat_s": 3.3})


def test_more_workers_and_phones_than_any_machine_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="a whole number from 1 to 1024"):
        load_config(None, {"rollout.workers": 10_000})
    with pytest.raises(ConfigError, match="make 10,240,000 phones") as caught:
        load_config(None, {"rollout.workers": 1024, "devices.per_worker": 10_000})
    assert "100,000 phones or fewer" in caught.value.expected
    assert caught.value.fix == "--devices.per_worker 97, or --rollout.workers 10"


@pytest.mark.parametrize(("workers", "phones"), [(64, 32), (1, 2000), (64, 1500), (1024, 97)])
def test_large_fleets_are_possible(workers: int, phones: int) -> None:
    given = {"rollout.workers": workers, "devices.per_worker": phones}
    assert load_config(None, given).rollout.workers == workers


def test_the_phone_that_fails_on_purpose_is_a_rule_of_simulated_phones_alone() -> None:
    faults = FaultConfig(fail_device="kiosk-7")
    own = replace(Config(), devices=DevicesConfig(kind="my.kiosk:make", sim=SimConfig(faults=faults)))
    assert check(own) is own
    with pytest.raises(ConfigError, match="is no phone of this run"):
        check(replace(own, devices=replace(own.devices, kind="sim")))


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_a_group_asks_actors_only_where_the_run_has_some(kind: str) -> None:
    groups = ["1 rollout.decide=local", "2 rollout.decide=actors"]
    with pytest.raises(ConfigError, match="starts no actors"):
        load_config(None, {"rollout.groups": groups, "runtime.kind": kind})
    load_config(None, {"rollout.groups": groups, "runtime.kind": kind, "rollout.decide": "actors"})


def test_every_whole_number_has_an_upper_bound_and_says_so_in_plain_digits() -> None:
    whole = [setting for setting in settings().values() if type(setting.default) is int]
    assert len(whole) > 50
    for setting in whole:
        with pytest.raises(ConfigError, match="a whole number from"):
            load_config(None, {setting.key: "9" * 23})
        assert "e+" not in setting.expected


def test_a_temperature_that_no_softmax_can_take_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a number from 0\.01 to 100"):
        load_config(None, {"rollout.temperature": "1e-30"})
