"""Settings that do not go together are refused before anything starts."""

from __future__ import annotations

import pytest

from distrl.config.load import load_config
from distrl.config.rules import reads_screenshots
from distrl.errors import ConfigError


def test_a_policy_that_looks_needs_pictures_to_be_kept() -> None:
    with pytest.raises(ConfigError, match="keep_screenshots is off") as caught:
        load_config(None, {"policy.kind": "pixel"})
    assert caught.value.fix == "--rollout.keep_screenshots true"
    assert load_config(None, {"policy.kind": "pixel", "rollout.keep_screenshots": "true"}).policy.kind == "pixel"


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
